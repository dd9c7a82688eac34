#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

struct Conv {
  const char *x, *w, *filters, *attributes, *y;
};

class ConvDepthwiseTest : public LowerTest {
 protected:
  ConvDepthwiseTest() { refuses_subnormal_operands_ = true; }

  static std::string TypeOf(const std::string& shape, const char* element) {
    return StrCat("v_tensor<", shape, ", ", element, ">");
  }
  /// With a bias, something added and a relu.
  static Case WithRest(const Conv& c, const char* element = "f32") {
    const std::string x = TypeOf(c.x, element), w = TypeOf(c.w, element),
                      b = TypeOf(StrCat("[", c.filters, "]"), element), y = TypeOf(c.y, element);
    return {{x, w, b, y},
            StrCat("%p = nn.conv(%a, %b, %c) {", c.attributes, "} : (", x, ", ", w, ", ", b,
                   ") -> ", y, "\n%q = nn.add(%p, %d) : (", y, ", ", y, ") -> ", y,
                   "\n%r = nn.relu(%q) : (", y, ") -> ", y),
            y};
  }
};

constexpr Conv kConvs[] = {
    {"[1, 3, 9, 21]", "[3, 1, 3, 3]", "3", "group = 3, pads = [1, 1, 1, 1]", "[1, 3, 9, 21]"},
    {"[2, 3, 14, 14]", "[3, 1, 3, 3]", "3", "group = 3, pads = [1, 1, 1, 1], strides = [2, 2]",
     "[2, 3, 7, 7]"},
    {"[N, 4, 7, 7]", "[4, 1, 3, 3]", "4", "group = 4, pads = [1, 1, 1, 1]", "[N, 4, 7, 7]"},
    {"[N, 2, 10, 38]", "[6, 1, 3, 2]", "6", "group = 2", "[N, 6, 8, 37]"},
    {"[1, 4, 9, 8]", "[10, 2, 3, 3]", "10", "group = 2, pads = [1, 1, 1, 1]", "[1, 10, 9, 8]"},
    {"[1, 6, 9, 19]", "[8, 3, 3, 3]", "8",
     "group = 2, dilations = [2, 3], auto_pad = \"SAME_UPPER\"", "[1, 8, 9, 19]"},
    {"[1, 6, 11, 40]", "[6, 1, 5, 5]", "6", "group = 6, pads = [2, 2, 2, 2], strides = [2, 3]",
     "[1, 6, 6, 14]"},
    {"[1, 2, 12, 12]", "[2, 1, 7, 5]", "2", "group = 2, pads = [3, 2, 3, 2]", "[1, 2, 12, 12]"},
    {"[2, 3, 50]", "[3, 1, 5]", "3", "group = 3, pads = [2, 2]", "[2, 3, 50]"},
    {"[2, 3, 150]", "[6, 1, 4]", "6", "group = 3, strides = [2]", "[2, 6, 74]"},
    {"[1, 2, 5, 6, 7]", "[4, 1, 2, 3, 2]", "4", "group = 2, pads = [0, 1, 1, 1, 1, 0]",
     "[1, 4, 5, 6, 7]"},
    {"[1, 2, 90, 130]", "[2, 1, 3, 3]", "2", "group = 2, pads = [1, 1, 1, 1]", "[1, 2, 90, 130]"},
    {"[1, 2, 91, 131]", "[2, 1, 3, 3]", "2", "group = 2, pads = [1, 1, 1, 1], strides = [2, 2]",
     "[1, 2, 46, 66]"},
    {"[1, 2, 1, 1]", "[2, 1, 3, 3]", "2", "group = 2, pads = [1, 1, 1, 1]", "[1, 2, 1, 1]"},
};

TEST_F(ConvDepthwiseTest, OfManyShapes) {
  symbol_ = 3;
  for (const Conv& c : kConvs) {
    SCOPED_TRACE(StrCat(c.x, " ", c.w, " ", c.attributes));
    Expect(WithRest(c), "conv_depthwise", 1e-5);
  }
}

// Kernels whose places are not written out.
constexpr Conv kLarge[] = {
    {"[1, 3, 12, 20]", "[3, 1, 7, 7]", "3", "group = 3, pads = [3, 3, 3, 3]", "[1, 3, 12, 20]"},
    {"[2, 2, 19, 40]", "[2, 1, 13, 9]", "2", "group = 2, pads = [6, 4, 6, 4]", "[2, 2, 19, 40]"},
    {"[1, 3, 23, 22]", "[6, 1, 9, 7]", "6", "group = 3, strides = [2, 3], pads = [4, 3, 4, 3]",
     "[1, 6, 12, 8]"},
    {"[1, 4, 25, 30]", "[6, 2, 7, 7]", "6",
     "group = 2, dilations = [2, 3], auto_pad = \"SAME_LOWER\"", "[1, 6, 25, 30]"},
    {"[2, 3, 70]", "[3, 1, 41]", "3", "group = 3, pads = [20, 20]", "[2, 3, 70]"},
    {"[1, 2, 1, 9]", "[2, 1, 11, 11]", "2", "group = 2, pads = [5, 5, 5, 5]", "[1, 2, 1, 9]"},
    {"[1, 2, 6, 9, 7]", "[4, 1, 3, 5, 4]", "4", "group = 2, pads = [1, 2, 1, 1, 2, 2]",
     "[1, 4, 6, 9, 7]"},
};

TEST_F(ConvDepthwiseTest, OfLargeKernels) {
  for (const Conv& c : kLarge) {
    SCOPED_TRACE(StrCat(c.x, " ", c.w, " ", c.attributes));
    Expect(WithRest(c), "conv_depthwise_blocks", 1e-5);
    Expect(WithRest(c, "f64"), "conv_depthwise_blocks", 1e-12);
  }
}

// Planes that are narrower than vectors.
TEST_F(ConvDepthwiseTest, OfNarrowPlanes) {
  constant_ = {false, true, false, false};
  const Conv convs[] = {
      {"[2, 19, 3, 4]", "[19, 1, 7, 7]", "19", "group = 19, pads = [3, 3, 3, 3]", "[2, 19, 3, 4]"},
      {"[1, 32, 2, 1]", "[32, 1, 11, 5]", "32", "group = 32, pads = [5, 2, 5, 2]", "[1, 32, 2, 1]"},
      {"[1, 16, 20, 4]", "[16, 1, 20, 3]", "16", "group = 16", "[1, 16, 1, 2]"},
      {"[1, 17, 30, 150]", "[17, 1, 7, 6]", "17", "group = 17, strides = [2, 2]",
       "[1, 17, 12, 73]"},
      {"[3, 16, 4]", "[16, 1, 41]", "16", "group = 16, pads = [20, 20]", "[3, 16, 4]"},
  };
  for (const Conv& c : convs) {
    SCOPED_TRACE(StrCat(c.x, " ", c.w, " ", c.attributes));
    Expect(WithRest(c), "conv_channel_lanes", 1e-5);
  }
}

// Places of the kernel that see nothing but padding, from the left, from the right and at all.
TEST_F(ConvDepthwiseTest, OfPlacesFarApart) {
  symbol_ = 2;
  const Conv convs[] = {
      {"[1, 9, 14, 14]", "[9, 1, 3, 3]", "9",
       "group = 9, dilations = [36, 36], pads = [36, 36, 36, 36]", "[1, 9, 14, 14]"},
      {"[N, 3, 21, 45]", "[3, 1, 3, 3]", "3",
       "group = 3, dilations = [7, 16], pads = [7, 16, 7, 16]", "[N, 3, 21, 45]"},
      {"[1, 2, 9, 40]", "[2, 1, 2, 4]", "2",
       "group = 2, dilations = [1, 20], pads = [3, 50, 0, 13]", "[1, 2, 11, 43]"},
      {"[1, 2, 70, 80]", "[2, 1, 3, 5]", "2", "group = 2, dilations = [20, 9]", "[1, 2, 30, 44]"},
      {"[1, 3, 8, 30]", "[3, 1, 4, 3]", "3",
       "group = 3, dilations = [2, 17], auto_pad = \"SAME_LOWER\"", "[1, 3, 8, 30]"},
      {"[1, 2, 2, 1100]", "[2, 1, 1, 3]", "2",
       "group = 2, dilations = [1, 30], pads = [0, 30, 0, 30]", "[1, 2, 2, 1100]"},
      {"[1, 2, 3, 1]", "[2, 1, 3, 3]", "2",
       "group = 2, dilations = [40, 40], pads = [40, 40, 40, 40]", "[1, 2, 3, 1]"},
  };
  for (const Conv& c : convs) {
    SCOPED_TRACE(StrCat(c.x, " ", c.w, " ", c.attributes));
    Expect(WithRest(c), "conv_depthwise_far", 1e-5);
    Expect(WithRest(c, "f64"), "conv_depthwise_far", 1e-12);
  }
}

TEST_F(ConvDepthwiseTest, InDouble) {
  for (const Conv& c : std::span(kConvs).first(2))
    Expect(WithRest(c, "f64"), "conv_depthwise", 1e-12);
}

TEST_F(ConvDepthwiseTest, WithoutBiasOrBatch) {
  symbol_ = 0;
  Expect(WithRest(kConvs[2]), "conv_depthwise");
  const std::string x = TypeOf(kConvs[0].x, "f32"), w = TypeOf(kConvs[0].w, "f32");
  Expect({{x, w},
          StrCat("%r = nn.conv(%a, %b) {", kConvs[0].attributes, "} : (", x, ", ", w, ") -> ", x),
          x},
         "conv_depthwise", 1e-5);
}

TEST_F(ConvDepthwiseTest, SaysWhyNot) {
  const auto has = [&](const Conv& c, const char* part) {
    const std::string text = Refusal(WithRest(c));
    EXPECT_NE(text.find(StrCat("conv_depthwise: ", part)), std::string::npos) << text;
  };
  has({"[1, 2, H, 8]", "[2, 1, 3, 3]", "2", "group = 2", "[1, 2, H - 2, 6]"},
      "extent H is symbolic");
}

}  // namespace
}  // namespace lathe::lower
