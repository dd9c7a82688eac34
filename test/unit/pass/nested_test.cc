#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/instrumentation.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/text.h"

/// Pipelines nested by op kind: over functions on several threads, over other ops in place.
namespace lathe {
namespace {

/// Fails in functions whose name starts with "bad", after a remark and a count.
class TestPickyPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Operation* function = graph.block()->parent_op();
    Count("seen");
    Applied(function, "seen");
    if (FunctionTable::NameOf(function).starts_with("bad")) {
      throw Error(ErrorCode::kInvalidArgument, "test/bad", FunctionTable::NameOf(function));
    }
  }
};
REGISTER_PASS(test_picky, TestPickyPass);

/// Makes a parameter `w` and adds it to what the function returns.
class TestGrowPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    Operation* last = graph.block()->terminator();
    rewriter.SetInsertionPoint(last);
    const Value w = rewriter.Parameter("w", Tensor::Of<float>({2}, {1, 1}));
    const Value operands[] = {last->operand(0), w};
    rewriter.SetOperand(last, 0, rewriter.Create("nn.add", operands)->result(0));
  }
};
REGISTER_PASS(test_grow, TestGrowPass);

/// An analysis that counts how often it is made, and the pass that asks for it.
struct TestCounting {
  explicit TestCounting(const Program& program) {
    for ([[maybe_unused]] const Operation& op : *program.block()) ++tops;
  }
  int64_t tops = 0;
};
class TestAskPass : public Pass {
 protected:
  void ApplyImpl(Graph& /*graph*/) override {
    Count("tops", context()->analyses().Get<TestCounting>().tops);
  }
};
REGISTER_PASS(test_ask, TestAskPass);

constexpr const char* kType = "v_tensor<[2], f32>";

/// Each function has something to fold, to merge, to drop and to rewrite.
std::string Function(const std::string& name, int i) {
  const std::string unary = StrCat(" : (", kType, ") -> ", kType, "\n");
  const std::string binary = StrCat(" : (", kType, ", ", kType, ") -> ", kType, "\n");
  std::string text = StrCat("builtin.func() {name = \"", name, "\"} ({ ^(%a: ", kType, "):\n");
  for (const char* c : {"%c1", "%c2"}) {
    text += StrCat(c, " = builtin.constant() {value = tensor<[2], f32> [", i, ".0, 2.0]} : () -> ",
                   kType, "\n");
  }
  text += StrCat("%s = nn.add(%c1, %c2)", binary, "%p = nn.mul(%a, %s)", binary,
                 "%q = nn.mul(%a, %s)", binary, "%dead = nn.exp(%q)", unary);
  text += StrCat("%n1 = nn.neg(%p)", unary, "%n2 = nn.neg(%n1)", unary, "%r1 = nn.relu(%n2)", unary,
                 "%r2 = nn.relu(%r1)", unary, "%t = nn.add(%r2, %q)", binary);
  return StrCat(text, "builtin.return(%t) : (", kType, ") -> ()\n}) : () -> ()\n");
}

std::string ManyFunctions(int count, const std::function<std::string(int)>& name) {
  std::string text = StrCat("program {\n%v0 = nn.feed() {name = \"x\"} : () -> ", kType, "\n");
  std::string functions;
  for (int i = 0; i < count; ++i) {
    text += StrCat("%v", i + 1, " = builtin.call(%v", i, ") {callee = \"", name(i), "\"} : (",
                   kType, ") -> ", kType, "\n");
    functions += Function(name(i), i % 3);
  }
  return StrCat(text, "nn.fetch(%v", count, ") {name = \"y\"} : (", kType, ") -> ()\n", functions,
                "}");
}

class NestedTest : public ::testing::Test {
 protected:
  NestedTest() { LoadAllDialects(context); }

  struct Outcome {
    std::string text;
    std::string report;  ///< statistics, remarks, and pass rows without times
    std::string error;
    bool operator==(const Outcome&) const = default;
  };

  Outcome RunOn(const std::string& text, const std::string& pipeline, int threads,
                bool instrumented = false) {
    Program program = ParseProgram(context, text);
    PassManager manager({.verify_each = true, .threads = threads, .remarks = true});
    manager.Add(pipeline);
    if (instrumented) manager.AddInstrumentation(std::make_shared<PassInstrumentation>());
    Outcome out;
    try {
      manager.Run(program);
    } catch (const Error& error) {
      out.error = error.Render();
    }
    out.text = Print(program);
    for (const auto& [name, variable] : program.parameters()) {
      out.text += StrCat(name.value(), " ");
    }
    out.report = RenderStatistics(manager) + RenderRemarks(manager.remarks());
    for (const PassTiming& row : manager.timings()) {
      out.report += StrCat(row.name, " ", row.ops_before, " ", row.ops_after, " ",
                           row.changed ? "changed" : "", " ", row.depth, "\n");
    }
    EXPECT_TRUE(Verify(program).empty());
    return out;
  }

  static std::string Plain(int i) { return StrCat("f", i); }

  IrContext context;
};

TEST_F(NestedTest, TheResultDoesNotDependOnThreads) {
  const std::string text = ManyFunctions(200, Plain);
  const std::string pipeline =
      "builtin.func(simplify,canonicalize,test_grow,simplify{max_bytes=4},precompute_prune)";
  const Outcome one = RunOn(text, pipeline, 1);
  EXPECT_EQ(one.error, "");
  EXPECT_NE(one.report.find("600  simplify: folded"), std::string::npos) << one.report;
  EXPECT_EQ(one.text.find("nn.exp"), std::string::npos);
  for (const int threads : {2, 4, 7, 0}) {
    const Outcome many = RunOn(text, pipeline, threads);
    EXPECT_EQ(many.text, one.text) << threads;
    EXPECT_EQ(many.report, one.report) << threads;
  }
  const Outcome watched = RunOn(text, pipeline, 4, /*instrumented=*/true);
  EXPECT_EQ(watched.text, one.text);
  EXPECT_EQ(watched.report, one.report);
}

TEST_F(NestedTest, TheProgramComputesTheSame) {
  Program program = ParseProgram(context, ManyFunctions(20, Plain));
  const NamedValues inputs = {{"x", Tensor::Of<float>({2}, {0.25F, -0.5F})}};
  const Tensor before = Interpreter(program).Run(inputs)[0].second.tensor();
  PassManager manager({.verify_each = true, .threads = 3});
  manager.Add("builtin.func(simplify,canonicalize),inline,simplify");
  manager.Run(program);
  EXPECT_EQ(Interpreter(program).Run(inputs)[0].second.tensor(), before);
}

TEST_F(NestedTest, NewParametersGetNamesInProgramOrder) {
  const Outcome one = RunOn(ManyFunctions(3, Plain), "builtin.func(test_grow,test_grow)", 3);
  EXPECT_EQ(one.error, "");
  EXPECT_NE(one.text.find("w w.1 w.2 w.3 w.4 w.5 "), std::string::npos) << one.text;
  const size_t second = one.text.find("{name = \"w.2\"}");
  EXPECT_NE(second, std::string::npos);
  EXPECT_GT(second, one.text.find("name = \"f1\""));
  EXPECT_LT(second, one.text.find("name = \"f2\""));
}

TEST_F(NestedTest, TheFirstErrorInProgramOrderWins) {
  const std::string text =
      ManyFunctions(60, [](int i) { return StrCat(i == 20 || i == 40 ? "bad" : "f", i); });
  const Outcome one = RunOn(text, "builtin.func(simplify,test_picky)", 1);
  EXPECT_NE(one.error.find("bad20"), std::string::npos) << one.error;
  EXPECT_NE(one.error.find("in pass 'test_picky'"), std::string::npos) << one.error;
  for (const int threads : {2, 4, 7}) {
    for (int again = 0; again < 5; ++again) {
      EXPECT_EQ(RunOn(text, "builtin.func(simplify,test_picky)", threads), one);
    }
  }
}

TEST_F(NestedTest, AnalysesAreOfTheFunctionAlone) {
  const Outcome one = RunOn(ManyFunctions(5, Plain), "builtin.func(test_ask),test_ask", 2);
  // Five functions are alone in their programs; then twelve operations stand in the whole one.
  EXPECT_NE(one.report.find("5  test_ask: tops"), std::string::npos) << one.report;
  EXPECT_NE(one.report.find("12  test_ask: tops"), std::string::npos) << one.report;
}

TEST_F(NestedTest, APassTouchesNothingButItsOperation) {
  const std::string text = ManyFunctions(3, Plain);
  Program program = ParseProgram(context, text);
  const Program copy = program.Clone();
  const std::string before = Print(copy);
  PassManager manager({.verify_each = true});
  manager.Add("builtin.func(simplify,canonicalize,one_spelling,infer_shape,fold_shapes)");
  manager.Run(program);
  EXPECT_EQ(Print(copy), before);  // what shares weights and types with it stays as it was
  const std::string after = Print(program);
  EXPECT_EQ(after.substr(0, after.find("builtin.func")),
            before.substr(0, before.find("builtin.func")));
  EXPECT_NE(after, before);
}

constexpr const char* kBranches = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
  %m = nn.neg(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  %n = nn.neg(%m) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  %y = cf.if(%c) ({
    %p = nn.neg(%n) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %q = nn.neg(%p) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %i = cf.if(%c) ({
      cf.yield(%q) : (v_tensor<[2], f32>) -> ()
    }, {
      cf.yield(%p) : (v_tensor<[2], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
    %unused = cf.if(%c) ({
      cf.yield(%q) : (v_tensor<[2], f32>) -> ()
    }, {
      cf.yield(%p) : (v_tensor<[2], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
    cf.yield(%i) : (v_tensor<[2], f32>) -> ()
  }, {
    cf.yield(%n) : (v_tensor<[2], f32>) -> ()
  }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ()
})";

TEST_F(NestedTest, WithinBranchesPassesStayInside) {
  const Outcome one = RunOn(kBranches, "cf.if(canonicalize,simplify)", 4);
  EXPECT_EQ(one.error, "");
  const size_t branch = one.text.find("cf.if");
  EXPECT_NE(one.text.find("%3 = nn.neg(%2)"), std::string::npos) << one.text;  // outside: as before
  EXPECT_LT(one.text.find("%3 = nn.neg(%2)"), branch);
  size_t count = 0;
  for (size_t at = one.text.find("cf.if"); at != std::string::npos;
       at = one.text.find("cf.if", at + 1)) {
    ++count;
  }
  EXPECT_EQ(count, 2u) << one.text;  // the unused one is gone
  EXPECT_EQ(RunOn(kBranches, "cf.if(canonicalize,simplify)", 1), one);
}

TEST_F(NestedTest, AnUnknownKindIsAnError) {
  const Outcome one = RunOn(kBranches, "cf.iff(simplify)", 1);
  EXPECT_NE(one.error.find("unknown op 'cf.iff'"), std::string::npos) << one.error;
  EXPECT_NE(one.error.find("did you mean 'cf.if'?"), std::string::npos) << one.error;
  const Outcome none = RunOn(kBranches, "builtin.func(simplify)", 4);
  EXPECT_EQ(none.error, "");
}

TEST_F(NestedTest, TheModuleIsTheProgram) {
  const Outcome one = RunOn(ManyFunctions(3, Plain), "builtin.module(builtin.func(simplify))", 2);
  const Outcome two = RunOn(ManyFunctions(3, Plain), "builtin.func(simplify)", 2);
  EXPECT_EQ(one.text, two.text);
}

TEST_F(NestedTest, StopAfterCountsPassesNotFunctions) {
  Program program = ParseProgram(context, ManyFunctions(5, Plain));
  PassManager manager({.stop_after = 1});
  manager.Add("builtin.func(dead_code,cse),simplify");
  manager.Run(program);
  const std::string stats = RenderStatistics(manager);
  EXPECT_NE(stats.find("5  dead_code: dead"), std::string::npos) << stats;
  EXPECT_EQ(stats.find("cse"), std::string::npos) << stats;
  EXPECT_EQ(manager.timings().size(), 1u);
}

}  // namespace
}  // namespace lathe
