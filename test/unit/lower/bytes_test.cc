#include "test/unit/lower/lower_util.h"

// Products of unsigned by signed bytes: matrices and convolutions.
namespace lathe::lower {
namespace {

std::string T(const std::string& dims, const std::string& element) {
  return StrCat("v_tensor<[", dims, "], ", element, ">");
}

class Bytes : public LowerTest {
 protected:
  static Case Product(const std::string& x, const std::string& w, const std::string& y) {
    const std::string a = T(x, "u8"), b = T(w, "i8"), r = T(y, "i32");
    return {{a, b}, StrCat("%r = nn.matmul_integer(%a, %b) : (", a, ", ", b, ") -> ", r), r};
  }
  void ExpectProduct(const std::string& x, const std::string& w, const std::string& y) {
    SCOPED_TRACE(StrCat(x, " by ", w));
    constant_ = {false, true};
    Expect(Product(x, w, y), "matmul_bytes");
  }
  void ExpectConv(const std::string& x, const std::string& w, const std::string& filters,
                  const std::string& y, const std::string& attributes) {
    SCOPED_TRACE(StrCat(x, " by ", w, " {", attributes, "}"));
    constant_ = {false, true};
    const std::string a = T(x, "u8"), b = T(w, "i8"), c = T(filters, "i32"), d = T("", "u8"),
                      r = T(y, "i32");
    const std::string types = StrCat(a, ", ", b, ", ", c, ", ", d);
    Expect({{a, b, c, d},
            StrCat("%r = nn.conv_bytes(%a, %b, %c, %d) {", attributes, "} : (", types, ") -> ", r),
            r},
           "conv_filter_lanes");
  }
};

// Rows, columns and depths that fill no tile, no vector and no group; blocks of all of them.
TEST_F(Bytes, Products) {
  ExpectProduct("1, 4", "4, 1", "1, 1");
  ExpectProduct("1, 7", "7, 5", "1, 5");
  ExpectProduct("3, 1", "1, 33", "3, 33");
  ExpectProduct("30, 64", "64, 100", "30, 100");
  ExpectProduct("2, 3, 8", "8, 300", "2, 3, 300");
  ExpectProduct("8", "8, 3", "3");
  l2_bytes_ = 4096;
  ExpectProduct("100, 130", "130, 67", "100, 67");
}

TEST_F(Bytes, RowsOfUnknownNumber) {
  for (const int64_t rows : {0, 1, 13, 97, 200}) {
    symbol_ = rows;
    ExpectProduct("M, 20", "20, 37", "M, 37");
    ExpectProduct("M, 21", "21, 3", "M, 3");
  }
}

// What follows a product, and what computes the left matrix, is part of the kernel.
TEST_F(Bytes, WhatIsAroundProducts) {
  const std::string a = T("18, 21", "i32"), b = T("21, 37", "i8"), x = T("18, 21", "u8"),
                    s = T("18, 37", "i32"), y = T("18, 37", "f32"), c = T("37", "f32");
  constant_ = {false, true};
  Expect({{a, b, c},
          StrCat("%n = nn.cast(%a) {to = u8} : (", a, ") -> ", x,
                 "\n%p = nn.matmul_integer(%n, %b)", " : (", x, ", ", b, ") -> ", s,
                 "\n%f = nn.cast(%p) {to = f32} : (", s, ") -> ", y, "\n%m = nn.mul(%f, %c) : (", y,
                 ", ", c, ") -> ", y, "\n%r = nn.relu(%m) : (", y, ") -> ", y),
          y},
         "matmul_bytes");
}

TEST_F(Bytes, WhichProductsAreTaken) {
  const auto why = [&](const Case& c) {
    only_ = "matmul_bytes";
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()), constant_,
                         {.implementation = only_})
        .why_not;
  };
  constant_ = {false, false};
  EXPECT_NE(why(Product("4, 8", "8, 3", "4, 3")).find("the right matrix is not a weight"),
            std::string::npos);
  constant_ = {false, true};
  EXPECT_NE(why(Product("4, 8", "2, 8, 3", "2, 4, 3")).find("the matrices are stacks"),
            std::string::npos);
}

// Channels, filters and positions that fill no group, tile or vector; any padding, stride, rank.
TEST_F(Bytes, Convolutions) {
  ExpectConv("1, 3, 9, 11", "5, 3, 3, 3", "5", "1, 5, 9, 11", "pads = [1, 1, 1, 1]");
  ExpectConv("2, 7, 6, 6", "33, 7, 1, 1", "33", "2, 33, 6, 6", "");
  ExpectConv("1, 6, 15, 15", "32, 6, 3, 3", "32", "1, 32, 8, 7",
             "pads = [1, 0, 2, 1], strides = [2, 2]");
  ExpectConv("1, 8, 10", "16, 8, 3", "16", "1, 16, 10", "pads = [1, 1]");
  ExpectConv("1, 10, 8, 8", "32, 5, 3, 3", "32", "1, 32, 8, 8", "pads = [1, 1, 1, 1], group = 2");
  ExpectConv("1, 4, 3, 6, 7", "8, 4, 2, 3, 3", "8", "1, 8, 3, 6, 7", "pads = [0, 1, 1, 1, 1, 1]");
  ExpectConv("1, 3, 9, 9", "4, 3, 2, 2", "4", "1, 4, 9, 9",
             "auto_pad = \"SAME_UPPER\", dilations = [2, 3]");
}

TEST_F(Bytes, DeepConvolutions) {
  ExpectConv("1, 300, 3, 3", "24, 300, 3, 3", "24", "1, 24, 3, 3", "pads = [1, 1, 1, 1]");
}

TEST_F(Bytes, ConvolutionsOfUnknownSizes) {
  for (const int64_t size : {1, 3, 20}) {
    symbol_ = size;
    ExpectConv("1, 6, H, H", "20, 6, 3, 3", "20", "1, 20, H, H", "pads = [1, 1, 1, 1]");
    ExpectConv("1, 6, H, H", "20, 6, 1, 1", "20", "1, 20, H, H", "");
  }
}

}  // namespace
}  // namespace lathe::lower
