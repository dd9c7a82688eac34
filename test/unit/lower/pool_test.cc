
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string TypeOf(const std::string& shape, const char* element = "f32") {
  return StrCat("v_tensor<", shape, ", ", element, ">");
}

class PoolTest : public LowerTest {
 protected:
  /// A pool and a relu behind it; `y` is the shape of the result.
  Case WithRelu(const char* op, const std::string& x, const std::string& attributes,
                const std::string& y, const char* element = "f32") {
    const std::string in = TypeOf(x, element), out = TypeOf(y, element);
    return {{in},
            StrCat("%p = nn.", op, "(%a) {", attributes, "} : (", in, ") -> ", out,
                   "\n%r = nn.relu(%p) : (", out, ") -> ", out),
            out};
  }
};

struct Window {
  const char *x, *attributes, *y;
};

constexpr Window kWindows[] = {
    {"[1, 2, 9, 21]", "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]",
     "[1, 2, 5, 11]"},
    {"[2, 3, 8, 38]", "kernel_shape = [2, 2], strides = [2, 2]", "[2, 3, 4, 19]"},
    {"[1, 2, 7, 7]", "kernel_shape = [3, 3], pads = [1, 1, 1, 1]", "[1, 2, 7, 7]"},
    {"[N, 3, 6, 40]", "kernel_shape = [3, 3], strides = [1, 1]", "[N, 3, 4, 38]"},
    {"[N, M, 12, 9]", "kernel_shape = [3, 3], strides = [2, 2], pads = [0, 0, 1, 1]",
     "[N, M, 6, 4]"},
    {"[1, 2, 10, 11]", "kernel_shape = [3, 2], strides = [2, 3], ceil_mode = true", "[1, 2, 5, 4]"},
    {"[1, 1, 11, 12]", "kernel_shape = [3, 3], dilations = [2, 3], pads = [2, 1, 0, 3]",
     "[1, 1, 9, 10]"},
    {"[1, 2, 7, 9]", "kernel_shape = [2, 3], strides = [2, 2], auto_pad = \"SAME_UPPER\"",
     "[1, 2, 4, 5]"},
    {"[1, 2, 7, 9]", "kernel_shape = [2, 3], strides = [3, 2], auto_pad = \"SAME_LOWER\"",
     "[1, 2, 3, 5]"},
    {"[2, 3, 50]", "kernel_shape = [4], strides = [2], pads = [1, 2]", "[2, 3, 25]"},
    {"[2, 3, 150]", "kernel_shape = [2]", "[2, 3, 149]"},
    {"[1, 2, 5, 6, 7]", "kernel_shape = [2, 3, 2], strides = [2, 1, 2], pads = [0, 1, 1, 1, 1, 0]",
     "[1, 2, 3, 6, 4]"},
    {"[1, 1, 3, 1]", "kernel_shape = [2, 1]", "[1, 1, 2, 1]"},
    {"[1, 1, 90, 130]", "kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1]",
     "[1, 1, 90, 130]"},
    {"[1, 1, 91, 130]", "kernel_shape = [5, 5], strides = [2, 2], pads = [2, 2, 2, 2]",
     "[1, 1, 46, 65]"},
    {"[1, 2, 3]", "kernel_shape = [3], strides = [3], dilations = [2], ceil_mode = true",
     "[1, 2, 1]"},  // as long as the input, but not over all of it
    {"[1, 1, 20, 20]", "kernel_shape = [9, 9], strides = [2, 2], pads = [4, 4, 4, 4]",
     "[1, 1, 10, 10]"},
};

TEST_F(PoolTest, OfTheGreatest) {
  symbol_ = 2;
  for (const Window& w : kWindows) {
    SCOPED_TRACE(StrCat(w.x, " ", w.attributes));
    Expect(WithRelu("max_pool", w.x, w.attributes, w.y), "pool");
  }
}

TEST_F(PoolTest, OfTheMean) {
  symbol_ = 3;
  for (const Window& w : kWindows) {
    for (const char* pads : {"", ", count_include_pad = true"}) {
      SCOPED_TRACE(StrCat(w.x, " ", w.attributes, pads));
      Expect(WithRelu("average_pool", w.x, StrCat(w.attributes, pads), w.y), "pool", 1e-5);
    }
  }
}

TEST_F(PoolTest, OfTheNorm) {
  for (const Window& w : std::span(kWindows).first(3)) {
    for (const char* p : {", p = 1", ", p = 2"}) {
      SCOPED_TRACE(StrCat(w.x, " ", w.attributes, p));
      Expect(WithRelu("lp_pool", w.x, StrCat(w.attributes, p), w.y), "pool", 1e-5);
    }
    for (const char* p : {", p = 3", ", p = 4", ", p = 7"}) {
      Expect(WithRelu("lp_pool", w.x, StrCat(w.attributes, p), w.y), "loops", 1e-5);
    }
  }
}

TEST_F(PoolTest, OfOtherElements) {
  const Window& w = kWindows[0];
  for (const char* element : {"i8", "u8", "f64"}) {
    const std::string in = TypeOf(w.x, element), out = TypeOf(w.y, element);
    Expect({{in}, StrCat("%r = nn.max_pool(%a) {", w.attributes, "} : (", in, ") -> ", out), out},
           "pool");
  }
  Expect(WithRelu("average_pool", w.x, w.attributes, w.y, "f64"), "pool", 1e-12);
}

TEST_F(PoolTest, EmptyBatch) {
  symbol_ = 0;
  Expect(WithRelu("max_pool", "[N, 2, 6, 6]", "kernel_shape = [2, 2]", "[N, 2, 5, 5]"), "pool");
}

TEST_F(PoolTest, WholePlanes) {
  symbol_ = 3;
  for (const auto& [x, y] : std::vector<std::array<const char*, 2>>{
           {"[1, 5, 7, 7]", "[1, 5, 1, 1]"},
           {"[N, 5, 13, 13]", "[N, 5, 1, 1]"},
           {"[N, M, 4, 4]", "[N, M, 1, 1]"},
           {"[2, 3, 1, 1]", "[2, 3, 1, 1]"},
           {"[2, 3, 3]", "[2, 3, 1]"},
           {"[1, 2, 5, 31, 9]", "[1, 2, 1, 1, 1]"},
       }) {
    for (const char* op : {"global_max_pool", "global_average_pool", "global_lp_pool"}) {
      SCOPED_TRACE(StrCat(op, " ", x));
      Expect(WithRelu(op, x, "", y), "pool_global", 1e-5);
    }
  }
  Expect(WithRelu("average_pool", "[1, 5, 7, 6]", "kernel_shape = [7, 6]", "[1, 5, 1, 1]"),
         "pool_global", 1e-5);
}

TEST_F(PoolTest, WithWhatFollows) {
  const std::string x = TypeOf("[2, 3, 9, 20]"), y = TypeOf("[2, 3, 5, 10]"),
                    s = TypeOf("[3, 1, 1]");
  Expect({{x, s, y},
          StrCat("%p = nn.max_pool(%a) {kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, "
                 "1]} : (",
                 x, ") -> ", y, "\n%q = nn.mul(%p, %b) : (", y, ", ", s, ") -> ", y,
                 "\n%r = nn.add(%q, %c) : (", y, ", ", y, ") -> ", y),
          y},
         "pool", 1e-6);
}

TEST_F(PoolTest, SaysWhyNot) {
  const auto why = [&](const char* op, const char* x, const char* attributes, const char* y) {
    return Refusal(WithRelu(op, x, attributes, y));
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(why("max_pool", "[1, 2, 8, 8]", "kernel_shape = [3, 3], layout = \"NHWC\"", "[1, 0, 6, 8]"),
      "the channels are last");
  has(why("max_pool", "[1, 2, H, 8]", "kernel_shape = [3, 3]", "[1, 2, H - 2, 6]"),
      "pool: extent H is symbolic");
  has(why("max_pool", "[1, 2, 40, 40]", "kernel_shape = [30, 30]", "[1, 2, 11, 11]"),
      "pool: the window is large");
}

}  // namespace
}  // namespace lathe::lower
