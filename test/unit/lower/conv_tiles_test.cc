#include <cmath>
#include <limits>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string Tensors(const std::string& shape) { return StrCat("v_tensor<", shape, ", f32>"); }

struct ConvCase {
  std::string x, w, attributes, y;
};

class ConvTiles : public LowerTest {
 protected:
  ConvTiles() {
    tiles_ = true;
    precision_ = Precision::kBf16;
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

  void ExpectConv(const ConvCase& c, double rtol = 4e-2) {
    SCOPED_TRACE(StrCat(c.x, " * ", c.w, " ", c.attributes));
    ExpectHere(CaseOf(c), rtol);
  }

  // Code of tiles in vectors takes long to make: one target is enough.
  void ExpectHere(const Case& c, double rtol) {
    const Target& target = Target::Host();
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    NamedValues inputs = Inputs(program);
    const NamedValues wanted = Interpreter(program).Run(inputs);
    Operation* function = codegen::FirstFunction(program);
    const Lowered lowered = LowerFunction(
        function, MachineFor(target), constant_,
        {.implementation = "conv_tiles{always=1}", .precision = precision_, .strict = true});
    ASSERT_TRUE(lowered.done) << lowered.why_not;
    PackInputs(program, lowered.packed, inputs);
    VerifyOrThrow(program);
    std::vector<Tensor> tensors;
    for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
    const Tensor empty = ZeroLike(wanted[0].second.tensor());
    if (empty.num_elements() < 1000) {  // the interpreter copies memory on every store
      const std::vector<Tensor> looped = {Interpreter(program).Run(inputs)[0].second.tensor()};
      ExpectClose(looped, wanted, rtol, "loops");
    }
    const codegen::CompiledKernel kernel(function->region(0).front(), target, lowered.in_place);
    const std::vector<Tensor> got = kernel.Call(tensors, {empty});
    ExpectClose(got, wanted, rtol, "code");
    for (const int threads : {2, 7}) {
      runtime::WorkerTeam team(threads);
      const std::vector<Tensor> again = kernel.Call(tensors, {empty}, team.for_kernels());
      EXPECT_EQ(again[0], got[0]) << threads << " threads give other bits";
      ExpectInPlace(kernel, lowered, tensors, got, team.for_kernels());
    }
  }

  std::string WhyNot(const Case& c, const std::string& knobs = "{always=1}") {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), MachineFor(Target::Named("amx")),
                         constant_,
                         {.implementation = "conv_tiles" + knobs, .precision = precision_})
        .why_not;
  }
  std::string WhyNot(const ConvCase& c, const std::string& knobs = "{always=1}") {
    return WhyNot(CaseOf(c), knobs);
  }
};

TEST_F(ConvTiles, OnEveryTarget) {
  only_ = "conv_tiles{always=1}";
  Expect(CaseOf({"[1, 18, 5, 7]", "[17, 18, 3, 3]", "pads = [1, 1, 1, 1], strides = [1, 2]",
                 "[1, 17, 5, 4]"}),
         "conv_tiles", 4e-2);
}

TEST_F(ConvTiles, TilesThatFill) {
  ExpectConv({"[1, 32, 4, 8]", "[16, 32, 1, 1]", "", "[1, 16, 4, 8]"});
  ExpectConv({"[1, 64, 8, 16]", "[32, 64, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 32, 8, 16]"}, 0.1);
}

TEST_F(ConvTiles, OneElement) {
  ExpectConv({"[1, 1, 1, 1]", "[1, 1, 1, 1]", "", "[1, 1, 1, 1]"});
  ExpectConv({"[1, 3, 5, 7]", "[5, 3, 1, 1]", "", "[1, 5, 5, 7]"});
  ExpectConv({"[1, 70, 3, 13]", "[35, 70, 1, 1]", "", "[1, 35, 3, 13]"}, 0.1);
}

TEST_F(ConvTiles, OddExtents) {
  ExpectConv({"[1, 37, 5, 7]", "[19, 37, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 19, 5, 7]"}, 0.1);
  ExpectConv({"[1, 18, 9, 4]", "[5, 18, 2, 3]", "", "[1, 5, 8, 2]"});
  ExpectConv({"[1, 33, 3, 3]", "[1, 33, 3, 3]", "", "[1, 1, 1, 1]"}, 0.1);
}

TEST_F(ConvTiles, Padding) {
  ExpectConv({"[1, 18, 6, 7]", "[4, 18, 3, 3]", "pads = [2, 0, 1, 3]", "[1, 4, 7, 8]"});
  ExpectConv({"[1, 17, 3, 2]", "[4, 17, 3, 3]", "pads = [4, 20, 3, 18]", "[1, 4, 8, 38]"});
  ExpectConv({"[1, 17, 9, 8]", "[6, 17, 3, 3]", "auto_pad = \"SAME_UPPER\"", "[1, 6, 9, 8]"});
}

// Elements of the input take turns in phases.
TEST_F(ConvTiles, Strides) {
  ExpectConv({"[1, 19, 9, 8]", "[6, 19, 1, 1]", "strides = [2, 2]", "[1, 6, 5, 4]"});
  ExpectConv(
      {"[1, 19, 9, 8]", "[6, 19, 3, 3]", "pads = [1, 1, 1, 1], strides = [2, 2]", "[1, 6, 5, 4]"});
  ExpectConv({"[1, 18, 11, 23]", "[6, 18, 3, 5]", "pads = [1, 2, 1, 2], strides = [3, 4]",
              "[1, 6, 4, 6]"});
}

TEST_F(ConvTiles, Dilations) {
  ExpectConv({"[1, 18, 9, 12]", "[6, 18, 3, 3]", "pads = [2, 3, 2, 3], dilations = [2, 3]",
              "[1, 6, 9, 12]"});
  ExpectConv({"[1, 18, 13, 16]", "[6, 18, 3, 3]",
              "pads = [2, 3, 2, 3], dilations = [2, 3], strides = [2, 2]", "[1, 6, 7, 8]"});
  ExpectConv(
      {"[1, 18, 15, 26]", "[4, 18, 2, 3]", "dilations = [3, 6], strides = [4, 4]", "[1, 4, 3, 4]"});
}

// Of few channels, a row of the kernel fills tiles.
TEST_F(ConvTiles, FewChannels) {
  ExpectConv(
      {"[1, 3, 20, 22]", "[8, 3, 7, 7]", "pads = [3, 3, 3, 3], strides = [2, 2]", "[1, 8, 10, 11]"},
      0.1);
  ExpectConv({"[2, 1, 6, 9]", "[3, 1, 3, 3]", "pads = [1, 1, 1, 1]", "[2, 3, 6, 9]"});
  ExpectConv({"[1, 4, 9, 23]", "[5, 4, 3, 5]",
              "pads = [1, 4, 1, 4], dilations = [1, 2], strides = [1, 3]", "[1, 5, 9, 8]"});
}

TEST_F(ConvTiles, Lines) {
  ExpectConv({"[1, 20, 40]", "[7, 20, 3]", "pads = [1, 1], strides = [2]", "[1, 7, 20]"});
  ExpectConv({"[1, 2, 50]", "[7, 2, 5]", "pads = [2, 2]", "[1, 7, 50]"});
}

TEST_F(ConvTiles, Images) {
  for (const int images : {0, 1, 3}) {
    symbol_ = images;
    ExpectConv({"[N, 20, 7, 5]", "[9, 20, 3, 3]", "pads = [1, 1, 1, 1]", "[N, 9, 7, 5]"});
  }
}

// Several blocks of rows and of columns, and parts of the filters.
TEST_F(ConvTiles, ManyBlocks) {
  ExpectConv({"[1, 18, 40, 60]", "[20, 18, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 20, 40, 60]"});
  ExpectConv({"[1, 17, 3, 1500]", "[5, 17, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 5, 3, 1500]"});
  ExpectConv({"[1, 4, 2, 3000]", "[5, 4, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 5, 2, 3000]"});
  ExpectConv({"[1, 300, 7, 7]", "[200, 300, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 200, 7, 7]"}, 0.3);
}

// What the input is computed from is read where the input would be.
TEST_F(ConvTiles, ComputedInput) {
  constant_ = {false, true, false};
  const std::string x = Tensors("[1, 18, 9, 11]"), w = Tensors("[5, 18, 3, 3]"),
                    s = Tensors("[18, 1, 1]"), y = Tensors("[1, 5, 9, 11]");
  ExpectHere({{x, w, s},
              StrCat("%m = nn.add(%a, %c) : (", x, ", ", s, ") -> ", x, "\n%e = nn.exp(%m) : (", x,
                     ") -> ", x, "\n%r = nn.conv(%e, %b) {pads = [1, 1, 1, 1]} : (", x, ", ", w,
                     ") -> ", y),
              y},
             0.1);
}

// An infinity reaches the outputs that read it and no other; numbers at the end of the range stay.
TEST_F(ConvTiles, Ends) {
  const ConvCase c{"[1, 2, 4, 6]", "[3, 2, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 3, 4, 6]"};
  const float most = std::numeric_limits<float>::max();
  for (const Target* target : {&Target::Host()}) {
    for (const float end : {INFINITY, -INFINITY, NAN, most}) {
      Program program = ParseProgram(context_, ProgramOf(CaseOf(c)), {.file_locations = false});
      NamedValues inputs = Inputs(program);
      Tensor x = inputs[0].second.tensor();
      x.mutable_data<float>()[8] = end;
      inputs[0].second = x;
      const NamedValues wanted = Interpreter(program).Run(inputs);
      Operation* function = codegen::FirstFunction(program);
      const Lowered lowered =
          LowerFunction(function, MachineFor(*target), constant_,
                        {.implementation = "conv_tiles{always=1}", .precision = precision_});
      ASSERT_TRUE(lowered.done) << lowered.why_not;
      PackInputs(program, lowered.packed, inputs);
      std::vector<Tensor> tensors;
      for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
      const codegen::CompiledKernel kernel(function->region(0).front(), *target);
      const std::vector<Tensor> got =
          kernel.Call(tensors, {Tensor(ElementType::kF32, Shape{1, 3, 4, 6})});
      ExpectClose(got, wanted, 4e-2, StrCat(target->name, " ", end));
    }
  }
}

TEST_F(ConvTiles, Refusals) {
  const ConvCase plain{"[1, 64, 14, 14]", "[64, 64, 3, 3]", "pads = [1, 1, 1, 1]",
                       "[1, 64, 14, 14]"};
  EXPECT_EQ(WhyNot(plain, ""), "");
  EXPECT_EQ(WhyNot({"[1, 64, H, 14]", "[64, 64, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 64, H, 14]"}),
            "conv_tiles: an extent is symbolic");
  EXPECT_EQ(
      WhyNot({"[1, 4, 5, 5]", "[4, 2, 3, 3]", "group = 2, pads = [1, 1, 1, 1]", "[1, 4, 5, 5]"}),
      "conv_tiles: the channels are in groups");
  EXPECT_EQ(WhyNot({"[1, 4, 3, 5, 5]", "[4, 4, 3, 3, 3]", "pads = [1, 1, 1, 1, 1, 1]",
                    "[1, 4, 3, 5, 5]"}),
            "conv_tiles: there are more than two spatial dims");
  EXPECT_EQ(WhyNot({"[1, 9000, 5, 5]", "[8, 9000, 1, 1]", "", "[1, 8, 5, 5]"}),
            "conv_tiles: no block fits into the cache");
  EXPECT_EQ(WhyNot({"[1, 1, 5, 5]", "[1, 1, 1, 1]", "", "[1, 1, 5, 5]"}, ""),
            "conv_tiles: multiplying in f32 takes less");
  precision_ = Precision::kHigh;
  EXPECT_EQ(WhyNot(plain), "conv_tiles: the precision is high");
  precision_ = Precision::kBf16;
  constant_ = {};
  EXPECT_EQ(WhyNot(plain), "conv_tiles: the weights are not known");
}

// At this level convolutions of a target with tiles are made of them.
TEST_F(ConvTiles, Taken) {
  Program program = ParseProgram(context_,
                                 ProgramOf(CaseOf({"[1, 64, 28, 28]", "[64, 64, 3, 3]",
                                                   "pads = [1, 1, 1, 1]", "[1, 64, 28, 28]"})),
                                 {.file_locations = false});
  Operation* function = codegen::FirstFunction(program);
  const Target& amx = Target::Named("amx");
  const Lowered lowered =
      LowerFunction(function, MachineFor(amx), constant_, {.precision = precision_});
  EXPECT_EQ(lowered.strategy, "conv_tiles");
  ASSERT_EQ(lowered.packed.size(), 1u);
  EXPECT_EQ(lowered.packed[0].element, ElementType::kBF16);
  const KernelSource source{"k", function->region(0).front()};
  const std::string text =
      CodeGenerator::Get().EmitText({&source, 1}, amx, codegen::CodeText::kAssembly);
  EXPECT_NE(text.find("tdpbf16ps"), std::string::npos);
  EXPECT_NE(text.find("vcvtne2ps2bf16"), std::string::npos);
}

}  // namespace
}  // namespace lathe::lower
