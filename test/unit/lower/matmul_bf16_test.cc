#include <array>
#include <cmath>
#include <limits>

#include "test/unit/lower/pairs_util.h"

namespace lathe::lower {
namespace {

std::string F32(const std::string& dims) { return StrCat("v_tensor<[", dims, "], f32>"); }

Case ProductOf(const std::string& a, const std::string& b, const std::string& y,
               const std::string& attributes = "") {
  return {{F32(a), F32(b)},
          StrCat("%r = nn.matmul(%a, %b) {", attributes, "} : (", F32(a), ", ", F32(b), ") -> ",
                 F32(y)),
          F32(y)};
}

class MatmulBf16 : public PairsTest {
 protected:
  MatmulBf16() : PairsTest("matmul_bf16") {}

  std::string WhyNot(const Case& c, const Machine& machine) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), machine, constant_,
                         {.implementation = "matmul_bf16", .precision = precision_})
        .why_not;
  }
};

TEST_F(MatmulBf16, Products) {
  for (const auto& [m, k, n] :
       std::vector<std::array<int, 3>>{{1, 41, 70}, {5, 3, 2}, {33, 64, 65}}) {
    ExpectPairs(ProductOf(StrCat(m, ", ", k), StrCat(k, ", ", n), StrCat(m, ", ", n)));
  }
  ExpectPairs(ProductOf("9, 21", "19, 21", "9, 19", "transpose_y = true"));
  for (const int64_t rows : {0, 40}) {
    symbol_ = rows;
    ExpectPairs(ProductOf("M, 21", "21, 5", "M, 5"));
  }
}

TEST_F(MatmulBf16, WhatIsAround) {
  const std::string a = F32("18, 21"), b = F32("21, 37"), c = F32("37"), y = F32("18, 37");
  ExpectPairs({{a, b, c},
               StrCat("%n = nn.exp(%a) : (", a, ") -> ", a, "\n%p = nn.matmul(%n, %b) : (", a, ", ",
                      b, ") -> ", y, "\n%q = nn.add(%p, %c) : (", y, ", ", c, ") -> ", y,
                      "\n%r = nn.relu(%q) : (", y, ") -> ", y),
               y},
              0.1);
}

// Infinities and NaN come out as f32 gives them, and so do numbers at the end of the range.
TEST_F(MatmulBf16, Ends) {
  const float inf = INFINITY, most = std::numeric_limits<float>::max();
  for (const std::array<float, 4>& v : std::vector<std::array<float, 4>>{
           {inf, 1, 1, -1}, {inf, 1, 0, 1}, {1, NAN, 1, 1}, {most, 1, 0.5F, 1}, {1, 1, -most, 1}}) {
    ExpectPairs(ProductOf("1, 2", "2, 1", "1, 1"),
                {{"a", Tensor::Of<float>({1, 2}, {v[0], v[1]})},
                 {"b", Tensor::Of<float>({2, 1}, {v[2], v[3]})}},
                1e-2);
  }
}

TEST_F(MatmulBf16, Refusals) {
  const Target& target = Target::Named("avx512_bf16");
  const Case plain = ProductOf("5, 6", "6, 7", "5, 7");
  EXPECT_EQ(WhyNot(plain, MachineOf(target)), "");
  EXPECT_EQ(WhyNot(plain, MachineOf(Target::Named("avx512"))),
            "matmul_bf16: the target has no products of pairs of bf16");
  EXPECT_EQ(WhyNot(plain, MachineOf(Target::Named("amx"))),
            "matmul_bf16: processors with tiles are slow at pairs");
  EXPECT_EQ(WhyNot(ProductOf("2, 5, 6", "2, 6, 7", "2, 5, 7"), MachineOf(target)),
            "matmul_bf16: the matrices are stacks");
  precision_ = Precision::kHigh;
  EXPECT_EQ(WhyNot(plain, MachineOf(target)), "matmul_bf16: the precision is high");
  precision_ = Precision::kBf16;
  constant_ = {};
  EXPECT_EQ(WhyNot(plain, MachineOf(target)), "matmul_bf16: the right matrix is not a weight");
}

TEST_F(MatmulBf16, Instructions) {
  Program program = ParseProgram(context_, ProgramOf(ProductOf("M, 64", "64, 48", "M, 48")),
                                 {.file_locations = false});
  Operation* function = codegen::FirstFunction(program);
  const Target& target = Target::Named("avx512_bf16");
  const Lowered lowered =
      LowerFunction(function, MachineOf(target), constant_, {.precision = precision_});
  EXPECT_EQ(lowered.strategy, "matmul_bf16");
  const KernelSource source{"k", function->region(0).front()};
  const std::string text =
      CodeGenerator::Get().EmitText({&source, 1}, target, codegen::CodeText::kAssembly);
  EXPECT_NE(text.find("vdpbf16ps"), std::string::npos);
  EXPECT_NE(text.find("vcvtneps2bf16"), std::string::npos);
}

}  // namespace
}  // namespace lathe::lower
