#include <span>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

struct Conv {
  const char *x, *w, *filters, *attributes, *y;
};

class ConvTransposeTest : public LowerTest {
 protected:
  static std::string TypeOf(const std::string& shape, const char* element) {
    return StrCat("v_tensor<", shape, ", ", element, ">");
  }
  /// With a bias, something added and a relu.
  static Case WithRest(const Conv& c, const char* element = "f32") {
    const std::string x = TypeOf(c.x, element), w = TypeOf(c.w, element),
                      b = TypeOf(StrCat("[", c.filters, "]"), element), y = TypeOf(c.y, element);
    return {{x, w, b, y},
            StrCat("%p = nn.conv_transpose(%a, %b, %c) {", c.attributes, "} : (", x, ", ", w, ", ",
                   b, ") -> ", y, "\n%q = nn.add(%p, %d) : (", y, ", ", y, ") -> ", y,
                   "\n%r = nn.relu(%q) : (", y, ") -> ", y),
            y};
  }
  void ExpectEach(std::span<const Conv> convs, double tolerance) {
    for (const Conv& c : convs) {
      SCOPED_TRACE(StrCat(c.x, " ", c.w, " ", c.attributes));
      Expect(WithRest(c), "conv_transpose", tolerance);
    }
  }
};

constexpr Conv kConvs[] = {
    {"[1, 3, 5, 7]", "[3, 4, 3, 3]", "4", "", "[1, 4, 7, 9]"},
    {"[2, 3, 5, 7]", "[3, 4, 4, 4]", "4", "strides = [2, 2], pads = [1, 1, 1, 1]",
     "[2, 4, 10, 14]"},
    {"[N, 5, 6, 20]", "[5, 9, 2, 2]", "9", "strides = [2, 2]", "[N, 9, 12, 40]"},
    {"[1, 4, 5, 6]", "[4, 3, 3, 2]", "6", "group = 2, strides = [2, 3], output_padding = [1, 2]",
     "[1, 6, 12, 19]"},
    {"[1, 2, 6, 5]", "[2, 3, 3, 3]", "3", "dilations = [2, 3], pads = [1, 2, 0, 1]",
     "[1, 3, 9, 8]"},
    {"[1, 2, 6, 5]", "[2, 3, 3, 4]", "3", "dilations = [2, 2], strides = [3, 2]", "[1, 3, 20, 15]"},
    {"[1, 2, 6, 5]", "[2, 1, 3, 3]", "1", "strides = [2, 2], auto_pad = \"SAME_UPPER\"",
     "[1, 1, 12, 10]"},
    {"[1, 2, 6, 5]", "[2, 1, 2, 2]", "1", "strides = [3, 4]", "[1, 1, 17, 18]"},
    {"[2, 3, 40]", "[3, 5, 5]", "5", "strides = [2], pads = [2, 1]", "[2, 5, 80]"},
    {"[1, 2, 3, 4, 5]", "[2, 3, 2, 3, 3]", "3", "strides = [2, 1, 2], pads = [0, 1, 1, 1, 0, 0]",
     "[1, 3, 5, 5, 10]"},
    {"[1, 2, 1, 1]", "[2, 12, 4, 4]", "12", "", "[1, 12, 4, 4]"},
};

TEST_F(ConvTransposeTest, OfManyShapes) {
  symbol_ = 3;
  ExpectEach(kConvs, 1e-5);
}

// Blocks of rows, of columns and of images, the last of which are smaller; padding that cuts more
// than is between rows; phases that are computed together.
TEST_F(ConvTransposeTest, InBlocks) {
  constexpr Conv kMany[] = {
      {"[41, 3, 4, 4]", "[3, 13, 4, 4]", "13", "strides = [2, 2], pads = [1, 1, 1, 1]",
       "[41, 13, 8, 8]"},
      {"[23, 2, 3, 5]", "[2, 3, 3, 3]", "3", "strides = [2, 2]", "[23, 3, 7, 11]"},
      {"[2, 3, 9, 300]", "[3, 2, 3, 3]", "2", "strides = [2, 2], pads = [1, 1, 0, 0]",
       "[2, 2, 18, 600]"},
      {"[1, 64, 40, 30]", "[64, 2, 4, 2]", "2", "strides = [2, 1], pads = [1, 0, 1, 1]",
       "[1, 2, 80, 30]"},
      {"[1, 2, 6, 40]", "[2, 3, 3, 3]", "3", "pads = [1, 10, 1, 10]", "[1, 3, 6, 22]"},
      {"[3, 2, 8, 8]", "[2, 2, 5, 9]", "2", "strides = [2, 2], pads = [3, 8, 3, 7]",
       "[3, 2, 13, 8]"},
      {"[2, 5, 70]", "[5, 1, 16]", "1", "strides = [8], pads = [4, 4]", "[2, 1, 560]"},
      {"[1, 5, 2000]", "[5, 2, 6]", "2", "strides = [4], pads = [2, 0]", "[1, 2, 8000]"},
      {"[2, 3, 1, 1]", "[3, 2, 4, 4]", "2", "strides = [2, 2], pads = [1, 1, 1, 1]",
       "[2, 2, 2, 2]"},
  };
  ExpectEach(kMany, 1e-5);
}

TEST_F(ConvTransposeTest, OfLargeKernelsAndRows) {
  constexpr Conv kLarge[] = {
      {"[1, 6, 21]", "[6, 1, 40]", "1", "strides = [16]", "[1, 1, 360]"},
      {"[2, 5, 19]", "[5, 3, 33]", "3", "strides = [5], pads = [7, 2]", "[2, 3, 114]"},
      {"[1, 4, 9]", "[4, 2, 35]", "4", "strides = [50], group = 2", "[1, 4, 435]"},
      {"[1, 2, 3, 5]", "[2, 11, 2, 36]", "11", "strides = [2, 1]", "[1, 11, 6, 40]"},
      {"[1, 530, 250]", "[530, 3, 8]", "3", "strides = [4], pads = [2, 2]", "[1, 3, 1000]"},
  };
  ExpectEach(kLarge, 1e-4);
  symbol_ = 23;
  Expect(WithRest({"[N, 6, T]", "[6, 2, 40]", "2", "strides = [16]", "[N, 2, 16 * T + 24]"}),
         "conv_transpose", 1e-5);
}

TEST_F(ConvTransposeTest, InDouble) { Expect(WithRest(kConvs[1], "f64"), "conv_transpose", 1e-12); }

TEST_F(ConvTransposeTest, WithoutBatch) {
  symbol_ = 0;
  Expect(WithRest(kConvs[2]), "conv_transpose");
}

TEST_F(ConvTransposeTest, SaysWhyNot) {
  const std::string why =
      Refusal(WithRest({"[1, 2, H, 8]", "[2, 1, 3, 3]", "1",
                        "strides = [2, 2], auto_pad = \"SAME_UPPER\"", "[1, 1, 2*H, 16]"}));
  EXPECT_NE(why.find("conv_transpose: the padding depends on the extents"), std::string::npos)
      << why;
}

}  // namespace
}  // namespace lathe::lower
