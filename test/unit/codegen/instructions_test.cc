#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <optional>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/driver/executable.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/op_info.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"
#include "test/unit/codegen/kernel_util.h"

// Every row of the instruction table, on every element type that the operation takes.
namespace lathe::codegen {
namespace {

class InstructionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  // `op` on `inputs`, as machine code of the target, which has `constant` as the last operand.
  Tensor Run(OpInfo info, const std::vector<Tensor>& inputs,
             std::span<const NamedAttribute> attributes, const Tensor& like, const Target& target,
             const Tensor* constant = nullptr) {
    Program program(context_);
    Builder top = Builder::AtEnd(program.block());
    const NamedAttribute name = top.Named("name", top.Attr(std::string_view("k")));
    Operation* function = top.Create("builtin.func", {}, {&name, 1}, {}, 1);
    Block* block = function->region(0).AddBlock();
    std::vector<Value> operands;
    for (const Tensor& t : inputs) {
      operands.push_back(block->AddArgument(
          VTensorType::Get(context_, SymShape::FromConstants(t.shape()), t.element_type())));
    }
    Builder b = Builder::AtEnd(block);
    if (constant != nullptr) {
      const NamedAttribute value = b.Named("value", b.Attr(*constant));
      operands.push_back(b.Create("builtin.constant", {}, {&value, 1})->result(0));
    }
    const Value result = b.CreateInferred(info, operands, attributes, 1)->result(0);
    b.Create("builtin.return", {&result, 1});
    const lower::Lowered lowered =
        lower::LowerFunction(function, MachineOf(target), {}, {.strict = true});
    EXPECT_TRUE(lowered.done) << lowered.why_not;
    return CompiledKernel(function->region(0).front(), target).Call(inputs, {ZeroLike(like)})[0];
  }

  // `extreme` of zero, a constant, and of `sign` of x.
  Tensor RunOf(const std::string& sign, const std::string& extreme, const Tensor& x,
               const Target& target) {
    const std::string type = StrCat("v_tensor<[", x.shape()[0], "], f32>");
    const std::string text = StrCat(
        "program {\n  builtin.func() {name = \"k\"} ({\n    ^(%0: ", type, "):\n    %1 = ", sign,
        "(%0) : (", type, ") -> ", type,
        "\n    %2 = builtin.constant() {value = tensor<[], f32> [0.0]} : () -> v_tensor<[], f32>",
        "\n    %3 = ", extreme, "(%2, %1) : (v_tensor<[], f32>, ", type, ") -> ", type,
        "\n    builtin.return(%3) : (", type, ") -> ()\n  }) : () -> ()\n}\n");
    Program program = ParseProgram(context_, text);
    Operation* function = program.block()->front();
    const lower::Lowered lowered =
        lower::LowerFunction(function, MachineOf(target), {}, {.strict = true});
    EXPECT_TRUE(lowered.done) << lowered.why_not;
    return CompiledKernel(function->region(0).front(), target).Call({x}, {ZeroLike(x)})[0];
  }

  // The operation on `inputs` in the interpreter, or nothing if it does not take such.
  std::optional<Tensor> Wanted(OpInfo info, const std::vector<Tensor>& inputs,
                               std::span<const NamedAttribute> attributes) {
    Program program(context_);
    Builder b = Builder::AtEnd(program.block());
    std::vector<Value> operands;
    std::vector<RtValue> values;
    for (const Tensor& t : inputs) {
      const NamedAttribute value = b.Named("value", b.Attr(t));
      operands.push_back(b.Create("builtin.constant", {}, {&value, 1})->result(0));
      values.emplace_back(t);
    }
    try {
      Operation* op = b.CreateInferred(info, operands, attributes, 1);
      VerifyOrThrow(program);
      const OpKind kind = KindOf(op);
      if (kind != OpKind::kElementwise && kind != OpKind::kBroadcast) return std::nullopt;
      const bool known = std::ranges::any_of(RunnableTargets(), [&](const Target* target) {
        return CodeGenerator::Get().Supports(*op, *target);
      });
      if (!known) return std::nullopt;
      return EvalOp(op, values)[0].tensor();
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // Each modulo each.
  template <class T>
  void ExpectRests(const std::vector<T>& numbers);

  IrContext context_;
};

size_t RequiredOperands(const OpDef& def) {
  size_t n = 0;
  for (const ValueDef& operand : def.operands) n += operand.optional ? 0 : 1;
  return n;
}

TEST_F(InstructionsTest, EveryRowOnEveryType) {
  size_t compared = 0;
  for (const OpInfo info : context_.ops()) {
    const OpDef* def = info.def();
    if (def == nullptr || def->operands.empty() || def->results.size() != 1) continue;
    if (!def->regions.empty()) continue;
    Builder b(context_);
    std::vector<NamedAttribute> attributes;
    if (info.name() == "nn.cast")
      attributes.push_back(
          b.Named("to", TypeAttribute::Get(ElemType::Get(context_, ElementType::kF32))));
    for (const ElementType element :
         {ElementType::kF32, ElementType::kF64, ElementType::kF16, ElementType::kBF16,
          ElementType::kI8, ElementType::kU8, ElementType::kI32, ElementType::kU32,
          ElementType::kI64, ElementType::kBool}) {
      std::vector<Tensor> inputs;
      for (size_t i = 0; i < RequiredOperands(*def); ++i) {
        const bool condition = info.name() == "nn.where" && i == 0;
        inputs.push_back(RandomTensor(condition ? ElementType::kBool : element, {37}, 7 + i));
      }
      const auto wanted = Wanted(info, inputs, attributes);
      if (!wanted) continue;
      for (const Target* target : RunnableTargets()) {
        if (info.name() == loop::FmaOp::kName && !target->has_fma) continue;
        const Tensor got = Run(info, inputs, attributes, *wanted, *target);
        const Closeness close =
            AllClose(got, *wanted, element == ElementType::kBF16 ? 1e-2 : 1e-6, 1e-7);
        EXPECT_TRUE(close) << info.name() << " on " << Name(element) << ", " << target->name << ": "
                           << close.description;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 150U);
}

// The distance in units in the last place of the exact result.
double UlpError(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : INFINITY;
  const auto rounded = static_cast<float>(exact);
  if (got == rounded) return 0;
  if (std::isinf(rounded) || std::isinf(got)) return INFINITY;
  const double ulp = std::max<double>(
      std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded), 1.401298464324817e-45);
  return std::fabs(static_cast<double>(got) - exact) / ulp;
}

TEST_F(InstructionsTest, FunctionsKeepTheirBounds) {
  struct Bound {
    const char* op;
    double (*exact)(double);
    double ulp;
  };
  const Bound bounds[] = {
      {"nn.exp", [](double x) { return std::exp(x); }, 1.5},
      {"nn.log", [](double x) { return std::log(x); }, 1.5},
      {"nn.tanh", [](double x) { return std::tanh(x); }, 2.5},
      {"nn.erf", [](double x) { return std::erf(x); }, 2.5},
      {"nn.sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, 3.0},
      {"nn.sinh", [](double x) { return std::sinh(x); }, 0.51},
      {"nn.cosh", [](double x) { return std::cosh(x); }, 0.51},
      {"nn.asinh", [](double x) { return std::asinh(x); }, 0.51},
      {"nn.acosh", [](double x) { return std::acosh(x); }, 0.51},
      {"nn.atanh", [](double x) { return std::atanh(x); }, 0.51},
      {"nn.asin", [](double x) { return std::asin(x); }, 0.51},
      {"nn.acos", [](double x) { return std::acos(x); }, 0.51},
      {"nn.atan", [](double x) { return std::atan(x); }, 0.51},
      {"nn.sin", [](double x) { return std::sin(x); }, 0.51},
      {"nn.cos", [](double x) { return std::cos(x); }, 0.51},
      {"nn.tan", [](double x) { return std::tan(x); }, 0.51},
  };
  std::vector<float> values{0.0F, -0.0F,  INFINITY, -INFINITY, NAN,     1e-45F,  -1e-45F, 1e-38F,
                            1.0F, 88.72F, 88.73F,   -87.4F,    -103.9F, -104.5F, 3.4e38F};
  for (uint32_t bits = 0; bits < 0x7f800000U; bits += 9973) {  // over all exponents
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-values.back());
  }
  const Tensor x = Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
  for (const Bound& bound : bounds) {
    for (const Target* target : RunnableTargets()) {
      const Tensor got = Run(context_.FindOp(bound.op), {x}, {}, x, *target);
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double error = UlpError(got.data<float>()[i], bound.exact(values[i]));
        if (error > worst) worst = error, at = values[i];
      }
      RecordProperty(StrCat(bound.op, "_", target->name), StrCat(worst));
      EXPECT_LE(worst, bound.ulp) << bound.op << " of " << at << ", " << target->name;
    }
  }
}

TEST_F(InstructionsTest, FunctionsOfF64KeepTheirBounds) {
  std::vector<double> values{0.0,    -0.0, INFINITY, -INFINITY, NAN,
                             5e-324, 1.0,  -746.5,   709.7,     710.0};
  for (uint64_t bits = 0; bits < 0x7ff0000000000000U; bits += 0x0000123456789abcU * 4) {
    values.push_back(std::bit_cast<double>(bits));
    values.push_back(-values.back());
  }
  for (int i = 0; i < 20000; ++i) values.push_back(1.0 + (i - 10000) * 1e-5);
  for (int i = 0; i < 20000; ++i) values.push_back((i - 10000) * 7.123456789e-4);
  const Tensor x = Tensor::Of<double>({static_cast<int64_t>(values.size())}, values);
  struct Bound {
    const char* op;
    double (*exact)(double);
    double ulp;
  };
  const Bound bounds[] = {
      {"nn.exp", [](double v) { return std::exp(v); }, 1.5},
      {"nn.log", [](double v) { return std::log(v); }, 1.5},
      {"nn.tanh", [](double v) { return std::tanh(v); }, 4},
      {"nn.sigmoid",
       [](double v) { return v < 0 ? std::exp(v) / (1 + std::exp(v)) : 1 / (1 + std::exp(-v)); },
       4},
      {"nn.erf", [](double v) { return std::erf(v); }, 12},
      {"nn.sinh", [](double v) { return std::sinh(v); }, 5},
      {"nn.cosh", [](double v) { return std::cosh(v); }, 5},
      {"nn.asinh", [](double v) { return std::asinh(v); }, 4},
      {"nn.acosh", [](double v) { return std::acosh(v); }, 4},
      {"nn.atanh", [](double v) { return std::atanh(v); }, 4},
      {"nn.asin", [](double v) { return std::asin(v); }, 6},
      {"nn.acos", [](double v) { return std::acos(v); }, 6},
      {"nn.atan", [](double v) { return std::atan(v); }, 5},
  };
  for (const Bound& bound : bounds) {
    for (const Target* target : RunnableTargets()) {
      const Tensor got = Run(context_.FindOp(bound.op), {x}, {}, x, *target);
      double worst = 0;
      double at = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double y = got.data<double>()[i], wanted = bound.exact(values[i]);
        if (std::isnan(wanted) ? std::isnan(y) : y == wanted) continue;
        const double ulp =
            std::max(std::nextafter(std::fabs(wanted), INFINITY) - std::fabs(wanted), 5e-324);
        const double error = std::isnan(y) ? INFINITY : std::fabs(y - wanted) / ulp;
        if (!(error <= worst)) worst = error, at = values[i];
      }
      RecordProperty(StrCat(bound.op, "_f64_", target->name), StrCat(worst));
      EXPECT_LE(worst, bound.ulp) << bound.op << " of " << at << ", " << target->name;
    }
  }
}

// Also of angles next to multiples of pi/2, where all but the last digits are taken away; that of
// the double that is nearest to one leaves 60 zeros.
TEST_F(InstructionsTest, AnglesOfF64OfAnySize) {
  std::vector<double> values{0.0, -0.0, INFINITY, -INFINITY, NAN, 5e-324, 0x1.6ac5b262ca1ffp849};
  for (uint64_t bits = 0; bits < 0x7ff0000000000000U; bits += 0x0000123456789abcU * 4) {
    values.push_back(std::bit_cast<double>(bits));
    values.push_back(-values.back());
  }
  for (int i = 0; i < 20000; ++i) values.push_back((i - 10000) * 7.123456789e-4);
  for (int i = 1; i < 4000; ++i) {
    const double turns = i < 2000 ? i : std::ldexp(i, i % 900);
    values.push_back(turns * (std::numbers::pi / 2));
    values.push_back(std::nextafter(values.back(), 0));
  }
  const Tensor x = Tensor::Of<double>({static_cast<int64_t>(values.size())}, values);
  struct Bound {
    const char* op;
    long double (*exact)(long double);
    double ulp;
  };
  const Bound bounds[] = {
      {"nn.sin", [](long double v) { return std::sin(v); }, 1},
      {"nn.cos", [](long double v) { return std::cos(v); }, 1},
      {"nn.tan", [](long double v) { return std::tan(v); }, 2},
  };
  for (const Bound& bound : bounds) {
    for (const Target* target : RunnableTargets()) {
      const Tensor got = Run(context_.FindOp(bound.op), {x}, {}, x, *target);
      double worst = 0, at = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double y = got.data<double>()[i];
        const long double wanted = bound.exact(values[i]);
        if (std::isnan(wanted) ? std::isnan(y) : y == wanted) continue;
        const auto size = std::fabs(static_cast<double>(wanted));
        const double ulp = std::max(std::nextafter(size, INFINITY) - size, 5e-324);
        const double error =
            std::isnan(y) ? INFINITY : static_cast<double>(std::fabs(y - wanted)) / ulp;
        if (!(error <= worst)) worst = error, at = values[i];
      }
      RecordProperty(StrCat(bound.op, "_f64_", target->name), StrCat(worst));
      EXPECT_LE(worst, bound.ulp) << bound.op << " of " << at << ", " << target->name;
    }
  }
}

TEST_F(InstructionsTest, PowersOfEverySpecialNumber) {
  const std::vector<float> numbers{0.0F,  -0.0F, 1.0F,     -1.0F,    INFINITY, -INFINITY, NAN,
                                   2.0F,  -2.0F, 3.0F,     -3.0F,    0.5F,     -0.5F,     1e-40F,
                                   -8.0F, 2.5F,  16777216, 1e30F,    -1e30F,   -1e-30F,   0.99F,
                                   33.0F, -7.0F, 8388609,  -8388609, 1.0001F,  100.0F,    -127.0F};
  std::vector<float> bases, exponents, wanted;
  for (const float x : numbers) {
    for (const float y : numbers) {
      bases.push_back(x);
      exponents.push_back(y);
      wanted.push_back(
          static_cast<float>(std::pow(static_cast<double>(x), static_cast<double>(y))));
    }
  }
  const Shape shape{static_cast<int64_t>(bases.size())};
  const Tensor x = Tensor::Of<float>(shape, bases), y = Tensor::Of<float>(shape, exponents);
  for (const Target* target : RunnableTargets()) {
    const Tensor got = Run(context_.FindOp("nn.pow"), {x, y}, {}, x, *target);
    for (size_t i = 0; i < bases.size(); ++i) {
      EXPECT_LE(UlpError(got.data<float>()[i], wanted[i]), 1)
          << bases[i] << " ^ " << exponents[i] << " is " << wanted[i] << ", not "
          << got.data<float>()[i] << ", " << target->name;
    }
  }
}

// By products and roots, with the special cases of a power.
// The greater and the lesser of a number whose sign was changed and of zero: what LLVM knows of one
// it must not take for what it knows of the other.
TEST_F(InstructionsTest, ExtremesOfChangedSigns) {
  const float inf = INFINITY;
  const std::vector<float> numbers{-3, 2, -0.0f, 0, -inf, inf, NAN, -1e-40f};
  for (const std::string sign : {"nn.abs", "nn.neg"}) {
    for (const std::string extreme : {"nn.max", "nn.min"}) {
      for (const Target* target : RunnableTargets()) {
        SCOPED_TRACE(StrCat(extreme, " of ", sign, " on ", target->name));
        const Tensor x = Tensor::Of<float>({8}, numbers);
        const Tensor got = RunOf(sign, extreme, x, *target);
        for (size_t i = 0; i < numbers.size(); ++i) {
          const float y = sign == "nn.abs" ? std::abs(numbers[i]) : -numbers[i];
          const float wanted = extreme == "nn.max" ? std::max(y, 0.0f) : std::min(y, 0.0f);
          const float result = got.data<float>()[i];
          EXPECT_TRUE(std::isnan(y) ? std::isnan(result) : result == wanted) << numbers[i];
        }
      }
    }
  }
}

// More bytes than registers hold, in each order, and some behind the last vector.
TEST_F(InstructionsTest, EntriesOfEveryByte) {
  std::vector<uint8_t> bytes, entries;
  for (int i = 0; i < 600; ++i) bytes.push_back(static_cast<uint8_t>(i < 256 ? i : i * 7 + 3));
  for (int i = 0; i < 256; ++i) entries.push_back(static_cast<uint8_t>(i * 91 + 17));
  const Tensor x = Tensor::Of<uint8_t>({600}, bytes), table = Tensor::Of<uint8_t>({256}, entries);
  Program program = ParseProgram(context_, R"(program {
  builtin.func() {name = "k"} ({
    ^(%0: v_tensor<[600], u8>, %1: v_tensor<[256], u8>):
    %2 = nn.lookup(%0, %1) : (v_tensor<[600], u8>, v_tensor<[256], u8>) -> v_tensor<[600], u8>
    builtin.return(%2) : (v_tensor<[600], u8>) -> ()
  }) : () -> ()
})");
  for (const Target* target : RunnableTargets()) {
    SCOPED_TRACE(target->name);
    const Program copy = program.Clone();
    const lower::Lowered lowered =
        lower::LowerFunction(copy.block()->front(), MachineOf(*target), {}, {.strict = true});
    EXPECT_TRUE(lowered.done) << lowered.why_not;
    const CompiledKernel kernel(copy.block()->front()->region(0).front(), *target);
    const Tensor got = kernel.Call({x, table}, {ZeroLike(x)})[0];
    for (size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_EQ(got.data<uint8_t>()[i], entries[bytes[i]]) << i;
    }
  }
}

TEST_F(InstructionsTest, PowersByConstants) {
  std::vector<double> numbers{0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN,   2,     -2,  3,
                              0.5, 1e-4, 9, -8, 2.5,      0.99,      33.25, -7.75, 100, -0.3};
  for (const double small : {1e-40, -1e-44, 1e-6, -3e5, 1e9, 3e38}) numbers.push_back(small);
  const Shape shape{static_cast<int64_t>(numbers.size())};
  const OpInfo pow = context_.FindOp("nn.pow");
  for (const ElementType base : {ElementType::kF32, ElementType::kF64, ElementType::kF16}) {
    const Tensor x = Cast(Tensor::Of<double>(shape, numbers), base);
    for (const double exponent : {0.0, 1.0, 2.0, 3.0, 7.0, 8.0, -1.0, -2.0, -7.0, 0.5, -0.5, 1.5}) {
      for (const ElementType type : {base, ElementType::kI32}) {
        if (type != base && exponent != 3) continue;
        const Tensor y = Cast(Tensor::Of<double>({}, {exponent}), type);
        const auto wanted = Wanted(pow, {x, y}, {});
        ASSERT_TRUE(wanted);
        const double rtol = base == ElementType::kF64 ? 0x1p-52 : 0x1p-23;
        for (const Target* target : RunnableTargets()) {
          const Tensor got = Run(pow, {x}, {}, x, *target, &y);
          const Closeness close = AllClose(got, *wanted, rtol, 1e-45);
          EXPECT_TRUE(close) << Name(base) << " ^ " << exponent << " (" << Name(type) << "), "
                             << target->name << ": " << close.description;
          const std::vector<double> have = ToDoubles(got), want = ToDoubles(*wanted);
          for (size_t i = 0; i < have.size(); ++i) {
            EXPECT_TRUE(std::isnan(want[i]) || std::signbit(have[i]) == std::signbit(want[i]))
                << numbers[i] << " ^ " << exponent;
          }
        }
      }
    }
  }
}

// What is left is exact, however often the divisor fits.
template <class T>
void InstructionsTest::ExpectRests(const std::vector<T>& numbers) {
  std::vector<T> xs, ys;
  for (const T x : numbers) {
    for (const T y : numbers) xs.push_back(x), ys.push_back(y);
  }
  const Shape shape{static_cast<int64_t>(xs.size())};
  const std::vector<Tensor> inputs{Tensor::Of<T>(shape, xs), Tensor::Of<T>(shape, ys)};
  Builder b(context_);
  for (const bool fmod : {true, false}) {
    const NamedAttribute attribute = b.Named("fmod", b.Attr(fmod));
    const auto wanted = Wanted(context_.FindOp("nn.mod"), inputs, {&attribute, 1});
    ASSERT_TRUE(wanted);
    for (const Target* target : RunnableTargets()) {
      const Tensor got = Run(context_.FindOp("nn.mod"), inputs, {&attribute, 1}, *wanted, *target);
      for (size_t i = 0; i < xs.size(); ++i) {
        const T have = got.data<T>()[i], want = wanted->template data<T>()[i];
        const bool same = std::isnan(want)
                              ? std::isnan(have)
                              : have == want && std::signbit(have) == std::signbit(want);
        ASSERT_TRUE(same) << xs[i] << " mod " << ys[i] << " is " << want << ", not " << have << ", "
                          << target->name;
      }
    }
  }
}

TEST_F(InstructionsTest, RestsOfEverySpecialNumber) {
  std::vector<float> numbers{0.0F, -0.0F,  1.0F,   -1.0F,  INFINITY,    -INFINITY, NAN,
                             2.5F, -7.0F,  0.1F,   1e-45F, -1e-40F,     3.4e38F,   -3.3e38F,
                             3e7F, -1e30F, 1e-30F, 5.3F,   16777217.0F, 0.7F,      -1.1e-38F};
  for (uint32_t bits = 1; bits < 0x7f800000U; bits += 0x0b12345U) {
    numbers.push_back(std::bit_cast<float>(bits));
  }
  ExpectRests(numbers);
}

TEST_F(InstructionsTest, RestsOfEverySpecialNumberOfF64) {
  std::vector<double> numbers{0.0,   -0.0,     1.0,  -1.0,      INFINITY,  -INFINITY,
                              NAN,   2.5,      -7.0, 0.1,       5e-324,    -1e-310,
                              1e308, -1.7e308, 3e7,  -1e300,    1e-300,    0x1.fffffffffffffp1023,
                              5.3,   0x1p53,   0.7,  -2.2e-308, 0x1p-1022, 0x1.fffffffffffffp0};
  for (uint64_t bits = 1; bits < 0x7ff0000000000000U; bits += 0x01612345678abcdeU) {
    numbers.push_back(std::bit_cast<double>(bits));
  }
  ExpectRests(numbers);
}

// Exact for whole exponents of any type; else within a unit in the last place, and what is whole
// stays so.
TEST_F(InstructionsTest, PowersOfWholeNumbers) {
  const std::vector<int64_t> bases{-200, -3, -1, 0,  1,    2,       3,         7,
                                   4,    64, 9,  27, 1024, 1000000, 1LL << 40, (1LL << 53) + 1};
  const std::vector<double> powers{3, 2, 1, 0, -1, -2, 0.5, 1.5, 0.25, 1.0 / 3, 2.5, 5, 63, -0.5};
  std::vector<int64_t> xs;
  std::vector<double> ys;
  for (const int64_t x : bases) {
    for (const double y : powers) {
      if (x < 0 && y != std::trunc(y)) continue;
      xs.push_back(x), ys.push_back(y);
    }
  }
  const Shape shape{static_cast<int64_t>(xs.size())};
  for (const ElementType base : {ElementType::kI64, ElementType::kI32}) {
    for (const ElementType power : {ElementType::kF64, ElementType::kF32, ElementType::kF16}) {
      const std::vector<Tensor> inputs{Cast(Tensor::Of<int64_t>(shape, xs), base),
                                       Cast(Tensor::Of<double>(shape, ys), power)};
      const auto wanted = Wanted(context_.FindOp("nn.pow"), inputs, {});
      ASSERT_TRUE(wanted);
      for (const Target* target : RunnableTargets()) {
        const Tensor got = Run(context_.FindOp("nn.pow"), inputs, {}, *wanted, *target);
        const Closeness close = AllClose(got, *wanted, 0, 0);
        EXPECT_TRUE(close) << Name(base) << " to " << Name(power) << ", " << target->name << ": "
                           << close.description;
      }
    }
  }
}

TEST_F(InstructionsTest, PowersOfDoublesToTheLastPlace) {
  std::vector<double> xs, ys, wanted;
  RandomStream random(3);
  for (int i = 0; i < 4000; ++i) {
    const double x = std::exp(static_cast<double>(random.Int(-40000, 40000)) / 400);
    const double y = static_cast<double>(random.Int(-300000, 300000)) / 43210;
    xs.push_back(i % 4 == 0 ? 1 + x * 1e-50 : x);
    ys.push_back(i % 7 == 0 ? y * 1e3 : y);
    wanted.push_back(std::pow(xs.back(), ys.back()));
  }
  const Shape shape{static_cast<int64_t>(xs.size())};
  const Tensor x = Tensor::Of<double>(shape, xs), y = Tensor::Of<double>(shape, ys);
  for (const Target* target : RunnableTargets()) {
    const Tensor got = Run(context_.FindOp("nn.pow"), {x, y}, {}, x, *target);
    for (size_t i = 0; i < xs.size(); ++i) {
      const double have = got.data<double>()[i], want = wanted[i];
      if (!std::isfinite(want) || want < 1e-300) continue;
      ASSERT_LE(std::abs(have - want), std::nextafter(want, INFINITY) - want)
          << xs[i] << " ^ " << ys[i] << ", " << target->name;
    }
  }
}

TEST_F(InstructionsTest, FloatsCutToWholeNumbers) {
  std::vector<double> numbers{0,     -0.5,  1.5,   -1.5,     127.9,     128,     255.5,  65536,
                              3e9,   -3e9,  4.3e9, 9.2e18,   0x1p63,    1.8e19,  0x1p64, 2e19,
                              -1e19, 1e300, NAN,   INFINITY, -INFINITY, -0x1p63, -1};
  const Shape shape{static_cast<int64_t>(numbers.size())};
  Builder b(context_);
  for (const ElementType from : {ElementType::kF64, ElementType::kF32, ElementType::kF16}) {
    for (const ElementType to : {ElementType::kU64, ElementType::kI64, ElementType::kU32,
                                 ElementType::kI32, ElementType::kU8, ElementType::kI8}) {
      const std::vector<Tensor> inputs{Cast(Tensor::Of<double>(shape, numbers), from)};
      const NamedAttribute type = b.Named("to", TypeAttribute::Get(ElemType::Get(context_, to)));
      const auto wanted = Wanted(context_.FindOp("nn.cast"), inputs, {&type, 1});
      ASSERT_TRUE(wanted);
      for (const Target* target : RunnableTargets()) {
        const Tensor got = Run(context_.FindOp("nn.cast"), inputs, {&type, 1}, *wanted, *target);
        const Closeness close = AllClose(got, *wanted, 0, 0);
        EXPECT_TRUE(close) << Name(from) << " to " << Name(to) << ", " << target->name << ": "
                           << close.description;
      }
    }
  }
}

TEST_F(InstructionsTest, WholeNumbersAtTheirEnds) {
  const std::vector<int32_t> values{0, 1, -1, 2, -2, 7, -7, 31, 32, 33, -33, INT32_MAX, INT32_MIN};
  std::vector<int32_t> xs, ys;
  for (const int32_t x : values) {
    for (const int32_t y : values) xs.push_back(x), ys.push_back(y);
  }
  const Shape shape{static_cast<int64_t>(xs.size())};
  Builder b(context_);
  for (const ElementType element : {ElementType::kI32, ElementType::kU32, ElementType::kI8,
                                    ElementType::kU8, ElementType::kI64, ElementType::kU64}) {
    const std::vector<Tensor> inputs{Cast(Tensor::Of<int32_t>(shape, xs), element),
                                     Cast(Tensor::Of<int32_t>(shape, ys), element)};
    for (const auto& [op, attribute] : std::vector<std::pair<const char*, NamedAttribute>>{
             {"nn.mod", b.Named("fmod", b.Attr(false))},
             {"nn.mod", b.Named("fmod", b.Attr(true))},
             {"nn.div", {}},
             {"nn.pow", {}},
             {"nn.bit_shift", b.Named("direction", b.Attr(std::string_view("LEFT")))},
             {"nn.bit_shift", b.Named("direction", b.Attr(std::string_view("RIGHT")))}}) {
      const std::span attributes(&attribute, attribute.value ? 1 : 0);
      const auto wanted = Wanted(context_.FindOp(op), inputs, attributes);
      if (!wanted && std::string_view(op) == "nn.pow") continue;  // of i32 and i64 alone
      ASSERT_TRUE(wanted) << op;
      for (const Target* target : RunnableTargets()) {
        const Tensor got = Run(context_.FindOp(op), inputs, attributes, *wanted, *target);
        const Closeness close = AllClose(got, *wanted, 0, 0);
        EXPECT_TRUE(close) << op << " on " << Name(element) << ", " << target->name << ": "
                           << close.description;
      }
    }
  }
}

}  // namespace
}  // namespace lathe::codegen
