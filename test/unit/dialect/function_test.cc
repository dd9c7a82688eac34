#include "lathe/ir/functions.h"
#include "lathe/pass/instrumentation.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

using testing::ProgramTest;
using testing::ValuesOf;
using testing::Vec;

constexpr const char* kF = R"(
  builtin.func() {name = "f"} ({ ^(%a: v_tensor<[2], f32>, %b: v_tensor<[?], f32>):
    %c = nn.add(%a, %b) : (v_tensor<[2], f32>, v_tensor<[?], f32>) -> v_tensor<[2], f32>
    %n = builtin.call(%c) {callee = "g"} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.return(%n, %a) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> ()
  }) : () -> ()
  builtin.func() {name = "g"} ({ ^(%a: v_tensor<[2], f32>):
    %n = nn.neg(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.return(%n) : (v_tensor<[2], f32>) -> ()
  }) : () -> ())";

constexpr const char* kMain = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %p, %q = builtin.call(%x, %x) {callee = "f"} : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> (v_tensor<[2], f32>, v_tensor<[2], f32>)
  %r = builtin.call(%p) {callee = "g"} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  %s = nn.sub(%r, %q) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%s) {name = "y"} : (v_tensor<[2], f32>) -> ())";

class FunctionTest : public ProgramTest {
 protected:
  Program ParseUnverified(const std::string& body) {
    return ParseProgram(context_, StrCat("program {\n", body, "\n}"));
  }
  /// What the verifier says first; the id and the text.
  std::string Verdict(const std::string& body) {
    const std::vector<Error> errors = Verify(ParseUnverified(body));
    return errors.empty() ? "fine" : StrCat(errors[0].id(), ": ", errors[0].Render());
  }
};

#define EXPECT_HAS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "expected: " << (part) << "\n" << (text)

TEST_F(FunctionTest, FunctionsRunWhenTheyAreCalled) {
  const NamedValues out = Run(StrCat(kMain, kF), {{"x", Vec<float>({1, -3})}});
  EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{1, -3}));  // -(-2x) - x
}

TEST_F(FunctionTest, TheyStandBeforeOrAfterTheirCalls) {
  const NamedValues out = Run(StrCat(kF, kMain), {{"x", Vec<float>({1, -3})}});
  EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{1, -3}));
}

TEST_F(FunctionTest, TheTextReadsBack) {
  const Program program = Parse(StrCat(kMain, kF));
  const std::string text = Print(program);
  const Program again = ParseProgram(context_, text);
  std::string why;
  EXPECT_TRUE(StructurallyEqual(program.module(), again.module(), false, &why)) << why;
  EXPECT_EQ(Print(again), text);
}

TEST_F(FunctionTest, ACallOfNothingSuggestsNames) {
  const std::string verdict =
      Verdict(StrCat("builtin.call() {callee = \"main_fnc\"} : () -> ()\n",
                     "builtin.func() {name = \"main_func\"} ({ builtin.return() }) : () -> ()"));
  EXPECT_HAS(verdict, "verify/callee: ");
  EXPECT_HAS(verdict, "the program has no function 'main_fnc'");
  EXPECT_HAS(verdict, "did you mean 'main_func'?");
}

TEST_F(FunctionTest, CallsFitTheirFunction) {
  const auto with = [](const char* call) {
    return StrCat("%x = nn.feed() {name = \"x\"} : () -> v_tensor<[3], f32>\n", call, kF);
  };
  EXPECT_HAS(Verdict(with("%y = builtin.call(%x) {callee = \"g\"} : (v_tensor<[3], f32>) -> "
                          "v_tensor<[2], f32>")),
             "takes v_tensor<[2], f32> as value 0, not v_tensor<[3], f32>");
  EXPECT_HAS(Verdict(with("%y = builtin.call() {callee = \"g\"} : () -> v_tensor<[2], f32>")),
             "takes 1 values, not 0");
  EXPECT_HAS(Verdict(with("%y = builtin.call(none) {callee = \"g\"} : (none) -> "
                          "v_tensor<[2], f32>")),
             "verify/");
}

TEST_F(FunctionTest, ResultsFitTheirFunction) {
  const auto with = [](const char* call) {
    return StrCat("%x = nn.feed() {name = \"x\"} : () -> v_tensor<[2], f32>\n", call, kF);
  };
  EXPECT_HAS(Verdict(with("%y = builtin.call(%x) {callee = \"g\"} : (v_tensor<[2], f32>) -> "
                          "v_tensor<[2], i64>")),
             "gives v_tensor<[2], f32> as value 0, not v_tensor<[2], i64>");
  EXPECT_HAS(Verdict(with("builtin.call(%x) {callee = \"g\"} : (v_tensor<[2], f32>) -> ()")),
             "gives 1 values, not 0");
}

TEST_F(FunctionTest, ANameIsGivenOnce) {
  const std::string verdict = Verdict(StrCat(kF, kF));
  EXPECT_HAS(verdict, "verify/function-name");
  EXPECT_HAS(verdict, "there is a function 'f' already");
}

TEST_F(FunctionTest, RecursionIsRefusedAndTheCycleNamed) {
  const auto function = [](const char* name, const char* callee) {
    return StrCat("builtin.func() {name = \"", name, "\"} ({ builtin.call() {callee = \"", callee,
                  "\"} : () -> ()\nbuiltin.return() }) : () -> ()\n");
  };
  const std::string body =
      function("a", "b") + function("b", "c") + function("c", "b") + function("d", "d");
  const std::string verdict = Verdict(body);
  EXPECT_HAS(verdict, "verify/recursion");
  EXPECT_HAS(verdict, "b -> c -> b");
  Program program = ParseUnverified(body);
  EXPECT_EQ(ErrorOf([&] { Interpreter run(program, {.verify = false}); }).id(), "verify/recursion");
}

TEST_F(FunctionTest, FunctionsStandOnTopAndSeeNothingAround) {
  EXPECT_HAS(Verdict("%x = nn.feed() {name = \"x\"} : () -> v_tensor<[2], f32>\n"
                     "builtin.func() {name = \"f\"} ({ builtin.return(%x) : (v_tensor<[2], f32>) "
                     "-> () }) : () -> ()"),
             "verify/dominance");
  EXPECT_HAS(Verdict("builtin.func() {name = \"f\"} ({ builtin.func() {name = \"g\"} ({ "
                     "builtin.return() }) : () -> ()\nbuiltin.return() }) : () -> ()"),
             "stands in the top block of a program");
  EXPECT_HAS(Verdict("builtin.return()"), "it ends functions and nothing else");
  EXPECT_HAS(Verdict("builtin.func() {name = \"f\"} ({ ^(): }) : () -> ()"),
             "must end in builtin.return");
  EXPECT_HAS(Verdict("builtin.func() {name = \"f\"} ({}) : () -> ()"), "must hold one block");
}

TEST_F(FunctionTest, InputsOutputsAndMutableTensorsStayOutside) {
  EXPECT_HAS(Verdict("builtin.func() {name = \"f\"} ({ %x = nn.feed() {name = \"x\"} : () -> "
                     "v_tensor<[2], f32>\nbuiltin.return() }) : () -> ()"),
             "inputs and outputs of the program are not for functions");
  EXPECT_HAS(Verdict("builtin.func() {name = \"f\"} ({ ^(%x: tensor<[2], f32>): builtin.return() "
                     "}) : () -> ()"),
             "verify/function-mutable");
}

/// f0 calls f1 calls f2 ...
std::string Chain(int length) {
  const std::string type = "v_tensor<[2], f32>", sig = StrCat(" : (", type, ") -> ", type, "\n");
  std::string text = StrCat("%x = nn.feed() {name = \"x\"} : () -> ", type,
                            "\n%y = builtin.call(%x) {callee = \"f0\"}", sig,
                            "nn.fetch(%y) {name = \"y\"} : (", type, ") -> ()\n");
  for (int i = 0; i < length; ++i) {
    text += StrCat("builtin.func() {name = \"f", i, "\"} ({ ^(%a: ", type, "):\n");
    text += StrCat("%b = nn.neg(%a)", sig);
    if (i + 1 < length) text += StrCat("%c = builtin.call(%b) {callee = \"f", i + 1, "\"}", sig);
    text += StrCat("builtin.return(", i + 1 < length ? "%c" : "%b", ") : (", type,
                   ") -> ()\n}) : () -> ()\n");
  }
  return text;
}

TEST_F(FunctionTest, TenThousandCallsWithinOneAnotherRunAndInline) {
  Program program = Parse(Chain(10001));
  const NamedValues inputs = {{"x", Vec<float>({1, -3})}};
  EXPECT_EQ(ValuesOf<float>(Interpreter(program).Run(inputs)[0].second),
            (std::vector<float>{-1, 3}));
  PassManager manager({.verify_each = true});
  manager.Add("infer_shape,inline");
  manager.Run(program);
  EXPECT_TRUE(FunctionTable(program).empty());
  EXPECT_EQ(CountOpsByName(program).at("nn.neg"), 10001);
  EXPECT_EQ(ValuesOf<float>(Interpreter(program).Run(inputs)[0].second),
            (std::vector<float>{-1, 3}));
}

TEST_F(FunctionTest, TheObserverSeesCallsAndWhatTheyRun) {
  std::vector<std::string> seen;
  Run(StrCat(kMain, kF), {{"x", Vec<float>({1, -3})}}, {.observer = [&](const RanOp& ran) {
        EXPECT_EQ(ran.inputs.size(), ran.op->num_operands());
        seen.emplace_back(ran.op->name());
      }});
  EXPECT_EQ(seen,
            (std::vector<std::string>{"nn.feed", "nn.add", "nn.neg", "builtin.call", "builtin.call",
                                      "nn.neg", "builtin.call", "nn.sub", "nn.fetch"}));
}

TEST_F(FunctionTest, ValuesOfACallAreDroppedWhenItReturns) {
  // Each call makes 4 MB that nobody needs afterwards; ten of them at once would pass the limit.
  std::string body = "%x = nn.feed() {name = \"x\"} : () -> v_tensor<[1000000], f32>\n";
  for (int i = 0; i < 10; ++i) {
    body += StrCat("%r", i,
                   " = builtin.call(%x) {callee = \"sum\"} : (v_tensor<[1000000], f32>) -> "
                   "v_tensor<[], f32>\nnn.fetch(%r",
                   i, ") {name = \"r", i, "\"} : (v_tensor<[], f32>) -> ()\n");
  }
  body += R"(builtin.func() {name = "sum"} ({ ^(%a: v_tensor<[1000000], f32>):
    %b = nn.exp(%a) : (v_tensor<[1000000], f32>) -> v_tensor<[1000000], f32>
    %s = nn.reduce_sum(%b) {keepdims = false} : (v_tensor<[1000000], f32>) -> v_tensor<[], f32>
    builtin.return(%s) : (v_tensor<[], f32>) -> ()
  }) : () -> ())";
  const NamedValues out =
      Run(body, {{"x", Tensor(ElementType::kF32, {1000000})}}, {.max_bytes = uint64_t{14} << 20});
  EXPECT_EQ(out[9].second.tensor(), Tensor::Scalar(1e6F));
}

TEST_F(FunctionTest, TypesFlowThroughCalls) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f32>
    %y = nn.feed() {name = "y"} : () -> v_tensor<[2, 5], f32>
    %p = builtin.call(%x) {callee = "f"} : (v_tensor<[2, 3], f32>) -> v_tensor<*, f32>
    %q = builtin.call(%y) {callee = "f"} : (v_tensor<[2, 5], f32>) -> v_tensor<*, f32>
    %r = builtin.call(%p) {callee = "g"} : (v_tensor<*, f32>) -> v_tensor<*, f32>
    nn.fetch(%q) {name = "q"} : (v_tensor<*, f32>) -> ()
    nn.fetch(%r) {name = "r"} : (v_tensor<*, f32>) -> ()
    builtin.func() {name = "f"} ({ ^(%a: v_tensor<*, f32>):
      %b = nn.neg(%a) : (v_tensor<*, f32>) -> v_tensor<*, f32>
      builtin.return(%b) : (v_tensor<*, f32>) -> ()
    }) : () -> ()
    builtin.func() {name = "g"} ({ ^(%a: v_tensor<*, f32>):
      %b = nn.reduce_sum(%a) {keepdims = false} : (v_tensor<*, f32>) -> v_tensor<*, f32>
      builtin.return(%b) : (v_tensor<*, f32>) -> ()
    }) : () -> ())");
  PassManager manager({.verify_each = true});
  manager.Add("infer_shape");
  manager.Run(program);
  const std::string text = Print(program);
  EXPECT_HAS(text, "^(%5: v_tensor<[2, ?], f32>):");  // what both calls agree on
  EXPECT_HAS(text, "{callee = \"f\"} : (v_tensor<[2, 5], f32>) -> v_tensor<[2, ?], f32>");
  EXPECT_HAS(text, "^(%7: v_tensor<[2, ?], f32>):");
  EXPECT_HAS(text, "{callee = \"g\"} : (v_tensor<[2, ?], f32>) -> v_tensor<[], f32>");
}

TEST_F(FunctionTest, SymbolsMeanTheSameInside) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N], f32>
    %p = builtin.call(%x) {callee = "f"} : (v_tensor<[N], f32>) -> v_tensor<[N], f32>
    nn.fetch(%p) {name = "p"} : (v_tensor<[N], f32>) -> ()
    builtin.func() {name = "f"} ({ ^(%a: v_tensor<[N], f32>):
      %b = nn.neg(%a) : (v_tensor<[N], f32>) -> v_tensor<[N], f32>
      builtin.return(%b) : (v_tensor<[N], f32>) -> ()
    }) : () -> ())");
  SpecializeShapes(program, {.symbols = {{"N", 7}}});
  EXPECT_EQ(Print(program).find("[N]"), std::string::npos) << Print(program);
  VerifyOrThrow(program);
}

}  // namespace
}  // namespace lathe
