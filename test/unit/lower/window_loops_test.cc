#include "test/unit/lower/lower_util.h"

// Windows over planes of symbolic extents, and what else no faster strategy takes.
namespace lathe::lower {
namespace {

std::string TypeOf(const std::string& shape, const char* element = "f32") {
  return StrCat("v_tensor<", shape, ", ", element, ">");
}

class WindowLoopsTest : public LowerTest {
 protected:
  static Case Unary(const char* op, const std::string& x, const std::string& attributes,
                    const std::string& y, const char* element = "f32") {
    const std::string in = TypeOf(x, element), out = TypeOf(y, element);
    return {{in}, StrCat("%r = nn.", op, "(%a) {", attributes, "} : (", in, ") -> ", out), out};
  }
};

TEST_F(WindowLoopsTest, PoolsOfSymbolicExtents) {
  only_ = "loops";
  struct Window {
    const char *attributes, *y;
  };
  for (const Window& w : {
           Window{"kernel_shape = [3, 3], pads = [1, 1, 1, 1]", "[N, 2, N, N]"},
           Window{"kernel_shape = [2, 3], strides = [2, 2], pads = [1, 0, 0, 1]",
                  "[N, 2, floordiv(N - 1, 2) + 1, floordiv(N - 2, 2) + 1]"},
           Window{"kernel_shape = [3, 2], strides = [2, 3], auto_pad = \"SAME_LOWER\"",
                  "[N, 2, floordiv(N + 1, 2), floordiv(N + 2, 3)]"},
           Window{"kernel_shape = [2, 2], dilations = [2, 3], pads = [1, 2, 1, 1]", "[N, 2, N, N]"},
       }) {
    for (const int64_t n : {5}) {
      symbol_ = n;
      for (const char* op : {"max_pool", "average_pool", "lp_pool"}) {
        SCOPED_TRACE(StrCat(op, " ", w.attributes, " ", n));
        Expect(Unary(op, "[N, 2, N, N]", w.attributes, w.y), "loops", 1e-5);
      }
    }
  }
}

// Channels that an operand lacks would be read beyond its end.
// That they agree is a condition on the sizes of each run.
TEST_F(WindowLoopsTest, ChannelsThatMayDiffer) {
  const auto expect = [&](const char* op, const std::string& w, const std::string& y) {
    const std::string x = TypeOf("[1, C, 5, 5]");
    Expect({{x, TypeOf(w)},
            StrCat("%r = nn.", op, "(%a, %b) : (", x, ", ", TypeOf(w), ") -> ", TypeOf(y)),
            TypeOf(y)},
           "loops", 1e-5);
  };
  expect("conv", "[4, D, 3, 3]", "[1, 4, 3, 3]");
  expect("conv_transpose", "[D, 4, 3, 3]", "[1, 4, 7, 7]");
}

TEST_F(WindowLoopsTest, ChannelsLast) {
  Expect(
      Unary("max_pool", "[2, 7, 8, 3]", "kernel_shape = [2, 3], layout = \"NHWC\"", "[2, 6, 6, 3]"),
      "loops");
  Expect(Unary("average_pool", "[2, 7, 8, 3]",
               "kernel_shape = [2, 3], pads = [1, 0, 0, 1], layout = \"NHWC\"", "[2, 7, 7, 3]"),
         "loops", 1e-5);
}

TEST_F(WindowLoopsTest, LocalResponse) {
  for (const char* size : {"1", "4", "5", "9"}) {
    Expect(Unary("lrn", "[2, 7, 3, 5]", StrCat("size = ", size, ", alpha = 0.5"), "[2, 7, 3, 5]"),
           "loops", 1e-5);
  }
}

TEST_F(WindowLoopsTest, TransposedConvolutionOfSymbolicExtents) {
  only_ = "loops";
  const std::string x = TypeOf("[2, 6, N, 4]"), w = TypeOf("[6, 3, 3, 2]"), b = TypeOf("[9]"),
                    y = TypeOf("[2, 9, 2 * N - 1, 12]");
  symbol_ = 5;
  Expect({{x, w, b},
          StrCat("%r = nn.conv_transpose(%a, %b, %c) {group = 3, strides = [2, 3], pads = [1, 0, "
                 "1, 0], output_padding = [0, 1]} : (",
                 x, ", ", w, ", ", b, ") -> ", y),
          y},
         "loops", 1e-5);
}

TEST_F(WindowLoopsTest, ConvolutionsOfIntegers) {
  const std::string x = TypeOf("[2, 4, 5, N]", "u8"), w = TypeOf("[6, 2, 3, 2]", "i8"),
                    zx = TypeOf("[]", "u8"), zw = TypeOf("[6]", "i8"),
                    y = TypeOf("[2, 6, 5, N - 1]", "i32");
  for (const int64_t n : {2, 7}) {
    symbol_ = n;
    Expect({{x, w, zx, zw},
            StrCat("%r = nn.conv_integer(%a, %b, %c, %d) {group = 2, pads = [1, 0, 1, 0]} : (", x,
                   ", ", w, ", ", zx, ", ", zw, ") -> ", y),
            y},
           "loops");
  }
}

}  // namespace
}  // namespace lathe::lower
