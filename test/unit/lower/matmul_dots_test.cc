#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

class MatmulDots : public LowerTest {
 protected:
  static std::string T(const std::string& dims, const std::string& element = "f32") {
    return StrCat("v_tensor<[", dims, "], ", element, ">");
  }

  void ExpectProduct(const std::string& x, const std::string& y, const std::string& z,
                     const std::string& attributes = "") {
    SCOPED_TRACE(StrCat(x, " * ", y, " ", attributes));
    Expect({{x, y},
            StrCat("%r = nn.matmul(%a, %b) {", attributes, "} : (", x, ", ", y, ") -> ", z),
            z},
           "matmul_dots", 1e-4);
  }
};

TEST_F(MatmulDots, OneColumn) {
  for (const int m : {1, 3, 16, 37}) {
    for (const int k : {1, 5, 16, 45}) {
      ExpectProduct(T(StrCat(m, ", ", k)), T(StrCat(k, ", 1")), T(StrCat(m, ", 1")));
    }
  }
  ExpectProduct(T("21, 19"), T("1, 19"), T("21, 1"), "transpose_y = true");
  ExpectProduct(T("2, 3, 21, 19"), T("2, 1, 19, 1"), T("2, 3, 21, 1"));
  ExpectProduct(T("19"), T("19, 1"), T("1"));
  constant_ = {false, true};
  ExpectProduct(T("2, 21, 19"), T("19, 1"), T("2, 21, 1"));
}

TEST_F(MatmulDots, Rows) {
  ExpectProduct(T("19"), T("21, 19"), T("21"), "transpose_y = true");
  ExpectProduct(T("1, 19"), T("21, 19"), T("1, 21"), "transpose_y = true");
  ExpectProduct(T("3, 2, 19"), T("3, 21, 19"), T("3, 2, 21"), "transpose_y = true");
}

// Constant ones are turned when the program is compiled.
TEST_F(MatmulDots, FewLongColumns) {
  for (const int64_t n : {0, 1, 33}) {
    symbol_ = n;
    for (const bool constant : {false, true}) {
      constant_ = {false, constant};
      ExpectProduct(T("N, 300"), T("2, 300"), T("N, 2"), "transpose_y = true");
      ExpectProduct(T("B, N, 257"), T("2, 257"), T("B, N, 2"), "transpose_y = true");
    }
    ExpectProduct(T("N, 300"), T("300, 2"), T("N, 2"));
  }
  ExpectProduct(T("4, N, 300"), T("300, 2"), T("4, N, 2"));
  ExpectProduct(T("7, 300"), T("300, 2"), T("7, 2"));
  ExpectProduct(T("7, 300", "f64"), T("300, 2", "f64"), T("7, 2", "f64"));
}

TEST_F(MatmulDots, Elements) {
  for (const char* element : {"f64", "f16", "bf16", "i32", "i64"}) {
    ExpectProduct(T("21, 19", element), T("19, 1", element), T("21, 1", element));
  }
}

TEST_F(MatmulDots, Symbols) {
  for (const int64_t n : {0, 1, 15, 40}) {
    symbol_ = n;
    ExpectProduct(T("N, 12"), T("12, 1"), T("N, 1"));
    ExpectProduct(T("5, N"), T("N, 1"), T("5, 1"));
    ExpectProduct(T("B, N, K"), T("K, 1"), T("B, N, 1"));
    ExpectProduct(T("B, N, K"), T("C, K, 1"), T("broadcast(B, C), N, 1"));
  }
}

// What follows and what comes before; lanes behind the end of the depth are infinite there.
TEST_F(MatmulDots, WhatIsFused) {
  const std::string x = T("21, 19"), y = T("19, 1"), z = T("21, 1"), one = T("1");
  Expect({{x, y, one},
          StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z, "\n%r = nn.add(%p, %c) : (",
                 z, ", ", one, ") -> ", z),
          z},
         "matmul_dots", 1e-4);
  for (const bool left : {false, true}) {
    const std::string t = left ? x : y;
    Expect({{x, y},
            StrCat("%s = nn.abs(", left ? "%a" : "%b", ") : (", t, ") -> ", t,
                   "\n%q = nn.log(%s) : (", t, ") -> ", t, "\n%r = nn.matmul(",
                   left ? "%q, %b" : "%a, %q", ") : (", x, ", ", y, ") -> ", z),
            z},
           "matmul_dots", 1e-4);
  }
}

TEST_F(MatmulDots, Einsum) {
  const std::string x = T("B, I, J"), y = T("C, K"), z = T("broadcast(B, C), I");
  for (const int64_t n : {1, 5, 40}) {
    symbol_ = n;
    Expect(
        {{x, y},
         StrCat("%r = nn.einsum(%a, %b) {equation = \"bij,bj->bi\"} : (", x, ", ", y, ") -> ", z),
         z},
        "matmul_dots | loops", 1e-4);
  }
}

}  // namespace
}  // namespace lathe::lower
