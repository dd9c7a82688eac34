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
      Expect(Resize("[2, 3, 5]", "scales", "1.0, 2.0, 3.0", attributes, "[2, 6, 15]"), "resize");
      Expect(Resize("[2, 7, 5]", "sizes", "2, 4, 9", attributes, "[2, 4, 9]", "i32"), "resize");
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
        Expect(Resize("[2, 3, 5]", "scales", "1.0, 2.0, 1.6", attributes, "[2, 6, 8]"), "resize",
               1e-5);
      }
    }
  }
  Expect(Resize("[2, 7, 5]", "sizes", "2, 1, 9", "mode = \"linear\"", "[2, 1, 9]", "f64"), "resize",
         1e-12);
}

// Cubic filters go beyond the values that they are between; integers stay in their range.
TEST_F(ResizeTest, CubicIntegersSaturate) {
  for (const char* element : {"u8", "i8", "u16", "i32", "i64"}) {
    for (const char* rest : {"", ", antialias = true"}) {
      SCOPED_TRACE(StrCat(element, rest));
      Expect(Resize("[2, 7, 5]", "sizes", "2, 11, 9", StrCat("mode = \"cubic\"", rest),
                    "[2, 11, 9]", element),
             *rest == 0 ? "resize" : "loops");
    }
  }
}

// Shares of thirds sum up to one in some orders only.
TEST_F(ResizeTest, EqualIntegersStay) {
  for (const char* mode : {"linear", "cubic"}) {
    for (const char* rest : {"", ", antialias = true", ", exclude_outside = true"}) {
      SCOPED_TRACE(StrCat(mode, rest));
      Expect(Resize("[2, 1, 1]", "sizes", "2, 6, 7", StrCat("mode = \"", mode, "\"", rest),
                    "[2, 6, 7]", "i8"),
             StrCat(rest).find("anti") == std::string::npos ? "resize" : "loops");
    }
  }
}

TEST_F(ResizeTest, OneElementOfPytorchHalfPixelIsTheFirst) {
  const std::string attributes =
      "coordinate_transformation_mode = \"pytorch_half_pixel\", mode = \"cubic\"";
  Expect(Resize("[2, 3, 5]", "scales", "1.0, 0.5, 1.6", attributes, "[2, 1, 8]"), "resize", 1e-5);
  Expect(Resize("[2, 3, 5]", "sizes", "2, 1, 8", attributes, "[2, 1, 8]"), "resize", 1e-5);
}

TEST_F(ResizeTest, SymbolicExtents) {
  symbol_ = 4;
  Expect(Resize("[N, 3, 5]", "scales", "1.0, 2.0, 2.0", "", "[N, 6, 10]"), "resize");
  Expect(Resize("[1, N, N]", "scales", "1.0, 2.0, 2.0", "mode = \"linear\"", "[1, 2 * N, 2 * N]"),
         "resize", 1e-5);
}

// Rows longer than what is kept of them at once, axes behind the resampled ones, one axis only.
TEST_F(ResizeTest, LongRowsAndInnerAxes) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const std::string attributes = StrCat("mode = \"", mode, "\"");
    SCOPED_TRACE(attributes);
    Expect(Resize("[2, 5, 401]", "sizes", "2, 70, 1203", attributes, "[2, 70, 1203]"), "resize",
           1e-5);
    Expect(Resize("[2, 3, 400]", "sizes", "2, 4, 1000", attributes, "[2, 4, 1000]"), "resize",
           1e-5);
    Expect(Resize("[5, 4, 37]", "sizes", "9, 7, 37", attributes, "[9, 7, 37]"), "resize", 1e-5);
    Expect(Resize("[5, 4, 37]", "sizes", "9, 4, 37", attributes, "[9, 4, 37]", "f16"), "resize",
           2e-3);
    Expect(Resize("[5, 4, 37]", "sizes", "5, 4, 50", attributes, "[5, 4, 50]", "f64"), "resize",
           1e-12);
  }
  Expect(Resize("[2, 3, 21]", "scales", "1.0, 1.0, 2.0", "", "[2, 3, 42]", "bool"), "resize");
  Expect(Resize("[2, 3, 21]", "scales", "3.0, 1.0, 3.0", "", "[6, 3, 63]", "i8"), "resize");
}

// Axes before the last two have as many taps as those, or one if they keep their length.
TEST_F(ResizeTest, AxesBeforeTheLastTwo) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* rest : {"", ", exclude_outside = true"}) {
      const std::string attributes = StrCat("mode = \"", mode, "\"", rest);
      SCOPED_TRACE(attributes);
      Expect(Resize("[4, 3, 5]", "sizes", "7, 5, 19", attributes, "[7, 5, 19]"), "resize", 1e-5);
      Expect(Resize("[9, 3, 5]", "scales", "0.4, 1.5, 2.1", attributes, "[3, 4, 10]", "f64"),
             "resize", 1e-12);
      Expect(Resize("[3, 2, 5]", "sizes", "5, 4, 6", attributes, "[5, 4, 6]", "u8"), "resize");
    }
  }
}

// Filters are as wide as the axes shrink.
TEST_F(ResizeTest, Antialiased) {
  for (const char* mode : {"linear", "cubic"}) {
    for (const char* rest : {"", ", exclude_outside = true"}) {
      const std::string attributes = StrCat("antialias = true, mode = \"", mode, "\"", rest);
      SCOPED_TRACE(attributes);
      Expect(Resize("[2, 9, 13]", "scales", "1.0, 0.5, 0.3", attributes, "[2, 4, 3]"), "loops",
             1e-5);
      Expect(Resize("[2, 3, 13]", "sizes", "2, 7, 4", attributes, "[2, 7, 4]", "f64"), "loops",
             1e-11);
      Expect(Resize("[9, 7, 3]", "sizes", "2, 9, 3", attributes, "[2, 9, 3]"), "loops", 1e-5);
      Expect(Resize("[5, 4, 37]", "sizes", "3, 2, 17", attributes, "[3, 2, 17]"), "loops", 1e-5);
    }
  }
  Expect(Resize("[2, 9, 1]", "sizes", "2, 1, 1", "antialias = true, mode = \"linear\"", "[2, 1, 1]",
                "f16"),
         "loops", 2e-3);
  symbol_ = 11;
  Expect(
      Resize("[1, N, 9]", "sizes", "1, 4, 9", "antialias = true, mode = \"linear\"", "[1, 4, 9]"),
      "loops", 1e-5);
  // What lies between the axes is of symbolic size, or larger than the memory of a thread.
  const std::string linear = "antialias = true, mode = \"linear\"";
  Expect(Resize("[2, N, M]", "sizes", "2, 4, 5", linear, "[2, 4, 5]"), "loops", 1e-5);
  Expect(Resize("[2, 210, 700]", "sizes", "2, 200, 3", linear, "[2, 200, 3]"), "loops", 1e-5);
}

TEST_F(ResizeTest, WholeNumbersInBetween) {
  for (const char* element : {"i32", "u8", "i64"}) {
    for (const char* mode : {"linear", "cubic"}) {
      Expect(Resize("[2, 5, 4]", "sizes", "2, 9, 3", StrCat("mode = \"", mode, "\""), "[2, 9, 3]",
                    element),
             "resize");
    }
  }
}

TEST_F(ResizeTest, OneFactorOfAllAxes) {
  for (const char* mode : {"nearest", "linear"}) {
    const std::string attributes = StrCat("axes = [0, 1, 2], mode = \"", mode, "\", ");
    Expect(Resize("[4, 6, 8]", "sizes", "3, 6, 8",
                  attributes + "keep_aspect_ratio_policy = \"not_larger\"", "[3, 5, 6]"),
           "resize", 1e-5);
    Expect(Resize("[4, 6, 8]", "sizes", "3, 9, 8",
                  attributes + "keep_aspect_ratio_policy = \"not_smaller\"", "[6, 9, 12]"),
           "resize", 1e-5);
  }
}

TEST_F(ResizeTest, RegionsCutOut) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const std::string x = "v_tensor<[2, 5, 6], f32>", y = "v_tensor<[2, 4, 5], f32>";
    Expect({{x},
            StrCat("%roi = builtin.constant() {value = tensor<[4], f32> [0.2, 0.3, 0.9, 1.2]} : () "
                   "-> v_tensor<[4], f32>\n%s = builtin.constant() {value = tensor<[2], i64> [4, "
                   "5]} : () -> v_tensor<[2], i64>\n%r = nn.resize(%a, %roi, none, %s) {mode = \"",
                   mode,
                   "\", axes = [1, 2], coordinate_transformation_mode = \"tf_crop_and_resize\", "
                   "extrapolation_value = 7.5} : (",
                   x, ", v_tensor<[4], f32>, none, v_tensor<[2], i64>) -> ", y),
            y},
           "loops", 1e-5);
  }
}

}  // namespace
}  // namespace lathe::lower
