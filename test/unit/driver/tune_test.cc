#include "lathe/driver/tune.h"

#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lowering.h"
#include "lathe/support/file.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

// Element by element, with `addend` added.
bool LowerPlainly(lower::Lowering& l, double addend) {
  const auto type = l.body->argument(0).type().cast<AnyTensorType>();
  lower::LoopBuilder lb(l.body);
  const int64_t unroll = l.knobs.Choose("unroll", {1, 2});
  const Value memory = lb.Alloc(type);
  lb.For(type.dims()[0].value() / unroll, false, [&](Value i) {
    for (int64_t u = 0; u < unroll; ++u) {
      const Value at = lb.Index(lower::LoopBuilder::D0() * unroll + u, i);
      const Value x = lb.Load(l.body->argument(0), {&at, 1});
      const Value y = lb.Elementwise(l.function.front(), {&x, 1});
      const Value sum[] = {y, lb.Splat(type.element(), addend)};
      lb.Store(memory, lb.b().Create("nn.add", sum)->result(0), {&at, 1});
    }
  });
  const Value result = lb.b().Create("builtin.to_vtensor", {&memory, 1})->result(0);
  lb.b().Create(l.function.back()->info(), {&result, 1}, {}, {});
  return true;
}

// nn.floor has a second strategy here, which is right, and nn.round one that is wrong.
class TuneTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const auto& [op, addend] : {std::pair("nn.floor", 0.0), std::pair("nn.round", 1.0)}) {
      StrategyRegistry::Global().Register(op, "cpu", [added = addend](const OpCall&) {
        OpStrategy s;
        s.Add({.name = "plain", .plevel = 5, .lower = [added](lower::Lowering& l) {
                 return LowerPlainly(l, added);
               }});
        return s;
      });
    }
  }
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  Program Of(const std::string& op) {
    const std::string t = "v_tensor<[64], f32>";
    return ParseProgram(context_, StrCat("program {\n  %x = nn.feed() {name = \"x\"} : () -> ", t,
                                         "\n  %y = nn.", op, "(%x) : (", t, ") -> ", t,
                                         "\n  nn.fetch(%y) {name = \"y\"} : (", t, ") -> ()\n}\n"));
  }

  IrContext context_;
};

TEST_F(TuneTest, EveryStrategyAndKnobIsMeasured) {
  const Program program = Of("floor");
  std::vector<std::string> asked;
  TunedFunction result;
  const TuningRecords records = Tune(
      program, {.seconds = 0},
      [&](size_t index, size_t count, const std::string& operations, const std::string& name) {
        EXPECT_EQ(index, 0U);
        EXPECT_EQ(count, 1U);
        EXPECT_EQ(operations, "floor");
        asked.push_back(name);
      },
      [&](const TunedFunction& f, const TuningRecords&) { result = f; });
  EXPECT_EQ(result.first, "elementwise");
  EXPECT_EQ(result.trials, records.size());
  const std::string& target = codegen::Target::Host().name;
  for (const char* name : {"elementwise", "plain", "plain{unroll=2}"}) {
    EXPECT_TRUE(records.Find(result.workload, target, name)) << name;
  }
  EXPECT_EQ(records.Best(result.workload, target)->second, result.best_seconds);
  EXPECT_LE(result.best_seconds, result.first_seconds);
}

TEST_F(TuneTest, LaterBuildsTakeTheFastest) {
  const Program program = Of("floor");
  std::string workload;
  Tune(program, {.max_trials = 1, .seconds = 0}, {},
       [&](const TunedFunction& f, const TuningRecords&) { workload = f.workload; });
  TuningRecords records;
  records.Add(workload, codegen::Target::Host().name, "plain{unroll=2}", 1e-9);
  const TempFolder folder;
  const std::string path = folder / "records.jsonl";
  WriteFile(path, records.ToText());
  EXPECT_EQ(Executable(program).functions()[0].strategy, "elementwise");
  EXPECT_EQ(Executable(program, {.records = path}).functions()[0].strategy, "plain");
}

// What was measured before an interrupt is not measured again; a line that was not finished is cut.
TEST_F(TuneTest, ResumesWhereItStopped) {
  const Program program = Of("floor");
  const TempFolder folder;
  const std::string path = folder / "records.jsonl";
  EXPECT_EQ(ResumeTuningRecords(path).size(), 0U);
  std::string text;
  size_t kept = 0;
  TuneOptions options{.max_trials = 3, .seconds = 0};
  options.keep = [&](const TuningRecords& record) {
    text += record.ToText();
    ++kept;
  };
  Tune(program, options);
  EXPECT_EQ(kept, 3U);
  WriteFile(path, text + "{\"implementation\":\"pla");
  const TuningRecords known = ResumeTuningRecords(path);
  EXPECT_EQ(ReadFile(path), text);
  EXPECT_EQ(known.size(), 3U);
  options.known = &known;
  options.max_trials = 5;
  TunedFunction result;
  const TuningRecords all =
      Tune(program, options, {}, [&](const TunedFunction& f, const TuningRecords&) { result = f; });
  EXPECT_EQ(kept, 5U);
  EXPECT_EQ(all.size(), 5U);
  EXPECT_EQ(result.trials, 5U);
  EXPECT_EQ(result.first, "elementwise");
}

TEST_F(TuneTest, OtherFilesStayAsTheyAre) {
  const TempFolder folder;
  const std::string path = folder / "other";
  for (const std::string text :
       {"{\"nodes\":[]}", "one\ntwo", "{\"a\":1}\n{\"b\":", "\x08\n\x12"}) {
    WriteFile(path, text);
    EXPECT_THROW((void)ResumeTuningRecords(path), Error);
    EXPECT_EQ(ReadFile(path), text);
  }
}

// A record of a knob that there is no more is told and passed over.
TEST_F(TuneTest, RecordsThatDoNotHoldAreIgnored) {
  Program program = Of("floor");
  std::string workload;
  Tune(program, {.max_trials = 1, .seconds = 0}, {},
       [&](const TunedFunction& f, const TuningRecords&) { workload = f.workload; });
  const std::string& target = codegen::Target::Host().name;
  TuningRecords records;
  records.Add(workload, target, "plain{unroll=3}", 1e-9);
  records.Add(workload, target, "gone", 2e-9);
  records.Add(workload, target, "plain{unroll=2}", 3e-9);
  records.Add(workload, target, "plain", 4e-9);
  const TempFolder folder;
  const std::string path = folder / "records.jsonl";
  WriteFile(path, records.ToText());
  const Executable executable(program, {.records = path});
  EXPECT_EQ(executable.functions()[0].strategy, "plain");
  const std::string& candidates = executable.functions()[0].candidates;
  for (const char* line :
       {"the record of plain{unroll=3} is ignored: there is no unroll=3\n",
        "the record of gone is ignored: there is no such strategy\n", "plain{unroll=2}"}) {
    EXPECT_NE(candidates.find(line), std::string::npos) << candidates;
  }
}

TEST_F(TuneTest, WrongResultsAreNotRecorded) {
  const Program program = Of("round");
  try {
    Tune(program, {.seconds = 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "tune/wrong-result");
    EXPECT_NE(error.Render().find("plain computes something else than elementwise for round"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lathe
