// Programs with `cf.if` and `cf.while` have a plan: compiled, from a cache and from a file they
// give what the interpreter gives, whichever way they go.

#include <thread>

#include "lathe/driver/every_way.h"
#include "lathe/runtime/artifacts.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

template <class F>
std::string OutcomeOf(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return StrCat(e.id(), ": ", e.message());
  }
  return "no error";
}

class ControlFlowTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  static NamedValues InputsOf(int64_t n, bool c, bool d = false) {
    return {{"x", RandomTensor(ElementType::kF32, {n, 8}, 3)},
            {"c", Tensor::Scalar(c)},
            {"d", Tensor::Scalar(d)},
            {"n", Tensor::Scalar<int64_t>(2 * c + 3 * d)}};
  }

  // Of x : [N, 8], c and d : bool, n : i64, one of 0, 2, 3 and 5.
  Program Of(std::string_view body) {
    return Parse(StrCat(R"(
      %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 8], f32>
      %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
      %d = nn.feed() {name = "d"} : () -> v_tensor<[], bool>
      %n = nn.feed() {name = "n"} : () -> v_tensor<[], i64>)",
                        body));
  }

  // On every target, by one thread and by several, in every way.
  void Check(std::string_view body) {
    Program program = Of(body);
    for (const codegen::Target* target : codegen::RunnableTargets()) {
      for (const int threads : {1, 3}) {
        CheckOn(program, {.target = target->name, .threads = threads});
      }
    }
  }

  static void CheckOn(Program& program, const CompileOptions& options) {
    SCOPED_TRACE(StrCat(options.target, ", ", options.threads));
    const EveryWay ways(program, options);
    ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
    ASSERT_EQ(ways.all().size(), 3u);
    for (const int64_t n : {3, 0, 1, 70, 3}) {
      for (const int which : {0, 1, 2, 3}) {
        const NamedValues inputs = InputsOf(n, (which & 1) != 0, (which & 2) != 0);
        const NamedValues wanted = Interpreter(program).Run(inputs);
        const NamedValues got = ways.Run(inputs);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i) {
          const Closeness close = AllClose(got[i].second, wanted[i].second, 1e-5, 1e-6);
          EXPECT_TRUE(close) << n << ", " << which << ", " << got[i].first << ": "
                             << close.description;
        }
      }
    }
  }
};

TEST_F(ControlFlowTest, OneOfTwoResults) {
  Check(R"(
    %a = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %r = cf.if(%c) ({
      %t = nn.softmax(%a) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%t) : (v_tensor<[N, 8], f32>) -> ()
    }, {
      %e = nn.exp(%a) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %f = nn.softmax(%e) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%f) : (v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[N, 8], f32>
    %y = nn.add(%r, %a) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N, 8], f32>) -> ())");
}

TEST_F(ControlFlowTest, ResultsAreOutputs) {
  Check(R"(
    %r, %s = cf.if(%c) ({
      %t = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%t, %x) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> ()
    }, {
      %e = nn.exp(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%e, %e) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], bool>) -> (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>)
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[N, 8], f32>) -> ())");
}

// What one branch puts into a larger tensor is still there after the other one.
TEST_F(ControlFlowTest, WhatWasThereBeforeStaysAsItIs) {
  Check(R"(
    %a = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %b = nn.exp(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %q = nn.concat(%b, %b) {axis = 0} : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[2 * N, 8], f32>
    %w = nn.softmax(%q) : (v_tensor<[2 * N, 8], f32>) -> v_tensor<[2 * N, 8], f32>
    %r = cf.if(%c) ({
      %t = nn.concat(%a, %b) {axis = 0} : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[2 * N, 8], f32>
      cf.yield(%t) : (v_tensor<[2 * N, 8], f32>) -> ()
    }, {
      %e = nn.softmax(%w) : (v_tensor<[2 * N, 8], f32>) -> v_tensor<[2 * N, 8], f32>
      cf.yield(%e) : (v_tensor<[2 * N, 8], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2 * N, 8], f32>
    %s = nn.softmax(%r) : (v_tensor<[2 * N, 8], f32>) -> v_tensor<[2 * N, 8], f32>
    %z = nn.softmax(%a) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%s) {name = "s"} : (v_tensor<[2 * N, 8], f32>) -> ()
    nn.fetch(%z) {name = "z"} : (v_tensor<[N, 8], f32>) -> ())");
}

TEST_F(ControlFlowTest, OneWithinTheOther) {
  Check(R"(
    %r = cf.if(%c) ({
      %a = nn.exp(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %i = cf.if(%d) ({
        %t = nn.softmax(%a) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
        cf.yield(%t) : (v_tensor<[N, 8], f32>) -> ()
      }, {
        cf.yield(%a) : (v_tensor<[N, 8], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[N, 8], f32>
      cf.yield(%i) : (v_tensor<[N, 8], f32>) -> ()
    }, {
      cf.yield(%x) : (v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[N, 8], f32>
    %y = nn.softmax(%r) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N, 8], f32>) -> ())");
}

// What a branch relies on is asked for where it runs, and only there.
TEST_F(ControlFlowTest, SizesMatterWhereABranchRuns) {
  Program program = Of(R"(
    %v = nn.feed() {name = "v"} : () -> v_tensor<[M, 8], f32>
    %r = cf.if(%c) ({
      %t = nn.concat(%x, %v) {axis = 1} : (v_tensor<[N, 8], f32>, v_tensor<[M, 8], f32>) -> v_tensor<[N, 16], f32>
      %s = nn.softmax(%t) : (v_tensor<[N, 16], f32>) -> v_tensor<[N, 16], f32>
      cf.yield(%s) : (v_tensor<[N, 16], f32>) -> ()
    }, {
      %e = nn.concat(%x, %x) {axis = 1} : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 16], f32>
      cf.yield(%e) : (v_tensor<[N, 16], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[N, 16], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 16], f32>) -> ())");
  const EveryWay ways(program, {.threads = 1});
  ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
  for (const auto& [name, way] : ways.all()) {
    SCOPED_TRACE(name);
    for (const int64_t m : {4, 5}) {
      for (const bool c : {false, true}) {
        NamedValues inputs = InputsOf(4, c);
        inputs.emplace_back("v", RandomTensor(ElementType::kF32, {m, 8}, 5));
        const std::string error = OutcomeOf([&] { (void)way.Run(inputs); });
        const bool fits = m == 4 || !c;
        EXPECT_EQ(error.substr(0, 6), fits ? "no err" : "shape/") << error;
        if (!fits) continue;
        EXPECT_TRUE(AllClose(way.Run(inputs)[0].second, Interpreter(program).Run(inputs)[0].second,
                             1e-5, 1e-6));
      }
    }
  }
}

// A window that is larger than what it goes over leaves less than nothing.
TEST_F(ControlFlowTest, SizesBelowZeroMatterWhereABranchRuns) {
  Program program = Of(R"(
    %w = builtin.constant() {value = tensor<[1, 1, 5, 1], f32> [1, 2, 3, 4, 5]} : () -> v_tensor<[1, 1, 5, 1], f32>
    %v = nn.feed() {name = "v"} : () -> v_tensor<[2, 1, M, 8], f32>
    %r = cf.if(%c) ({
      %t = nn.conv(%v, %w) {} : (v_tensor<[2, 1, M, 8], f32>, v_tensor<[1, 1, 5, 1], f32>) -> v_tensor<[2, 1, M - 4, 8], f32>
      cf.yield(%t) : (v_tensor<[2, 1, M - 4, 8], f32>) -> ()
    }, {
      %e = nn.exp(%v) : (v_tensor<[2, 1, M, 8], f32>) -> v_tensor<[2, 1, M, 8], f32>
      cf.yield(%e) : (v_tensor<[2, 1, M, 8], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2, 1, ?, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[2, 1, ?, 8], f32>) -> ())");
  const EveryWay ways(program, {.threads = 1});
  ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
  for (const auto& [name, way] : ways.all()) {
    SCOPED_TRACE(name);
    for (const int64_t m : {1, 2, 3, 5, 6}) {
      for (const bool c : {false, true}) {
        NamedValues inputs = InputsOf(1, c);
        inputs.emplace_back("v", RandomTensor(ElementType::kF32, {2, 1, m, 8}, 5));
        const std::string error = OutcomeOf([&] { (void)way.Run(inputs); });
        const bool fits = m >= 5 || !c;
        EXPECT_EQ(error.substr(0, 6), fits ? "no err" : "shape/") << m << ": " << error;
        if (!fits) continue;
        EXPECT_TRUE(AllClose(way.Run(inputs)[0].second, Interpreter(program).Run(inputs)[0].second,
                             1e-5, 1e-6));
      }
    }
  }
}

TEST_F(ControlFlowTest, ThreadsTakeBranchesOfTheirOwn) {
  Program program = Of(R"(
    %r = cf.if(%c) ({
      %t = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%t) : (v_tensor<[N, 8], f32>) -> ()
    }, {
      %e = nn.exp(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%e) : (v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[N, 8], f32>
    %y = nn.softmax(%r) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N, 8], f32>) -> ())");
  const Executable executable(program, {.threads = 2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      const NamedValues inputs = InputsOf(5 + t / 2, t % 2 == 0);
      const NamedValues wanted = executable.Run(inputs);
      for (int i = 0; i < 50; ++i) EXPECT_EQ(executable.Run(inputs), wanted);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ControlFlowTest, AGraphCanNotHoldThem) {
  Program program = Of(R"(
    %r = cf.if(%c) ({
      cf.yield(%x) : (v_tensor<[N, 8], f32>) -> ()
    }, {
      %e = nn.exp(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%e) : (v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[N, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ())");
  const Executable executable(program);
  EXPECT_EQ(OutcomeOf([&] { runtime::MakeArtifacts(executable.executor()->plan()); }),
            "artifact/branch: a graph (.json) cannot hold a program with branches");
}

// The branch that runs says how large its results are.
TEST_F(ControlFlowTest, SizesByBranch) {
  Check(R"(
    %r = cf.if(%c) ({
      cf.yield(%x) : (v_tensor<[N, 8], f32>) -> ()
    }, {
      %e = nn.concat(%x, %x) {axis = 0} : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[2 * N, 8], f32>
      cf.yield(%e) : (v_tensor<[2 * N, 8], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[?, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[?, 8], f32>) -> ())");
}

// Values that change places, that stay, and that are those of the loop itself.
TEST_F(ControlFlowTest, LoopsCarryAllAtOnce) {
  Check(R"(
    %a = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %r, %s, %t, %u, %v = cf.while(%n, none, %x, %a, %a, %x, %n) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[N, 8], f32>, %q: v_tensor<[N, 8], f32>, %o: v_tensor<[N, 8], f32>, %k: v_tensor<[N, 8], f32>, %w: v_tensor<[], i64>):
      %m = nn.softmax(%o) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %l = nn.add(%m, %k) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%go, %q, %p, %l, %k, %i) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[], i64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[], i64>) -> (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[], i64>)
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%t) {name = "t"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%u) {name = "u"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%v) {name = "v"} : (v_tensor<[], i64>) -> ())");
}

TEST_F(ControlFlowTest, LoopsStackWhatTheyYield) {
  Check(R"(
    %four = builtin.constant() {value = tensor<[], i64> [4]} : () -> v_tensor<[], i64>
    %r, %s = cf.while(%four, none, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[N, 8], f32>):
      %m = nn.softmax(%p) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %l = nn.add(%m, %x) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%go, %l, %m) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>) -> (v_tensor<[N, 8], f32>, v_tensor<[4, N, 8], f32>)
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[4, N, 8], f32>) -> ())");
}

// By a condition that the body computes, with a trip count and without.
TEST_F(ControlFlowTest, LoopsEndWhenTheyWantTo) {
  Check(R"(
    %two = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
    %r = cf.while(%n, %c, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[N, 8], f32>):
      %m = nn.softmax(%p) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %l = nn.add(%m, %x) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %on = nn.less(%i, %two) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
      cf.yield(%on, %l) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %s, %t = cf.while(none, %d, %r, %c) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[N, 8], f32>, %old: v_tensor<[], bool>):
      %m = nn.softmax(%p) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %on = nn.less(%i, %n) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
      cf.yield(%old, %m, %on) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>, v_tensor<[], bool>) -> ()
    }) : (none, v_tensor<[], bool>, v_tensor<[N, 8], f32>, v_tensor<[], bool>) -> (v_tensor<[N, 8], f32>, v_tensor<[], bool>)
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%t) {name = "t"} : (v_tensor<[], bool>) -> ())");
}

TEST_F(ControlFlowTest, LoopsThatDoNotEndAreErrors) {
  Program program = Of(R"(
    %r = cf.while(none, %c, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[N, 8], f32>):
      %m = nn.softmax(%p) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%c, %m) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> ()
    }) : (none, v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ())");
  const Executable executable(program, {.interpreter = {.max_steps = 1000}});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  EXPECT_EQ(OutcomeOf([&] { executable.Run(InputsOf(3, true)); }),
            "limit/steps: more than 1000 steps ran");
  // Each run has as many.
  for (int run = 0; run < 1000; ++run) executable.Run(InputsOf(3, false));
}

TEST_F(ControlFlowTest, WhatALoopReadsStaysUntilItEnds) {
  Check(R"(
    %a = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %e = nn.exp(%a) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %b = nn.softmax(%e) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %r = cf.while(%n, none, %b) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[N, 8], f32>):
      %l = nn.add(%p, %a) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %m = nn.softmax(%l) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %k = nn.exp(%m) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %o = nn.softmax(%k) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %z = nn.exp(%o) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %y = nn.softmax(%z) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%go, %y) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %w = nn.softmax(%r) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%w) {name = "w"} : (v_tensor<[N, 8], f32>) -> ())");
}

TEST_F(ControlFlowTest, LoopsWithinLoopsAndBranches) {
  Check(R"(
    %a = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %r = cf.while(%n, none, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[N, 8], f32>):
      %b = nn.softmax(%p) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %q = cf.if(%c) ({
        %s = cf.while(%i, none, %b) ({
        ^(%j: v_tensor<[], i64>, %on: v_tensor<[], bool>, %k: v_tensor<[N, 8], f32>):
          %l = nn.add(%k, %a) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
          %m = nn.softmax(%l) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
          cf.yield(%on, %m) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> ()
        }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
        cf.yield(%s) : (v_tensor<[N, 8], f32>) -> ()
      }, {
        %t = nn.exp(%b) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
        %u = nn.add(%t, %a) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
        cf.yield(%u) : (v_tensor<[N, 8], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[N, 8], f32>
      %o = nn.add(%q, %b) : (v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%go, %o) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    %w = nn.softmax(%r) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%w) {name = "w"} : (v_tensor<[N, 8], f32>) -> ())");
}

// A condition that is always true says nothing; exporters write it nevertheless.
TEST_F(ControlFlowTest, LoopsThatAlwaysGoOnStackAsOften) {
  for (const char* next : {"go", "yes", "same", "true"}) {
    SCOPED_TRACE(next);
    Check(StrCat(R"(
    %yes = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %first = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
    %sizes = nn.shape(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[2], i64>
    %rows = nn.gather(%sizes, %first) {axis = 0} : (v_tensor<[2], i64>, v_tensor<[], i64>) -> v_tensor<[], i64>
    %s = cf.while(%rows, %yes) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>):
      %true = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
      %same = nn.identity(%go) : (v_tensor<[], bool>) -> v_tensor<[], bool>
      %m = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%)",
                 next, R"(, %m) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>) -> v_tensor<[?, N, 8], f32>
    nn.fetch(%s) {name = "s"} : (v_tensor<[?, N, 8], f32>) -> ())"));
  }
}

// How many rows there are is known when the loop ends: rounds are counted by an input, and one of
// them may be the last.
TEST_F(ControlFlowTest, LoopsStackAsManyRowsAsThereAreRounds) {
  Check(R"(
    %two = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
    %r, %s = cf.while(%n, %c, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[N, 8], f32>):
      %m = nn.softmax(%p) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %on = nn.less(%i, %two) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
      cf.yield(%on, %m, %p) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> (v_tensor<[N, 8], f32>, v_tensor<[?, N, 8], f32>)
    %q, %t, %u = cf.while(%n, none, %r) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %k: v_tensor<[N, 8], f32>):
      %e = nn.exp(%k) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      cf.yield(%go, %k, %e, %i) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[], i64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>) -> (v_tensor<[N, 8], f32>, v_tensor<[?, N, 8], f32>, v_tensor<[?], i64>)
    %v = nn.softmax(%t) : (v_tensor<[?, N, 8], f32>) -> v_tensor<[?, N, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[?, N, 8], f32>) -> ()
    nn.fetch(%u) {name = "u"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%v) {name = "v"} : (v_tensor<[?, N, 8], f32>) -> ())");
}

// What a loop carries grows, shrinks and changes places; nothing is there when it begins.
TEST_F(ControlFlowTest, LoopsCarryTensorsThatGrow) {
  Check(R"(
    %none = builtin.constant() {value = tensor<[0, 8], f32> []} : () -> v_tensor<[0, 8], f32>
    %one = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %far = builtin.constant() {value = tensor<[1], i64> [1000000]} : () -> v_tensor<[1], i64>
    %zero = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>
    %r, %s, %t, %u, %v = cf.while(%n, none, %none, %x, %x, %x, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[?, 8], f32>, %q: v_tensor<[?, 8], f32>, %o: v_tensor<[?, 8], f32>, %k: v_tensor<[?, 8], f32>, %w: v_tensor<[N, 8], f32>):
      %a = nn.concat(%p, %x) {axis = 0} : (v_tensor<[?, 8], f32>, v_tensor<[N, 8], f32>) -> v_tensor<[?, 8], f32>
      %b = nn.softmax(%a) : (v_tensor<[?, 8], f32>) -> v_tensor<[?, 8], f32>
      %c1 = nn.slice(%q, %one, %far, %zero) : (v_tensor<[?, 8], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, 8], f32>
      %d1 = nn.concat(%o, %k) {axis = 0} : (v_tensor<[?, 8], f32>, v_tensor<[?, 8], f32>) -> v_tensor<[?, 8], f32>
      cf.yield(%go, %b, %c1, %k, %d1, %w) : (v_tensor<[], bool>, v_tensor<[?, 8], f32>, v_tensor<[?, 8], f32>, v_tensor<[?, 8], f32>, v_tensor<[?, 8], f32>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[0, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>, v_tensor<[N, 8], f32>) -> (v_tensor<[?, 8], f32>, v_tensor<[?, 8], f32>, v_tensor<[?, 8], f32>, v_tensor<[?, 8], f32>, v_tensor<[N, 8], f32>)
    %y = nn.softmax(%r) : (v_tensor<[?, 8], f32>) -> v_tensor<[?, 8], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, 8], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[?, 8], f32>) -> ()
    nn.fetch(%t) {name = "t"} : (v_tensor<[?, 8], f32>) -> ()
    nn.fetch(%u) {name = "u"} : (v_tensor<[?, 8], f32>) -> ()
    nn.fetch(%v) {name = "v"} : (v_tensor<[N, 8], f32>) -> ())");
}

// Loops that grow within one that grows, by what a branch or the elements say.
TEST_F(ControlFlowTest, GrowingLoopsWithinLoopsAndBranches) {
  Check(R"(
    %two = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
    %axis = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>
    %r, %s = cf.while(%n, none, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %p: v_tensor<[?, 8], f32>):
      %q = cf.while(%two, none, %x) ({
      ^(%j: v_tensor<[], i64>, %on: v_tensor<[], bool>, %k: v_tensor<[?, 8], f32>):
        %l = nn.concat(%k, %p) {axis = 0} : (v_tensor<[?, 8], f32>, v_tensor<[?, 8], f32>) -> v_tensor<[?, 8], f32>
        cf.yield(%on, %l) : (v_tensor<[], bool>, v_tensor<[?, 8], f32>) -> ()
      }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>) -> v_tensor<[?, 8], f32>
      %m = nn.reduce_sum(%q, %axis) {keepdims = true} : (v_tensor<[?, 8], f32>, v_tensor<[1], i64>) -> v_tensor<[1, 8], f32>
      %g = cf.if(%c) ({
        %t = nn.concat(%p, %m) {axis = 0} : (v_tensor<[?, 8], f32>, v_tensor<[1, 8], f32>) -> v_tensor<[?, 8], f32>
        cf.yield(%t) : (v_tensor<[?, 8], f32>) -> ()
      }, {
        cf.yield(%p) : (v_tensor<[?, 8], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[?, 8], f32>
      cf.yield(%go, %g, %m) : (v_tensor<[], bool>, v_tensor<[?, 8], f32>, v_tensor<[1, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>) -> (v_tensor<[?, 8], f32>, v_tensor<[?, 1, 8], f32>)
    nn.fetch(%r) {name = "r"} : (v_tensor<[?, 8], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[?, 1, 8], f32>) -> ())");
}

// A list that a loop appends to is a tensor of one more axis.
TEST_F(ControlFlowTest, LoopsAppendToLists) {
  for (const char* join : {"axis = 0, new_axis = true", "axis = 1, new_axis = true",
                           "axis = 0, new_axis = false", "axis = -1, new_axis = false"}) {
    SCOPED_TRACE(join);
    Check(StrCat(R"(
    %three = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
    %last = builtin.constant() {value = tensor<[], i64> [-1]} : () -> v_tensor<[], i64>
    %start = nn.sequence_construct(%x) : (v_tensor<[N, 8], f32>) -> list<v_tensor<[N, 8], f32>>
    %r, %s = cf.while(%three, none, %start, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %l: list<v_tensor<[N, 8], f32>>, %p: v_tensor<[N, 8], f32>):
      %m = nn.softmax(%p) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %k = nn.sequence_insert(%l, %m) : (list<v_tensor<[N, 8], f32>>, v_tensor<[N, 8], f32>) -> list<v_tensor<[N, 8], f32>>
      cf.yield(%go, %k, %m) : (v_tensor<[], bool>, list<v_tensor<[N, 8], f32>>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, none, list<v_tensor<[N, 8], f32>>, v_tensor<[N, 8], f32>) -> (list<v_tensor<[N, 8], f32>>, v_tensor<[N, 8], f32>)
    %y = nn.concat_from_sequence(%r) {)",
                 join, R"(} : (list<v_tensor<[N, 8], f32>>) -> v_tensor<*, f32>
    %z = nn.sequence_length(%r) : (list<v_tensor<[N, 8], f32>>) -> v_tensor<[], i64>
    %w = nn.sequence_at(%r, %last) : (list<v_tensor<[N, 8], f32>>, v_tensor<[], i64>) -> v_tensor<[N, 8], f32>
    nn.fetch(%s) {name = "s"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%y) {name = "y"} : (v_tensor<*, f32>) -> ()
    nn.fetch(%z) {name = "z"} : (v_tensor<[], i64>) -> ()
    nn.fetch(%w) {name = "w"} : (v_tensor<[N, 8], f32>) -> ())"));
  }
}

// What normalizations are made of would broadcast one factor over all channels.
TEST_F(ControlFlowTest, NormalizationsNeedAFactorForEachChannel) {
  constexpr const char* kInputs = R"(
    %t = nn.feed() {name = "t"} : () -> v_tensor<[2, 4, 3], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[S], f32>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[4], f32>)";
  const auto branch = [&](std::string_view y) {
    return StrCat(kInputs, R"(
    %r = cf.if(%c) ({
      %y = )",
                  y, R"( -> v_tensor<[2, 4, 3], f32>
      cf.yield(%y) : (v_tensor<[2, 4, 3], f32>) -> ()
    }, {
      cf.yield(%t) : (v_tensor<[2, 4, 3], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2, 4, 3], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[2, 4, 3], f32>) -> ())");
  };
  const auto loop = [&](std::string_view y) {
    return StrCat(kInputs, R"(
    %r = cf.while(%n, %c) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>):
      %y = )",
                  y, R"( -> v_tensor<[2, 4, 3], f32>
      cf.yield(%go, %y) : (v_tensor<[], bool>, v_tensor<[2, 4, 3], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>) -> v_tensor<[?, 2, 4, 3], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[?, 2, 4, 3], f32>) -> ())");
  };
  const std::string tensors = "(v_tensor<[2, 4, 3], f32>, v_tensor<[S], f32>, v_tensor<[4], f32>";
  for (const std::string& y :
       {StrCat("nn.batch_normalization(%t, %s, %b, %b, %b) : ", tensors,
               ", v_tensor<[4], f32>, v_tensor<[4], f32>)"),
        StrCat("nn.instance_normalization(%t, %s, %b) : ", tensors, ")"),
        StrCat("nn.group_normalization(%t, %s, %b) {num_groups = 2} : ", tensors, ")")}) {
    for (const bool is_loop : {true, false}) {
      SCOPED_TRACE(StrCat(y, is_loop ? ", in a loop" : ", in a branch"));
      Program program = Of(is_loop ? loop(y) : branch(y));
      const Executable executable(program, {.threads = 1});
      ASSERT_NE(executable.executor(), nullptr);
      for (const int64_t s : {1, 4, 5}) {
        NamedValues inputs = InputsOf(1, true);
        inputs.emplace_back("t", RandomTensor(ElementType::kF32, {2, 4, 3}, 5));
        inputs.emplace_back("s", RandomTensor(ElementType::kF32, {s}, 6));
        inputs.emplace_back("b", Tensor::Of<float>({4}, {1, 2, 3, 4}));
        const std::string outcome = OutcomeOf([&] { (void)executable.Run(inputs); });
        EXPECT_EQ(outcome.substr(0, outcome.find(':')), s == 4 ? "no error" : "shape/channels");
        if (s != 4) continue;
        EXPECT_TRUE(AllClose(executable.Run(inputs)[0].second,
                             Interpreter(program).Run(inputs)[0].second, 1e-5, 1e-6));
      }
    }
  }
}

// Forwards and backwards, along any axis, of a length that may be 0; slices of several inputs.
TEST_F(ControlFlowTest, ScansAreLoops) {
  for (const char* directions : {"0, 0", "1, 0", "0, 1"}) {
    SCOPED_TRACE(directions);
    Check(StrCat(R"(
    %zero = builtin.constant() {value = tensor<[8], f32> [0, 0, 0, 0, 0, 0, 0, 0]} : () -> v_tensor<[8], f32>
    %t = nn.transpose(%x) {perm = [1, 0]} : (v_tensor<[N, 8], f32>) -> v_tensor<[8, N], f32>
    %s, %r, %u, %v = cf.scan(%zero, %x, %t) {num_scan_inputs = 2, scan_input_axes = [0, -1], scan_input_directions = [)",
                 directions, "], scan_output_axes = [-1, 0, 0], scan_output_directions = [",
                 directions, R"(, 1]} ({
    ^(%p: v_tensor<[8], f32>, %a: v_tensor<[8], f32>, %b: v_tensor<[8], f32>):
      %m = nn.softmax(%b) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
      %l = nn.add(%a, %m) : (v_tensor<[8], f32>, v_tensor<[8], f32>) -> v_tensor<[8], f32>
      %q = nn.add(%p, %l) : (v_tensor<[8], f32>, v_tensor<[8], f32>) -> v_tensor<[8], f32>
      cf.yield(%q, %q, %l, %d) : (v_tensor<[8], f32>, v_tensor<[8], f32>, v_tensor<[8], f32>, v_tensor<[], bool>) -> ()
    }) : (v_tensor<[8], f32>, v_tensor<[N, 8], f32>, v_tensor<[8, N], f32>) -> (v_tensor<[8], f32>, v_tensor<[8, N], f32>, v_tensor<[N, 8], f32>, v_tensor<[N], bool>)
    nn.fetch(%s) {name = "s"} : (v_tensor<[8], f32>) -> ()
    nn.fetch(%r) {name = "r"} : (v_tensor<[8, N], f32>) -> ()
    nn.fetch(%u) {name = "u"} : (v_tensor<[N, 8], f32>) -> ()
    nn.fetch(%v) {name = "v"} : (v_tensor<[N], bool>) -> ())"));
  }
}

TEST_F(ControlFlowTest, ScansWithinScansBranchesAndLoops) {
  Check(R"(
    %one = builtin.constant() {value = tensor<[], f32> [1]} : () -> v_tensor<[], f32>
    %r = cf.while(%n, none, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %w: v_tensor<[N, 8], f32>):
      %m = nn.softmax(%w) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
      %q = cf.if(%c) ({
        %rows = cf.scan(%m) {num_scan_inputs = 1} ({
        ^(%row: v_tensor<[8], f32>):
          %sum, %sums = cf.scan(%one, %row) {num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1]} ({
          ^(%p: v_tensor<[], f32>, %e: v_tensor<[], f32>):
            %a = nn.add(%p, %e) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], f32>
            cf.yield(%a, %a) : (v_tensor<[], f32>, v_tensor<[], f32>) -> ()
          }) : (v_tensor<[], f32>, v_tensor<[8], f32>) -> (v_tensor<[], f32>, v_tensor<[8], f32>)
          %d0 = nn.mul(%sums, %sum) : (v_tensor<[8], f32>, v_tensor<[], f32>) -> v_tensor<[8], f32>
          cf.yield(%d0) : (v_tensor<[8], f32>) -> ()
        }) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
        cf.yield(%rows) : (v_tensor<[N, 8], f32>) -> ()
      }, {
        cf.yield(%m) : (v_tensor<[N, 8], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[N, 8], f32>
      cf.yield(%go, %q) : (v_tensor<[], bool>, v_tensor<[N, 8], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ())");
}

// A loop alone would pass over what one input has too many.
// Nobody reads the slices of y.
TEST_F(ControlFlowTest, ScansOfUnusedInputsOfDifferentLengthsAreErrors) {
  Program program = Of(R"(
    %y = nn.feed() {name = "y"} : () -> v_tensor<[?, 2], f32>
    %r = cf.scan(%x, %y) {num_scan_inputs = 2} ({
    ^(%row: v_tensor<[8], f32>, %other: v_tensor<[2], f32>):
      %e = nn.exp(%row) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
      cf.yield(%e) : (v_tensor<[8], f32>) -> ()
    }) : (v_tensor<[N, 8], f32>, v_tensor<[?, 2], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ())");
  const EveryWay ways(program, {.threads = 1});
  for (const auto& [name, way] : ways.all()) {
    SCOPED_TRACE(name);
    const auto outcome = [&](int64_t rows) {
      NamedValues inputs = InputsOf(3, true);
      inputs.emplace_back("y", RandomTensor(ElementType::kF32, {rows, 2}, 5));
      return OutcomeOf([&] { (void)way.Run(inputs); }).substr(0, 17);
    };
    EXPECT_EQ(outcome(3), "no error");
    EXPECT_EQ(outcome(4), "shape/scan-length");
  }
}

TEST_F(ControlFlowTest, ScansOfDifferentLengthsAreErrors) {
  Program program = Of(R"(
    %y = nn.feed() {name = "y"} : () -> v_tensor<[8, M], f32>
    %r = cf.scan(%x, %y) {num_scan_inputs = 2, scan_input_axes = [0, 1]} ({
    ^(%a: v_tensor<[8], f32>, %b: v_tensor<[8], f32>):
      %q = nn.add(%a, %b) : (v_tensor<[8], f32>, v_tensor<[8], f32>) -> v_tensor<[8], f32>
      cf.yield(%q) : (v_tensor<[8], f32>) -> ()
    }) : (v_tensor<[N, 8], f32>, v_tensor<[8, M], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[N, 8], f32>) -> ())");
  const EveryWay ways(program, {});
  ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
  for (const int64_t m : {2, 3, 4}) {
    NamedValues inputs = InputsOf(3, true);
    inputs.emplace_back("y", RandomTensor(ElementType::kF32, {8, m}, 4));
    for (const auto& [name, way] : ways.all()) {
      const std::string outcome = OutcomeOf([&] { way.Run(inputs); });
      EXPECT_EQ(outcome == "no error", m == 3) << name << ", " << m << ": " << outcome;
    }
  }
}

// How many rows a loop has stacked is a size that its end tells, beside objects, too.
TEST_F(ControlFlowTest, PiecesOfRowsThatAreStackedAddUp) {
  const auto outcome = [&](std::string_view type, std::vector<int64_t> pieces) {
    Program program = Parse(StrCat(R"(
      %t = nn.feed() {name = "t"} : () -> v_tensor<[], i64>
      %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
      %p = nn.feed() {name = "p"} : () -> v_tensor<[2], i64>
      %u = nn.feed() {name = "u"} : () -> )",
                                   type, R"(
      %last, %all = cf.while(%t, none, %x) ({
      ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %v: v_tensor<[2], f32>):
        %n = nn.neg(%v) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
        cf.yield(%c, %n, %v) : (v_tensor<[], bool>, v_tensor<[2], f32>, v_tensor<[2], f32>) -> ()
      }) : (v_tensor<[], i64>, none, v_tensor<[2], f32>) -> (v_tensor<[2], f32>, v_tensor<[?, 2], f32>)
      %a, %b = nn.split(%all, %p) {axis = 0} : (v_tensor<[?, 2], f32>, v_tensor<[2], i64>) -> (v_tensor<[?, 2], f32>, v_tensor<[?, 2], f32>)
      %r = nn.relu(%u) : ()",
                                   type, ") -> ", type, R"(
      nn.fetch(%a) {name = "a"} : (v_tensor<[?, 2], f32>) -> ()
      nn.fetch(%r) {name = "r"} : ()",
                                   type, ") -> ()"));
    Executable executable(program, {.threads = 1});
    EXPECT_NE(executable.executor(), nullptr);
    return OutcomeOf([&] {
      executable.Run({{"t", Tensor::Scalar<int64_t>(4)},
                      {"x", Tensor::Of<float>({2}, std::vector<float>{1, 2})},
                      {"p", Tensor::Of<int64_t>({2}, pieces)},
                      {"u", Tensor::Of<float>({2}, std::vector<float>{1, 2})}});
    });
  };
  for (const std::string_view type : {"v_tensor<*, f32>", "v_tensor<[2], f32>"}) {
    EXPECT_EQ(outcome(type, {1, 3}), "no error");
    EXPECT_TRUE(outcome(type, {6, 0}).starts_with("shape/split")) << type;
    EXPECT_TRUE(outcome(type, {3, 5}).starts_with("shape/split")) << type;
  }
}

}  // namespace
}  // namespace lathe
