#include "lathe/dialect/nn/cast.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "lathe/driver/executable.h"
#include "lathe/ir/builder.h"
#include "test/unit/codegen/kernel_util.h"

// Casts from and to narrow floats have the bits that the interpreter gives, for every encoding.
namespace lathe::codegen {
namespace {

constexpr ElementType kSmall[] = {ElementType::kF8E4M3FN, ElementType::kF8E4M3FNUZ,
                                  ElementType::kF8E5M2, ElementType::kF8E5M2FNUZ,
                                  ElementType::kF8E8M0};

// Every encoding of 8 or 16 bits.
Tensor AllBits(ElementType element) {
  const int64_t count = int64_t{1} << BitWidth(element);
  Tensor all(element, {count});
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const auto width = static_cast<size_t>(BitWidth(element) / 8);
    std::memcpy(all.mutable_raw() + static_cast<size_t>(i) * width, &bits, width);
  }
  return all;
}

// Around each number of the small types and halfway between neighbors, and of all magnitudes.
template <class Float>
Tensor NearEach() {
  std::vector<Float> values;
  constexpr Float kInfinity = std::numeric_limits<Float>::infinity();
  const auto add = [&](Float x) {
    for (const Float near : {x, std::nextafter(x, kInfinity), std::nextafter(x, -kInfinity)}) {
      values.push_back(near);
      values.push_back(-near);
    }
  };
  for (const ElementType element : kSmall) {
    const std::vector<double> numbers = ToDoubles(AllBits(element));
    for (size_t i = 0; i + 1 < numbers.size(); ++i) {
      add(static_cast<Float>(numbers[i]));
      add(static_cast<Float>(numbers[i] / 2 + numbers[i + 1] / 2));
      add(static_cast<Float>(numbers[i] * 1.5));
    }
  }
  for (int e = std::numeric_limits<Float>::min_exponent - 60; e < 1030; ++e) {
    for (const double m : {1.0, 1.5, 1.0625}) {
      add(static_cast<Float>(std::ldexp(m, e)));
    }
  }
  for (const Float x : {Float(0), kInfinity, std::numeric_limits<Float>::quiet_NaN()}) add(x);
  return Tensor::Of<Float>({std::ssize(values)}, values);
}

class CastTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  void Check(const Tensor& x, ElementType to, const CastOptions& options = {}) {
    constexpr const char* kModes[] = {"up", "down", "nearest"};
    const char* mode = kModes[static_cast<size_t>(options.f8e8m0_rounding)];
    const Tensor wanted = Cast(x, to, options);
    for (const Target* target : RunnableTargets()) {
      const Tensor got = Run(x, to, options.saturate, mode, *target);
      size_t i = 0;
      while (i < wanted.bytes().size() && got.raw()[i] == wanted.raw()[i]) ++i;
      if (i == wanted.bytes().size()) continue;
      const auto at = static_cast<int64_t>(i * 8) / BitWidth(to);
      ADD_FAILURE() << x.TypeString() << " to " << Name(to) << ", " << target->name << ", saturate "
                    << options.saturate << ", " << mode << ": element " << at << " is "
                    << ToDoubles(x)[static_cast<size_t>(at)] << ", byte " << i << " is "
                    << static_cast<int>(got.raw()[i]) << " instead of "
                    << static_cast<int>(wanted.raw()[i]);
    }
  }
  // With each way to round.
  void CheckAll(const Tensor& x, ElementType to) {
    for (const bool saturate : {true, false}) {
      for (const PowerRounding power :
           {PowerRounding::kUp, PowerRounding::kDown, PowerRounding::kNearest}) {
        if (to != ElementType::kF8E8M0 && power != PowerRounding::kUp) continue;
        Check(x, to, {.saturate = saturate, .f8e8m0_rounding = power});
      }
    }
  }

 private:
  Tensor Run(const Tensor& x, ElementType to, bool saturate, const char* mode,
             const Target& target) {
    Program program(context_);
    Builder top = Builder::AtEnd(program.block());
    const NamedAttribute name = top.Named("name", top.Attr(std::string_view("k")));
    Operation* function = top.Create("builtin.func", {}, {&name, 1}, {}, 1);
    Block* block = function->region(0).AddBlock();
    const Value argument = block->AddArgument(
        VTensorType::Get(context_, SymShape::FromConstants(x.shape()), x.element_type()));
    Builder b = Builder::AtEnd(block);
    const Value result =
        nn::CastOp::Create(b, argument, {.to = to, .saturate = saturate, .round_mode = mode})
            .output();
    b.Create("builtin.return", {&result, 1});
    const lower::Lowered lowered =
        lower::LowerFunction(function, MachineOf(target), {}, {.strict = true});
    EXPECT_TRUE(lowered.done) << lowered.why_not;
    if (!lowered.done) return Tensor(to, x.shape());
    return CompiledKernel(function->region(0).front(), target)
        .Call({x}, {Tensor(to, x.shape())})[0];
  }

  IrContext context_;
};

TEST_F(CastTest, FromEveryEncoding) {
  for (const ElementType from : kSmall) {
    const Tensor all = AllBits(from);
    for (const ElementType to :
         {ElementType::kF32, ElementType::kF64, ElementType::kF16, ElementType::kBF16,
          ElementType::kI8, ElementType::kU8, ElementType::kI32, ElementType::kI64,
          ElementType::kU64, ElementType::kBool}) {
      Check(all, to);
    }
    for (const ElementType to : kSmall) {
      if (to != from) CheckAll(all, to);
    }
  }
}

TEST_F(CastTest, ToSmallFloats) {
  const Tensor singles = NearEach<float>(), doubles = NearEach<double>();
  for (const ElementType to : kSmall) {
    CheckAll(singles, to);
    CheckAll(doubles, to);
    for (const ElementType from : {ElementType::kF16, ElementType::kBF16, ElementType::kI8,
                                   ElementType::kU8, ElementType::kU16}) {
      CheckAll(AllBits(from), to);
    }
    CheckAll(Cast(AllBits(ElementType::kU8), ElementType::kBool), to);
    for (const ElementType from :
         {ElementType::kI32, ElementType::kU32, ElementType::kI64, ElementType::kU64}) {
      CheckAll(Cast(doubles, from), to);
    }
  }
}

}  // namespace
}  // namespace lathe::codegen
