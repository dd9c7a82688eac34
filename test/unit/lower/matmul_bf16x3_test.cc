#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string T(const std::string& dims) { return StrCat("v_tensor<[", dims, "], f32>"); }

Case Product(const std::string& rows, int64_t depth, int64_t columns, bool turned = false) {
  const std::string a = T(StrCat(rows, ", ", depth)),
                    b = T(turned ? StrCat(columns, ", ", depth) : StrCat(depth, ", ", columns)),
                    y = T(StrCat(rows, ", ", columns));
  return {{a, b},
          StrCat("%r = nn.matmul(%a, %b) {transpose_y = ", turned ? "true" : "false", "} : (", a,
                 ", ", b, ") -> ", y),
          y};
}

class MatmulBf16x3 : public LowerTest {
 protected:
  MatmulBf16x3() {
    precision_ = Precision::kF32;
    constant_ = {false, true};
  }

  struct Outcome {
    NamedValues inputs;
    Tensor wanted, got;
    Lowered lowered;
  };

  // What the loops give in the interpreter, and as code where this machine has tiles: the same
  // bits.
  Outcome Run(const Case& c, const std::function<void(NamedValues&)>& change = {}) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    Outcome o{.inputs = Inputs(program), .wanted = {}, .got = {}, .lowered = {}};
    if (change) change(o.inputs);
    NamedValues inputs = o.inputs;
    o.wanted = Interpreter(program).Run(inputs)[0].second.tensor();
    const Target& amx = Target::Named("amx");
    Operation* function = codegen::FirstFunction(program);
    o.lowered = LowerFunction(function, MachineOf(amx), constant_,
                              {.precision = precision_, .strict = true});
    EXPECT_TRUE(o.lowered.done) << o.lowered.why_not;
    PackInputs(program, o.lowered.packed, inputs);
    VerifyOrThrow(program);
    o.got = Interpreter(program).Run(inputs)[0].second.tensor();
    if (std::ranges::count(codegen::RunnableTargets(), &amx) == 0) return o;
    std::vector<Tensor> tensors;
    for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
    const codegen::CompiledKernel kernel(function->region(0).front(), amx, o.lowered.in_place);
    for (const int threads : {1, 3}) {
      runtime::WorkerTeam team(threads);
      const Tensor made = kernel.Call(tensors, {ZeroLike(o.wanted)}, team.for_kernels())[0];
      EXPECT_TRUE(AllClose(made, o.got, 0, 0)) << AllClose(made, o.got, 0, 0).description;
    }
    return o;
  }
  void Expect(const Case& c, double rtol) {
    const Outcome o = Run(c);
    EXPECT_EQ(o.lowered.strategy, "matmul_bf16x3");
    const Closeness close = AllClose(o.got, o.wanted, rtol, rtol);
    EXPECT_TRUE(close) << c.result << ": " << close.description;
  }
  std::string WhyNot(const Case& c, const char* target = "amx") {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Named(target)),
                         constant_, {.implementation = "matmul_bf16x3", .precision = precision_})
        .why_not;
  }
  // The error of a product relative to the size of its elements, both as root mean squares.
  double ErrorOf(const Outcome& o) {
    const std::span<const float> a = o.inputs[0].second.tensor().data<float>(),
                                 b = o.inputs[1].second.tensor().data<float>(),
                                 y = o.got.data<float>();
    const auto depth = static_cast<size_t>(o.inputs[1].second.tensor().shape()[0]),
               columns = static_cast<size_t>(o.got.shape()[1]);
    double errors = 0, squares = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      double sum = 0;
      for (size_t k = 0; k < depth; ++k) {
        sum += static_cast<double>(a[i / columns * depth + k]) * b[k * columns + i % columns];
      }
      errors += (y[i] - sum) * (y[i] - sum);
      squares += sum * sum;
    }
    return std::sqrt(errors / squares);
  }
};

// Ends of rows, of columns and of the depth that fill no tile; blocks of depth and of panels.
TEST_F(MatmulBf16x3, ManySizes) {
  for (const auto& [m, k, n] :
       std::vector<std::array<int, 3>>{{96, 256, 64}, {97, 289, 71}, {113, 513, 66}}) {
    Expect(Product(StrCat(m), k, n), 1e-5);
    Expect(Product(StrCat(m), k, n, true), 1e-5);
  }
  Expect(Product("96", 256, 300), 1e-5);
  Expect(Product("300", 256, 64), 1e-5);
  precision_ = Precision::kHigh;
  Expect(Product("65", 270, 67), 1e-4);
}

TEST_F(MatmulBf16x3, Errors) {
  const Case c = Product("96", 768, 64);
  const double of_three = ErrorOf(Run(c));
  precision_ = Precision::kHigh;
  const double of_two = ErrorOf(Run(c));
  precision_ = Precision::kStrict;
  const double strict = ErrorOf(Run(c));
  EXPECT_LT(of_three, 2 * strict);
  EXPECT_LT(of_two, 1e-5);
  EXPECT_GT(of_two, of_three) << "two parts are as good as three";
}

// What is computed behind the end of the depth is not zero.
TEST_F(MatmulBf16x3, WhatIsAround) {
  const std::string a = T("96, 261"), b = T("261, 70"), c = T("70"), d = T(""), y = T("96, 70");
  Expect({{a, b, c, d},
          StrCat("%n = nn.sub(%d, %a) : (", d, ", ", a, ") -> ", a, "\n%p = nn.matmul(%n, %b) : (",
                 a, ", ", b, ") -> ", y, "\n%q = nn.add(%p, %c) : (", y, ", ", c, ") -> ", y,
                 "\n%r = nn.relu(%q) : (", y, ") -> ", y),
          y},
         1e-5);
}

// Rows with infinities and NaN, of sums beyond the range on the way, and of tiny numbers come out
// as f32 gives them, and change no other row; so do weights of these kinds.
TEST_F(MatmulBf16x3, NumbersAtTheEnds) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kMost = std::numeric_limits<float>::max();
  const Case c = Product("96", 256, 64);
  const auto check = [&](const std::function<void(std::span<float>, std::span<float>)>& change) {
    const Outcome o = Run(c, [&](NamedValues& inputs) {
      Tensor a = inputs[0].second.tensor(), b = inputs[1].second.tensor();
      change(a.mutable_data<float>(), b.mutable_data<float>());
      inputs[0].second = a;
      inputs[1].second = b;
    });
    EXPECT_EQ(o.lowered.strategy, "matmul_bf16x3");
    const std::span<const float> got = o.got.data<float>(), wanted = o.wanted.data<float>();
    for (size_t row = 0; row < 96; ++row) {
      double largest = 0;
      for (size_t i = row * 64; i < row * 64 + 64; ++i) {
        if (std::isfinite(wanted[i])) largest = std::max(largest, std::fabs(double{wanted[i]}));
      }
      for (size_t i = row * 64; i < row * 64 + 64; ++i) {
        const bool same = std::isfinite(wanted[i])
                              ? std::fabs(double{got[i]} - wanted[i]) <= 1e-5 * largest + 1e-45
                          : std::isnan(wanted[i]) ? std::isnan(got[i])
                                                  : got[i] == wanted[i];
        ASSERT_TRUE(same) << "row " << row << ": " << got[i] << ", not " << wanted[i];
      }
    }
  };
  for (const float value : {kInf, -kInf, std::nanf(""), kMost, -kMost, 1e-38F, 1e-42F}) {
    check([&](std::span<float> a, std::span<float>) { a[3 * 256 + 17] = value; });
    check([&](std::span<float>, std::span<float> b) { b[17 * 64 + 5] = value; });
  }
  for (const float factor : {1e-36F, 1e-30F, 1e-20F, 0.0F}) {
    check([&](std::span<float> a, std::span<float>) {
      for (size_t k = 0; k < 256; ++k) a[5 * 256 + k] *= factor;
    });
    check([&](std::span<float>, std::span<float> b) {
      for (float& w : b) w *= factor;
    });
  }
  // Finite where one product is added after the other, but not where every other one is.
  check([&](std::span<float> a, std::span<float> b) {
    for (size_t k = 0; k < 256; ++k) a[7 * 256 + k] = k < 8 ? kMost * 0.9F : 0;
    for (size_t i = 0; i < size_t{8} * 64; ++i) b[i] = i / 64 % 2 == 0 ? 0.5F : -0.5F;
  });
}

// With two parts the code chooses by the number of rows, and both kinds read the same weights.
TEST_F(MatmulBf16x3, RowsOfUnknownNumber) {
  EXPECT_EQ(WhyNot(Product("M", 256, 64)), "matmul_bf16x3: the number of rows is not known");
  precision_ = Precision::kHigh;
  for (const int64_t rows : {0, 1, 63, 64, 100}) {
    symbol_ = rows;
    const Outcome o = Run(Product("M", 256, 64));
    EXPECT_EQ(o.lowered.strategy, "matmul_bf16x3 | matmul");
    ASSERT_EQ(o.lowered.packed.size(), 1U);
    EXPECT_TRUE(o.lowered.packed[0].parts.empty()) << "weights lie there twice";
    const Closeness close = AllClose(o.got, o.wanted, 1e-4, 1e-4);
    EXPECT_TRUE(close) << rows << " rows: " << close.description;
  }
}

TEST_F(MatmulBf16x3, Refusals) {
  const Case plain = Product("96", 256, 64);
  EXPECT_EQ(WhyNot(plain), "");
  EXPECT_EQ(WhyNot(plain, "avx512"), "matmul_bf16x3: the target has no tile registers");
  EXPECT_EQ(WhyNot(Product("95", 256, 64)), "matmul_bf16x3: there are fewer than 96 rows");
  EXPECT_EQ(WhyNot(Product("96", 255, 64)), "matmul_bf16x3: the depth is below 256");
  EXPECT_EQ(WhyNot(Product("96", 256, 63)), "matmul_bf16x3: there are fewer than 64 columns");
  EXPECT_EQ(WhyNot(Product("96", 0, 64)), "matmul_bf16x3: the depth is below 256");
  precision_ = Precision::kHigh;
  EXPECT_EQ(WhyNot(Product("63", 256, 64)), "matmul_bf16x3: there are fewer than 64 rows");
  precision_ = Precision::kStrict;
  EXPECT_EQ(WhyNot(plain), "matmul_bf16x3: the precision is strict");
  precision_ = Precision::kF32;
  constant_ = {};
  EXPECT_EQ(WhyNot(plain), "matmul_bf16x3: the right matrix is not a weight");
}

// Each block of sums is held in four registers, the weights' parts in two, the rows' in one.
TEST_F(MatmulBf16x3, InstructionsOfTheUnit) {
  Program program =
      ParseProgram(context_, ProgramOf(Product("112", 256, 64)), {.file_locations = false});
  Operation* function = codegen::FirstFunction(program);
  const Target& amx = Target::Named("amx");
  LowerFunction(function, MachineOf(amx), constant_, {.precision = precision_});
  const KernelSource source{"k", function->region(0).front()};
  const std::string text =
      CodeGenerator::Get().EmitText({&source, 1}, amx, codegen::CodeText::kAssembly);
  const auto count = [&](std::string_view what) {
    int n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count("tdpbf16ps"), 24 + 12);
  EXPECT_EQ(count("tileloadd"), 4 + 6 + 12 + 2 + 6 + 6) << "a tile is spilled";
  EXPECT_EQ(count("tilestored"), 4 + 2);
}

}  // namespace
}  // namespace lathe::lower
