#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string Tensors(const std::string& shape) { return StrCat("v_tensor<", shape, ", f32>"); }

struct FewPositionsCase {
  std::string x, w, attributes, y;
};

class ConvFewPositions : public LowerTest {
 protected:
  void ExpectCase(const FewPositionsCase& c) {
    SCOPED_TRACE(StrCat(c.x, " * ", c.w, " ", c.attributes));
    const std::string x = Tensors(c.x), w = Tensors(c.w), y = Tensors(c.y);
    constant_ = {false, false};
    only_ = "conv_few_positions";
    Expect({{x, w},
            StrCat("%r = nn.conv(%a, %b) {", c.attributes, "} : (", x, ", ", w, ") -> ", y),
            y},
           "conv_few_positions", 1e-4);
  }
};

// As the gradient of the filters of a convolution is: images are its channels, channels its images.
TEST_F(ConvFewPositions, GradientsOfFilters) {
  ExpectCase({"[5, 2, 9, 9]", "[7, 2, 9, 9]", "pads = [1, 1, 1, 1]", "[5, 7, 3, 3]"});
  ExpectCase({"[3, 3, 20, 21]", "[40, 3, 20, 21]", "pads = [1, 1, 1, 1]", "[3, 40, 3, 3]"});
  ExpectCase({"[40, 5, 7, 7]", "[33, 5, 7, 7]", "pads = [1, 1, 1, 1]", "[40, 33, 3, 3]"});
  ExpectCase({"[2, 11, 8, 9]", "[70, 11, 8, 9]", "", "[2, 70, 1, 1]"});
  ExpectCase({"[1, 2, 300, 7]", "[20, 2, 300, 6]", "pads = [1, 0, 1, 1]", "[1, 20, 3, 3]"});
}

// Of one with strides, dilations, or pads behind which nothing is.
TEST_F(ConvFewPositions, Steps) {
  ExpectCase({"[3, 2, 23, 23]", "[18, 2, 11, 11]", "dilations = [2, 2], pads = [3, 3, 1, 1]",
              "[3, 18, 7, 7]"});
  ExpectCase({"[4, 2, 14, 15]", "[16, 2, 10, 11]", "strides = [2, 2], pads = [0, 0, 0, 0]",
              "[4, 16, 3, 3]"});
  ExpectCase({"[13, 2, 15, 15]", "[16, 2, 8, 8]", "dilations = [2, 2]", "[13, 16, 1, 1]"});
  ExpectCase({"[2, 2, 4, 4]", "[3, 2, 9, 9]", "pads = [4, 4, 4, 4]", "[2, 3, 4, 4]"});
}

TEST_F(ConvFewPositions, SymbolicChannels) {
  ExpectCase({"[6, N, 7, 7]", "[20, N, 7, 7]", "pads = [1, 1, 1, 1]", "[6, 20, 3, 3]"});
  ExpectCase({"[3, N, 30, 31]", "[20, N, 30, 31]", "pads = [1, 1, 1, 1]", "[3, 20, 3, 3]"});
}

}  // namespace
}  // namespace lathe::lower
