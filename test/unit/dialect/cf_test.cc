#include "lathe/ir/walk.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

class ControlFlow : public ProgramTest {};

constexpr std::string_view kIf = R"(
  %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %y = cf.if(%c) ({
    %n = nn.neg(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    cf.yield(%n) : (v_tensor<[2], f32>) -> ()
  }, {
    cf.yield(%x) : (v_tensor<[2], f32>) -> ()
  }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ()
)";

TEST_F(ControlFlow, IfRunsOneRegion) {
  for (const bool c : {true, false}) {
    std::vector<std::string> ran;
    InterpreterOptions options;
    options.observer = [&](const RanOp& op) { ran.emplace_back(op.op->name()); };
    const NamedValues out =
        Run(kIf, {{"c", Tensor::Scalar(c)}, {"x", Vec<float>({1, 2})}}, std::move(options));
    EXPECT_EQ(ValuesOf<float>(out[0].second),
              c ? (std::vector<float>{-1, -2}) : (std::vector<float>{1, 2}));
    EXPECT_EQ(std::count(ran.begin(), ran.end(), "nn.neg"), c ? 1 : 0);
  }
}

TEST_F(ControlFlow, ConditionWithSeveralElements) {
  std::string body(kIf);
  body.replace(body.find("v_tensor<[], bool>"), 18, "v_tensor<[?], bool>");
  body.replace(body.rfind("v_tensor<[], bool>"), 18, "v_tensor<[?], bool>");
  const Error e =
      ErrorOf([&] { Run(body, {{"c", Vec<bool>({true, false})}, {"x", Vec<float>({1, 2})}}); });
  EXPECT_EQ(e.id(), "shape/condition");
}

// i from 0 while i < trip and x[0] < 100: x = x + x; gives every x.
std::string Loop(std::string_view trip, std::string_view cond) {
  return StrCat(R"(
  %t = nn.feed() {name = "trip"} : () -> v_tensor<[], i64>
  %g = nn.feed() {name = "go"} : () -> v_tensor<[], bool>
  %x = nn.feed() {name = "x"} : () -> v_tensor<[1], f32>
  %limit = builtin.constant() {value = tensor<[1], f32> [100.0]} : () -> v_tensor<[1], f32>
  %last, %all = cf.while()",
                trip, ", ", cond, R"(, %x) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %v: v_tensor<[1], f32>):
    %d = nn.add(%v, %v) : (v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[1], f32>
    %less = nn.less(%d, %limit) : (v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[1], bool>
    cf.yield(%less, %d, %d) : (v_tensor<[1], bool>, v_tensor<[1], f32>, v_tensor<[1], f32>) -> ()
  }) : ()",
                trip == "none" ? "none" : "v_tensor<[], i64>", ", ",
                cond == "none" ? "none" : "v_tensor<[], bool>",
                R"(, v_tensor<[1], f32>) -> (v_tensor<[1], f32>, v_tensor<[?, 1], f32>)
  nn.fetch(%last) {name = "last"} : (v_tensor<[1], f32>) -> ()
  nn.fetch(%all) {name = "all"} : (v_tensor<[?, 1], f32>) -> ()
)");
}

NamedValues LoopInputs(int64_t trip, bool go) {
  return {{"trip", Tensor::Scalar(trip)}, {"go", Tensor::Scalar(go)}, {"x", Vec<float>({10})}};
}

TEST_F(ControlFlow, WhileByTripCount) {
  // Without an initial condition the one that the body yields does not count.
  const NamedValues out = Run(Loop("%t", "none"), LoopInputs(5, false));
  EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{320}));
  EXPECT_EQ(out[1].second.tensor().shape(), (Shape{5, 1}));
  EXPECT_EQ(ValuesOf<float>(out[1].second), (std::vector<float>{20, 40, 80, 160, 320}));
}

TEST_F(ControlFlow, WhileByCondition) {
  const NamedValues out = Run(Loop("none", "%g"), LoopInputs(0, true));
  EXPECT_EQ(ValuesOf<float>(out[1].second), (std::vector<float>{20, 40, 80, 160}));
}

TEST_F(ControlFlow, WhileByBoth) {
  EXPECT_EQ(ValuesOf<float>(Run(Loop("%t", "%g"), LoopInputs(2, true))[0].second),
            (std::vector<float>{40}));
  EXPECT_EQ(ValuesOf<float>(Run(Loop("%t", "%g"), LoopInputs(9, true))[0].second),
            (std::vector<float>{160}));
}

TEST_F(ControlFlow, WhileWithoutIterations) {
  for (const NamedValues& inputs : {LoopInputs(0, true), LoopInputs(5, false)}) {
    const NamedValues out = Run(Loop("%t", "%g"), inputs);
    EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{10}));
    EXPECT_EQ(out[1].second.tensor().shape(), (Shape{0, 1}));
  }
}

// What a stack holds tells its sizes, whether an operand has them, what the body reads, or an input
// that the body reads no more than the shape of.
TEST_F(ControlFlow, StackWithoutRounds) {
  const auto shape_of = [&](std::string_view yielded) {
    const std::string body = StrCat(R"(
      %t = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
      %x = nn.feed() {name = "x"} : () -> v_tensor<[N], f32>
      %z = nn.feed() {name = "z"} : () -> v_tensor<[M, 2], f32>
      %n = nn.neg(%z) : (v_tensor<[M, 2], f32>) -> v_tensor<[M, 2], f32>
      %s = nn.shape(%z) : (v_tensor<[M, 2], f32>) -> v_tensor<[2], i64>
      %last, %all = cf.while(%t, none, %x) ({
        ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %v: v_tensor<[N], f32>):
        %y = )",
                                    yielded, R"( -> v_tensor<[M, 2], f32>
        cf.yield(%c, %v, %y) : (v_tensor<[], bool>, v_tensor<[N], f32>, v_tensor<[M, 2], f32>) -> ()
      }) : (v_tensor<[], i64>, none, v_tensor<[N], f32>) -> (v_tensor<[N], f32>, v_tensor<[?, M, 2], f32>)
      nn.fetch(%all) {name = "all"} : (v_tensor<[?, M, 2], f32>) -> ()
    )");
    const NamedValues inputs = {{"x", Vec<float>({1})}, {"z", Tensor(ElementType::kF32, {3, 2})}};
    return Run(body, inputs)[0].second.tensor().shape();
  };
  const Shape wanted = {0, 3, 2};
  EXPECT_EQ(shape_of("nn.relu(%n) : (v_tensor<[M, 2], f32>)"), wanted);
  EXPECT_EQ(shape_of("nn.constant_of_shape(%s) : (v_tensor<[2], i64>)"), wanted);
}

TEST_F(ControlFlow, LoopThatNeverEnds) {
  const Error e =
      ErrorOf([&] { Run(Loop("none", "none"), LoopInputs(0, true), {.max_steps = 10000}); });
  EXPECT_EQ(e.id(), "limit/steps");
}

TEST_F(ControlFlow, RegionsTooDeep) {
  std::string body = "%c = nn.feed() {name = \"c\"} : () -> v_tensor<[], bool>\n";
  const int depth = 50;
  for (int i = 0; i < depth; ++i) body += StrCat("%r", i, " = cf.if(%c) ({\n");
  body +=
      "%z = nn.not(%c) : (v_tensor<[], bool>) -> v_tensor<[], bool>\n"
      "cf.yield(%z) : (v_tensor<[], bool>) -> ()\n";
  for (int i = depth - 1; i >= 0; --i) {
    body +=
        "}, {\ncf.yield(%c) : (v_tensor<[], bool>) -> ()\n}) : (v_tensor<[], bool>) -> "
        "v_tensor<[], bool>\n";
    body += i > 0 ? StrCat("cf.yield(%r", i, ") : (v_tensor<[], bool>) -> ()\n")
                  : std::string("nn.fetch(%r0) {name = \"y\"} : (v_tensor<[], bool>) -> ()");
  }
  const NamedValues inputs = {{"c", Tensor::Scalar(true)}};
  EXPECT_EQ(ValuesOf<bool>(Run(body, inputs)[0].second), (std::vector<bool>{false}));
  EXPECT_EQ(ErrorOf([&] { Run(body, inputs, {.max_depth = 49}); }).id(), "limit/depth");
}

// Pushes 1 and 2, then pops as often as `pops` says; gives what was popped last.
std::string Stack(int pops) {
  std::string text = R"(
  %s0 = cf.stack() {type = stack<v_tensor<[1], i64>, v_tensor<[], bool>>} : () -> stack<v_tensor<[1], i64>, v_tensor<[], bool>>
  %yes = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
  %v1 = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
  %v2 = builtin.constant() {value = tensor<[1], i64> [2]} : () -> v_tensor<[1], i64>
  %s1 = cf.push(%s0, %v1, %yes) : (stack<v_tensor<[1], i64>, v_tensor<[], bool>>, v_tensor<[1], i64>, v_tensor<[], bool>) -> stack<v_tensor<[1], i64>, v_tensor<[], bool>>
  %s2 = cf.push(%s1, %v2, %yes) : (stack<v_tensor<[1], i64>, v_tensor<[], bool>>, v_tensor<[1], i64>, v_tensor<[], bool>) -> stack<v_tensor<[1], i64>, v_tensor<[], bool>>
)";
  for (int i = 0; i < pops; ++i) {
    text += StrCat("%s", 3 + i, ", %n", i, ", %b", i, " = cf.pop(%s", 2 + i,
                   ") : (stack<v_tensor<[1], i64>, v_tensor<[], bool>>) -> (stack<v_tensor<[1], "
                   "i64>, v_tensor<[], bool>>, v_tensor<[1], i64>, v_tensor<[], bool>)\n");
  }
  return StrCat(text, "%h = cf.has_entries(%s", 2 + pops,
                ") : (stack<v_tensor<[1], i64>, v_tensor<[], bool>>) -> v_tensor<[], bool>\n",
                "nn.fetch(%h) {name = \"more\"} : (v_tensor<[], bool>) -> ()\n",
                pops == 0 ? ""
                          : StrCat("nn.fetch(%n", pops - 1,
                                   ") {name = \"n\"} : ", "(v_tensor<[1], i64>) -> ()\n"));
}

TEST_F(ControlFlow, StacksGiveBackInReverse) {
  EXPECT_EQ(ValuesOf<bool>(Run(Stack(0))[0].second), std::vector<bool>{true});
  const NamedValues one = Run(Stack(1)), two = Run(Stack(2));
  EXPECT_EQ(ValuesOf<bool>(one[0].second), std::vector<bool>{true});
  EXPECT_EQ(ValuesOf<int64_t>(one[1].second), std::vector<int64_t>{2});
  EXPECT_EQ(ValuesOf<bool>(two[0].second), std::vector<bool>{false});
  EXPECT_EQ(ValuesOf<int64_t>(two[1].second), std::vector<int64_t>{1});
  EXPECT_EQ(ErrorOf([&] { Run(Stack(3)); }).id(), "run/stack");
}

TEST_F(ControlFlow, StacksAreVerified) {
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = Stack(1);
    text.replace(text.find(from), from.size(), to);
    return ErrorOf([&] { Run(text); });
  };
  const Error empty = broken("cf.pop(%s2)", "cf.pop(%s0)");
  EXPECT_EQ(empty.id(), "verify/stack");
  EXPECT_NE(empty.message().find("nothing was pushed"), std::string::npos) << empty.message();
  EXPECT_EQ(broken("(%s1, %v2, %yes) : (stack<v_tensor<[1], i64>, v_tensor<[], bool>>, "
                   "v_tensor<[1], i64>, v_tensor<[], bool>)",
                   "(%s1, %v2) : (stack<v_tensor<[1], i64>, v_tensor<[], bool>>, "
                   "v_tensor<[1], i64>)")
                .id(),
            "verify/stack");
  EXPECT_EQ(broken("(%s1, %v2, %yes) : (stack<v_tensor<[1], i64>, v_tensor<[], bool>>, "
                   "v_tensor<[1], i64>, v_tensor<[], bool>)",
                   "(%s1, %v2, %v2) : (stack<v_tensor<[1], i64>, v_tensor<[], bool>>, "
                   "v_tensor<[1], i64>, v_tensor<[1], i64>)")
                .id(),
            "verify/yield-type");
}

// Sums of a [3, 2] matrix along an axis, forwards or backwards.
std::string Scan(int axis, int direction, int out_axis, int out_direction) {
  return StrCat(R"(
  %s = builtin.constant() {value = tensor<[], f32> [0.0]} : () -> v_tensor<[], f32>
  %x = nn.feed() {name = "x"} : () -> v_tensor<[)",
                axis == 0 ? "3" : "1, 3", R"(], f32>
  %last, %all = cf.scan(%s, %x) {num_scan_inputs = 1, scan_input_axes = [)",
                axis, "], scan_input_directions = [", direction, "], scan_output_axes = [",
                out_axis, "], scan_output_directions = [", out_direction, R"(]} ({
    ^(%sum: v_tensor<*, f32>, %e: v_tensor<*, f32>):
    %n = nn.add(%sum, %e) : (v_tensor<*, f32>, v_tensor<*, f32>) -> v_tensor<*, f32>
    cf.yield(%n, %n) : (v_tensor<*, f32>, v_tensor<*, f32>) -> ()
  }) : (v_tensor<[], f32>, v_tensor<[)",
                axis == 0 ? "3" : "1, 3",
                R"(], f32>) -> (v_tensor<*, f32>, v_tensor<*, f32>)
  nn.fetch(%all) {name = "all"} : (v_tensor<*, f32>) -> ())");
}

TEST_F(ControlFlow, ScanDirectionsAndAxes) {
  const RtValue row = Vec<float>({1, 2, 3});
  EXPECT_EQ(ValuesOf<float>(Run(Scan(0, 0, 0, 0), {{"x", row}})[0].second),
            (std::vector<float>{1, 3, 6}));
  EXPECT_EQ(ValuesOf<float>(Run(Scan(0, 1, 0, 0), {{"x", row}})[0].second),
            (std::vector<float>{3, 5, 6}));
  EXPECT_EQ(ValuesOf<float>(Run(Scan(0, 0, -1, 1), {{"x", row}})[0].second),
            (std::vector<float>{6, 3, 1}));
  const RtValue matrix = Tensor::Of<float>({1, 3}, {1, 2, 3});
  const NamedValues out = Run(Scan(-1, 0, -1, 0), {{"x", matrix}});
  EXPECT_EQ(out[0].second.tensor().shape(), (Shape{1, 3}));
  EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{1, 3, 6}));
}

TEST_F(ControlFlow, ScanAxesThatInputsLackAreRefused) {
  for (const int axis : {2, -3, INT32_MIN, INT32_MAX}) {
    Program program = Parse(Scan(axis, 0, 0, 0));
    EXPECT_EQ(ErrorOf([&] { ShapeInferencer().Visit(program); }).id(), "shape/axis") << axis;
  }
}

// ---- inference ----

TEST_F(ControlFlow, LoopArgumentsCoverWhatTheBodyYields) {
  Program program = Parse(R"(
    %t = nn.feed() {name = "t"} : () -> v_tensor<[], i64>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 3], f32>
    %y = cf.while(%t, none, %x) ({
      ^(%i: v_tensor<*, i64>, %c: v_tensor<*, bool>, %v: v_tensor<*, f32>):
      %d = nn.concat(%v, %v) {axis = 0} : (v_tensor<*, f32>, v_tensor<*, f32>) -> v_tensor<*, f32>
      cf.yield(%c, %d) : (v_tensor<*, bool>, v_tensor<*, f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[1, 3], f32>) -> v_tensor<*, f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<*, f32>) -> ())");
  ShapeInferencer(&program.parameters()).Visit(program);
  EXPECT_EQ(program.fetches()[0]->operand(0).type().ToString(), "v_tensor<[?, 3], f32>");
  VerifyOrThrow(program);
  const RtValue x = Tensor::Of<float>({1, 3}, {1, 2, 3});
  const NamedValues out = Interpreter(program).Run({{"t", Tensor::Scalar<int64_t>(2)}, {"x", x}});
  EXPECT_EQ(out[0].second.tensor().shape(), (Shape{4, 3}));
}

TEST_F(ControlFlow, BranchesOfDifferentTypes) {
  Program program = Parse(R"(
    %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %y = cf.if(%c) ({
      cf.yield(%c) : (v_tensor<[], bool>) -> ()
    }, {
      cf.yield(%x) : (v_tensor<[2], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>)");
  EXPECT_EQ(ErrorOf([&] { ShapeInferencer().Visit(program); }).id(), "type/branches");
  EXPECT_NE(ErrorOf([&] { VerifyOrThrow(program); }).id(), "");
}

TEST_F(ControlFlow, ShapesOfBranchesAreJoined) {
  const auto branches = [](const std::string& type) {
    return StrCat(R"(
      %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
      %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 4], f32>
      %z = nn.feed() {name = "z"} : () -> v_tensor<[3, 4], f32>
      %y = cf.if(%c) ({
        cf.yield(%x) : (v_tensor<[2, 4], f32>) -> ()
      }, {
        cf.yield(%z) : (v_tensor<[3, 4], f32>) -> ()
      }) : (v_tensor<[], bool>) -> )",
                  type, "\nnn.fetch(%y) {name = \"y\"} : (", type, ") -> ()");
  };
  Program program = Parse(branches("v_tensor<*, f32>"));
  ShapeInferencer().Visit(program);
  EXPECT_EQ(program.fetches()[0]->operand(0).type().ToString(), "v_tensor<[?, 4], f32>");
  VerifyOrThrow(program);
  for (const bool c : {true, false}) {
    const RtValue x = Tensor(ElementType::kF32, {2, 4}), z = Tensor(ElementType::kF32, {3, 4});
    const NamedValues out =
        Interpreter(program).Run({{"c", Tensor::Scalar(c)}, {"x", x}, {"z", z}});
    EXPECT_EQ(out[0].second.tensor().shape(), (Shape{c ? 2 : 3, 4}));
  }
  // A promise that one branch does not keep.
  EXPECT_FALSE(Verify(Parse(branches("v_tensor<[2, 4], f32>"))).empty());
}

TEST_F(ControlFlow, LoopsYieldTheConditionAndWhatTheyCarry) {
  const auto loop = [](const std::string& yields, const std::string& types) {
    return StrCat(R"(
      %t = nn.feed() {name = "t"} : () -> v_tensor<[], i64>
      %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
      %y = cf.while(%t, none, %x) ({
      ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %v: v_tensor<[2], f32>):
        cf.yield()",
                  yields, ") : (", types, R"() -> ()
      }) : (v_tensor<[], i64>, none, v_tensor<[2], f32>) -> v_tensor<[2], f32>)");
  };
  EXPECT_TRUE(Verify(Parse(loop("%go, %v", "v_tensor<[], bool>, v_tensor<[2], f32>"))).empty());
  EXPECT_EQ(Verify(Parse(loop("%go", "v_tensor<[], bool>"))).at(0).id(), "verify/yield-count");
  EXPECT_EQ(Verify(Parse(loop("%go, %i", "v_tensor<[], bool>, v_tensor<[], i64>"))).at(0).id(),
            "type/carried");
}

TEST_F(ControlFlow, VerifierCountsYieldsAndArguments) {
  Program program = Parse(R"(
    %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
    %y = cf.if(%c) ({
      cf.yield(%c, %c) : (v_tensor<[], bool>, v_tensor<[], bool>) -> ()
    }, {
      cf.yield(%c) : (v_tensor<[], bool>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[], bool>)");
  EXPECT_EQ(Verify(program).at(0).id(), "verify/yield-count");
}

TEST_F(ControlFlow, SpecializeShapes) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, ?, 4], f32>
    %y = nn.neg(%x) : (v_tensor<[N, ?, 4], f32>) -> v_tensor<[N, ?, 4], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N, ?, 4], f32>) -> ())");
  const auto type = [&] { return program.fetches()[0]->operand(0).type().ToString(); };
  SpecializeShapes(program, {.symbols = {{"N", 7}}});
  EXPECT_EQ(type(), "v_tensor<[7, ?, 4], f32>");
  SpecializeShapes(program, {.inputs = {{"x", {7, 5, 4}}}});
  EXPECT_EQ(type(), "v_tensor<[7, 5, 4], f32>");
  const auto error = [&](const ShapeBindings& b) {
    return ErrorOf([&] { SpecializeShapes(program, b); }).id();
  };
  EXPECT_EQ(error({.symbols = {{"M", 1}}}), "shape/unknown-symbol");
  EXPECT_EQ(error({.inputs = {{"z", {1}}}}), "shape/unknown-input");
  EXPECT_EQ(error({.inputs = {{"x", {8, 5, 4}}}}), "shape/contradiction");
}

}  // namespace
}  // namespace lathe::testing
