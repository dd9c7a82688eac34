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
  for (const Conv& c : kConvs) {
    SCOPED_TRACE(StrCat(c.x, " ", c.w, " ", c.attributes));
    Expect(WithRest(c), "conv_transpose", 1e-5);
  }
}

TEST_F(ConvTransposeTest, InDouble) { Expect(WithRest(kConvs[1], "f64"), "conv_transpose", 1e-12); }

TEST_F(ConvTransposeTest, WithoutBatch) {
  symbol_ = 0;
  Expect(WithRest(kConvs[2]), "conv_transpose");
}

TEST_F(ConvTransposeTest, SaysWhyNot) {
  const std::string why =
      Refusal(WithRest({"[1, 2, H, 8]", "[2, 1, 3, 3]", "1", "", "[1, 1, H + 2, 10]"}));
  EXPECT_NE(why.find("conv_transpose: extent H is symbolic"), std::string::npos) << why;
}

}  // namespace
}  // namespace lathe::lower
