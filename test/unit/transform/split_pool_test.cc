#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/pass/pass.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

// Over [N, 2, 11, 14].
constexpr const char* kWindows[] = {
    "kernel_shape = [7, 9], pads = [3, 4, 3, 4]",
    "kernel_shape = [11, 6], pads = [10, 5, 10, 5]",  // padding only, at the corners
    "kernel_shape = [7, 10], strides = [2, 3], ceil_mode = true",
    "kernel_shape = [6, 7], dilations = [2, 2], strides = [1, 2], pads = [4, 3, 0, 2]",
    "kernel_shape = [20, 30], strides = [3, 1], pads = [19, 18, 4, 20]",
    "kernel_shape = [9, 9], auto_pad = \"SAME_UPPER\", strides = [2, 1]",
    "kernel_shape = [9, 9], auto_pad = \"VALID\"",
    "kernel_shape = [9, 9], auto_pad = \"SAME_LOWER\", ceil_mode = true",
    "kernel_shape = [4, 13], pads = [1, 7, 3, 6], dilations = [3, 1], ceil_mode = true",
};

class SplitPoolTest : public ::testing::Test {
 protected:
  SplitPoolTest() { LoadAllDialects(context_); }

  // Numbers with equal ones among them, zeros of both signs, and a NaN if wanted.
  static Tensor Data(ElementType element, int64_t batch, bool with_nan) {
    const Shape shape{batch, 2, 11, 14};
    std::vector<double> values(static_cast<size_t>(NumElements(shape)));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(i * 7919 % 61) - (IsFloat(element) ? 50 : 0);
      if (IsFloat(element) && values[i] < -30) values[i] = i % 2 == 0 ? -0.0 : -INFINITY;
      if (with_nan && i % 97 == 41) values[i] = std::numeric_limits<double>::quiet_NaN();
    }
    return Cast(Tensor::Of<double>(shape, values), element);
  }

  // What a pool gives before and after.
  std::pair<Tensor, Tensor> Both(const std::string& op, const std::string& window,
                                 const Tensor& x) {
    const std::string_view element = Name(x.element_type());
    const std::string in = StrCat("v_tensor<[N, 2, 11, 14], ", element, ">");
    const std::string out = StrCat("v_tensor<[N, 2, ?, ?], ", element, ">");
    Program program =
        ParseProgram(context_, StrCat("program {\n%x = nn.feed() {name = \"x\"} : () -> ", in,
                                      "\n%y = nn.", op, "(%x) {", window, "} : (", in, ") -> ", out,
                                      "\nnn.fetch(%y) {name = \"y\"} : (", out, ") -> ()\n}"));
    const NamedValues inputs{{"x", RtValue(x)}};
    const Tensor before = Interpreter(program).Run(inputs)[0].second.tensor();
    PassRegistry::Global().Make("split_pool")->Apply(program);
    EXPECT_EQ(std::ranges::distance(*program.block()), 4);
    return {before, Interpreter(program).Run(inputs)[0].second.tensor()};
  }

  IrContext context_;
};

TEST_F(SplitPoolTest, TheGreatestIsTheSameBitByBit) {
  using enum ElementType;
  for (const ElementType element : {kF32, kF64, kF16, kBF16, kI8, kU8}) {
    for (const std::string w : kWindows) {
      SCOPED_TRACE(StrCat(Name(element), " ", w));
      for (const int64_t batch : {0, 2}) {
        const auto [before, after] = Both("max_pool", w, Data(element, batch, IsFloat(element)));
        EXPECT_EQ(before.shape(), after.shape());
        EXPECT_TRUE(std::ranges::equal(before.bytes(), after.bytes()));
      }
    }
  }
}

TEST_F(SplitPoolTest, MeansAreAsClose) {
  for (const ElementType element : {ElementType::kF32, ElementType::kF64}) {
    const double tolerance = element == ElementType::kF32 ? 1e-6 : 1e-14;
    for (const std::string w : kWindows) {
      for (const char* pads : {"", ", count_include_pad = true"}) {
        const std::string attributes = StrCat(w, pads);
        SCOPED_TRACE(StrCat(Name(element), " ", attributes));
        for (const bool with_nan : {false, true}) {
          const auto [before, after] = Both("average_pool", attributes, Data(element, 2, with_nan));
          const Closeness close = AllClose(after, before, tolerance, tolerance);
          EXPECT_TRUE(close) << close.description;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe
