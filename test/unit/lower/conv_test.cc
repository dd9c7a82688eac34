#include <random>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string Tensors(const std::string& shape) { return StrCat("v_tensor<", shape, ", f32>"); }

std::string List(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t v : values) text += StrCat(text.empty() ? "" : ", ", v);
  return StrCat("[", text, "]");
}

struct ConvCase {
  std::string x, w, attributes, y;
  bool bias = true;
};

class ConvLowering : public LowerTest {
 protected:
  ConvLowering() { only_ = "conv"; }

  // With weights of the call's, and with weights that are known and may be packed.
  void ExpectConv(const ConvCase& c, double rtol = 1e-5) {
    SCOPED_TRACE(StrCat(c.x, " * ", c.w, " ", c.attributes));
    const std::string m = c.w.substr(1, c.w.find(',') - 1);
    std::vector<std::string> arguments{Tensors(c.x), Tensors(c.w)};
    std::string operands = "%a, %b", types = StrCat(arguments[0], ", ", arguments[1]);
    if (c.bias) {
      arguments.push_back(Tensors(StrCat("[", m, "]")));
      operands += ", %c";
      types += StrCat(", ", arguments[2]);
    }
    const std::string y = Tensors(c.y);
    const std::string body = StrCat("%p = nn.conv(", operands, ") {", c.attributes, "} : (", types,
                                    ") -> ", y, "\n%r = nn.relu(%p) : (", y, ") -> ", y);
    for (const bool is_constant : {false, true}) {
      constant_ = {false, is_constant, is_constant};
      Expect({arguments, body, y}, "conv", rtol);
    }
    const bool groups = c.attributes.find("group = 1") == std::string::npos &&
                        c.attributes.find("group") != std::string::npos;
    if (groups || c.y.find(", N") != std::string::npos) return;
    only_ = "conv_filter_lanes{always=1}";
    Expect({arguments, body, y}, "conv_filter_lanes", rtol);
    only_ = "conv";
  }
};

// What the input is computed from is read where the input would be; padding stays zero.
class ConvOfComputedInput : public ConvLowering {
 protected:
  // `channels`: the shape of what is added to the input.
  static Case CaseOf(const ConvCase& c, const std::string& channels) {
    const std::string x = Tensors(c.x), w = Tensors(c.w), s = Tensors(channels), y = Tensors(c.y);
    return {{x, w, s},
            StrCat("%h = nn.add(%a, %c) : (", x, ", ", s, ") -> ", x, "\n%q = nn.sigmoid(%h) : (",
                   x, ") -> ", x, "\n%p = nn.conv(%q, %b) {", c.attributes, "} : (", x, ", ", w,
                   ") -> ", y, "\n%r = nn.relu(%p) : (", y, ") -> ", y),
            y};
  }
  void ExpectBefore(const ConvCase& c, const std::string& channels, bool gathers_once) {
    SCOPED_TRACE(StrCat(c.x, " * ", c.w, " ", c.attributes));
    constant_ = {false, true, false};
    if (gathers_once) {
      only_ = "conv";
      Expect(CaseOf(c, channels), "conv", 1e-5);
    }
    if (c.x.find('N') != std::string::npos) return;
    only_ = "conv_filter_lanes{always=1}";
    Expect(CaseOf(c, channels), "conv_filter_lanes", 1e-5);
  }
};

TEST_F(ConvOfComputedInput, OwnElement) {
  ExpectBefore({"[2, 5, 6, 7]", "[9, 5, 1, 1]", "", "[2, 9, 6, 7]"}, "[5, 1, 1]", true);
  ExpectBefore({"[1, 20, 5, 7]", "[83, 20, 1, 1]", "", "[1, 83, 5, 7]"}, "[1, 20, 5, 7]", true);
  ExpectBefore({"[1, 6, N]", "[3, 6, 1]", "", "[1, 3, N]"}, "[6, 1]", true);
}

TEST_F(ConvOfComputedInput, StridesThatSkip) {
  ExpectBefore({"[1, 3, 10, 51]", "[17, 3, 1, 1]", "strides = [2, 2]", "[1, 17, 5, 26]"},
               "[3, 1, 51]", true);
  ExpectBefore(
      {"[1, 3, 9, 12]", "[5, 3, 2, 2]", "strides = [2, 3], pads = [1, 1, 0, 1]", "[1, 5, 5, 5]"},
      "[3, 1, 1]", true);
}

TEST_F(ConvOfComputedInput, PaddingIsNotComputed) {
  ExpectBefore({"[1, 4, 9, 8]", "[6, 4, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 6, 9, 8]"}, "[4, 1, 1]",
               false);
  ExpectBefore({"[1, 2, 3, 2]", "[4, 2, 3, 3]", "pads = [4, 20, 3, 18]", "[1, 4, 8, 38]"}, "[1]",
               false);
  ExpectBefore({"[2, 3, 40]", "[4, 3, 5]", "pads = [0, 6]", "[2, 4, 42]"}, "[3, 1]", false);
  ExpectBefore(
      {"[1, 2, 4, 5, 6]", "[3, 2, 3, 3, 3]", "pads = [1, 1, 1, 1, 1, 1]", "[1, 3, 4, 5, 6]"},
      "[2, 1, 5, 1]", false);
}

// Channels that are shuffled are stored where they belong.
TEST_F(ConvLowering, ShuffledChannels) {
  const std::string x = Tensors("[2, 4, 9, 7]"), w = Tensors("[6, 2, 1, 1]"),
                    y = Tensors("[2, 6, 9, 7]"), split = Tensors("[2, 3, 2, 9, 7]"),
                    turned = Tensors("[2, 2, 3, 9, 7]");
  const std::string body =
      StrCat("%p = nn.conv(%a, %b) {group = 2} : (", x, ", ", w, ") -> ", y,
             "\n%q = nn.relu(%p) : (", y, ") -> ", y,
             "\n%n = builtin.constant() {value = tensor<[5], i64> [2, 3, 2, 9, 7]} : () -> "
             "v_tensor<[5], i64>\n%s = nn.reshape(%q, %n) : (",
             y, ", v_tensor<[5], i64>) -> ", split,
             "\n%t = nn.transpose(%s) {perm = [0, 2, 1, 3, 4]} : (", split, ") -> ", turned,
             "\n%m = builtin.constant() {value = tensor<[4], i64> [2, 6, 9, 7]} : "
             "() -> v_tensor<[4], i64>\n%r = nn.reshape(%t, %m) : (",
             turned, ", v_tensor<[4], i64>) -> ", y);
  constant_ = {false, true};
  Expect({{x, w}, body, y}, "conv", 1e-5);
}

// A transposition that puts the channels last would store each element by itself.
TEST_F(ConvLowering, ChannelsThatBecomeLastAreRefused) {
  const std::string x = Tensors("[1, 4, 9, 7]"), w = Tensors("[6, 4, 1, 1]"),
                    y = Tensors("[1, 6, 9, 7]"), z = Tensors("[1, 9, 7, 6]");
  const std::string why =
      Refusal({{x, w},
               StrCat("%p = nn.conv(%a, %b) : (", x, ", ", w, ") -> ", y,
                      "\n%r = nn.transpose(%p) {perm = [0, 2, 3, 1]} : (", y, ") -> ", z),
               z});
  EXPECT_NE(why.find("conv: the positions cannot be walked as one"), std::string::npos) << why;
}

TEST_F(ConvLowering, TwoResults) {
  const std::string x = Tensors("[1, 4, 9, 8]"), w = Tensors("[6, 4, 3, 3]"),
                    y = Tensors("[1, 6, 9, 8]");
  constant_ = {false, true, false};
  for (const char* name : {"conv", "conv_filter_lanes{always=1}"}) {
    only_ = name;
    Expect({{x, w, y},
            StrCat("%p = nn.conv(%a, %b) {pads = [1, 1, 1, 1]} : (", x, ", ", w, ") -> ", y,
                   "\n%r1 = nn.add(%p, %c) : (", y, ", ", y, ") -> ", y, "\n%r = nn.relu(%r1) : (",
                   y, ") -> ", y),
            y,
            {y}},
           std::string(name).substr(0, std::string(name).find('{')), 1e-5);
  }
}

TEST_F(ConvLowering, NoImages) {
  const std::string x = Tensors("[0, 4, 9, 8]"), w = Tensors("[6, 4, 3, 3]"),
                    y = Tensors("[0, 6, 9, 8]");
  constant_ = {false, true};
  for (const char* name : {"conv", "conv_filter_lanes{always=1}", "conv_winograd{always=1}"}) {
    only_ = name;
    precision_ = Precision::kF32;
    Expect({{x, w},
            StrCat("%r = nn.conv(%a, %b) {pads = [1, 1, 1, 1]} : (", x, ", ", w, ") -> ", y),
            y},
           std::string(name).substr(0, std::string(name).find('{')));
  }
}

TEST_F(ConvOfComputedInput, GatheredAgainAndAgainIsRefused) {
  const ConvCase c{"[1, 4, 9, 8]", "[6, 4, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 6, 9, 8]"};
  const std::string why = Refusal(CaseOf(c, "[4, 1, 1]"));
  EXPECT_NE(why.find("conv: each element of the input would be computed 9 times"),
            std::string::npos)
      << why;
}

TEST_F(ConvLowering, OwnElement) {
  ExpectConv({"[2, 5, 6, 7]", "[9, 5, 1, 1]", "", "[2, 9, 6, 7]"});
  ExpectConv({"[1, 20, 5, 7]", "[33, 20, 1, 1]", "", "[1, 33, 5, 7]", false});
  ExpectConv({"[N, 6, 40]", "[3, 6, 1]", "", "[N, 3, 40]"});
  ExpectConv({"[1, 8, 3, 11]", "[8, 2, 1, 1]", "group = 4", "[1, 8, 3, 11]"});
}

TEST_F(ConvLowering, Padding) {
  ExpectConv({"[1, 4, 9, 8]", "[6, 4, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 6, 9, 8]"});
  // Wider than the input, so that whole windows lie in the padding.
  ExpectConv({"[1, 2, 3, 2]", "[4, 2, 3, 3]", "pads = [4, 20, 3, 18]", "[1, 4, 8, 38]"});
  ExpectConv({"[1, 2, 3, 40]", "[4, 2, 2, 5]", "pads = [0, 3, 1, 0]", "[1, 4, 3, 39]"});
}

TEST_F(ConvLowering, StridesAndDilations) {
  ExpectConv(
      {"[N, 4, 9, 8]", "[6, 4, 3, 2]", "strides = [2, 3], pads = [0, 1, 1, 0]", "[N, 6, 4, 3]"});
  ExpectConv({"[1, 6, 9, 8]", "[8, 3, 3, 3]",
              "group = 2, dilations = [2, 1], auto_pad = \"SAME_UPPER\"", "[1, 8, 9, 8]"});
  ExpectConv(
      {"[1, 2, 15, 29]", "[5, 2, 7, 7]", "strides = [2, 2], pads = [3, 3, 3, 3]", "[1, 5, 8, 15]"});
  ExpectConv({"[1, 3, 10, 11]", "[17, 3, 1, 1]", "strides = [2, 2]", "[1, 17, 5, 6]"});
}

TEST_F(ConvLowering, OneAndThreeDims) {
  ExpectConv({"[2, 3, 40]", "[4, 3, 5]", "strides = [2]", "[2, 4, 18]"});
  ExpectConv({"[1, 3, 100]", "[4, 3, 19]", "pads = [9, 9]", "[1, 4, 100]"});
  ExpectConv({"[1, 2, 4, 5, 6]", "[3, 2, 2, 2, 2]", "", "[1, 3, 3, 4, 5]"});
  ExpectConv(
      {"[1, 2, 4, 5, 6]", "[3, 2, 3, 3, 3]", "pads = [1, 1, 1, 1, 1, 1]", "[1, 3, 4, 5, 6]"});
}

TEST_F(ConvLowering, DeepPanelsAreCut) {
  ExpectConv({"[1, 300, 5, 5]", "[15, 300, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 15, 5, 5]"}, 1e-4);
  ExpectConv({"[1, 1031, 3, 3]", "[35, 1031, 1, 1]", "", "[1, 35, 3, 3]"}, 1e-4);
  ExpectConv({"[1, 700, 3, 4]", "[64, 350, 2, 2]", "group = 2", "[1, 64, 2, 3]"}, 1e-4);
}

TEST_F(ConvLowering, SymbolicExtents) {
  for (const int64_t n : {3, 21}) {
    symbol_ = n;
    ExpectConv({"[1, 3, N, N]", "[5, 3, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 5, N, N]"});
    ExpectConv({"[2, 3, N]", "[5, 3, 1]", "", "[2, 5, N]"});
    ExpectConv({"[1, 3, N]", "[5, 3, 3]", "", "[1, 5, N - 2]"});
  }
}

// What is left of positions that fill no vector.
TEST_F(ConvLowering, FewPositionsOfSymbolicNumber) {
  for (const int64_t n : {1, 8, 37}) {
    symbol_ = n;
    ExpectConv({"[1, 4, N]", "[61, 4, 1]", "", "[1, 61, N]"});
  }
  for (const int64_t n : {2, 17}) {
    symbol_ = n;
    ExpectConv({"[1, 2, N, 1]", "[31, 2, 3, 2]", "pads = [1, 1, 1, 0]", "[1, 31, N, 1]"});
    ExpectConv({"[1, 8, N]", "[84, 4, 1]", "group = 2", "[1, 84, N]"});
  }
  symbol_ = 3;
  ExpectConv({"[2, 1100, N]", "[27, 1100, 1]", "", "[2, 27, N]", false}, 1e-4);
}

// A window drawn at random; what the op itself refuses is drawn again.
ConvCase Draw(std::mt19937& random) {
  const auto pick = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint32_t>(most - least + 1));
  };
  const int64_t rank = pick(1, 3), groups = pick(0, 2) == 0 ? pick(2, 3) : 1;
  const int64_t channels = pick(1, 6), filters = pick(1, 40);
  std::vector<int64_t> x{pick(1, 2), channels * groups}, w{filters * groups, channels};
  std::vector<int64_t> y{x[0], filters * groups}, strides, dilations, begins, ends;
  for (int64_t a = 0; a < rank; ++a) {
    const int64_t kernel = pick(1, rank == 3 ? 3 : 5), dilation = pick(1, 2), stride = pick(1, 3);
    const int64_t reach = (kernel - 1) * dilation + 1;
    const int64_t begin = pick(0, reach - 1), end = pick(0, reach);
    const int64_t in = std::max<int64_t>(reach - begin - end, 1) + pick(0, rank == 1 ? 90 : 12);
    x.push_back(in);
    w.push_back(kernel);
    y.push_back((in + begin + end - reach) / stride + 1);
    strides.push_back(stride);
    dilations.push_back(dilation);
    begins.push_back(begin);
    ends.push_back(end);
  }
  begins.insert(begins.end(), ends.begin(), ends.end());
  return {List(x), List(w),
          StrCat("group = ", groups, ", strides = ", List(strides),
                 ", dilations = ", List(dilations), ", pads = ", List(begins)),
          List(y), pick(0, 1) == 1};
}

TEST_F(ConvLowering, RandomWindows) {
  std::mt19937 random(7);
  for (int i = 0; i < 10; ++i) ExpectConv(Draw(random));
}

TEST_F(ConvLowering, FollowedByASum) {
  const std::string x = Tensors("[1, 7, 6, 9]"), w = Tensors("[30, 7, 3, 3]"),
                    y = Tensors("[1, 30, 6, 9]"), scale = Tensors("[30, 1, 1]");
  constant_ = {false, true, true, false};
  Expect({{x, w, y, scale},
          StrCat("%p = nn.conv(%a, %b) {pads = [1, 1, 1, 1]} : (", x, ", ", w, ") -> ", y,
                 "\n%q = nn.mul(%p, %d) : (", y, ", ", scale, ") -> ", y,
                 "\n%s = nn.sigmoid(%q) : (", y, ") -> ", y, "\n%t = nn.mul(%q, %s) : (", y, ", ",
                 y, ") -> ", y, "\n%r = nn.add(%t, %c) : (", y, ", ", y, ") -> ", y),
          y},
         "conv", 1e-5);
}

TEST_F(ConvLowering, FiltersInLanes) {
  only_ = "conv_filter_lanes";
  const auto expect = [&](const ConvCase& c) {
    const std::string x = Tensors(c.x), w = Tensors(c.w), y = Tensors(c.y);
    constant_ = {false, true};
    Expect({{x, w, y},
            StrCat("%p = nn.conv(%a, %b) {", c.attributes, "} : (", x, ", ", w, ") -> ", y,
                   "\n%r = nn.add(%p, %c) : (", y, ", ", y, ") -> ", y),
            y},
           "conv_filter_lanes", 1e-4);
  };
  expect({"[1, 150, 1, 3]", "[64, 150, 1, 1]", "", "[1, 64, 1, 3]"});
  expect({"[2, 20, 3, 3]", "[50, 20, 3, 3]", "pads = [1, 1, 1, 1]", "[2, 50, 3, 3]"});
  expect({"[1, 90, 7, 7]", "[130, 90, 3, 3]", "strides = [2, 2]", "[1, 130, 3, 3]"});
  expect({"[1, 400, 18]", "[128, 200, 2]", "group = 2", "[1, 128, 17]"});
  expect({"[N, 260, 1, 1]", "[33, 260, 1, 1]", "", "[N, 33, 1, 1]"});
}

// Rows between those that the kernel sees are not copied, and those in the padding not multiplied.
TEST_F(ConvLowering, KernelRowsFarApart) {
  ExpectConv({"[1, 3, 12, 9]", "[6, 3, 4, 2]", "dilations = [5, 1], pads = [9, 0, 6, 1]",
              "[1, 6, 12, 9]"});
  ExpectConv({"[1, 3, 20, 35]", "[5, 3, 3, 1]",
              "dilations = [9, 1], strides = [2, 1], pads = [9, 0, 9, 0]", "[1, 5, 10, 35]"});
  ExpectConv({"[1, 2, 3, 8, 4]", "[3, 2, 2, 3, 1]",
              "dilations = [1, 6, 1], pads = [1, 6, 0, 0, 6, 0]", "[1, 3, 3, 8, 4]"});
  only_ = "conv_filter_lanes{always=1}";
  constant_ = {false, true};
  for (const int64_t n : {1, 2, 3, 30, 45}) {
    symbol_ = n;
    for (const int64_t stride : {1, 3}) {
      const std::string x = Tensors(StrCat("[1, 3, N + 2, ", stride, "*N]")),
                        w = Tensors("[5, 3, 3, 2]"), y = Tensors("[1, 5, N + 2, N]");
      Expect(
          {{x, w},
           StrCat("%r = nn.conv(%a, %b) {dilations = [7, 1], pads = [7, 0, 7, 1], strides = [1, ",
                  stride, "]} : (", x, ", ", w, ") -> ", y),
           y},
          "conv_filter_lanes", 1e-5);
    }
  }
}

// Nor columns, nor what no tile of positions reads; along one axis, or all.
TEST_F(ConvLowering, KernelPlacesFarApart) {
  ExpectConv({"[1, 40, 28, 28]", "[33, 40, 3, 3]", "dilations = [24, 24], pads = [24, 24, 24, 24]",
              "[1, 33, 28, 28]"});
  ExpectConv({"[2, 32, 20, 18]", "[32, 32, 3, 3]", "dilations = [2, 12], pads = [2, 12, 4, 14]",
              "[2, 32, 22, 20]"});
  ExpectConv({"[1, 40, 6, 19]", "[20, 40, 5, 3]",
              "dilations = [4, 12], strides = [2, 1], pads = [8, 11, 8, 11]", "[1, 20, 3, 17]"});
  ExpectConv({"[1, 66, 50]", "[32, 33, 3]", "group = 2, dilations = [30], pads = [30, 30]",
              "[1, 32, 50]"});
  // Where the first axis is padded, what the others see does not say whether a row is read.
  ExpectConv({"[1, 32, 2, 9, 9]", "[20, 32, 1, 3, 3]",
              "dilations = [1, 5, 5], pads = [1, 5, 5, 2, 5, 5]", "[1, 20, 5, 9, 9]"});
}

TEST_F(ConvLowering, InParallelPieces) {
  ExpectConv({"[1, 32, 30, 31]", "[70, 32, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 70, 30, 31]"});
  // Filters are shared out, in parts that differ: of small planes, of few panels.
  ExpectConv({"[1, 80, 7, 7]", "[345, 80, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 345, 7, 7]"}, 1e-4);
  ExpectConv({"[1, 250, 13, 13]", "[301, 250, 1, 1]", "", "[1, 301, 13, 13]"}, 1e-4);
  ExpectConv({"[1, 1600, 4, 5]", "[151, 1600, 1, 1]", "", "[1, 151, 4, 5]"}, 1e-4);
  ExpectConv(
      {"[2, 128, 5, 7]", "[160, 64, 3, 2]", "group = 2, pads = [1, 1, 1, 0]", "[2, 160, 5, 7]"},
      1e-4);
}

// Windows of one element that are apart: the input is read where it is.
TEST_F(ConvLowering, OneElementApart) {
  ExpectConv({"[1, 33, 15, 14]", "[70, 33, 1, 1]", "strides = [2, 2]", "[1, 70, 8, 7]"});
  ExpectConv({"[1, 9, 30]", "[40, 9, 1]", "strides = [3]", "[1, 40, 10]"});
  ExpectConv({"[2, 9, 5, 6, 7]", "[40, 9, 1, 1, 1]", "strides = [2, 1, 3]", "[2, 40, 3, 6, 3]"});
  ExpectConv(
      {"[1, 9, 5, 6]", "[40, 9, 1, 1]", "strides = [2, 2], pads = [0, 1, 1, 1]", "[1, 40, 3, 4]"});
}

TEST_F(ConvLowering, SaysWhyNot) {
  const std::string x = "v_tensor<[1, 4, 4, 2], f32>", w = "v_tensor<[2, 2, 1, 1], f32>";
  const std::string why = Refusal(
      {{x, w}, StrCat("%r = nn.conv(%a, %b) {layout = \"NHWC\"} : (", x, ", ", w, ") -> ", x), x});
  EXPECT_NE(why.find("conv: the channels are last"), std::string::npos) << why;
}

}  // namespace
}  // namespace lathe::lower
