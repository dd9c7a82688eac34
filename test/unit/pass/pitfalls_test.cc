#include <gtest/gtest.h>

#include <random>

#include "lathe/dialect/all.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/instrumentation.h"
#include "lathe/pass/rewriter.h"

/// What goes wrong in other pass managers and greedy drivers.
namespace lathe {
namespace {

constexpr const char* kType = "v_tensor<[2], f32>";

/// Says that it fired, and changes nothing.
class Liar : public RewritePattern {
 public:
  Liar() : RewritePattern("liar", "nn.neg") {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    rewriter.SetAttribute(op, "seen", op->attribute("seen") ? Attribute() : rewriter.Attr(true));
    return true;
  }
};

/// Counts its visits and turns the one op that is marked into a relu.
class Counting : public RewritePattern {
 public:
  explicit Counting(int64_t& visits) : RewritePattern("counting", ""), visits_(visits) {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    ++visits_;
    if (!op->attribute("marked")) return false;
    const Value x = op->operand(0);
    rewriter.ReplaceOp(op, rewriter.Create("nn.relu", {&x, 1})->result(0));
    return true;
  }

 private:
  int64_t& visits_;
};

struct PitfallAnalysis {
  explicit PitfallAnalysis(const Program& program) {
    for ([[maybe_unused]] const Operation& op : *program.block()) ++ops;
    ++made;
  }
  int64_t ops = 0;
  static inline int made = 0;
};

class TestAnalyzePass : public Pass {
 public:
  PreservedAnalyses Preserved() const override {
    if (option("keeps") == "this") return PreservedAnalyses().Preserve<PitfallAnalysis>();
    return option("keeps") == "all" ? PreservedAnalyses::All() : PreservedAnalyses::None();
  }

 protected:
  void ApplyImpl(Graph& /*graph*/) override {
    Count("ops", context()->analyses().Get<PitfallAnalysis>().ops);
    if (option("keeps") == "fails") throw Error(ErrorCode::kInternal, "test/fails", "it fails");
  }
};
REGISTER_PASS(test_analyze, TestAnalyzePass)
    .Option("keeps", PassOption::Kind::kString, "none", "none, this, all, or fails");

class PitfallTest : public ::testing::Test {
 protected:
  PitfallTest() { LoadAllDialects(context); }

  /// x, then `count` ops in a chain, the last one fetched.
  std::string Chain(int count, const std::function<std::string(int)>& op) {
    std::string text = StrCat("program {\n%v0 = nn.feed() {name = \"x\"} : () -> ", kType, "\n");
    for (int i = 0; i < count; ++i) {
      text += StrCat("%v", i + 1, " = ", op(i), " : (", kType, ") -> ", kType, "\n");
    }
    return StrCat(text, "nn.fetch(%v", count, ") {name = \"y\"} : (", kType, ") -> ()\n}");
  }

  std::string Run(Program& program, const std::string& pipeline) {
    PassManager manager({.verify_each = true});
    manager.Add(pipeline);
    manager.Run(program);
    return RenderStatistics(manager);
  }

  IrContext context;
};

TEST_F(PitfallTest, APatternThatNeverEndsIsNamed) {
  Program program =
      ParseProgram(context, Chain(3, [](int i) { return StrCat("nn.neg(%v", i, ")"); }));
  PatternSet patterns;
  patterns.push_back(std::make_unique<Liar>());
  try {
    ApplyPatternsGreedily(program, nullptr, patterns, {.max_rewrites_per_op = 10});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "pass/no-convergence");
    EXPECT_NE(error.message().find("'liar'"), std::string::npos) << error.message();
  }
}

TEST_F(PitfallTest, AChangeVisitsItsNeighborsAndNotTheProgramAgain) {
  Program program =
      ParseProgram(context, Chain(2000, [](int i) {
                     return StrCat("nn.neg(%v", i, ")", i == 1000 ? " {marked = true}" : "");
                   }));
  int64_t visits = 0;
  PatternSet patterns;
  patterns.push_back(std::make_unique<Counting>(visits));
  EXPECT_EQ(ApplyPatternsGreedily(program, nullptr, patterns), 1);
  EXPECT_LE(visits, 2002 + 10);
}

TEST_F(PitfallTest, ThousandsOfEqualOperationsMergeIntoOne) {
  std::string text = StrCat("program {\n%v0 = nn.feed() {name = \"x\"} : () -> ", kType, "\n");
  constexpr int kCount = 20000;
  for (int i = 1; i <= kCount; ++i) {
    text += StrCat("%v", i, " = nn.neg(%v0) : (", kType, ") -> ", kType, "\n");
  }
  text += StrCat("%y = nn.add(%v1, %v", kCount, ") : (", kType, ", ", kType, ") -> ", kType,
                 "\nnn.fetch(%y) {name = \"y\"} : (", kType, ") -> ()\n}");
  Program program = ParseProgram(context, text);
  Run(program, "simplify");
  const Operation* neg = program.block()->front()->next();
  EXPECT_EQ(CountOpsByName(program).at("nn.neg"), 1);
  // It says where it comes from, but not in twenty thousand places.
  EXPECT_TRUE(neg->location().is_fused());
  EXPECT_LE(neg->location().parts().size(), 32u);
}

TEST_F(PitfallTest, ThePipelineAsTextRunsAgain) {
  const std::string text =
      "builtin.func(canonicalize,simplify{max_bytes=128}),cf.if(cse{skip=[nn.add]}),simplify";
  PassManager manager;
  manager.Add(text);
  EXPECT_EQ(manager.ToText(), text);
  PassManager again;
  again.Add(manager.ToText());
  EXPECT_EQ(again.ToText(), text);
  EXPECT_EQ(again.num_passes(), 4u);
}

TEST_F(PitfallTest, AnalysesAreMadeAgainWhenAPassDoesNotKeepThem) {
  const std::string text = Chain(9, [](int i) { return StrCat("nn.neg(%v", i, ")"); });
  Program program = ParseProgram(context, text);
  const auto made = [&](const std::string& pipeline) {
    PitfallAnalysis::made = 0;
    const std::string stats = Run(program, pipeline);
    EXPECT_NE(stats.find("11  test_analyze: ops"), std::string::npos) << stats;
    return PitfallAnalysis::made;
  };
  EXPECT_EQ(made("test_analyze,test_analyze"), 2);
  EXPECT_EQ(made("test_analyze{keeps=this},test_analyze"), 1);
  EXPECT_EQ(made("test_analyze{keeps=all},test_analyze"), 1);
  EXPECT_EQ(made("test_analyze{keeps=this},dead_code,test_analyze"), 1);  // which changed nothing
  EXPECT_FALSE(PreservedAnalyses::None().Preserves(TypeId::Get<PitfallAnalysis>()));
  EXPECT_FALSE(PreservedAnalyses::None().preserves_all());
  EXPECT_TRUE(PreservedAnalyses::All().Preserves(TypeId::Get<PitfallAnalysis>()));
  const PreservedAnalyses one = PreservedAnalyses().Preserve<PitfallAnalysis>();
  EXPECT_TRUE(one.Preserves(TypeId::Get<PitfallAnalysis>()));
  EXPECT_FALSE(one.Preserves(TypeId::Get<int>()));
  EXPECT_FALSE(one.preserves_all());
}

TEST_F(PitfallTest, AFailingPassStopsThePipelineAndIsNamed) {
  Program program =
      ParseProgram(context, Chain(2, [](int i) { return StrCat("nn.neg(%v", i, ")"); }));
  PassManager manager;
  manager.Add("test_analyze{keeps=fails},canonicalize");
  try {
    manager.Run(program);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.Render().find("in pass 'test_analyze'"), std::string::npos) << error.Render();
  }
  EXPECT_EQ(CountOpsByName(program).at("nn.neg"), 2);  // canonicalize did not run
}

TEST_F(PitfallTest, ProgramsPrintAroundThePassesAskedFor) {
  Program program =
      ParseProgram(context, Chain(2, [](int i) { return StrCat("nn.neg(%v", i, ")"); }));
  std::string seen;
  PassManager manager;
  manager.Add("simplify,canonicalize,simplify");
  manager.AddInstrumentation(MakePrinting(
      {.before = {"canonicalize"},
       .after = {"canonicalize"},
       .text = {},
       .sink = [&](std::string_view text) { seen += text.substr(0, text.find('\n') + 1); }}));
  manager.Run(program);
  EXPECT_EQ(seen, "// ---- before canonicalize ----\n// ---- after canonicalize ----\n");
}

/// A random graph of elementwise operations, its values named by `name`.
std::string RandomGraph(uint32_t seed, const std::function<std::string(int)>& name) {
  std::mt19937 rng(seed);
  const char* binary[] = {"nn.add", "nn.mul", "nn.sub", "nn.div"};
  const char* unary[] = {"nn.neg", "nn.relu", "nn.exp", "nn.abs"};
  std::string text =
      StrCat("program {\n", name(0), " = nn.feed() {name = \"x\"} : () -> ", kType, "\n");
  int count = 1;
  const auto pick = [&] {
    return name(count - 1 - static_cast<int>(rng() % static_cast<uint32_t>(std::min(count, 6))));
  };
  for (; count < 60; ++count) {
    const uint32_t kind = rng() % 4;
    const std::string result = name(count);
    if (kind == 0) {
      text += StrCat(result, " = builtin.constant() {value = tensor<[2], f32> [", rng() % 3,
                     ".0, 1.0]} : () -> ", kType, "\n");
    } else if (kind == 1) {
      text += StrCat(result, " = ", unary[rng() % 4], "(", pick(), ") : (", kType, ") -> ", kType,
                     "\n");
    } else {
      const std::string a = pick(), b = pick();
      text += StrCat(result, " = ", binary[rng() % 4], "(", a, ", ", b, ") : (", kType, ", ", kType,
                     ") -> ", kType, "\n");
    }
  }
  for (int i = 55; i < 60; ++i) {
    text += StrCat("nn.fetch(", name(i), ") {name = \"y", i, "\"} : (", kType, ") -> ()\n");
  }
  return text + "}";
}

TEST_F(PitfallTest, TheResultDoesNotDependOnHowValuesAreNumbered) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    Program a = ParseProgram(context, RandomGraph(seed, [](int i) { return StrCat("%", i); }));
    IrContext other;
    LoadAllDialects(other);
    Program b =
        ParseProgram(other, RandomGraph(seed, [](int i) { return StrCat("%n", 9999 - i); }));
    Run(a, "inference");
    Run(b, "inference");
    EXPECT_EQ(Print(a, {.locations = false}), Print(b, {.locations = false})) << seed;
  }
}

}  // namespace
}  // namespace lathe
