#include "lathe/driver/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "lathe/dialect/all.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

class ReduceTest : public ::testing::Test {
 protected:
  ReduceTest() { LoadAllDialects(context_); }

  Program Parse(const std::string& body) {
    return ParseProgram(context_, "program {\n" + body + "}\n");
  }
  // `count` operations one behind the other, the one at `at` an exp.
  Program Chain(size_t count, size_t at) {
    const std::string type = "v_tensor<[4], f32>";
    std::string text = StrCat("%0 = nn.feed() {name = \"x\"} : () -> ", type, "\n");
    for (size_t i = 0; i < count; ++i) {
      text += StrCat("%", i + 1, i == at ? " = nn.exp(%" : " = nn.sin(%", i, ") : (", type, ") -> ",
                     type, " loc(\"n", i, "\" -> (\"v", i, "\"))\n");
    }
    return Parse(text + StrCat("nn.fetch(%", count, ") {name = \"y\"} : (", type, ") -> ()\n"));
  }

  IrContext context_;
};

size_t CountOf(const Program& program, std::string_view name) {
  size_t count = 0;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) count += op->name() == name;
  return count;
}

FailureTest Has(std::string_view name) {
  return [name](const FailingCase& c) { return CountOf(c.program, name) > 0; };
}

TEST_F(ReduceTest, LeavesTheOperationThatFailsWithTheNamesOfItsValues) {
  const ReducedCase r = Reduce({Chain(20, 7)}, Has("nn.exp"));
  EXPECT_TRUE(r.finished);
  EXPECT_EQ(CountOperations(r.smallest.program), 1U);
  EXPECT_EQ(PortName(r.smallest.program.feeds().at(0)), "v6");
  EXPECT_EQ(PortName(r.smallest.program.fetches().at(0)), "v7");
}

TEST_F(ReduceTest, TakesFewRunsForManyOperations) {
  const ReducedCase r = Reduce({Chain(1000, 300)}, Has("nn.exp"));
  EXPECT_EQ(CountOperations(r.smallest.program), 1U);
  EXPECT_LT(r.runs, 60);
}

TEST_F(ReduceTest, AProgramThatDoesNotFailIsAnError) {
  try {
    (void)Reduce({Chain(3, 9)}, Has("nn.exp"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "reduce/no-failure");
  }
}

TEST_F(ReduceTest, JobsDoNotChangeTheResult) {
  const auto smallest = [&](int jobs, int64_t most) {
    const ReducedCase r = Reduce({Chain(40, 11)}, Has("nn.exp"), {.max_runs = most, .jobs = jobs});
    return StrCat(r.runs, r.finished, "\n", Print(r.smallest.program));
  };
  for (const int64_t most : {0, 1, 2, 5, 9})
    EXPECT_EQ(smallest(1, most), smallest(4, most)) << most;
}

TEST_F(ReduceTest, StopsAfterTheRunsThatItHas) {
  std::atomic<int> runs = 0;
  const auto test = [&](const FailingCase& c) { return ++runs > 0 && Has("nn.exp")(c); };
  const ReducedCase r = Reduce({Chain(40, 11)}, test, {.max_runs = 3});
  EXPECT_EQ(r.runs, 3);
  EXPECT_EQ(runs, 3);
  EXPECT_FALSE(r.finished);
  EXPECT_LT(CountOperations(r.smallest.program), 40U);
}

TEST_F(ReduceTest, TellsOfEachThatIsSmaller) {
  std::vector<size_t> sizes;
  ReduceOptions options;
  options.progress = [&](const ReduceProgress& p) {
    if (p.is_new) sizes.push_back(CountOperations(p.smallest.program));
  };
  (void)Reduce({Chain(16, 3)}, Has("nn.exp"), options);
  EXPECT_EQ(sizes.front(), 16U);
  EXPECT_EQ(sizes.back(), 1U);
  EXPECT_TRUE(std::ranges::is_sorted(sizes, std::greater<>()));
}

TEST_F(ReduceTest, ValuesThatBecomeInputsAreWhatTheyWere) {
  const Tensor x = Tensor::Of<float>({4}, {0, 0, 0, 0});
  const auto test = [](const FailingCase& c) {
    const NamedValues& values = c.inputs.at(0).values;
    return CountOf(c.program, "nn.exp") > 0 && values.size() == c.program.feeds().size();
  };
  const ReducedCase r = Reduce({Parse(R"(
    %0 = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %1 = nn.cos(%0) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %2 = nn.exp(%1) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    nn.fetch(%2) {name = "y"} : (v_tensor<[4], f32>) -> ()
  )"),
                                {{"only", {{"x", x}}}}},
                               test);
  ASSERT_EQ(r.smallest.inputs.at(0).values.size(), 1U);
  const Tensor& fed = r.smallest.inputs[0].values[0].second.tensor();
  EXPECT_EQ(fed, Tensor::Of<float>({1}, {1}));  // cos(0), and the extent 1
}

TEST_F(ReduceTest, KeepsOneSetOfInputsAndOneOutput) {
  const Tensor x = Tensor::Of<float>({1}, {0});
  const auto test = [](const FailingCase& c) {
    return CountOf(c.program, "nn.exp") > 0 &&
           std::ranges::find(c.inputs, "bad", &LabeledInputs::label) != c.inputs.end();
  };
  FailingCase failing{Parse(R"(
    %0 = nn.feed() {name = "x"} : () -> v_tensor<[1], f32>
    %1 = nn.cos(%0) : (v_tensor<[1], f32>) -> v_tensor<[1], f32>
    %2 = nn.exp(%0) : (v_tensor<[1], f32>) -> v_tensor<[1], f32>
    nn.fetch(%1) {name = "a"} : (v_tensor<[1], f32>) -> ()
    nn.fetch(%2) {name = "b"} : (v_tensor<[1], f32>) -> ()
    nn.fetch(%0) {name = "c"} : (v_tensor<[1], f32>) -> ()
  )")};
  for (const char* label : {"good", "bad", "fine"}) failing.inputs.push_back({label, {{"x", x}}});
  const ReducedCase r = Reduce(failing, test);
  ASSERT_EQ(r.smallest.inputs.size(), 1U);
  EXPECT_EQ(r.smallest.inputs[0].label, "bad");
  ASSERT_EQ(r.smallest.program.fetches().size(), 1U);
  EXPECT_EQ(PortName(r.smallest.program.fetches()[0]), "b");
}

TEST_F(ReduceTest, KeepsABranchAndTakesOperandsInRegions) {
  const ReducedCase r = Reduce({Parse(R"(
    %0 = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
    %1 = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %2 = cf.if(%0) ({
      %3 = nn.sin(%1) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
      cf.yield(%3) : (v_tensor<[4], f32>) -> ()
    }, {
      %3 = nn.sin(%1) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
      %4 = nn.exp(%3) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
      cf.yield(%4) : (v_tensor<[4], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[4], f32>
    nn.fetch(%2) {name = "y"} : (v_tensor<[4], f32>) -> ()
  )")},
                               Has("nn.exp"));
  EXPECT_EQ(CountOperations(r.smallest.program), 1U);
  EXPECT_EQ(CountOf(r.smallest.program, "cf.if"), 0U);

  const auto needs_if = [](const FailingCase& c) {
    return CountOf(c.program, "nn.exp") > 0 && CountOf(c.program, "cf.if") > 0;
  };
  const ReducedCase kept = Reduce({Parse(R"(
    %0 = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
    %1 = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %2 = cf.if(%0) ({
      cf.yield(%1) : (v_tensor<[4], f32>) -> ()
    }, {
      %3 = nn.sin(%1) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
      %4 = nn.exp(%3) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
      cf.yield(%4) : (v_tensor<[4], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[4], f32>
    nn.fetch(%2) {name = "y"} : (v_tensor<[4], f32>) -> ()
  )")},
                                  needs_if);
  EXPECT_EQ(CountOperations(kept.smallest.program), 2U);
}

// A loop of three rounds: an exp of what it carries, a sum that it carries, and a stack of sines.
constexpr const char* kLoop = R"(
  %0 = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
  %1 = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
  %2, %3, %4 = cf.while(%1, none, %0, %0) ({
  ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %a: v_tensor<[4], f32>, %s: v_tensor<[4], f32>):
    %5 = nn.cos(%a) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %6 = nn.exp(%5) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %7 = nn.add(%s, %6) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %8 = nn.sin(%7) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    cf.yield(%c, %6, %7, %8) : (v_tensor<[], bool>, v_tensor<[4], f32>, v_tensor<[4], f32>, v_tensor<[4], f32>) -> ()
  }) : (v_tensor<[], i64>, none, v_tensor<[4], f32>, v_tensor<[4], f32>) -> (v_tensor<[4], f32>, v_tensor<[4], f32>, v_tensor<[3, 4], f32>)
  nn.fetch(%2) {name = "a"} : (v_tensor<[4], f32>) -> ()
  nn.fetch(%3) {name = "s"} : (v_tensor<[4], f32>) -> ()
  nn.fetch(%4) {name = "stack"} : (v_tensor<[3, 4], f32>) -> ()
)";

TEST_F(ReduceTest, LeavesWhatFailsOfTheFirstRoundOfALoop) {
  const ReducedCase r = Reduce({Parse(kLoop)}, Has("nn.exp"));
  EXPECT_EQ(CountOf(r.smallest.program, "cf.while"), 0U);
  EXPECT_EQ(CountOperations(r.smallest.program), 1U);
}

TEST_F(ReduceTest, ALoopThatIsNeededGoesOneRoundAndCarriesLess) {
  const auto needs_loop = [](const FailingCase& c) {
    for (OpWalker w(c.program.block()); const Operation* op = w.Next();) {
      if (op->name() == "nn.exp" && op->block() != c.program.block()) return true;
    }
    return false;
  };
  const Tensor x = Tensor::Of<float>({4}, {0, 0, 0, 0});
  const ReducedCase r = Reduce({Parse(kLoop), {{"only", {{"x", x}}}}}, needs_loop);
  const std::string text = Print(r.smallest.program);
  EXPECT_EQ(CountOperations(r.smallest.program), 2U) << text;  // the loop and the exp
  EXPECT_EQ(CountOf(r.smallest.program, "nn.fetch"), 1U) << text;
  for (OpWalker w(r.smallest.program.block()); const Operation* op = w.Next();) {
    if (op->name() != "cf.while") continue;
    EXPECT_EQ(op->num_results(), 1U) << text;
    EXPECT_NE(text.find("tensor<[], i64> [1]"), std::string::npos) << text;
  }
}

TEST_F(ReduceTest, ScansAreLoops) {
  const ReducedCase r = Reduce({Parse(R"(
    %0 = nn.feed() {name = "x"} : () -> v_tensor<[5, 4], f32>
    %1 = nn.feed() {name = "s"} : () -> v_tensor<[4], f32>
    %2, %3 = cf.scan(%1, %0) {num_scan_inputs = 1} ({
    ^(%s: v_tensor<[4], f32>, %x: v_tensor<[4], f32>):
      %4 = nn.add(%s, %x) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32>
      %5 = nn.exp(%4) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
      cf.yield(%4, %5) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> ()
    }) : (v_tensor<[4], f32>, v_tensor<[5, 4], f32>) -> (v_tensor<[4], f32>, v_tensor<[5, 4], f32>)
    nn.fetch(%2) {name = "last"} : (v_tensor<[4], f32>) -> ()
    nn.fetch(%3) {name = "all"} : (v_tensor<[5, 4], f32>) -> ()
  )")},
                               Has("nn.exp"));
  EXPECT_EQ(CountOf(r.smallest.program, "cf.scan"), 0U);
  EXPECT_EQ(CountOf(r.smallest.program, "cf.while"), 0U);
  EXPECT_EQ(CountOperations(r.smallest.program), 1U);
}

TEST_F(ReduceTest, ShrinksSizesAllOverTheProgramAndSplatsWeights) {
  Program program = Parse(R"(
    %0 = nn.feed() {name = "x"} : () -> v_tensor<[N, 12], f32>
    %1 = builtin.get_parameter() {name = "w"} : () -> v_tensor<[12, 7], f32>
    %2 = nn.matmul(%0, %1) : (v_tensor<[N, 12], f32>, v_tensor<[12, 7], f32>) -> v_tensor<[N, 7], f32>
    nn.fetch(%2) {name = "y"} : (v_tensor<[N, 7], f32>) -> ()
  )");
  program.parameters().Insert(StrAttribute::Get(context_, "w"),
                              {.data = Tensor(ElementType::kF32, {12, 7})});
  const auto test = [](const FailingCase& c) {  // at least three columns in the sum
    for (const Operation& op : *c.program.block()) {
      if (op.name() != "nn.matmul") continue;
      const auto dims = op.operand(0).type().cast<AnyTensorType>().dims();
      return dims[1].is_constant() && dims[1].value() >= 3;
    }
    return false;
  };
  const ReducedCase r = Reduce({std::move(program)}, test);
  const auto type = r.smallest.program.feeds().at(0)->result(0).type().cast<AnyTensorType>();
  EXPECT_EQ(type.ToString(), "v_tensor<[1, 3], f32>");
  EXPECT_EQ(r.smallest.program.feeds().size(), 1U);
  EXPECT_TRUE(r.smallest.program.parameters().empty());
  EXPECT_EQ(CountOperations(r.smallest.program), 1U);
}

TEST_F(ReduceTest, AnErrorOfTheTestIsNoAndAnotherExceptionEndsIt) {
  const auto picky = [](const FailingCase& c) {
    if (CountOperations(c.program) < 3) throw Error(ErrorCode::kIo, "io/full", "no space");
    return true;
  };
  EXPECT_EQ(CountOperations(Reduce({Chain(12, 1)}, picky).smallest.program), 3U);
  const auto broken = [](const FailingCase& c) {
    if (CountOperations(c.program) < 12) throw std::runtime_error("broken");
    return true;
  };
  for (const int jobs : {1, 3}) {
    EXPECT_THROW((void)Reduce({Chain(12, 1)}, broken, {.jobs = jobs}), std::runtime_error);
  }
}

}  // namespace
}  // namespace lathe
