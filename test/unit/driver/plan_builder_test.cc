#include "src/driver/plan_builder.h"

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/driver/model_file.h"
#include "lathe/pass/pass_manager.h"
#include "src/driver/object_values.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

using runtime::Plan;
using runtime::PlanValue;

class PlanBuilderTest : public testing::ProgramTest {
 protected:
  // Groups the operations; what computes something gets a kernel.
  Program Grouped(std::string_view body) {
    Program program = Parse(body);
    PassManager passes;
    passes.Add("graph_fuse_partition,graph_fuse_compile");
    passes.Run(program);
    return program;
  }

  static PlannedFunctions FunctionsOf(const Program& program) {
    PlannedFunctions functions;
    uint32_t kernels = 0;
    for (Operation& op : *program.block()) {
      const auto f = op.dyn_cast<builtin::FuncOp>();
      if (!f) continue;
      PlannedFunction& planned = functions[f.name()];
      planned.label = f.name().substr(6, f.name().rfind('_') - 6);  // fused_softmax_12ab
      planned.data = AsDataFunction(&op);
      if (!planned.data) planned.kernel = kernels++;
    }
    return functions;
  }

  static std::string Describe(const PlanValue& v) {
    constexpr const char* kPlaces[] = {"in", "out", "c", "s", "v", "o"};
    return StrCat(kPlaces[static_cast<int>(v.place)], v.index,
                  v.offset == 0 ? "" : StrCat("+", v.offset));
  }

  // "add: in0 in1 -> s0; copy: s0 -> out0"
  static std::string Describe(const Plan& plan) {
    std::string text;
    for (const runtime::PlanStep& step : plan.steps) {
      text += StrCat(text.empty() ? "" : "; ", step.label, ":");
      for (size_t i = 0; i < step.values.size(); ++i) {
        text += StrCat(i == step.reads ? " -> " : " ", Describe(plan.values[step.values[i]]));
      }
    }
    return text;
  }

  // `in_place`: what every kernel allows.
  std::string StepsOf(std::string_view body,
                      const std::vector<std::pair<size_t, size_t>>& in_place = {}) {
    const Program program = Grouped(body);
    PlannedFunctions functions = FunctionsOf(program);
    for (auto& [name, f] : functions) f.in_place = in_place;
    const ObjectValues objects(program, functions);
    for (const PlanObstacle& o : FindObstacles(program, functions, objects)) {
      ADD_FAILURE() << o.why;
    }
    const Plan plan = Build(program, functions);
    ExpectSound(plan);
    return Describe(plan);
  }

  static Plan Build(const Program& program, const PlannedFunctions& functions) {
    std::vector<const Operation*> evaluated;
    return BuildPlan(program, functions, ObjectValues(program, functions), PackedConstants(program),
                     {}, evaluated);
  }

  static void ExpectSound(const Plan& plan) {
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const PlanValue& v = plan.values[plan.outputs[i].value];
      EXPECT_EQ(Describe(v), StrCat("out", i));
    }
    for (size_t i = 0; i < plan.storages.size(); ++i) {
      for (size_t k = i + 1; k < plan.storages.size(); ++k) {
        const auto &a = plan.storages[i], &b = plan.storages[k];
        if (!a.bytes.is_constant() || !b.bytes.is_constant()) continue;
        if (a.end < b.begin || b.end < a.begin) continue;
        const auto end = [](const auto& s) {
          return s.offset + static_cast<uint64_t>(s.bytes.value());
        };
        EXPECT_TRUE(end(a) <= b.offset || end(b) <= a.offset) << i << " and " << k;
      }
    }
  }

  std::vector<std::string> ObstaclesOf(std::string_view body) {
    const Program program = Grouped(body);
    std::vector<std::string> why;
    const PlannedFunctions functions = FunctionsOf(program);
    const ObjectValues objects(program, functions);
    for (const PlanObstacle& o : FindObstacles(program, functions, objects)) {
      why.push_back(StrCat(o.op->name(), ": ", o.why));
    }
    return why;
  }
};

TEST_F(PlanBuilderTest, StoragesAreUsedAgain) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[64], f32>
    %a = nn.softmax(%x) : (v_tensor<[64], f32>) -> v_tensor<[64], f32>
    %b = nn.softmax(%a) : (v_tensor<[64], f32>) -> v_tensor<[64], f32>
    %c = nn.softmax(%b) : (v_tensor<[64], f32>) -> v_tensor<[64], f32>
    %d = nn.softmax(%c) : (v_tensor<[64], f32>) -> v_tensor<[64], f32>
    nn.fetch(%d) {name = "y"} : (v_tensor<[64], f32>) -> ())"),
            "softmax: in0 -> s0; softmax: s0 -> s1; softmax: s1 -> s2; softmax: s2 -> out0");
}

TEST_F(PlanBuilderTest, ReshapesNameTheSameMemory) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f32>
    %shape = builtin.constant() {value = tensor<[1], i64> [6]} : () -> v_tensor<[1], i64>
    %a = nn.softmax(%x) : (v_tensor<[2, 3], f32>) -> v_tensor<[2, 3], f32>
    %b = nn.reshape(%a, %shape) : (v_tensor<[2, 3], f32>, v_tensor<[1], i64>) -> v_tensor<[6], f32>
    nn.fetch(%b) {name = "y"} : (v_tensor<[6], f32>) -> ())"),
            "softmax: in0 -> out0");
}

// Bytes that are none lie everywhere, in the whole that they are part of, too.
TEST_F(PlanBuilderTest, EmptyPartsOfAConcatStayWhereTheyAre) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[0, 3], f32>
    %a = nn.softmax(%x) : (v_tensor<[0, 3], f32>) -> v_tensor<[0, 3], f32>
    %b = nn.concat(%a, %a, %a) {axis = 0} : (v_tensor<[0, 3], f32>, v_tensor<[0, 3], f32>, v_tensor<[0, 3], f32>) -> v_tensor<[0, 3], f32>
    nn.fetch(%b) {name = "y"} : (v_tensor<[0, 3], f32>) -> ())"),
            "softmax: in0 -> s0");
}

TEST_F(PlanBuilderTest, OutputsThatAreNobodysOwnAreCopied) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[8], f32>
    %p = builtin.constant() {value = tensor<[2], f32> [1.0, 2.0]} : () -> v_tensor<[2], f32>
    %a = nn.softmax(%x) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
    nn.fetch(%x) {name = "in"} : (v_tensor<[8], f32>) -> ()
    nn.fetch(%p) {name = "constant"} : (v_tensor<[2], f32>) -> ()
    nn.fetch(%a) {name = "once"} : (v_tensor<[8], f32>) -> ()
    nn.fetch(%a) {name = "twice"} : (v_tensor<[8], f32>) -> ())"),
            "softmax: in0 -> out2; copy: in0 -> out0; copy: c0 -> out1; copy: out2 -> out3");
}

// Results of the program are written, so none of these concatenations is part of what reads it.
TEST_F(PlanBuilderTest, ConcatenationsAreWrittenInPlace) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2, 5], f32>
    %a = nn.softmax(%x) : (v_tensor<[1, 2, 5], f32>) -> v_tensor<[1, 2, 5], f32>
    %b = nn.concat(%a, %x, %a) {axis = 1} : (v_tensor<[1, 2, 5], f32>, v_tensor<[1, 2, 5], f32>, v_tensor<[1, 2, 5], f32>) -> v_tensor<[1, 6, 5], f32>
    nn.fetch(%b) {name = "y"} : (v_tensor<[1, 6, 5], f32>) -> ())"),
            "softmax: in0 -> out0; copy: in0 -> out0+40; copy: out0 -> out0+80");
}

TEST_F(PlanBuilderTest, ConcatenationsOfTheSameBeginningsShareIt) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %a = nn.softmax(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %b = nn.softmax(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %ab = nn.concat(%a, %b) {axis = 0} : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[4], f32>
    %c = nn.softmax(%ab) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %abc = nn.concat(%a, %b, %c) {axis = 0} : (v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[4], f32>) -> v_tensor<[8], f32>
    nn.fetch(%abc) {name = "y"} : (v_tensor<[8], f32>) -> ()
    nn.fetch(%ab) {name = "z"} : (v_tensor<[4], f32>) -> ())"),
            "softmax: in0 -> out0; softmax: out0 -> out0+8; softmax: out0 -> out0+16; "
            "copy: out0 -> out1");
}

TEST_F(PlanBuilderTest, PiecesAreCutWithoutCopies) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 6, 2], f32>
    %a = nn.softmax(%x) : (v_tensor<[1, 6, 2], f32>) -> v_tensor<[1, 6, 2], f32>
    %b, %c = nn.split(%a) {axis = 1, num_outputs = 2} : (v_tensor<[1, 6, 2], f32>) -> (v_tensor<[1, 3, 2], f32>, v_tensor<[1, 3, 2], f32>)
    %one = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %end = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>
    %d = nn.slice(%c, %one, %end, %one, none) : (v_tensor<[1, 3, 2], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>, none) -> v_tensor<[1, 1, 2], f32>
    %e = nn.softmax(%b) : (v_tensor<[1, 3, 2], f32>) -> v_tensor<[1, 3, 2], f32>
    %f = nn.softmax(%d) : (v_tensor<[1, 1, 2], f32>) -> v_tensor<[1, 1, 2], f32>
    nn.fetch(%e) {name = "e"} : (v_tensor<[1, 3, 2], f32>) -> ()
    nn.fetch(%f) {name = "f"} : (v_tensor<[1, 1, 2], f32>) -> ()
    nn.fetch(%d) {name = "d"} : (v_tensor<[1, 1, 2], f32>) -> ())"),
            "softmax: in0 -> s0; softmax: s0 -> out0; softmax: s0+32 -> out1; copy: s0+32 -> out2");
}

TEST_F(PlanBuilderTest, SizesMayBeSymbols) {
  const Program program = Grouped(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[3, N], f32>
    %y = nn.feed() {name = "y"} : () -> v_tensor<[N, M], f32>
    %a = nn.softmax(%x) : (v_tensor<[3, N], f32>) -> v_tensor<[3, N], f32>
    %b = nn.matmul(%a, %y) : (v_tensor<[3, N], f32>, v_tensor<[N, M], f32>) -> v_tensor<[3, M], f32>
    nn.fetch(%b) {name = "z"} : (v_tensor<[3, M], f32>) -> ())");
  const Plan plan = Build(program, FunctionsOf(program));
  EXPECT_EQ(Describe(plan), "softmax: in0 -> s0; matmul: s0 in1 -> out0");
  ASSERT_EQ(plan.symbols.size(), 2u);
  EXPECT_EQ(plan.symbols[0].name, "N");
  EXPECT_EQ(plan.symbols[0].input, 0u);
  EXPECT_EQ(plan.symbols[0].axis, 1u);
  EXPECT_EQ(plan.symbols[1].name, "M");
  EXPECT_EQ(plan.symbols[1].input, 1u);
  ASSERT_EQ(plan.storages.size(), 1u);
  EXPECT_EQ(plan.storages[0].bytes.ToString(), "12*N");
}

TEST_F(PlanBuilderTest, WorkspacesLiveForOneStep) {
  const Program program = Grouped(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[16], f32>
    %a = nn.softmax(%x) : (v_tensor<[16], f32>) -> v_tensor<[16], f32>
    %b = nn.softmax(%a) : (v_tensor<[16], f32>) -> v_tensor<[16], f32>
    nn.fetch(%b) {name = "y"} : (v_tensor<[16], f32>) -> ())");
  PlannedFunctions functions = FunctionsOf(program);
  for (auto& [name, f] : functions) f.workspaces = {1000, 10};
  const Plan plan = Build(program, functions);
  ExpectSound(plan);
  EXPECT_EQ(Describe(plan), "softmax: in0 -> s0 s1 s2; softmax: s0 -> out0 s3 s4");
  EXPECT_LE(MemoryOf(plan).peak, MemoryOf(plan).lower_bound);
  EXPECT_EQ(plan.storages[1].begin, plan.storages[1].end);
}

// ---- results over operands ----

TEST_F(PlanBuilderTest, ResultsTakeTheBytesOfWhatDies) {
  const std::string_view chain = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 4], f32>
    %a = nn.softmax(%x) : (v_tensor<[N, 4], f32>) -> v_tensor<[N, 4], f32>
    %b = nn.softmax(%a) : (v_tensor<[N, 4], f32>) -> v_tensor<[N, 4], f32>
    %c = nn.softmax(%b) : (v_tensor<[N, 4], f32>) -> v_tensor<[N, 4], f32>
    %axes = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %d = nn.reduce_max(%c, %axes) {keepdims = false} : (v_tensor<[N, 4], f32>, v_tensor<[1], i64>) -> v_tensor<[N], f32>
    nn.fetch(%d) {name = "y"} : (v_tensor<[N], f32>) -> ())";
  EXPECT_EQ(StepsOf(chain),
            "softmax: in0 -> s0; softmax: s0 -> s1; softmax: s1 -> s2; reduce_max: s2 -> out0");
  EXPECT_EQ(StepsOf(chain, {{0, 0}}),  // never an input; the last one is smaller
            "softmax: in0 -> s0; softmax: s0 -> s0; softmax: s0 -> s0; reduce_max: s0 -> out0");
}

TEST_F(PlanBuilderTest, WhatIsReadLaterStays) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[8], f32>
    %a = nn.softmax(%x) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
    %b = nn.softmax(%a) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
    %c = nn.matmul(%a, %b) : (v_tensor<[8], f32>, v_tensor<[8], f32>) -> v_tensor<[], f32>
    nn.fetch(%c) {name = "y"} : (v_tensor<[], f32>) -> ())",
                    {{0, 0}}),
            "softmax: in0 -> s0; softmax: s0 -> s1; matmul: s0 s1 -> out0");
}

TEST_F(PlanBuilderTest, OutputsAreNotWrittenOver) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[8], f32>
    %a = nn.softmax(%x) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
    %b = nn.softmax(%a) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
    %c = nn.softmax(%b) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
    nn.fetch(%a) {name = "a"} : (v_tensor<[8], f32>) -> ()
    nn.fetch(%c) {name = "c"} : (v_tensor<[8], f32>) -> ())",
                    {{0, 0}}),
            "softmax: in0 -> out0; softmax: out0 -> out1; softmax: out1 -> out1");
}

// Both operands are parts of one tensor.
TEST_F(PlanBuilderTest, PartsOfWhatIsReadStay) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 4, 4], f32>
    %a = nn.softmax(%x) : (v_tensor<[2, 4, 4], f32>) -> v_tensor<[2, 4, 4], f32>
    %b, %c = nn.split(%a) {axis = 0, num_outputs = 2} : (v_tensor<[2, 4, 4], f32>) -> (v_tensor<[1, 4, 4], f32>, v_tensor<[1, 4, 4], f32>)
    %d = nn.matmul(%b, %c) : (v_tensor<[1, 4, 4], f32>, v_tensor<[1, 4, 4], f32>) -> v_tensor<[1, 4, 4], f32>
    nn.fetch(%d) {name = "y"} : (v_tensor<[1, 4, 4], f32>) -> ())",
                    {{0, 0}}),
            "softmax: in0 -> s0; matmul: s0 s0+64 -> out0");
}

TEST_F(PlanBuilderTest, ViewsOfWhatDiesAreTaken) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f32>
    %shape = builtin.constant() {value = tensor<[1], i64> [6]} : () -> v_tensor<[1], i64>
    %a = nn.softmax(%x) : (v_tensor<[2, 3], f32>) -> v_tensor<[2, 3], f32>
    %b = nn.reshape(%a, %shape) : (v_tensor<[2, 3], f32>, v_tensor<[1], i64>) -> v_tensor<[6], f32>
    %c = nn.softmax(%b) : (v_tensor<[6], f32>) -> v_tensor<[6], f32>
    %d = nn.softmax(%c) : (v_tensor<[6], f32>) -> v_tensor<[6], f32>
    nn.fetch(%d) {name = "y"} : (v_tensor<[6], f32>) -> ()
    nn.fetch(%x) {name = "x"} : (v_tensor<[2, 3], f32>) -> ())",
                    {{0, 0}}),
            "softmax: in0 -> out0; reshape_softmax: out0 -> out0; softmax: out0 -> out0; copy: "
            "in0 -> out1");
}

// A result that is part of something larger would keep all of that alive.
TEST_F(PlanBuilderTest, PartsOfConcatenationsStayApart) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2, 8], f32>
    %a = nn.softmax(%x) : (v_tensor<[1, 2, 8], f32>) -> v_tensor<[1, 2, 8], f32>
    %b = nn.softmax(%a) : (v_tensor<[1, 2, 8], f32>) -> v_tensor<[1, 2, 8], f32>
    %c = nn.softmax(%b) : (v_tensor<[1, 2, 8], f32>) -> v_tensor<[1, 2, 8], f32>
    %d = nn.concat(%b, %c) {axis = 1} : (v_tensor<[1, 2, 8], f32>, v_tensor<[1, 2, 8], f32>) -> v_tensor<[1, 4, 8], f32>
    nn.fetch(%d) {name = "y"} : (v_tensor<[1, 4, 8], f32>) -> ())",
                    {{0, 0}}),
            "softmax: in0 -> s0; softmax: s0 -> out0; softmax: out0 -> out0+64");
}

// Of what the shape of a reshape is made of nothing is left.
TEST_F(PlanBuilderTest, OnlyWhatOutputsDependOnIsPlanned) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 4], f32>
    %y = nn.feed() {name = "unused"} : () -> v_tensor<[4], f32>
    %a = nn.softmax(%x) : (v_tensor<[N, 4], f32>) -> v_tensor<[N, 4], f32>
    %s = nn.shape(%x) : (v_tensor<[N, 4], f32>) -> v_tensor<[2], i64>
    %p = nn.reduce_prod(%s, none) {keepdims = 1} : (v_tensor<[2], i64>, none) -> v_tensor<[1], i64>
    %b = nn.reshape(%a, %p) : (v_tensor<[N, 4], f32>, v_tensor<[1], i64>) -> v_tensor<[4*N], f32>
    nn.fetch(%b) {name = "y"} : (v_tensor<[4*N], f32>) -> ())"),
            "softmax: in0 -> out0");
}

TEST_F(PlanBuilderTest, ObstaclesSayWhatIsMissing) {
  EXPECT_EQ(ObstaclesOf(R"(
    %x = nn.feed() {name = "x"} : () -> tensor<[8], f32>
    nn.fetch(%x) {name = "y"} : (tensor<[8], f32>) -> ())"),
            (std::vector<std::string>{"nn.feed: result 0 of type tensor<[8], f32> may change"}));
}

// What has no size before the run is an object; what comes after it and has one is not.
TEST_F(PlanBuilderTest, ObjectsSayTheirSizes) {
  EXPECT_EQ(StepsOf(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[8], f32>
    %a = nn.non_zero(%x) : (v_tensor<[8], f32>) -> v_tensor<[1, K], i64>
    %b = nn.cast(%a) {to = f32} : (v_tensor<[1, K], i64>) -> v_tensor<[1, K], f32>
    %c = nn.softmax(%b) : (v_tensor<[1, K], f32>) -> v_tensor<[1, K], f32>
    nn.fetch(%c) {name = "y"} : (v_tensor<[1, K], f32>) -> ())"),
            "non_zero: in0 -> o0; bind size: o0; cast_softmax: o0 -> out0");
}

TEST_F(PlanBuilderTest, InputsMayBeObjects) {
  const Program program = Grouped(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N + 1], f32>
    nn.fetch(%x) {name = "y"} : (v_tensor<[N + 1], f32>) -> ())");
  const Plan plan = Build(program, FunctionsOf(program));
  EXPECT_EQ(plan.inputs[0].value, plan.outputs[0].value);
  EXPECT_TRUE(plan.values[plan.inputs[0].value].is_object());
  EXPECT_TRUE(plan.symbols.empty());
}

}  // namespace
}  // namespace lathe
