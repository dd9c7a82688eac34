#include "test/unit/lower/lower_util.h"

// Products by weights of 4 and 8 bits, scaled by blocks.
namespace lathe::lower {
namespace {

std::string T(const std::string& dims, const std::string& element) {
  return StrCat("v_tensor<[", dims, "], ", element, ">");
}

// Sums of bytes less large zero points lose some digits.
constexpr double kClose = 1e-4;

enum class Zeros { kNone, kBytes, kReal };

class Nbits : public LowerTest {
 protected:
  struct Form {
    int64_t depth, columns, bits = 4, block = 32;
    Zeros zeros = Zeros::kNone;
    std::string element = "f32";
    bool rounded = false;
  };

  static Case Product(const std::string& rows, const Form& f, const std::string& after = "",
                      const std::vector<std::string>& more = {}) {
    const std::string comma = rows.empty() ? "" : ", ";
    const int64_t blocks = (f.depth + f.block - 1) / f.block;
    const std::string a = T(StrCat(rows, comma, f.depth), f.element),
                      b = T(StrCat(f.columns, ", ", blocks, ", ", f.block * f.bits / 8), "u8"),
                      scales = T(StrCat(f.columns, ", ", blocks), f.element),
                      y = T(StrCat(rows, comma, f.columns), f.element);
    Case c{{a, b, scales}, "", y};
    std::string operands = "%a, %b, %c", types = StrCat(a, ", ", b, ", ", scales);
    if (f.zeros != Zeros::kNone) {
      const bool packed = f.zeros == Zeros::kBytes;
      c.arguments.push_back(T(StrCat(f.columns, ", ", packed ? (blocks * f.bits + 7) / 8 : blocks),
                              packed ? "u8" : f.element));
      operands += ", %d";
      types += StrCat(", ", c.arguments.back());
    }
    c.arguments.insert(c.arguments.end(), more.begin(), more.end());
    c.body =
        StrCat("%", after.empty() ? "r" : "y", " = nn.matmul_nbits(", operands, ") {K = ", f.depth,
               ", N = ", f.columns, ", bits = ", f.bits, ", block_size = ", f.block,
               f.rounded ? ", accuracy_level = 4" : "", "} : (", types, ") -> ", y, after);
    return c;
  }
  void ExpectProduct(const std::string& rows, const Form& f) {
    SCOPED_TRACE(StrCat("[", rows, "] of ", f.depth, " by ", f.columns, " in ", f.block, "s of ",
                        f.bits, " bits, zeros ", static_cast<int>(f.zeros)));
    constant_ = {false, true, true, true};
    Expect(Product(rows, f), "matmul_nbits", f.element == "f32" ? kClose : 0);
  }
};

// Columns that fill no vector, depths that fill no block and no byte, all kinds of zero points.
TEST_F(Nbits, FewRows) {
  for (const Zeros zeros : {Zeros::kNone, Zeros::kBytes, Zeros::kReal}) {
    ExpectProduct("1", {.depth = 64, .columns = 64, .zeros = zeros});
    ExpectProduct("1", {.depth = 37, .columns = 5, .block = 16, .zeros = zeros});
    ExpectProduct("3", {.depth = 40, .columns = 70, .block = 16, .zeros = zeros});
    ExpectProduct("2", {.depth = 45, .columns = 19, .bits = 8, .block = 16, .zeros = zeros});
  }
  ExpectProduct("", {.depth = 33, .columns = 20});
  ExpectProduct("1, 1", {.depth = 1, .columns = 1, .block = 2});
  ExpectProduct("1", {.depth = 7, .columns = 9, .bits = 8, .block = 1});
}

TEST_F(Nbits, ManyRows) {
  for (const Zeros zeros : {Zeros::kNone, Zeros::kBytes, Zeros::kReal}) {
    ExpectProduct("33", {.depth = 37, .columns = 70, .block = 16, .zeros = zeros});
    ExpectProduct("2, 11", {.depth = 50, .columns = 20, .bits = 8, .zeros = zeros});
  }
  ExpectProduct("300", {.depth = 35, .columns = 40});
}

// Of a panel that is unpacked in parts, and blocks that are scaled in parts.
TEST_F(Nbits, DeepProducts) {
  l2_bytes_ = 16384;
  ExpectProduct("20", {.depth = 301, .columns = 40, .zeros = Zeros::kBytes});
  ExpectProduct("20", {.depth = 1400, .columns = 9, .block = 1400, .zeros = Zeros::kBytes});
  ExpectProduct("1", {.depth = 1400, .columns = 9, .block = 1400});
  ExpectProduct("9", {.depth = 1031, .columns = 9, .bits = 8, .block = 1031});
}

TEST_F(Nbits, RowsOfUnknownNumber) {
  for (const int64_t rows : {0, 3, 33}) {
    symbol_ = rows;
    ExpectProduct("M", {.depth = 37, .columns = 21, .block = 16, .zeros = Zeros::kBytes});
  }
  symbol_ = 1;
  ExpectProduct("M, 2", {.depth = 40, .columns = 5, .bits = 8});
}

// Rows as numbers of three bytes, where there is an instruction for their products.
TEST_F(Nbits, RowsOfBytes) {
  precision_ = Precision::kF32;
  ExpectProduct("3", {.depth = 77, .columns = 70, .zeros = Zeros::kBytes});
  ExpectProduct("2", {.depth = 45, .columns = 19, .bits = 8, .zeros = Zeros::kReal});
  ExpectProduct("20", {.depth = 70, .columns = 40, .zeros = Zeros::kBytes});
  ExpectProduct("20", {.depth = 111, .columns = 9, .bits = 8, .block = 64});
  ExpectProduct("4", {.depth = 64, .columns = 8, .element = "f16"});
  symbol_ = 3;
  ExpectProduct("M", {.depth = 40, .columns = 21});
}

// More than an item of the loops takes, of 4 bits and of 8.
TEST_F(Nbits, ManyRowsOfBytes) {
  precision_ = Precision::kF32;
  for (const int64_t rows : {0, 32, 33, 67}) {
    symbol_ = rows;
    ExpectProduct("M", {.depth = 256, .columns = 24, .block = 128, .zeros = Zeros::kBytes});
    ExpectProduct("M", {.depth = 70, .columns = 9, .bits = 8, .block = 64});
  }
}

// Blocks that fill one vector of a list, more, and none; where there are products of bytes and not.
TEST_F(Nbits, RoundedRows) {
  for (const int64_t rows : {0, 7, 101}) {
    symbol_ = rows;
    const Zeros zeros = rows == 7 ? Zeros::kNone : Zeros::kBytes;
    ExpectProduct("M", {.depth = 80, .columns = 40, .zeros = zeros, .rounded = true});
    ExpectProduct("M", {.depth = 130, .columns = 33, .block = 64, .zeros = zeros, .rounded = true});
    ExpectProduct("M", {.depth = 96, .columns = 20, .bits = 8, .zeros = zeros, .rounded = true});
  }
  ExpectProduct("1", {.depth = 96, .columns = 70, .zeros = Zeros::kReal, .rounded = true});
  ExpectProduct("3", {.depth = 37, .columns = 5, .block = 16, .rounded = true});
  ExpectProduct("", {.depth = 45, .columns = 19, .bits = 8, .block = 20, .rounded = true});
  ExpectProduct("5", {.depth = 64, .columns = 40, .element = "f16", .rounded = true});
}

TEST_F(Nbits, SmallFloats) {
  for (const char* element : {"f16", "bf16"}) {
    ExpectProduct("1", {.depth = 64, .columns = 20, .element = element});
    ExpectProduct("20", {.depth = 37, .columns = 20, .zeros = Zeros::kReal, .element = element});
  }
}

// What follows a product is part of the kernel.
TEST_F(Nbits, WhatFollows) {
  const std::string y = T("M, 37", "f32"), c = T("37", "f32");
  constant_ = {false, true, true, false};
  for (const int64_t rows : {1, 20}) {
    symbol_ = rows;
    Expect(Product("M", {.depth = 40, .columns = 37},
                   StrCat("\n%m = nn.add(%y, %d) : (", y, ", ", c, ") -> ", y,
                          "\n%r = nn.relu(%m) : (", y, ") -> ", y),
                   {c}),
           "matmul_nbits", kClose);
  }
}

TEST_F(Nbits, WeightsThatOnlyARunKnows) {
  constant_ = {};
  Expect(Product("3", {.depth = 40, .columns = 7, .zeros = Zeros::kBytes}), "loops", kClose);
  Expect(Product("3", {.depth = 21, .columns = 7, .bits = 8, .zeros = Zeros::kReal}), "loops",
         kClose);
}

}  // namespace
}  // namespace lathe::lower
