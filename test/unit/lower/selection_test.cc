#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lowering.h"
#include "lathe/lower/strategy.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

const Dim kN = Dim::Symbol("N");

// Doubles and negates what there is, element by element; `unroll` says how many at a time.
bool LowerSmall(Lowering& l) {
  const auto type = l.body->argument(0).type().cast<AnyTensorType>();
  if (type.rank() != 1) {
    l.why = "it has several axes";
    return false;
  }
  l.knobs.Choose("unroll", {1, 2, 4});
  LoopBuilder lb(l.body);
  const Value memory = lb.Alloc(l.function.back()->operand(0).type().cast<AnyTensorType>());
  lb.For(type.dims()[0], false, [&](Value i) {
    const Value x = lb.Load(l.body->argument(0), {&i, 1});
    lb.Store(memory, lb.Elementwise(l.function.front(), {&x, 1}), {&i, 1});
  });
  const Value result = lb.b().Create("builtin.to_vtensor", {&memory, 1})->result(0);
  lb.b().Create(l.function.back()->info(), {&result, 1}, {}, {});
  l.where = Condition::AtMost(type.dims()[0], 4);
  return true;
}

// nn.ceil stands for an operation with a strategy of its own; no other test lowers it.
class SelectionTest : public LowerTest {
 protected:
  static void SetUpTestSuite() {
    StrategyRegistry::Global().Register("nn.ceil", "cpu", [](const OpCall&) {
      OpStrategy s;
      s.Add({.name = "small", .plevel = 20, .lower = &LowerSmall});
      return s;
    });
  }

  Case Of(const std::string& type) const {
    return {{type}, StrCat("%r = nn.ceil(%a) : (", type, ") -> ", type), type};
  }
  Lowered Lower(const std::string& type, const LowerOptions& options = {}) {
    Program program = ParseProgram(context_, ProgramOf(Of(type)), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()), {}, options);
  }
};

TEST_F(SelectionTest, SymbolsAreDecidedAtRunTime) {
  for (const int64_t n : {0, 1, 4, 5, 33}) {
    symbol_ = n;
    Expect(Of("v_tensor<[N], f32>"), "small | elementwise", 1e-6);
  }
}

TEST_F(SelectionTest, NumbersAreDecidedAtOnce) {
  EXPECT_EQ(Lower("v_tensor<[4], f32>").strategy, "small");
  const Lowered large = Lower("v_tensor<[5], f32>");
  EXPECT_EQ(large.strategy, "elementwise");
  EXPECT_EQ(large.candidates,
            "small  plevel 20  refused: it needs 4 >= 5\n"
            "elementwise  plevel 10  taken\n");
}

TEST_F(SelectionTest, RefusalsSayWhy) {
  EXPECT_EQ(Lower("v_tensor<[2, 2], f32>").why_not, "small: it has several axes");
}

TEST_F(SelectionTest, RecordsAndKnobs) {
  const std::string type = "v_tensor<[4], f32>";
  Program program = ParseProgram(context_, ProgramOf(Of(type)), {.file_locations = false});
  const std::string workload = WorkloadOf(codegen::FirstFunction(program));
  TuningRecords records;
  records.Add(workload, "here", "small{unroll=4}", 0.5);
  records.Add(workload, "there", "elementwise", 0.1);
  const Lowered small = Lower(type, {.target = "here", .records = &records});
  EXPECT_EQ(small.implementation, "small{unroll=4}");
  ASSERT_EQ(small.knobs.size(), 1U);
  EXPECT_EQ(small.knobs[0].taken, 4);
  EXPECT_EQ(small.knobs[0].values, (std::vector<int64_t>{1, 2, 4}));
  records.Add(workload, "here", "elementwise", 0.25);
  EXPECT_EQ(Lower(type, {.target = "here", .records = &records}).implementation, "elementwise");
  // A value that is not right any more is not taken.
  EXPECT_EQ(Lower(type, {.implementation = "small{unroll=3}"}).implementation, "small");
}

TEST_F(SelectionTest, RecordsOfWhatBecomesSimpler) {
  const std::string t = "v_tensor<[40], f32>";
  const Case c{{t}, StrCat("%r = nn.softsign(%a) : (", t, ") -> ", t), t};
  Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
  Operation* function = codegen::FirstFunction(program);
  TuningRecords records;
  records.Add(WorkloadOf(function), "here", "loops", 0.5);
  const LowerOptions options{.target = "here", .records = &records};
  EXPECT_EQ(LowerFunction(function, MachineOf(Target::Host()), {}, options).strategy, "loops");
}

TEST(Knobs, TextRoundTripsAndIsChecked) {
  Knobs knobs = Knobs::Parse("{b=2,a=-1}");
  EXPECT_EQ(knobs.Choose("a", {5, -1}), -1);
  EXPECT_EQ(knobs.Choose("b", {5, 2}), 2);
  EXPECT_EQ(knobs.Choose("c", {7, 8}), 7);
  knobs.Set("unasked", 3);
  EXPECT_EQ(knobs.TakenText(), "{a=-1,b=2}");
  EXPECT_EQ(knobs.ToString(), "{a=-1,b=2,unasked=3}");
  for (const char* wrong : {"{", "a=1", "{a}", "{=1}", "{a=x}", "{a=1"}) {
    try {
      (void)Knobs::Parse(wrong);
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "tune/knobs");
    }
  }
}

}  // namespace
}  // namespace lathe::lower
