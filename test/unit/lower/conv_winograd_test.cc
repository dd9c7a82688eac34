#include <bit>
#include <cmath>
#include <limits>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string Tensors(const std::string& shape) { return StrCat("v_tensor<", shape, ", f32>"); }

struct ConvCase {
  std::string x, w, attributes, y;
};

class ConvWinograd : public LowerTest {
 protected:
  ConvWinograd() {
    precision_ = Precision::kHigh;
    constant_ = {false, true, true, false};
  }

  // A convolution with a bias, what is added to it, and a ReLU.
  static Case CaseOf(const ConvCase& c) {
    const std::string m = c.w.substr(1, c.w.find(',') - 1);
    const std::string x = Tensors(c.x), w = Tensors(c.w), b = Tensors(StrCat("[", m, "]")),
                      y = Tensors(c.y);
    return {{x, w, b, y},
            StrCat("%p = nn.conv(%a, %b, %c) {", c.attributes, "} : (", x, ", ", w, ", ", b,
                   ") -> ", y, "\n%s = nn.add(%p, %d) : (", y, ", ", y, ") -> ", y,
                   "\n%r = nn.relu(%s) : (", y, ") -> ", y),
            y};
  }

  void ExpectConv(const ConvCase& c, double rtol = 2e-5) {
    SCOPED_TRACE(StrCat(c.x, " * ", c.w, " ", c.attributes));
    const std::vector<bool> constant = constant_;
    for (const int outputs : {2, 4}) {
      only_ = StrCat("conv_winograd{always=1,outputs=", outputs, "}");
      for (const bool is_known : {true, false}) {
        constant_[1] = is_known;
        Expect(CaseOf(c), "conv_winograd", rtol);
      }
    }
    constant_ = constant;
  }

  std::string WhyNot(const ConvCase& c, Precision precision, std::vector<bool> constant) {
    Program program = ParseProgram(context_, ProgramOf(CaseOf(c)), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()), constant,
                         {.implementation = "conv_winograd", .precision = precision})
        .why_not;
  }
};

TEST_F(ConvWinograd, TilesThatFill) {
  ExpectConv({"[1, 4, 8, 8]", "[8, 4, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 8, 8, 8]"});
  ExpectConv({"[1, 40, 16, 20]", "[40, 40, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 40, 16, 20]"});
}

TEST_F(ConvWinograd, OddExtents) {
  ExpectConv({"[1, 3, 3, 3]", "[5, 3, 3, 3]", "", "[1, 5, 1, 1]"});
  ExpectConv({"[1, 3, 13, 11]", "[19, 3, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 19, 13, 11]"});
  ExpectConv({"[1, 1, 5, 67]", "[1, 1, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 1, 5, 67]"});
}

TEST_F(ConvWinograd, Padding) {
  ExpectConv({"[1, 3, 6, 7]", "[4, 3, 3, 3]", "pads = [2, 0, 1, 3]", "[1, 4, 7, 8]"});
  ExpectConv({"[1, 2, 3, 2]", "[4, 2, 3, 3]", "pads = [4, 20, 3, 18]", "[1, 4, 8, 38]"});
  ExpectConv({"[1, 3, 9, 8]", "[6, 3, 3, 3]", "auto_pad = \"SAME_UPPER\"", "[1, 6, 9, 8]"});
}

TEST_F(ConvWinograd, Images) {
  for (const int images : {0, 1, 3}) {
    symbol_ = images;
    ExpectConv({"[N, 2, 7, 10]", "[9, 2, 3, 3]", "pads = [1, 1, 1, 1]", "[N, 9, 7, 10]"});
  }
}

// Blocks of several vectors, and columns that several blocks share.
TEST_F(ConvWinograd, LargePlanes) {
  ExpectConv({"[1, 8, 30, 60]", "[20, 8, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 20, 30, 60]"});
  ExpectConv({"[1, 2, 5, 650]", "[3, 2, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 3, 5, 650]"});
}

// More than are transformed at once.
TEST_F(ConvWinograd, ManyChannels) {
  ExpectConv({"[1, 600, 9, 8]", "[150, 600, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 150, 9, 8]"}, 1e-4);
  ExpectConv({"[1, 100, 30, 32]", "[70, 100, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 70, 30, 32]"},
             1e-4);
}

// Blocks follow from the extents; rows of few tiles are transformed by narrower vectors. Outputs
// are so many that the loops are not interpreted, which is slow.
TEST_F(ConvWinograd, SymbolicExtents) {
  for (const int side : {1, 2, 5}) {
    symbol_ = side;
    ExpectConv({"[600, 3, H, W]", "[19, 3, 3, 3]", "pads = [1, 1, 1, 1]", "[600, 19, H, W]"});
    ExpectConv({"[400, 3, H, 7]", "[5, 3, 3, 3]", "pads = [1, 0, 1, 3]", "[400, 5, H, 8]"});
    ExpectConv({"[700, 2, 3, W]", "[5, 2, 3, 3]", "auto_pad = \"SAME_LOWER\"", "[700, 5, 3, W]"});
  }
  for (const int side : {14, 33}) {
    symbol_ = side;
    ExpectConv({"[3, 3, H, W]", "[19, 3, 3, 3]", "pads = [1, 1, 1, 1]", "[3, 19, H, W]"});
  }
  symbol_ = 530;  // columns that several blocks share
  ExpectConv({"[1, 2, 9, W]", "[3, 2, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 3, 9, W]"});
  ExpectConv({"[4, 2, H, 2]", "[3, 2, 3, 3]", "pads = [1, 1, 1, 1]", "[4, 3, H, 2]"});
}

TEST_F(ConvWinograd, SymbolicExtentsOfManyChannels) {
  symbol_ = 13;
  ExpectConv({"[1, 600, H, W]", "[70, 600, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 70, H, W]"}, 1e-4);
  ExpectConv({"[N, 70, 9, N]", "[30, 70, 3, 3]", "pads = [1, 1, 1, 1]", "[N, 30, 9, N]"}, 1e-4);
}

// What the input is computed from is read where the input would be.
TEST_F(ConvWinograd, ComputedInput) {
  constant_ = {false, true, false};
  symbol_ = 11;
  for (const char* plane : {"9, 8", "H, W"}) {
    const std::string x = Tensors(StrCat("[1, 4, ", plane, "]")), w = Tensors("[6, 4, 3, 3]"),
                      s = Tensors("[4, 1, 1]"), y = Tensors(StrCat("[1, 6, ", plane, "]"));
    for (const int outputs : {2, 4}) {
      only_ = StrCat("conv_winograd{always=1,outputs=", outputs, "}");
      Expect({{x, w, s},
              StrCat("%h = nn.add(%a, %c) : (", x, ", ", s, ") -> ", x, "\n%q = nn.sigmoid(%h) : (",
                     x, ") -> ", x, "\n%p = nn.conv(%q, %b) {pads = [1, 1, 1, 1]} : (", x, ", ", w,
                     ") -> ", y, "\n%r = nn.relu(%p) : (", y, ") -> ", y),
              y},
             "conv_winograd", 2e-5);
    }
  }
}

TEST_F(ConvWinograd, Refusals) {
  const std::vector<bool> known{false, true, true, false};
  const ConvCase fits{"[1, 64, 56, 56]", "[64, 64, 3, 3]", "pads = [1, 1, 1, 1]",
                      "[1, 64, 56, 56]"};
  EXPECT_EQ(WhyNot(fits, Precision::kF32, known), "");
  EXPECT_EQ(WhyNot(fits, Precision::kStrict, known), "conv_winograd: the precision is strict");
  const std::vector<bool> unknown(4, false);
  EXPECT_EQ(WhyNot(fits, Precision::kF32, unknown), "");
  const ConvCase few{"[1, 512, 7, 7]", "[512, 512, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 512, 7, 7]"};
  EXPECT_EQ(WhyNot(few, Precision::kF32, known), "");
  EXPECT_EQ(WhyNot(few, Precision::kF32, unknown),
            "conv_winograd: multiplying directly takes less");
  const auto why = [&](const ConvCase& c) { return WhyNot(c, Precision::kF32, known); };
  EXPECT_EQ(why({"[1, 4, 9, 9]", "[8, 4, 3, 3]", "strides = [2, 2]", "[1, 8, 4, 4]"}),
            "conv_winograd: there are strides or dilations");
  EXPECT_EQ(why({"[1, 4, 9, 9]", "[8, 4, 5, 5]", "", "[1, 8, 5, 5]"}),
            "conv_winograd: the kernel is not 3x3");
  EXPECT_EQ(why({"[1, 4, 9, 9]", "[8, 2, 3, 3]", "group = 2", "[1, 8, 7, 7]"}),
            "conv_winograd: the channels are in groups");
  EXPECT_EQ(why({"[1, 4, H, W]", "[4, 4, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 4, H, W]"}),
            "conv_winograd: multiplying directly takes less");
  EXPECT_EQ(why({"[1, 1, 4, 4]", "[1, 1, 3, 3]", "", "[1, 1, 2, 2]"}),
            "conv_winograd: multiplying directly takes less");
}

// ---- through a program: errors, and numbers at the ends of the range ----

/// A convolution of 3x3 with padding, compiled at two levels.
class WinogradNumbers : public ::testing::Test {
 protected:
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  static constexpr int64_t kSide = 28, kFilters = 64;

  // What is known when compiling: all; not height and width; not the weights.
  enum class Form { kStatic, kSymbolic, kRunTimeWeights };

  Tensor Run(const Tensor& x, const Tensor& w, Precision precision, Form form = Form::kStatic) {
    const bool is_symbolic = form == Form::kSymbolic, is_fed = form == Form::kRunTimeWeights;
    const int64_t channels = x.shape()[1];
    const std::string plane = is_symbolic ? "H, W" : StrCat(x.shape()[2], ", ", x.shape()[3]);
    const std::string tx = Tensors(StrCat("[1, ", channels, ", ", plane, "]")),
                      tw = Tensors(StrCat("[64, ", channels, ", 3, 3]")),
                      ty = Tensors(StrCat("[1, 64, ", plane, "]"));
    Program program = ParseProgram(
        context_, StrCat("program {\n  %x = nn.feed() {name = \"x\"} : () -> ", tx, "\n  %w = ",
                         is_fed ? "nn.feed" : "builtin.get_parameter", "() {name = \"w\"} : () -> ",
                         tw, "\n  %y = nn.conv(%x, %w) {pads = [1, 1, 1, 1]} : (", tx, ", ", tw,
                         ") -> ", ty, "\n  nn.fetch(%y) {name = \"y\"} : (", ty, ") -> ()\n}\n"));
    if (!is_fed) program.parameters().Insert(StrAttribute::Get(context_, "w"), {w, false});
    const Executable executable(program, {.precision = precision, .threads = 1});
    const bool is_strict = precision == Precision::kStrict;
    const std::string by_tiles =
        is_symbolic ? "conv_winograd | conv_filter_lanes" : "conv_winograd";
    EXPECT_EQ(executable.functions()[0].strategy == by_tiles, !is_strict);
    NamedValues inputs{{"x", x}};
    if (is_fed) inputs.emplace_back("w", w);
    return executable.Run(inputs)[0].second.tensor();
  }

  static Tensor Random(const Shape& shape, uint64_t seed) {
    return RandomTensor(ElementType::kF32, shape, seed);
  }

  // In f64, element by element.
  static std::vector<double> Exact(const Tensor& x, const Tensor& w) {
    const int64_t channels = x.shape()[1];
    const auto a = x.data<float>(), b = w.data<float>();
    std::vector<double> y(static_cast<size_t>(kFilters * kSide * kSide));
    for (int64_t f = 0; f < kFilters; ++f) {
      for (int64_t at = 0; at < kSide * kSide; ++at) {
        double sum = 0;
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t k = 0; k < 9; ++k) {
            const int64_t i = at / kSide + k / 3 - 1, j = at % kSide + k % 3 - 1;
            if (i < 0 || j < 0 || i >= kSide || j >= kSide) continue;
            sum += static_cast<double>(a[static_cast<size_t>((c * kSide + i) * kSide + j)]) *
                   static_cast<double>(b[static_cast<size_t>((f * channels + c) * 9 + k)]);
          }
        }
        y[static_cast<size_t>(f * kSide * kSide + at)] = sum;
      }
    }
    return y;
  }

  static double RmsError(const Tensor& y, const std::vector<double>& exact) {
    double sum = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      const double error = static_cast<double>(y.data<float>()[i]) - exact[i];
      sum += error * error;
    }
    return std::sqrt(sum / static_cast<double>(exact.size()));
  }

  // No element that `strict` gives is another one, but for rounding.
  void ExpectAsStrict(const Tensor& x, const Tensor& w) {
    const Tensor strict = Run(x, w, Precision::kStrict);
    for (const Form form : {Form::kStatic, Form::kSymbolic, Form::kRunTimeWeights}) {
      const Closeness close = AllClose(Run(x, w, Precision::kF32, form), strict, 1e-5, 1e-4);
      EXPECT_TRUE(close) << "form " << static_cast<int>(form) << ": " << close.description;
    }
  }

  IrContext context_;
};

// The promise of the level f32, for both sizes of tiles: 32 channels have tiles of 2x2.
TEST_F(WinogradNumbers, ErrorsAreAtMostTwiceThoseOfStrict) {
  for (const int64_t channels : {32, 64, 128}) {
    SCOPED_TRACE(channels);
    const Tensor w = Random({kFilters, channels, 3, 3}, 2);
    Tensor x = Random({1, channels, kSide, kSide}, 1);
    for (const bool is_rectified : {false, true}) {
      if (is_rectified) {
        for (float& v : x.mutable_data<float>()) v = std::max(v, 0.0F);
      }
      const std::vector<double> exact = Exact(x, w);
      const double strict = RmsError(Run(x, w, Precision::kStrict), exact);
      EXPECT_LE(RmsError(Run(x, w, Precision::kF32), exact), 2 * strict);
      EXPECT_LE(RmsError(Run(x, w, Precision::kF32, Form::kSymbolic), exact), 2 * strict);
      EXPECT_LE(RmsError(Run(x, w, Precision::kF32, Form::kRunTimeWeights), exact), 2 * strict);
    }
  }
}

// One program: planes that are too small for tiles are computed as `strict` does.
TEST_F(WinogradNumbers, SmallSymbolicPlanesAreMultipliedDirectly) {
  const Tensor w = Random({kFilters, 64, 3, 3}, 2);
  for (const auto& [high, wide, by_tiles] : {std::tuple{1, 1, false},
                                             {2, 1, false},
                                             {7, 7, false},
                                             {1, 300, false},
                                             {28, 29, true},
                                             {3, 300, true},
                                             {57, 40, true}}) {
    SCOPED_TRACE(StrCat(high, " x ", wide));
    const Tensor x = Random({1, 64, high, wide}, 1);
    const Tensor strict = Run(x, w, Precision::kStrict, Form::kSymbolic);
    const Tensor f32 = Run(x, w, Precision::kF32, Form::kSymbolic);
    EXPECT_EQ(!std::ranges::equal(f32.bytes(), strict.bytes()), by_tiles);
    const Closeness close = AllClose(f32, strict, 1e-5, 1e-4);
    EXPECT_TRUE(close) << close.description;
  }
}

// What an output does not depend on does not change it, whatever it is.
TEST_F(WinogradNumbers, InfinitiesAndNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t channels : {32, 64}) {
    const Tensor w = Random({kFilters, channels, 3, 3}, 2);
    for (const float v : {kInfinity, -kInfinity, std::nanf(""), 3e38F, 1e30F}) {
      Tensor x = Random({1, channels, kSide, kSide}, 1);
      for (const size_t at : {0, 405, 783, 784 + 27}) x.mutable_data<float>()[at] = v;
      ExpectAsStrict(x, w);
    }
  }
}

TEST_F(WinogradNumbers, WeightsThatAreNotFinite) {
  for (const int64_t channels : {32, 64}) {
    const Tensor x = Random({1, channels, kSide, kSide}, 1);
    Tensor w = Random({kFilters, channels, 3, 3}, 2);
    w.mutable_data<float>()[4] = std::numeric_limits<float>::infinity();
    w.mutable_data<float>()[static_cast<size_t>(channels * 9)] = std::nanf("");
    ExpectAsStrict(x, w);
  }
}

// Numbers below the smallest normal one keep the error that they have, in units of the last place.
TEST_F(WinogradNumbers, SmallNumbers) {
  for (const int64_t channels : {32, 64}) {
    for (const auto& [of_x, of_w] : {std::pair{1e-40F, 1.0F}, {1.0F, 1e-40F}, {1e-20F, 1e-20F}}) {
      Tensor x = Random({1, channels, kSide, kSide}, 1), w = Random({kFilters, channels, 3, 3}, 2);
      for (float& v : x.mutable_data<float>()) v *= of_x;
      for (float& v : w.mutable_data<float>()) v *= of_w;
      const std::vector<double> exact = Exact(x, w);
      const double strict = RmsError(Run(x, w, Precision::kStrict), exact);
      for (const Form form : {Form::kStatic, Form::kRunTimeWeights}) {
        EXPECT_LE(RmsError(Run(x, w, Precision::kF32, form), exact), 2 * strict)
            << of_x << " " << of_w << " form " << static_cast<int>(form);
      }
    }
  }
}

}  // namespace
}  // namespace lathe::lower
