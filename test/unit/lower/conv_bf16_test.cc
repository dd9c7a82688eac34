#include <cmath>
#include <limits>

#include "test/unit/lower/pairs_util.h"

namespace lathe::lower {
namespace {

std::string F32(const std::string& dims) { return StrCat("v_tensor<[", dims, "], f32>"); }

Case ConvOf(const std::string& x, const std::string& w, const std::string& attributes,
            const std::string& y) {
  return {{F32(x), F32(w)},
          StrCat("%p = nn.conv(%a, %b) {", attributes, "} : (", F32(x), ", ", F32(w), ") -> ",
                 F32(y), "\n%r = nn.relu(%p) : (", F32(y), ") -> ", F32(y)),
          F32(y)};
}

class ConvBf16 : public PairsTest {
 protected:
  ConvBf16() : PairsTest("conv_filter_lanes", "{always=1}") {}
};

TEST_F(ConvBf16, Dense) {
  ExpectPairs(ConvOf("1, 34, 5, 9", "33, 34, 1, 1", "", "1, 33, 5, 9"));
  ExpectPairs(ConvOf("2, 6, 9, 11", "20, 6, 3, 3", "pads = [1, 0, 1, 2]", "2, 20, 9, 11"));
  ExpectPairs(ConvOf("1, 600, 3, 2", "16, 600, 1, 1", "strides = [2, 1]", "1, 16, 2, 2"), 0.1);
  ExpectPairs(ConvOf("1, 4, 15, 14", "40, 4, 5, 3", "strides = [2, 2], pads = [2, 1, 2, 1]",
                     "1, 40, 8, 7"));
}

TEST_F(ConvBf16, OneAndThreeDims) {
  ExpectPairs(ConvOf("1, 8, 40", "19, 8, 5", "pads = [2, 2]", "1, 19, 40"));
  ExpectPairs(
      ConvOf("1, 4, 3, 4, 5", "17, 4, 2, 3, 3", "pads = [1, 1, 1, 0, 1, 1]", "1, 17, 3, 4, 5"));
}

TEST_F(ConvBf16, Groups) {
  ExpectPairs(
      ConvOf("1, 12, 7, 8", "64, 6, 3, 3", "group = 2, pads = [1, 1, 1, 1]", "1, 64, 7, 8"));
}

TEST_F(ConvBf16, KernelsThatReachFar) {
  ExpectPairs(ConvOf("1, 36, 20, 22", "24, 36, 3, 3",
                     "dilations = [12, 15], pads = [12, 15, 12, 15]", "1, 24, 20, 22"),
              0.1);
}

TEST_F(ConvBf16, SymbolicExtents) {
  for (const int64_t n : {1, 6, 33}) {
    symbol_ = n;
    ExpectPairs(ConvOf("1, 10, N, N", "21, 10, 3, 3", "pads = [1, 1, 1, 1]", "1, 21, N, N"));
    ExpectPairs(ConvOf("N, 10, 3, N", "21, 10, 1, 1", "", "N, 21, 3, N"));
  }
}

// Padding stays zero, and so do lanes for which nothing is computed.
TEST_F(ConvBf16, OfComputedInput) {
  const auto expect = [&](const std::string& in, const std::string& weights,
                          const std::string& pads, const std::string& out) {
    const std::string x = F32(in), w = F32(weights), y = F32(out);
    ExpectPairs({{x, w},
                 StrCat("%n = nn.exp(%a) : (", x, ") -> ", x, "\n%r = nn.conv(%n, %b) {", pads,
                        "} : (", x, ", ", w, ") -> ", y),
                 y},
                0.1);
  };
  expect("1, 6, 9, 7", "18, 6, 3, 3", "pads = [1, 1, 1, 1]", "1, 18, 9, 7");
  expect("1, 6, 9, 7", "18, 6, 1, 1", "", "1, 18, 9, 7");
  symbol_ = 19;
  expect("1, 6, N, N", "18, 6, 3, 3", "pads = [1, 1, 1, 1]", "1, 18, N, N");
  expect("2, 6, N, N", "18, 6, 1, 1", "", "2, 18, N, N");
}

// Infinities and NaN come out as f32 gives them, and so do numbers at the end of the range.
TEST_F(ConvBf16, Ends) {
  const float inf = INFINITY, most = std::numeric_limits<float>::max();
  for (const float x : {inf, NAN, most}) {
    ExpectPairs(ConvOf("1, 2, 1, 1", "1, 2, 1, 1", "", "1, 1, 1, 1"),
                {{"a", Tensor::Of<float>({1, 2, 1, 1}, {x, 1})},
                 {"b", Tensor::Of<float>({1, 2, 1, 1}, {1, -1})}},
                1e-2);
  }
}

// Where a size decides what takes less, both sides would have to read the same weights.
TEST_F(ConvBf16, OneVariantForAllExtents) {
  const Case c = ConvOf("1, 256, N, N", "256, 256, 3, 3", "pads = [1, 1, 1, 1]", "1, 256, N, N");
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    const Lowered lowered =
        LowerFunction(codegen::FirstFunction(program), WithPairs(Target::Named("avx512_bf16")),
                      constant_, {.precision = precision, .strict = true});
    const char* wanted = precision == Precision::kBf16 ? "conv_filter_lanes" : "conv_winograd | ";
    EXPECT_TRUE(lowered.strategy.starts_with(wanted)) << lowered.strategy << lowered.candidates;
  }
}

// An odd number of channels is multiplied in f32.
TEST_F(ConvBf16, OddChannels) {
  const Case c = ConvOf("1, 3, 5, 9", "32, 3, 3, 3", "", "1, 32, 3, 7");
  Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
  const Lowered lowered =
      LowerFunction(codegen::FirstFunction(program), WithPairs(Target::Named("avx512_bf16")),
                    constant_, {.implementation = only_, .precision = precision_});
  ASSERT_EQ(lowered.packed.size(), 1U) << lowered.why_not;
  EXPECT_EQ(lowered.packed[0].element, ElementType::kUndefined);
}

}  // namespace
}  // namespace lathe::lower
