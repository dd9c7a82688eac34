#include <array>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

class MatmulLowering : public LowerTest {
 protected:
  void SetUp() override {
    LowerTest::SetUp();
    only_ = "matmul";
  }

  static std::string T(const std::string& dims, const std::string& element = "f32") {
    return StrCat("v_tensor<[", dims, "], ", element, ">");
  }

  // A product of tensors of these shapes, then operations from %p to %r if any.
  void ExpectProduct(const std::string& x, const std::string& y, const std::string& z,
                     const std::string& attributes = "", double rtol = 1e-5) {
    SCOPED_TRACE(StrCat(x, " * ", y, " ", attributes));
    Expect({{x, y},
            StrCat("%r = nn.matmul(%a, %b) {", attributes, "} : (", x, ", ", y, ") -> ", z),
            z},
           "matmul", rtol);
  }
};

TEST_F(MatmulLowering, TransposedMatrices) {
  for (const auto& [m, k, n] :
       std::vector<std::array<int, 3>>{{1, 7, 5}, {3, 16, 40}, {17, 33, 70}, {37, 300, 150}}) {
    const std::string x = T(StrCat(m, ", ", k)), xt = T(StrCat(k, ", ", m)),
                      y = T(StrCat(k, ", ", n)), yt = T(StrCat(n, ", ", k)),
                      z = T(StrCat(m, ", ", n));
    for (const bool constant : {false, true}) {
      constant_ = {false, constant};
      ExpectProduct(x, y, z);
      ExpectProduct(xt, y, z, "transpose_x = true");
      ExpectProduct(x, yt, z, "transpose_y = true");
      ExpectProduct(xt, yt, z, "transpose_x = true, transpose_y = true");
    }
  }
}

TEST_F(MatmulLowering, Vectors) {
  ExpectProduct(T("19"), T("19, 35"), T("35"));
  ExpectProduct(T("19"), T("2, 3, 19, 5"), T("2, 3, 5"));
  ExpectProduct(T("35, 19"), T("19"), T("35"));
  ExpectProduct(T("2, 3, 35, 19"), T("19"), T("2, 3, 35"));
  ExpectProduct(T("19"), T("19"), T(""));
  constant_ = {false, true};
  ExpectProduct(T("19"), T("19, 35"), T("35"));
  ExpectProduct(T("19"), T("19"), T(""));
}

TEST_F(MatmulLowering, Einsum) {
  struct Equation {
    const char *equation, *x, *y, *z;
  };
  for (const Equation& e : {
           Equation{"bij,bjk->bik", "2, 5, 7", "2, 7, 20", "2, 5, 20"},
           Equation{"bihd,bjhd->bhij", "2, 5, 3, 7", "2, 20, 3, 7", "2, 3, 5, 20"},
           Equation{"bhij,bjhd->bihd", "2, 3, 5, 7", "2, 7, 3, 20", "2, 5, 3, 20"},
           Equation{"ij,kj->ki", "20, 7", "5, 7", "5, 20"},
           Equation{"jih,kj->kih", "7, 3, 20", "5, 7", "5, 3, 20"},
           Equation{"i,j->ij", "5", "20", "5, 20"},
           Equation{"i,i->", "20", "20", ""},
           Equation{"ij,jk", "5, 7", "7, 20", "5, 20"},
           Equation{"bjhk,bj->bhk", "2, 7, 3, 20", "2, 7", "2, 3, 20"},
       }) {
    SCOPED_TRACE(e.equation);
    const std::string x = T(e.x), y = T(e.y), z = T(e.z);
    const Case c{{x, y},
                 StrCat("%p = nn.einsum(%a, %b) {equation = \"", e.equation, "\"} : (", x, ", ", y,
                        ") -> ", z, "\n%r = nn.neg(%p) : (", z, ") -> ", z),
                 z};
    Expect(c, "matmul", 1e-5);
  }
}

TEST_F(MatmulLowering, BroadcastBatches) {
  ExpectProduct(T("2, 1, 3, 4"), T("5, 4, 20"), T("2, 5, 3, 20"));
  ExpectProduct(T("3, 4"), T("2, 5, 4, 20"), T("2, 5, 3, 20"));
  ExpectProduct(T("2, 6, 4"), T("1, 4, 20"), T("2, 6, 20"));
  ExpectProduct(T("2, 4, 6"), T("4, 20"), T("2, 6, 20"), "transpose_x = true");
  constant_ = {false, true};
  ExpectProduct(T("2, 5, 3, 4"), T("5, 4, 20"), T("2, 5, 3, 20"));
}

TEST_F(MatmulLowering, OtherElements) {
  for (const char* element : {"f64", "i32", "i64", "u32", "u64"}) {
    ExpectProduct(T("5, 9", element), T("9, 21", element), T("5, 21", element));
  }
}

// f16 and bf16 are summed in f32 and rounded once.
TEST_F(MatmulLowering, Halves) {
  for (const char* element : {"f16", "bf16"}) {
    const double rtol = element[0] == 'f' ? 2e-3 : 2e-2;
    for (const bool constant : {false, true}) {
      constant_ = {false, constant};
      for (const char* rows : {"3", "20"}) {
        const std::string z = T(StrCat(rows, ", 35"), element);
        ExpectProduct(T(StrCat(rows, ", 9"), element), T("9, 35", element), z, "", rtol);
        ExpectProduct(T(StrCat("9, ", rows), element), T("35, 9", element), z,
                      "transpose_x = true, transpose_y = true", rtol);
      }
    }
  }
  constant_ = {};
  l2_bytes_ = 1 << 13;
  ExpectProduct(T("20, 150", "f16"), T("150, 35", "f16"), T("20, 35", "f16"), "", 1e-2);
}

TEST_F(MatmulLowering, Gemm) {
  const std::string a = T("9, 6"), b = T("35, 9"), y = T("6, 35");
  for (const char* c : {"35", "6, 1", "6, 35", ""}) {
    Expect({{a, b, T(c)},
            StrCat("%g = nn.gemm(%a, %b, %c) {transA = true, transB = true, alpha = 0.5, beta = "
                   "2.0} : (",
                   a, ", ", b, ", ", T(c), ") -> ", y, "\n%r = nn.relu(%g) : (", y, ") -> ", y),
            y},
           "matmul", 1e-5);
  }
}

TEST_F(MatmulLowering, Bytes) {
  const std::string z = T("20, 35", "i32");
  for (const char* zeros : {"", "35"}) {
    for (const bool constant : {false, true}) {
      for (const char* rows : {"1", "20"}) {
        constant_ = {false, constant};
        const std::string a = T(StrCat(rows, ", 21"), "u8"), b = T("21, 35", "i8"),
                          az = T("", "u8"), bz = T(zeros, "i8"), y = T(StrCat(rows, ", 35"), "i32");
        Expect({{a, b, az, bz},
                StrCat("%r = nn.matmul_integer(%a, %b, %c, %d) : (", a, ", ", b, ", ", az, ", ", bz,
                       ") -> ", y),
                y},
               "matmul");
      }
    }
  }
}

TEST_F(MatmulLowering, BytesMadeOfProducts) {
  const std::string a = T("2, 5, 21", "u8"), b = T("2, 21, 35", "i8"), u8 = T("", "u8"),
                    i8 = T("", "i8"), f = T(""), y = T("2, 5, 35", "i8"), columns = T("35");
  const std::string types =
      StrCat(a, ", ", f, ", ", u8, ", ", b, ", ", columns, ", ", i8, ", ", f, ", ", i8);
  Expect({{a, f, u8, b, columns, i8, f, i8},
          StrCat("%r = nn.qlinear_matmul(%a, %b, %c, %d, %e, %f, %g, %h) : (", types, ") -> ", y),
          y},
         "matmul");
}

TEST_F(MatmulLowering, NothingToSumAndNothingToWrite) {
  ExpectProduct(T("5, 0"), T("0, 20"), T("5, 20"));
  ExpectProduct(T("0, 7"), T("7, 20"), T("0, 20"));
  ExpectProduct(T("5, 7"), T("7, 0"), T("5, 0"));
}

// Sums go to memory and back between blocks of depth.
TEST_F(MatmulLowering, DeepProducts) {
  l2_bytes_ = 1 << 13;
  ExpectProduct(T("6, 200"), T("200, 20"), T("6, 20"), "", 1e-4);
  constant_ = {false, true};
  ExpectProduct(T("6, 200"), T("200, 20"), T("6, 20"), "", 1e-4);
  constant_ = {};
  const std::string x = T("6, 200"), y = T("200, 20"), z = T("6, 20"), b = T("6, 20", "bool");
  Expect({{x, y},
          StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z, "\n%r = nn.less(%p, %p) : (",
                 z, ", ", z, ") -> ", b),
          b},
         "matmul");
}

TEST_F(MatmulLowering, SymbolicExtents) {
  for (const int64_t n : {1, 15, 40}) {
    symbol_ = n;
    ExpectProduct(T("N, 12"), T("12, 33"), T("N, 33"));
    ExpectProduct(T("5, N"), T("N, 33"), T("5, 33"));
    ExpectProduct(T("5, 12"), T("12, N"), T("5, N"));
    ExpectProduct(T("B, N, 12"), T("12, 33"), T("B, N, 33"));
    constant_ = {false, true};
    ExpectProduct(T("B, N, 12"), T("12, 33"), T("B, N, 33"));
    constant_ = {};
  }
  symbol_ = 200;
  l2_bytes_ = 1 << 13;
  ExpectProduct(T("5, N"), T("N, 33"), T("5, 33"), "", 1e-4);
}

TEST_F(MatmulLowering, ManyBlocks) {
  ExpectProduct(T("600, 20"), T("20, 70"), T("600, 70"));
  symbol_ = 600;
  ExpectProduct(T("N, 20"), T("20, M"), T("N, M"));
}

TEST_F(MatmulLowering, RowsThatDifferInWhatFollows) {
  const std::string x = T("B, N, 6"), y = T("6, 18"), z = T("B, N, 18"), mask = T("B, 1, 18");
  Expect({{x, y, mask},
          StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z, "\n%r = nn.add(%p, %c) : (",
                 z, ", ", mask, ") -> ", z),
          z},
         "matmul", 1e-5);
}

// The right matrix is read again after the product.
TEST_F(MatmulLowering, SharedArgumentsAreNotPacked) {
  constant_ = {false, true};
  const std::string x = T("6, 6");
  Expect({{x, x},
          StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", x, ") -> ", x, "\n%r = nn.add(%p, %b) : (",
                 x, ", ", x, ") -> ", x),
          x},
         "matmul", 1e-5);
}

// That depths are equal is a condition on the sizes of a run; those of an einsum may be 1 and more.
TEST_F(MatmulLowering, DepthsOfTwoNames) {
  ExpectProduct(T("4, D"), T("E, 6"), T("4, 6"));
  const std::string x = T("4, D"), y = T("E, 6"), z = T("4, 6");
  only_ = "";
  for (const int64_t n : {1, 15, 40}) {
    symbol_ = n;
    Expect({{x, y},
            StrCat("%r = nn.einsum(%a, %b) {equation = \"ij,jk->ik\"} : (", x, ", ", y, ") -> ", z),
            z},
           "matmul | loops", 1e-5);
  }
}

// Whether one matrix is for all rows of the stack, only a run knows.
TEST_F(MatmulLowering, StacksThatMayBeBroadcast) {
  ExpectProduct(T("B, 7, 12"), T("C, 12, 33"), T("broadcast(B, C), 7, 33"));
  ExpectProduct(T("B, H, 7, 12"), T("H, 12, 33"), T("B, H, 7, 33"));
}

// Rows that are moved are stored where they belong, whatever blocks the depth is cut into.
TEST_F(MatmulLowering, MovedRows) {
  l2_bytes_ = 8 << 10;
  const std::string x = T("3, 4, 300"), y = T("300, 21"), z = T("3, 4, 21"), t = T("4, 3, 21");
  for (const bool constant : {false, true}) {
    constant_ = {false, constant};
    Expect({{x, y},
            StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z, "\n%q = nn.tanh(%p) : (",
                   z, ") -> ", z, "\n%r = nn.transpose(%q) {perm = [1, 0, 2]} : (", z, ") -> ", t),
            t},
           "matmul", 1e-4);
  }
}

// ---- matrices that are computed where they are packed ----

class MatmulOfComputed : public MatmulLowering {
 protected:
  // sigmoid(a + c) * b and a * sigmoid(b + c); `shift`: the shape of c.
  void ExpectBefore(const std::string& x, const std::string& y, const std::string& z,
                    const std::string& shift, bool left, const std::string& attributes = "") {
    SCOPED_TRACE(StrCat(x, " * ", y, " ", attributes, left ? " left" : " right"));
    const std::string t = left ? x : y;
    Expect({{x, y, shift},
            StrCat("%h = nn.add(", left ? "%a" : "%b", ", %c) : (", t, ", ", shift, ") -> ", t,
                   "\n%q = nn.sigmoid(%h) : (", t, ") -> ", t, "\n%p = nn.matmul(",
                   left ? "%q, %b" : "%a, %q", ") {", attributes, "} : (", x, ", ", y, ") -> ", z,
                   "\n%r = nn.tanh(%p) : (", z, ") -> ", z),
            z},
           "matmul", 1e-5);
  }
};

TEST_F(MatmulOfComputed, EitherMatrix) {
  for (const auto& [m, k, n] :
       std::vector<std::array<int, 3>>{{1, 7, 5}, {3, 16, 40}, {17, 33, 70}}) {
    const std::string x = T(StrCat(m, ", ", k)), xt = T(StrCat(k, ", ", m)),
                      y = T(StrCat(k, ", ", n)), yt = T(StrCat(n, ", ", k)),
                      z = T(StrCat(m, ", ", n));
    for (const bool constant : {false, true}) {
      constant_ = {false, constant, false};
      ExpectBefore(x, y, z, T(StrCat(k)), true);
      ExpectBefore(xt, y, z, T(StrCat(m)), true, "transpose_x = true");
      ExpectBefore(x, y, z, T(""), false);
      ExpectBefore(x, yt, z, T(StrCat(n, ", 1")), false, "transpose_y = true");
    }
  }
}

TEST_F(MatmulOfComputed, Stacks) {
  ExpectBefore(T("2, 3, 9, 12"), T("12, 20"), T("2, 3, 9, 20"), T("3, 9, 12"), true);
  ExpectBefore(T("2, 3, 9, 12"), T("12, 20"), T("2, 3, 9, 20"), T("2, 1, 1, 1"), true);
  ExpectBefore(T("2, 1, 9, 12"), T("3, 12, 20"), T("2, 3, 9, 20"), T("2, 1, 9, 1"), true);
  ExpectBefore(T("2, 1, 9, 12"), T("3, 12, 20"), T("2, 3, 9, 20"), T("3, 12, 20"), false);
}

TEST_F(MatmulOfComputed, DeepBlocksAndSymbols) {
  l2_bytes_ = 8 << 10;
  ExpectBefore(T("5, 300"), T("300, 40"), T("5, 40"), T("300"), true);
  for (const int64_t n : {1, 21}) {
    symbol_ = n;
    ExpectBefore(T("N, 30"), T("30, 40"), T("N, 40"), T("30"), true);
    ExpectBefore(T("4, N"), T("N, 9"), T("4, 9"), T("9"), false);
  }
}

// A transposed matrix is read as it lies.
TEST_F(MatmulOfComputed, Transposed) {
  const std::string x = T("2, 19, 3, 20"), xt = T("2, 3, 19, 20"), y = T("2, 21, 3, 20"),
                    yt = T("2, 3, 20, 21"), z = T("2, 3, 19, 21");
  const auto turned = [](const char* to, const char* of, const std::string& perm,
                         const std::string& from, const std::string& type) {
    return StrCat("%", to, " = nn.transpose(%", of, ") {perm = ", perm, "} : (", from, ") -> ",
                  type, "\n");
  };
  const std::string both =
      StrCat(turned("h", "a", "[0, 2, 1, 3]", x, xt), turned("k", "b", "[0, 2, 3, 1]", y, yt));
  Expect({{x, y},
          StrCat(both, "%p = nn.matmul(%h, %k) : (", xt, ", ", yt, ") -> ", z,
                 "\n%r = nn.relu(%p) : (", z, ") -> ", z),
          z},
         "matmul", 1e-5);
  // Several rows of axes, which cannot be walked as one then.
  const std::string w = T("20, 9"), v = T("2, 3, 19, 9");
  Expect({{x, w},
          StrCat(turned("h", "a", "[0, 2, 1, 3]", x, xt), "%r = nn.matmul(%h, %b) : (", xt, ", ", w,
                 ") -> ", v),
          v},
         "matmul", 1e-5);
  // The longer one of them is that of the rows, whichever comes last.
  for (const char* batch : {"N", "2", "31"}) {
    symbol_ = 3;
    const std::string from = T(StrCat(batch, ", 19, 20")), to = T(StrCat("19, ", batch, ", 20")),
                      result = T(StrCat("19, ", batch, ", 9")), bias = T("9");
    Expect(
        {{from, w, bias},
         StrCat(turned("h", "a", "[1, 0, 2]", from, to), "%p = nn.matmul(%h, %b) : (", to, ", ", w,
                ") -> ", result, "\n%r = nn.add(%p, %c) : (", result, ", ", bias, ") -> ", result),
         result},
        "matmul", 1e-5);
  }
  symbol_ = 7;
  const std::string s = T("N, 20"), st = T("20, N"), t = T("4, 20"), u = T("4, N");
  Expect({{t, s},
          StrCat(turned("h", "b", "[1, 0]", s, st), "%r = nn.matmul(%a, %h) : (", t, ", ", st,
                 ") -> ", u),
          u},
         "matmul", 1e-5);
}

// Halves are widened where they are packed.
TEST_F(MatmulOfComputed, Casts) {
  const std::string h = T("19, 40", "f16"), x = T("19, 40"), y = T("40, 33"), z = T("19, 33");
  Expect({{h, y},
          StrCat("%q = nn.cast(%a) {to = f32} : (", h, ") -> ", x, "\n%r = nn.matmul(%q, %b) : (",
                 x, ", ", y, ") -> ", z),
          z},
         "matmul", 1e-5);
}

// Depths of whole blocks: nothing is behind the last one, neither of a panel nor of packed rows.
TEST_F(MatmulOfComputed, WholeBlocksOfSymbolicDepth) {
  for (const int64_t n : {2048, 4096, 4100}) {
    symbol_ = n;
    Expect({{T("32, N"), T("32, N")},
            StrCat("%r = nn.matmul(%a, %b) {transpose_y = true} : (", T("32, N"), ", ", T("32, N"),
                   ") -> ", T("32, 32")),
            T("32, 32")},
           "matmul", 1e-3);
    Expect({{T("N, 16"), T("N, 32")},
            StrCat("%r = nn.matmul(%a, %b) {transpose_x = true} : (", T("N, 16"), ", ", T("N, 32"),
                   ") -> ", T("16, 32")),
            T("16, 32")},
           "matmul", 1e-3);
  }
}

// An operand that the sum after the product reads as well is computed in both places.
TEST_F(MatmulOfComputed, ReadAfterwardsToo) {
  const std::string x = T("19, 33"), y = T("33, 33");
  Expect({{x, y},
          StrCat("%q = nn.relu(%a) : (", x, ") -> ", x, "\n%p = nn.matmul(%q, %b) : (", x, ", ", y,
                 ") -> ", x, "\n%r = nn.add(%p, %q) : (", x, ", ", x, ") -> ", x),
          x},
         "matmul", 1e-5);
}

}  // namespace
}  // namespace lathe::lower
