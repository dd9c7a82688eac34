#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

class ResizeTest : public LowerTest {
 protected:
  /// Of an input of rank 3; `how`: "scales" or "sizes" and their values.
  static Case Resize(const std::string& x, const std::string& how, const std::string& values,
                     const std::string& attributes, const std::string& y,
                     const char* element = "f32") {
    const std::string in = StrCat("v_tensor<", x, ", ", element, ">"),
                      out = StrCat("v_tensor<", y, ", ", element, ">");
    const bool scales = how == "scales";
    const std::string type = StrCat("<[3], ", scales ? "f32" : "i64", ">");
    const std::string operands = scales ? "(%a, none, %s, none)" : "(%a, none, none, %s)";
    const std::string types =
        scales ? StrCat("none, v_tensor", type, ", none") : StrCat("none, none, v_tensor", type);
    return {{in},
            StrCat("%s = builtin.constant() {value = tensor", type, " [", values,
                   "]} : () -> v_tensor", type, "\n%r = nn.resize", operands, " {", attributes,
                   "} : (", in, ", ", types, ") -> ", out),
            out};
  }
};

TEST_F(ResizeTest, Nearest) {
  for (const char* coordinates : {"half_pixel", "half_pixel_symmetric", "asymmetric",
                                  "align_corners", "pytorch_half_pixel"}) {
    for (const char* nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
      const std::string attributes = StrCat("coordinate_transformation_mode = \"", coordinates,
                                            "\", nearest_mode = \"", nearest, "\"");
      SCOPED_TRACE(attributes);
      Expect(Resize("[2, 3, 5]", "scales", "1.0, 2.0, 3.0", attributes, "[2, 6, 15]"), "loops");
      Expect(Resize("[2, 7, 5]", "sizes", "2, 4, 9", attributes, "[2, 4, 9]", "i32"), "loops");
    }
  }
}

TEST_F(ResizeTest, Interpolated) {
  for (const char* coordinates : {"half_pixel", "half_pixel_symmetric", "asymmetric",
                                  "align_corners", "pytorch_half_pixel"}) {
    for (const char* mode : {"linear", "cubic"}) {
      for (const char* rest : {"", ", exclude_outside = true"}) {
        const std::string attributes = StrCat("coordinate_transformation_mode = \"", coordinates,
                                              "\", mode = \"", mode, "\"", rest);
        SCOPED_TRACE(attributes);
        Expect(Resize("[2, 3, 5]", "scales", "1.0, 2.0, 1.6", attributes, "[2, 6, 8]"), "loops",
               1e-5);
      }
    }
  }
  Expect(Resize("[2, 7, 5]", "sizes", "2, 1, 9", "mode = \"linear\"", "[2, 1, 9]", "f64"), "loops",
         1e-12);
}

TEST_F(ResizeTest, SymbolicExtents) {
  symbol_ = 4;
  Expect(Resize("[N, 3, 5]", "scales", "1.0, 2.0, 2.0", "", "[N, 6, 10]"), "loops");
  Expect(Resize("[1, N, N]", "scales", "1.0, 2.0, 2.0", "mode = \"linear\"", "[1, 2 * N, 2 * N]"),
         "loops", 1e-5);
}

TEST_F(ResizeTest, SaysWhyNot) {
  const std::string why = Refusal(Resize("[2, 4, 4]", "scales", "1.0, 0.5, 0.5",
                                         "mode = \"linear\", antialias = true", "[2, 2, 2]"));
  EXPECT_NE(why.find("loops: filters as wide"), std::string::npos) << why;
}

}  // namespace
}  // namespace lathe::lower
