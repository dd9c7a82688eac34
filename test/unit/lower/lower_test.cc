#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

TEST_F(LowerTest, ElementwiseFlat) {
  const std::string t = "v_tensor<[3, 7, 5], f32>";
  Expect({{t, t},
          StrCat("%s = nn.add(%a, %b) : (", t, ", ", t, ") -> ", t, "\n%r = nn.relu(%s) : (", t,
                 ") -> ", t),
          t},
         "elementwise");
}

TEST_F(LowerTest, ElementwiseBroadcasts) {
  const std::string t = "v_tensor<[2, 3, 1, 19], f32>";
  for (const char* other : {"v_tensor<[], f32>", "v_tensor<[19], f32>", "v_tensor<[3, 1, 1], f32>",
                            "v_tensor<[2, 1, 1, 1], f32>", "v_tensor<[1, 3, 1, 19], f32>",
                            "v_tensor<[2, 3, 1, 1], f32>"}) {
    Expect({{t, other}, StrCat("%r = nn.mul(%a, %b) : (", t, ", ", other, ") -> ", t), t},
           "elementwise");
  }
}

TEST_F(LowerTest, ElementwiseOfScalars) {
  const std::string s = "v_tensor<[], f32>";
  Expect({{s, s}, StrCat("%r = nn.sub(%a, %b) : (", s, ", ", s, ") -> ", s), s}, "elementwise");
}

TEST_F(LowerTest, ElementwiseSymbolicAndEmpty) {
  const std::string t = "v_tensor<[N, M], f32>", row = "v_tensor<[M], f32>";
  for (const int64_t n : {0, 1, 5, 16, 37}) {
    symbol_ = n;
    Expect({{t, row}, StrCat("%r = nn.add(%a, %b) : (", t, ", ", row, ") -> ", t), t},
           "elementwise");
  }
}

TEST_F(LowerTest, ElementwiseInParallelPieces) {
  const std::string t = "v_tensor<[70001], f32>";
  Expect({{t}, StrCat("%r = nn.neg(%a) : (", t, ") -> ", t), t}, "elementwise");
}

TEST_F(LowerTest, ElementTypesMix) {
  const std::string t = "v_tensor<[21], i32>", f = "v_tensor<[21], f64>";
  Expect({{t},
          StrCat("%c = nn.cast(%a) {to = f64} : (", t, ") -> ", f, "\n%r = nn.mul(%c, %c) : (", f,
                 ", ", f, ") -> ", f),
          f},
         "elementwise");
  const std::string b = "v_tensor<[21], bool>";
  Expect({{t, t}, StrCat("%r = nn.less(%a, %b) : (", t, ", ", t, ") -> ", b), b}, "elementwise");
}

std::string Matrix(int64_t rows, int64_t columns) {
  return StrCat("v_tensor<[", rows, ", ", columns, "], f32>");
}

TEST_F(LowerTest, ConstantsKeepEveryBit) {
  const std::string t = "v_tensor<[5], i64>", s = "v_tensor<[], i64>";
  Expect({{t},
          StrCat("%c = builtin.constant() {value = tensor<[], i64> [1152921504606846977]} : () -> ",
                 s, "\n%r = nn.add(%a, %c) : (", t, ", ", s, ") -> ", t),
          t},
         "elementwise");
}

TEST_F(LowerTest, DecomposesWhatHasNoInstructions) {
  const std::string t = "v_tensor<[3, 21], f32>";
  Expect({{t}, StrCat("%r = nn.gelu(%a) : (", t, ") -> ", t), t}, "elementwise", 1e-5);
}

TEST_F(LowerTest, MatmulOfManySizes) {
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 7, 5},
                                                                   {3, 16, 40},
                                                                   {4, 9, 130},
                                                                   {5, 8, 16},
                                                                   {13, 20, 32},
                                                                   {31, 3, 33},
                                                                   {40, 17, 70}}) {
    const std::string x = Matrix(m, k), y = Matrix(k, n), z = Matrix(m, n);
    Expect({{x, y}, StrCat("%r = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z), z}, "matmul",
           1e-5);
  }
}

TEST_F(LowerTest, MatmulWithWhatFollows) {
  const std::string x = "v_tensor<[2, 5, 6], f32>", y = Matrix(6, 18),
                    z = "v_tensor<[2, 5, 18], f32>", bias = "v_tensor<[18], f32>";
  Expect({{x, y, bias, z},
          StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z, "\n%q = nn.add(%p, %c) : (",
                 z, ", ", bias, ") -> ", z, "\n%t = nn.tanh(%q) : (", z, ") -> ", z,
                 "\n%r = nn.add(%t, %d) : (", z, ", ", z, ") -> ", z),
          z},
         "matmul", 1e-5);
}

TEST_F(LowerTest, MatmulOfBatchesAndSymbols) {
  const std::string x = "v_tensor<[2, H, N, 6], f32>", y = "v_tensor<[2, H, 6, M], f32>",
                    z = "v_tensor<[2, H, N, M], f32>", yt = "v_tensor<[2, H, M, 6], f32>";
  for (const int64_t n : {1, 3, 17, 35}) {
    symbol_ = n;
    Expect({{x, y}, StrCat("%r = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z), z}, "matmul",
           1e-5);
    Expect({{x, yt},
            StrCat("%r = nn.matmul(%a, %b) {transpose_y = true} : (", x, ", ", yt, ") -> ", z),
            z},
           "matmul", 1e-5);
  }
}

TEST_F(LowerTest, MatmulOfSymbolicRows) {
  const std::string x = "v_tensor<[N, H, 6], f32>", y = Matrix(6, 20),
                    z = "v_tensor<[N, H, 20], f32>";
  for (const int64_t n : {1, 4, 9}) {
    symbol_ = n;
    Expect({{x, y, z},
            StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z,
                   "\n%r = nn.add(%p, %c) : (", z, ", ", z, ") -> ", z),
            z},
           "matmul", 1e-5);
  }
}

TEST_F(LowerTest, SaysWhyNot) {
  const std::string t = "v_tensor<[3, 5], f32>";
  const std::string all = Refusal({{t}, StrCat("%r = nn.softmax(%a) : (", t, ") -> ", t), t});
  EXPECT_EQ(all,
            "elementwise: nn.softmax is not elementwise");  // no strategy of other ops is asked
}

}  // namespace
}  // namespace lathe::lower
