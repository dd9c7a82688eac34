// Programs whose sizes depend on the elements of their inputs have a plan: compiled, from a cache
// and from a file they give what the interpreter gives.

#include "test/unit/driver/computed_sizes.h"

#include <thread>

namespace lathe {
namespace {

TEST_F(ComputedSizesTest, Positions) {
  Check(R"(
    %p = nn.non_zero(%x) : (v_tensor<[N, 3], f32>) -> v_tensor<[2, ?], i64>
    %t = nn.transpose(%p) : (v_tensor<[2, ?], i64>) -> v_tensor<[?, 2], i64>
    %g = nn.gather_nd(%x, %t) : (v_tensor<[N, 3], f32>, v_tensor<[?, 2], i64>) -> v_tensor<[?], f32>
    %e = nn.exp(%g) : (v_tensor<[?], f32>) -> v_tensor<[?], f32>
    nn.fetch(%e) {name = "e"} : (v_tensor<[?], f32>) -> ()
    nn.fetch(%p) {name = "p"} : (v_tensor<[2, ?], i64>) -> ())");
}

TEST_F(ComputedSizesTest, RowsThatAreKept) {
  Check(R"(
    %c = nn.compress(%x, %m) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?, 3], f32>
    %t = nn.transpose(%c) : (v_tensor<[?, 3], f32>) -> v_tensor<[3, ?], f32>
    %y = nn.matmul(%c, %t) : (v_tensor<[?, 3], f32>, v_tensor<[3, ?], f32>) -> v_tensor<[?, ?], f32>
    %j = nn.concat(%x, %c) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[?, 3], f32>) -> v_tensor<[?, 3], f32>
    %f = nn.compress(%x, %m) : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ()
    nn.fetch(%j) {name = "j"} : (v_tensor<[?, 3], f32>) -> ()
    nn.fetch(%f) {name = "f"} : (v_tensor<[?], f32>) -> ())");
}

TEST_F(ComputedSizesTest, WhatIsDifferent) {
  Check(R"(
    %i = nn.cast(%x) {to = i8} : (v_tensor<[N, 3], f32>) -> v_tensor<[N, 3], i8>
    %a, %ai, %av, %ac = nn.unique(%x) : (v_tensor<[N, 3], f32>) -> (v_tensor<[?], f32>, v_tensor<[?], i64>, v_tensor<[3 * N], i64>, v_tensor<[?], i64>)
    %b, %bi, %bv, %bc = nn.unique(%i) {sorted = false} : (v_tensor<[N, 3], i8>) -> (v_tensor<[?], i8>, v_tensor<[?], i64>, v_tensor<[3 * N], i64>, v_tensor<[?], i64>)
    %c, %ci, %cv, %cc = nn.unique(%i) {axis = 0} : (v_tensor<[N, 3], i8>) -> (v_tensor<[?, 3], i8>, v_tensor<[?], i64>, v_tensor<[N], i64>, v_tensor<[?], i64>)
    %d, %di, %dv, %dc = nn.unique(%m) {sorted = false, axis = -1} : (v_tensor<[N], bool>) -> (v_tensor<[?], bool>, v_tensor<[?], i64>, v_tensor<[N], i64>, v_tensor<[?], i64>)
    nn.fetch(%a) {name = "a"} : (v_tensor<[?], f32>) -> ()
    nn.fetch(%ai) {name = "ai"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%av) {name = "av"} : (v_tensor<[3 * N], i64>) -> ()
    nn.fetch(%ac) {name = "ac"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%b) {name = "b"} : (v_tensor<[?], i8>) -> ()
    nn.fetch(%bi) {name = "bi"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%bv) {name = "bv"} : (v_tensor<[3 * N], i64>) -> ()
    nn.fetch(%bc) {name = "bc"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%c) {name = "c"} : (v_tensor<[?, 3], i8>) -> ()
    nn.fetch(%ci) {name = "ci"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%cv) {name = "cv"} : (v_tensor<[N], i64>) -> ()
    nn.fetch(%cc) {name = "cc"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%d) {name = "d"} : (v_tensor<[?], bool>) -> ()
    nn.fetch(%dv) {name = "dv"} : (v_tensor<[N], i64>) -> ())");
}

// Names that exporters give to sizes are those that kernels give to theirs. What a rank that the
// run decides leaves without a plan must not take one for the other: the result would be too small.
TEST_F(ComputedSizesTest, SizesThatAreNamedAsThoseOfKernels) {
  Program program = Parse(R"(
    %u = nn.feed() {name = "u"} : () -> v_tensor<*, f32>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[s1, s0], f32>
    %none = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>
    %one = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %two = builtin.constant() {value = tensor<[1], i64> [2]} : () -> v_tensor<[1], i64>
    %all = builtin.constant() {value = tensor<[1], i64> [1000000]} : () -> v_tensor<[1], i64>
    %a = nn.slice(%x, %none, %all, %one, %two) : (v_tensor<[s1, s0], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, ?], f32>
    %b = nn.slice(%x, %one, %all, %one, %two) : (v_tensor<[s1, s0], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, ?], f32>
    %first = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
    %c = nn.cum_sum(%a, %first) : (v_tensor<[?, ?], f32>, v_tensor<[], i64>) -> v_tensor<[?, ?], f32>
    %d = nn.cum_sum(%b, %first) : (v_tensor<[?, ?], f32>, v_tensor<[], i64>) -> v_tensor<[?, ?], f32>
    %y = nn.concat(%d, %c) {axis = 1} : (v_tensor<[?, ?], f32>, v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
    nn.fetch(%u) {name = "u"} : (v_tensor<*, f32>) -> ()
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ())");
  for (const int level : {0, 2}) {
    const Executable executable(program, {.level = level, .threads = 1});
    ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
    const NamedValues inputs = {{"u", Tensor::Scalar(1.0f)},
                                {"x", RandomTensor(ElementType::kF32, {1, 600}, 3)}};
    EXPECT_EQ(executable.Run(inputs), Interpreter(program).Run(inputs)) << level;
  }
}

// Rounds append tensors of different lengths to a list, which is joined behind the loop.
TEST_F(ComputedSizesTest, WhatRoundsJoin) {
  Check(R"(
    %n = nn.shape(%x) {start = 0, end = 1} : (v_tensor<[N, 3], f32>) -> v_tensor<[1], i64>
    %ones1 = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %ones = nn.constant_of_shape(%n) {value = tensor<[1], i64> [1]} : (v_tensor<[1], i64>) -> v_tensor<[N], i64>
    %rows = nn.split_to_sequence(%x, %ones) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], i64>) -> list<v_tensor<[?, 3], f32>>
    %count = nn.sequence_length(%rows) : (list<v_tensor<[?, 3], f32>>) -> v_tensor<[], i64>
    %rounds = nn.add(%count, %one) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %e = nn.sequence_empty() {dtype = f32} : () -> list<v_tensor<*, f32>>
    %t, %u, %last = cf.while(%rounds, %go, %e, %e, %zero) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %l: list<v_tensor<*, f32>>, %w: list<v_tensor<*, f32>>, %sum: v_tensor<[], f32>):
      %end = nn.unsqueeze(%i, %first) : (v_tensor<[], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
      %part = nn.slice(%x, %first, %end, %first) : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, 3], f32>
      %more = nn.add(%part, %sum) : (v_tensor<[?, 3], f32>, v_tensor<[], f32>) -> v_tensor<[?, 3], f32>
      %all = nn.sequence_insert(%l, %more) : (list<v_tensor<*, f32>>, v_tensor<[?, 3], f32>) -> list<v_tensor<*, f32>>
      %ahead = nn.slice(%x, %first, %end, %ones1) : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[N, ?], f32>
      %wide = nn.sequence_insert(%w, %ahead) : (list<v_tensor<*, f32>>, v_tensor<[N, ?], f32>) -> list<v_tensor<*, f32>>
      %next = nn.add(%sum, %zero) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], f32>
      cf.yield(%c, %all, %wide, %next) : (v_tensor<[], bool>, list<v_tensor<*, f32>>, list<v_tensor<*, f32>>, v_tensor<[], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, list<v_tensor<*, f32>>, list<v_tensor<*, f32>>, v_tensor<[], f32>) -> (list<v_tensor<*, f32>>, list<v_tensor<*, f32>>, v_tensor<[], f32>)
    %z = nn.concat_from_sequence(%u) {axis = 1} : (list<v_tensor<*, f32>>) -> v_tensor<*, f32>
    nn.fetch(%z) {name = "z"} : (v_tensor<*, f32>) -> ()
    %y = nn.concat_from_sequence(%t) {axis = 0} : (list<v_tensor<*, f32>>) -> v_tensor<*, f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<*, f32>) -> ()
    nn.fetch(%last) {name = "last"} : (v_tensor<[], f32>) -> ())");
}

// What a round appends to what the loop carries comes from a list, so its size has no name.
TEST_F(ComputedSizesTest, WhatRoundsAppendOfAList) {
  Check(R"(
    %two = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
    %parts = nn.split_to_sequence(%x, %two) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[], i64>) -> list<v_tensor<[?, 3], f32>>
    %count = nn.sequence_length(%parts) : (list<v_tensor<[?, 3], f32>>) -> v_tensor<[], i64>
    %start = builtin.constant() {value = tensor<[0, 3], f32> []} : () -> v_tensor<[0, 3], f32>
    %y, %sums = cf.while(%count, none, %start) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %so_far: v_tensor<[?, 3], f32>):
      %part = nn.sequence_at(%parts, %i) : (list<v_tensor<[?, 3], f32>>, v_tensor<[], i64>) -> v_tensor<[?, 3], f32>
      %square = nn.mul(%part, %part) : (v_tensor<[?, 3], f32>, v_tensor<[?, 3], f32>) -> v_tensor<[?, 3], f32>
      %sum = nn.reduce_sum(%square) {keepdims = false} : (v_tensor<[?, 3], f32>) -> v_tensor<[], f32>
      %next = nn.concat(%so_far, %square) {axis = 0} : (v_tensor<[?, 3], f32>, v_tensor<[?, 3], f32>) -> v_tensor<[?, 3], f32>
      cf.yield(%c, %next, %sum) : (v_tensor<[], bool>, v_tensor<[?, 3], f32>, v_tensor<[], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[0, 3], f32>) -> (v_tensor<[?, 3], f32>, v_tensor<[?], f32>)
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, 3], f32>) -> ()
    nn.fetch(%sums) {name = "sums"} : (v_tensor<[?], f32>) -> ())");
}

// One element is a condition, whatever its rank.
TEST_F(ComputedSizesTest, ConditionsWhoseRankTheRunDecides) {
  Program program = Parse(R"(
    %u = nn.feed() {name = "u"} : () -> v_tensor<*, f32>
    %half = builtin.constant() {value = tensor<[], f32> [0.5]} : () -> v_tensor<[], f32>
    %go = nn.greater(%u, %half) : (v_tensor<*, f32>, v_tensor<[], f32>) -> v_tensor<*, bool>
    %y = cf.while(none, %go, %u) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %v: v_tensor<*, f32>):
      %next = nn.mul(%v, %half) : (v_tensor<*, f32>, v_tensor<[], f32>) -> v_tensor<*, f32>
      %more = nn.greater(%next, %half) : (v_tensor<*, f32>, v_tensor<[], f32>) -> v_tensor<*, bool>
      cf.yield(%more, %next) : (v_tensor<*, bool>, v_tensor<*, f32>) -> ()
    }) : (none, v_tensor<*, bool>, v_tensor<*, f32>) -> v_tensor<*, f32>
    %z = cf.if(%go) ({
      cf.yield(%y) : (v_tensor<*, f32>) -> ()
    }, {
      cf.yield(%half) : (v_tensor<[], f32>) -> ()
    }) : (v_tensor<*, bool>) -> v_tensor<*, f32>
    nn.fetch(%z) {name = "z"} : (v_tensor<*, f32>) -> ())");
  const EveryWay ways(program, {.threads = 1});
  ASSERT_EQ(ways.all().size(), 3u);
  Interpreter interpreter(program);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1, 1}}) {
    for (const float value : {7.0f, 0.25f}) {
      Tensor u(ElementType::kF32, shape);
      u.mutable_data<float>()[0] = value;
      EXPECT_EQ(ways.Run({{"u", u}}), interpreter.Run({{"u", u}})) << value;
    }
  }
  const NamedValues two = {{"u", Tensor(ElementType::kF32, {2})}};
  for (const auto& [name, way] : ways.all()) {
    EXPECT_NE(OutcomeOf([&] { way.Run(two); }), "no error") << name;
  }
}

TEST_F(ComputedSizesTest, NoRoundsHaveNothingToJoin) {
  const Program program = Optimized(Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 3], f32>
    %k = nn.feed() {name = "k"} : () -> v_tensor<[], i64>
    %first = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %e = nn.sequence_empty() {dtype = f32} : () -> list<v_tensor<*, f32>>
    %t = cf.while(%k, %go, %e) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %l: list<v_tensor<*, f32>>):
      %end = nn.unsqueeze(%i, %first) : (v_tensor<[], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
      %part = nn.slice(%x, %first, %end, %first) : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, 3], f32>
      %all = nn.sequence_insert(%l, %part) : (list<v_tensor<*, f32>>, v_tensor<[?, 3], f32>) -> list<v_tensor<*, f32>>
      cf.yield(%c, %all) : (v_tensor<[], bool>, list<v_tensor<*, f32>>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, list<v_tensor<*, f32>>) -> list<v_tensor<*, f32>>
    %y = nn.concat_from_sequence(%t) {axis = 0} : (list<v_tensor<*, f32>>) -> v_tensor<*, f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<*, f32>) -> ())"));
  const Executable executable(program, {.threads = 1});
  const auto outcome = [&](int64_t rounds) {
    const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {4, 3}, 3)},
                                {"k", Tensor::Scalar<int64_t>(rounds)}};
    return OutcomeOf([&] { (void)executable.Run(inputs); });
  };
  EXPECT_EQ(outcome(1), "no error");
  EXPECT_EQ(outcome(3), "no error");
  EXPECT_NE(outcome(0), "no error");
}

// A condition of unknown length has one element, and so has what it is made of.
TEST_F(ComputedSizesTest, RowsOfWhatAConditionCompares) {
  Check(R"(
    %n = nn.shape(%x) {start = 0, end = 1} : (v_tensor<[N, 3], f32>) -> v_tensor<[1], i64>
    %count = nn.reshape(%n, %e0) : (v_tensor<[1], i64>, v_tensor<[0], i64>) -> v_tensor<[], i64>
    %offsets = nn.concat(%first, %n) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[2], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %ones = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %once = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
    %t = cf.while(%once, %go, %zero) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %sum: v_tensor<[], f32>):
      %one1 = nn.reshape(%i, %ones) : (v_tensor<[], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
      %next1 = nn.add(%one1, %one) : (v_tensor<[1], i64>, v_tensor<[], i64>) -> v_tensor<[1], i64>
      %at = nn.slice(%offsets, %one1, %next1) : (v_tensor<[2], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?], i64>
      %none1 = nn.equal(%at, %count) : (v_tensor<[?], i64>, v_tensor<[], i64>) -> v_tensor<[?], bool>
      %part = cf.if(%none1) ({
        cf.yield(%sum) : (v_tensor<[], f32>) -> ()
      }, {
        %rows = nn.slice(%x, %at, %n) : (v_tensor<[N, 3], f32>, v_tensor<[?], i64>, v_tensor<[1], i64>) -> v_tensor<[?, ?], f32>
        %all = nn.reduce_sum(%rows) {keepdims = false} : (v_tensor<[?, ?], f32>) -> v_tensor<[], f32>
        cf.yield(%all) : (v_tensor<[], f32>) -> ()
      }) : (v_tensor<[?], bool>) -> v_tensor<[], f32>
      cf.yield(%c, %part) : (v_tensor<[], bool>, v_tensor<[], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[], f32>) -> v_tensor<[], f32>
    nn.fetch(%t) {name = "t"} : (v_tensor<[], f32>) -> ())");
}

// Entries that say "as in the input" and "what is left" when they are computed.
TEST_F(ComputedSizesTest, EntriesOfAShapeThatAreNoExtents) {
  Check(R"(
    %z = nn.sub(%k, %k) : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
    %left = nn.sub(%z, %one) : (v_tensor<[1], i64>, v_tensor<[], i64>) -> v_tensor<[1], i64>
    %unit = nn.add(%z, %one) : (v_tensor<[1], i64>, v_tensor<[], i64>) -> v_tensor<[1], i64>
    %s2 = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>
    %n = nn.shape(%x) {start = 0, end = 1} : (v_tensor<[N, 3], f32>) -> v_tensor<[1], i64>
    %c0 = nn.concat(%z, %left) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[2], i64>
    %y0 = nn.reshape(%x, %c0) : (v_tensor<[N, 3], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y0) {name = "y0"} : (v_tensor<[?, ?], f32>) -> ()
    %y1 = nn.reshape(%x, %left) : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>) -> v_tensor<[?], f32>
    nn.fetch(%y1) {name = "y1"} : (v_tensor<[?], f32>) -> ()
    %c2 = nn.concat(%z, %unit, %left) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[3], i64>
    %y2 = nn.reshape(%x, %c2) : (v_tensor<[N, 3], f32>, v_tensor<[3], i64>) -> v_tensor<[?, ?, ?], f32>
    nn.fetch(%y2) {name = "y2"} : (v_tensor<[?, ?, ?], f32>) -> ()
    %c3 = nn.concat(%unit, %s2, %unit) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[3], i64>
    %y3 = nn.reshape(%x, %c3) : (v_tensor<[N, 3], f32>, v_tensor<[3], i64>) -> v_tensor<[?, ?, ?], f32>
    nn.fetch(%y3) {name = "y3"} : (v_tensor<[?, ?, ?], f32>) -> ()
    %c4 = nn.concat(%n, %left, %unit) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[3], i64>
    %y4 = nn.reshape(%x, %c4) : (v_tensor<[N, 3], f32>, v_tensor<[3], i64>) -> v_tensor<[N, ?, ?], f32>
    nn.fetch(%y4) {name = "y4"} : (v_tensor<[N, ?, ?], f32>) -> ()
    %e = nn.exp(%y4) : (v_tensor<[N, ?, ?], f32>) -> v_tensor<[N, ?, ?], f32>
    %c5 = nn.concat(%s, %left) {axis = 0} : (v_tensor<[2], i64>, v_tensor<[1], i64>) -> v_tensor<[3], i64>
    %y5 = nn.reshape(%e, %c5) : (v_tensor<[N, ?, ?], f32>, v_tensor<[3], i64>) -> v_tensor<[?, ?, ?], f32>
    nn.fetch(%y5) {name = "y5"} : (v_tensor<[?, ?, ?], f32>) -> ())");
}

TEST_F(ComputedSizesTest, EntriesOfAShapeThatMeanNothing) {
  const Program program = Of(R"(
    %y = nn.reshape(%x, %s) : (v_tensor<[N, 3], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ())");
  Program optimized = Optimized(program);
  const EveryWay ways(optimized, {});
  ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
  Program original = program.Clone();
  for (const auto& [n, s] :
       std::vector<std::pair<int64_t, std::array<int64_t, 2>>>{{4, {-1, -1}},
                                                               {0, {-1, -1}},
                                                               {4, {-1, 5}},
                                                               {4, {-2, -6}},
                                                               {4, {12, 0}},
                                                               {1, {-1, -3}}}) {
    NamedValues inputs = InputsOf(n, 1);
    inputs[3].second = Tensor::Of<int64_t>({2}, s);
    SCOPED_TRACE(StrCat(n, ": ", s[0], ", ", s[1]));
    EXPECT_NE(OutcomeOf([&] { Interpreter(original).Run(inputs); }), "no error");
    EXPECT_NE(OutcomeOf([&] { ways.Run(inputs); }), "no error");
  }
}

TEST_F(ComputedSizesTest, NegativeNumbersThatAreNoSizes) {
  Check(R"(
    %z = nn.sub(%k, %k) : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
    %minus = nn.sub(%z, %one) : (v_tensor<[1], i64>, v_tensor<[], i64>) -> v_tensor<[1], i64>
    %back = nn.reshape(%minus, %e0) : (v_tensor<[1], i64>, v_tensor<[0], i64>) -> v_tensor<[], i64>
    %far = nn.sub(%back, %one) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], i64>
    %r = nn.range(%one, %far, %back) : (v_tensor<[], i64>, v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[?], i64>
    nn.fetch(%r) {name = "r"} : (v_tensor<[?], i64>) -> ()
    %t = nn.slice(%x, %far, %back) : (v_tensor<[N, 3], f32>, v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[?, 3], f32>
    nn.fetch(%t) {name = "t"} : (v_tensor<[?, 3], f32>) -> ())");
}

TEST_F(ComputedSizesTest, OneAfterAnother) {
  Check(R"(
    %c = nn.compress(%x, %m) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?, 3], f32>
    %g = nn.greater(%c, %zero) : (v_tensor<[?, 3], f32>, v_tensor<[], f32>) -> v_tensor<[?, 3], bool>
    %p = nn.non_zero(%g) : (v_tensor<[?, 3], bool>) -> v_tensor<[2, ?], i64>
    %q = nn.mul(%p, %p) : (v_tensor<[2, ?], i64>, v_tensor<[2, ?], i64>) -> v_tensor<[2, ?], i64>
    nn.fetch(%c) {name = "c"} : (v_tensor<[?, 3], f32>) -> ()
    nn.fetch(%q) {name = "q"} : (v_tensor<[2, ?], i64>) -> ())");
}

TEST_F(ComputedSizesTest, RangesAndSlices) {
  Check(R"(
    %n = nn.reshape(%k, %e0) : (v_tensor<[1], i64>, v_tensor<[0], i64>) -> v_tensor<[], i64>
    %r = nn.range(%none, %n, %one) : (v_tensor<[], i64>, v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[?], i64>
    %b = nn.slice(%x, %first, %k) : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, 3], f32>
    %w = nn.neg(%k) : (v_tensor<[1], i64>) -> v_tensor<[1], i64>
    %a = nn.slice(%x, %first, %w) : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, 3], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%b) {name = "b"} : (v_tensor<[?, 3], f32>) -> ()
    nn.fetch(%a) {name = "a"} : (v_tensor<[?, 3], f32>) -> ())");
}

TEST_F(ComputedSizesTest, RangesWhoseBoundsAreFarApart) {
  Program program = Parse(R"(
    %from = nn.feed() {name = "from"} : () -> v_tensor<[], i64>
    %to = nn.feed() {name = "to"} : () -> v_tensor<[], i64>
    %step = nn.feed() {name = "step"} : () -> v_tensor<[], i64>
    %r = nn.range(%from, %to, %step) : (v_tensor<[], i64>, v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[?], i64>
    nn.fetch(%r) {name = "r"} : (v_tensor<[?], i64>) -> ()
  )");
  const EveryWay ways(program, {.threads = 1});
  ASSERT_NE(ways.made().executor(), nullptr);
  const auto inputs = [](int64_t from, int64_t to, int64_t step) {
    return NamedValues{
        {"from", Tensor::Scalar(from)}, {"to", Tensor::Scalar(to)}, {"step", Tensor::Scalar(step)}};
  };
  constexpr int64_t kLeast = INT64_MIN, kMost = INT64_MAX;
  for (const auto& [from, to, step] :
       std::vector<std::array<int64_t, 3>>{{kLeast, kMost, kMost},
                                           {kMost, kLeast, kLeast},
                                           {kLeast, kMost, kMost / 7},
                                           {kMost, kLeast, -kMost},
                                           {kLeast, 0, kMost},
                                           {0, kLeast, kLeast},
                                           {3, 4, kMost},
                                           {4, 3, 1},
                                           {-1, -9, -3},
                                           {kMost, kMost, 1},
                                           {kMost - 1, kMost, 1}}) {
    SCOPED_TRACE(StrCat(from, " to ", to, " by ", step));
    const NamedValues given = inputs(from, to, step);
    EXPECT_TRUE(ways.Run(given)[0].second == Interpreter(program).Run(given)[0].second);
  }
  for (const int64_t step : {int64_t{0}, int64_t{1}}) {
    const NamedValues given = inputs(kLeast, kMost, step);
    EXPECT_NE(OutcomeOf([&] { ways.Run(given); }), "no error") << step;
    EXPECT_NE(OutcomeOf([&] { Interpreter(program).Run(given); }), "no error") << step;
  }
}

TEST_F(ComputedSizesTest, ShapesThatAreData) {
  Check(R"(
    %l = nn.reshape(%x, %s) {allowzero = true} : (v_tensor<[N, 3], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    %y = nn.softmax(%l) : (v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
    %f = nn.constant_of_shape(%s) : (v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    %t = nn.tile(%x, %s) : (v_tensor<[N, 3], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    %e = nn.expand(%zero, %s) : (v_tensor<[], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ()
    nn.fetch(%f) {name = "f"} : (v_tensor<[?, ?], f32>) -> ()
    nn.fetch(%t) {name = "t"} : (v_tensor<[?, ?], f32>) -> ()
    nn.fetch(%e) {name = "e"} : (v_tensor<[?, ?], f32>) -> ())");
}

// Amounts may be negative: they are no sizes.
TEST_F(ComputedSizesTest, PadsThatAreData) {
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    SCOPED_TRACE(mode);
    Check(StrCat(R"(
    %l = nn.neg(%k) : (v_tensor<[1], i64>) -> v_tensor<[1], i64>
    %i = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %w = nn.concat(%l, %i, %k, %k) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[4], i64>
    %p = nn.pad(%x, %w) {mode = ")",
                 mode, R"("} : (v_tensor<[N, 3], f32>, v_tensor<[4], i64>) -> v_tensor<[?, ?], f32>
    %y = nn.relu(%p) : (v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
    %v = nn.concat(%first, %k) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[2], i64>
    %q = nn.pad(%y, %v, none, %first) {mode = "edge"} : (v_tensor<[?, ?], f32>, v_tensor<[2], i64>, none, v_tensor<[1], i64>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ()
    nn.fetch(%q) {name = "q"} : (v_tensor<[?, ?], f32>) -> ())"));
  }
}

TEST_F(ComputedSizesTest, FactorsOfResizes) {
  for (const char* how : {"linear", "nearest"}) {
    SCOPED_TRACE(how);
    Check(StrCat(
        R"(
    %u = builtin.constant() {value = tensor<[1], f32> [1.0]} : () -> v_tensor<[1], f32>
    %t = builtin.constant() {value = tensor<[1], f32> [0.73]} : () -> v_tensor<[1], f32>
    %c = nn.cast(%k) {to = f32} : (v_tensor<[1], i64>) -> v_tensor<[1], f32>
    %d = nn.add(%c, %u) : (v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[1], f32>
    %f = nn.mul(%d, %t) : (v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[1], f32>
    %g = nn.concat(%u, %f) {axis = 0} : (v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[2], f32>
    %h = nn.concat(%f, %d) {axis = 0} : (v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[2], f32>
    %y = nn.resize(%x, none, %g, none) {mode = ")",
        how,
        R"("} : (v_tensor<[N, 3], f32>, none, v_tensor<[2], f32>, none) -> v_tensor<[N, ?], f32>
    %z = nn.resize(%x, none, %h, none) {mode = ")",
        how,
        R"("} : (v_tensor<[N, 3], f32>, none, v_tensor<[2], f32>, none) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N, ?], f32>) -> ()
    nn.fetch(%z) {name = "z"} : (v_tensor<[?, ?], f32>) -> ())"));
  }
}

TEST_F(ComputedSizesTest, TheBestOfWhatThereIs) {
  Check(R"(
    %f = nn.compress(%x, %m) : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?], f32>
    %h = nn.shape(%f) : (v_tensor<[?], f32>) -> v_tensor<[1], i64>
    %c = nn.min(%h, %k) : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
    %v, %i = nn.top_k(%f, %c) : (v_tensor<[?], f32>, v_tensor<[1], i64>) -> (v_tensor<[?], f32>, v_tensor<[?], i64>)
    nn.fetch(%v) {name = "v"} : (v_tensor<[?], f32>) -> ()
    nn.fetch(%i) {name = "i"} : (v_tensor<[?], i64>) -> ())");
}

// What is chosen from may be few integers, too, and negative: they are no sizes.
TEST_F(ComputedSizesTest, TheBestOfIntegers) {
  Check(R"(
    %l = nn.neg(%s) : (v_tensor<[2], i64>) -> v_tensor<[2], i64>
    %j = nn.concat(%l, %s) {axis = 0} : (v_tensor<[2], i64>, v_tensor<[2], i64>) -> v_tensor<[4], i64>
    %three = builtin.constant() {value = tensor<[1], i64> [3]} : () -> v_tensor<[1], i64>
    %c = nn.min(%three, %k) : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
    %v, %i = nn.top_k(%j, %c) {largest = false} : (v_tensor<[4], i64>, v_tensor<[1], i64>) -> (v_tensor<[?], i64>, v_tensor<[?], i64>)
    nn.fetch(%v) {name = "v"} : (v_tensor<[?], i64>) -> ()
    nn.fetch(%i) {name = "i"} : (v_tensor<[?], i64>) -> ())");
}

// Of a tensor without a rank nobody can say what -1 stands for: the interpreter runs it.
TEST_F(ComputedSizesTest, WhatIsLeftOfATensorWithoutARank) {
  const Program program = Optimized(Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<*, f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[2], i64>
    %y = nn.reshape(%x, %s) : (v_tensor<*, f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ())"));
  const Executable executable(program, {.threads = 1});
  const NamedValues got = executable.Run({{"x", RandomTensor(ElementType::kF32, {2, 3, 4}, 3)},
                                          {"s", Tensor::Of<int64_t>({2}, {-1, 8})}});
  EXPECT_EQ(got[0].second.tensor().shape(), (Shape{3, 8}));
}

// The same of one whose size nothing computes.
TEST_F(ComputedSizesTest, WhatIsLeftOfAnUnknownSize) {
  const Program program = Optimized(Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[6], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[2], i64>
    %u, %i, %v, %c = nn.unique(%x) {sorted = true} : (v_tensor<[6], f32>) -> (v_tensor<[?], f32>, v_tensor<[?], i64>, v_tensor<[6], i64>, v_tensor<[?], i64>)
    %y = nn.reshape(%u, %s) : (v_tensor<[?], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ())"));
  const Executable executable(program, {.threads = 1});
  const std::array<float, 6> x{3, 1, 3, 2, 4, 1};
  const NamedValues got =
      executable.Run({{"x", Tensor::Of<float>({6}, x)}, {"s", Tensor::Of<int64_t>({2}, {-1, 2})}});
  EXPECT_EQ(got[0].second.tensor().shape(), (Shape{2, 2}));
}

TEST_F(ComputedSizesTest, BoxesThatAreTaken) {
  Check(R"(
    %a = nn.abs(%x) : (v_tensor<[N, 3], f32>) -> v_tensor<[N, 3], f32>
    %j = nn.concat(%x, %a) {axis = 1} : (v_tensor<[N, 3], f32>, v_tensor<[N, 3], f32>) -> v_tensor<[N, 6], f32>
    %four = builtin.constant() {value = tensor<[1], i64> [4]} : () -> v_tensor<[1], i64>
    %six = builtin.constant() {value = tensor<[1], i64> [6]} : () -> v_tensor<[1], i64>
    %axis = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %b = nn.slice(%j, %first, %four, %axis) : (v_tensor<[N, 6], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[N, 4], f32>
    %c = nn.slice(%j, %four, %six, %axis) : (v_tensor<[N, 6], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[N, 2], f32>
    %t = nn.transpose(%c) : (v_tensor<[N, 2], f32>) -> v_tensor<[2, N], f32>
    %boxes = nn.unsqueeze(%b, %first) : (v_tensor<[N, 4], f32>, v_tensor<[1], i64>) -> v_tensor<[1, N, 4], f32>
    %scores = nn.unsqueeze(%t, %first) : (v_tensor<[2, N], f32>, v_tensor<[1], i64>) -> v_tensor<[1, 2, N], f32>
    %y = nn.non_max_suppression(%boxes, %scores, %k, %zero, %zero) : (v_tensor<[1, N, 4], f32>, v_tensor<[1, 2, N], f32>, v_tensor<[1], i64>, v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[?, 3], i64>
    %z = nn.non_max_suppression(%boxes, %scores, %four, %zero) : (v_tensor<[1, N, 4], f32>, v_tensor<[1, 2, N], f32>, v_tensor<[1], i64>, v_tensor<[], f32>) -> v_tensor<[?, 3], i64>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, 3], i64>) -> ()
    nn.fetch(%z) {name = "z"} : (v_tensor<[?, 3], i64>) -> ())");
}

// As torchvision writes it: any number of boxes is taken, and none of an empty list.
TEST_F(ComputedSizesTest, AllBoxesThatAreTaken) {
  Check(R"(
    %a = nn.abs(%x) : (v_tensor<[N, 3], f32>) -> v_tensor<[N, 3], f32>
    %j = nn.concat(%x, %a) {axis = 1} : (v_tensor<[N, 3], f32>, v_tensor<[N, 3], f32>) -> v_tensor<[N, 6], f32>
    %l = nn.size(%x) : (v_tensor<[N, 3], f32>) -> v_tensor<[], i64>
    %empty = nn.equal(%l, %none) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
    %r = cf.if(%empty) ({
      cf.yield(%e0) : (v_tensor<[0], i64>) -> ()
    }, {
      %four = builtin.constant() {value = tensor<[1], i64> [4]} : () -> v_tensor<[1], i64>
      %five = builtin.constant() {value = tensor<[1], i64> [5]} : () -> v_tensor<[1], i64>
      %axis = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
      %all = builtin.constant() {value = tensor<[1], i64> [9223372036854775807]} : () -> v_tensor<[1], i64>
      %b = nn.slice(%j, %first, %four, %axis) : (v_tensor<[N, 6], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[N, 4], f32>
      %c = nn.slice(%j, %four, %five, %axis) : (v_tensor<[N, 6], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[N, 1], f32>
      %t = nn.transpose(%c) : (v_tensor<[N, 1], f32>) -> v_tensor<[1, N], f32>
      %boxes = nn.unsqueeze(%b, %first) : (v_tensor<[N, 4], f32>, v_tensor<[1], i64>) -> v_tensor<[1, N, 4], f32>
      %scores = nn.unsqueeze(%t, %first) : (v_tensor<[1, N], f32>, v_tensor<[1], i64>) -> v_tensor<[1, 1, N], f32>
      %n = nn.non_max_suppression(%boxes, %scores, %all, %zero) : (v_tensor<[1, N, 4], f32>, v_tensor<[1, 1, N], f32>, v_tensor<[1], i64>, v_tensor<[], f32>) -> v_tensor<[?, 3], i64>
      %two = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
      %g = nn.gather(%n, %two) {axis = 1} : (v_tensor<[?, 3], i64>, v_tensor<[], i64>) -> v_tensor<[?], i64>
      cf.yield(%g) : (v_tensor<[?], i64>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[?], i64>
    %y = nn.gather(%x, %r) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[?], i64>) -> v_tensor<[?, 3], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, 3], f32>) -> ())");
}

// Detectors of many classes: what a branch asks of their boxes, with the sizes that these have in
// the end, is too long to be written, and is asked of the size of all of them.
TEST_F(ComputedSizesTest, SumsOfManySizesWithinBranches) {
  std::string body = R"(
    %most = builtin.constant() {value = tensor<[1], i64> [30]} : () -> v_tensor<[1], i64>
    %line = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>
    %flat = nn.reshape(%x, %line) {allowzero = false} : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>) -> v_tensor<[3 * N], f32>)";
  std::string values, types;
  constexpr int kClasses = 70;
  for (int i = 0; i < kClasses; ++i) {
    body += fmt::format(R"(
    %c{0} = builtin.constant() {{value = tensor<[], f32> [{1}]}} : () -> v_tensor<[], f32>
    %g{0} = nn.greater(%flat, %c{0}) : (v_tensor<[3 * N], f32>, v_tensor<[], f32>) -> v_tensor<[3 * N], bool>
    %n{0} = nn.non_zero(%g{0}) : (v_tensor<[3 * N], bool>) -> v_tensor<[1, ?], i64>
    %q{0} = nn.squeeze(%n{0}, %first) : (v_tensor<[1, ?], i64>, v_tensor<[1], i64>) -> v_tensor<[?], i64>
    %p{0} = nn.gather(%flat, %q{0}) {{axis = 0}} : (v_tensor<[3 * N], f32>, v_tensor<[?], i64>) -> v_tensor<[?], f32>
    %h{0} = nn.shape(%p{0}) : (v_tensor<[?], f32>) -> v_tensor<[1], i64>
    %k{0} = nn.min(%h{0}, %most) : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
    %v{0}, %i{0} = nn.top_k(%p{0}, %k{0}) : (v_tensor<[?], f32>, v_tensor<[1], i64>) -> (v_tensor<[?], f32>, v_tensor<[?], i64>))",
                        i, 0.01 * i);
    values += fmt::format("{}%v{}", i == 0 ? "" : ", ", i);
    types += i == 0 ? "v_tensor<[?], f32>" : ", v_tensor<[?], f32>";
  }
  Check(StrCat(body, "\n    %all = nn.concat(", values, ") {axis = 0} : (", types,
               R"() -> v_tensor<[?], f32>
    %l = nn.size(%all) : (v_tensor<[?], f32>) -> v_tensor<[], i64>
    %empty = nn.equal(%l, %none) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
    %r = cf.if(%empty) ({
      cf.yield(%all) : (v_tensor<[?], f32>) -> ()
    }, {
      %shape = nn.shape(%all) : (v_tensor<[?], f32>) -> v_tensor<[1], i64>
      %same = nn.reshape(%all, %shape) {allowzero = false} : (v_tensor<[?], f32>, v_tensor<[1], i64>) -> v_tensor<[?], f32>
      %twice = nn.add(%same, %all) : (v_tensor<[?], f32>, v_tensor<[?], f32>) -> v_tensor<[?], f32>
      cf.yield(%twice) : (v_tensor<[?], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[?], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[?], f32>) -> ())"));
}

// A tensor whose rank the run decides is an object; code runs where sizes follow from those of the
// inputs.
TEST_F(ComputedSizesTest, RankThatTheRunDecides) {
  const Program program = Of(R"(
    %two = builtin.constant() {value = tensor<[1], i64> [2]} : () -> v_tensor<[1], i64>
    %axis = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %far = builtin.constant() {value = tensor<[1], i64> [9223372036854775807]} : () -> v_tensor<[1], i64>
    %a = nn.slice(%x, %first, %far, %first, %two) : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[floordiv(N + 1, 2), 3], f32>
    %b = nn.softmax(%a) {axis = 0} : (v_tensor<[floordiv(N + 1, 2), 3], f32>) -> v_tensor<[floordiv(N + 1, 2), 3], f32>
    %c = nn.slice(%b, %first, %far, %first, %two) : (v_tensor<[floordiv(N + 1, 2), 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, 3], f32>
    %d = nn.reduce_sum(%c, %axis) : (v_tensor<[?, 3], f32>, v_tensor<[1], i64>) -> v_tensor<[?, 1], f32>
    %y = nn.squeeze(%d) : (v_tensor<[?, 1], f32>) -> v_tensor<*, f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<*, f32>) -> ())");
  const Executable executable(program, {.threads = 1});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  Program original = program.Clone();
  for (const int64_t n : {3, 0, 1, 70, 4, 12}) {
    const NamedValues inputs = InputsOf(n, 5);
    const NamedValues wanted = Interpreter(original).Run(inputs);
    const Closeness close = AllClose(executable.Run(inputs)[0].second, wanted[0].second, 1e-5, 0);
    EXPECT_TRUE(close) << n << ": " << close.description;
  }
}

// The region that runs says how large the result is.
TEST_F(ComputedSizesTest, RegionsOfDifferentSizes) {
  Check(R"(
    %m2 = nn.cast(%m) {to = i64} : (v_tensor<[N], bool>) -> v_tensor<[N], i64>
    %a = nn.reduce_sum(%m2) {keepdims = false} : (v_tensor<[N], i64>) -> v_tensor<[], i64>
    %c = nn.greater(%a, %none) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
    %r = cf.if(%c) ({
      %p = nn.compress(%x, %m) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?, 3], f32>
      cf.yield(%p) : (v_tensor<[?, 3], f32>) -> ()
    }, {
      %q = nn.concat(%x, %x) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N, 3], f32>) -> v_tensor<[2 * N, 3], f32>
      cf.yield(%q) : (v_tensor<[2 * N, 3], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[?, 3], f32>
    %y = nn.exp(%r) : (v_tensor<[?, 3], f32>) -> v_tensor<[?, 3], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, 3], f32>) -> ())");
}

// Each round has sizes of its own.
TEST_F(ComputedSizesTest, InALoop) {
  Check(R"(
    %n = nn.reshape(%k, %e0) : (v_tensor<[1], i64>, v_tensor<[0], i64>) -> v_tensor<[], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %t = cf.while(%n, %go, %zero) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %sum: v_tensor<[], f32>):
      %row = nn.gather(%x, %i) : (v_tensor<[N, 3], f32>, v_tensor<[], i64>) -> v_tensor<[3], f32>
      %p = nn.non_zero(%row) : (v_tensor<[3], f32>) -> v_tensor<[1, ?], i64>
      %g = nn.gather(%row, %p) : (v_tensor<[3], f32>, v_tensor<[1, ?], i64>) -> v_tensor<[1, ?], f32>
      %e = nn.exp(%g) : (v_tensor<[1, ?], f32>) -> v_tensor<[1, ?], f32>
      %all = nn.reduce_sum(%e) {keepdims = false} : (v_tensor<[1, ?], f32>) -> v_tensor<[], f32>
      %next = nn.add(%sum, %all) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], f32>
      cf.yield(%c, %next) : (v_tensor<[], bool>, v_tensor<[], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[], f32>) -> v_tensor<[], f32>
    nn.fetch(%t) {name = "t"} : (v_tensor<[], f32>) -> ())");
}

// What rounds stack lies in memory that is there for all of them, unless a round says its size:
// then it is a list until the loop ends.
TEST_F(ComputedSizesTest, RowsWhoseSizeARoundComputes) {
  const Program program = Optimized(Of(R"(
    %n = nn.reshape(%k, %e0) : (v_tensor<[1], i64>, v_tensor<[0], i64>) -> v_tensor<[], i64>
    %last, %t = cf.while(%n, none, %zero) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %sum: v_tensor<[], f32>):
      %some = nn.greater(%n, %one) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
      %rows = cf.if(%some) ({
        cf.yield(%x) : (v_tensor<[N, 3], f32>) -> ()
      }, {
        %two = nn.concat(%x, %x) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N, 3], f32>) -> v_tensor<[2 * N, 3], f32>
        cf.yield(%two) : (v_tensor<[2 * N, 3], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[?, 3], f32>
      cf.yield(%c, %sum, %rows) : (v_tensor<[], bool>, v_tensor<[], f32>, v_tensor<[?, 3], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[], f32>) -> (v_tensor<[], f32>, v_tensor<[?, ?, 3], f32>)
    nn.fetch(%t) {name = "t"} : (v_tensor<[?, ?, 3], f32>) -> ())"));
  const Executable executable(program, {.threads = 1});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  Program original = program.Clone();
  for (const int64_t n : {2, 4, 7}) {
    const NamedValues inputs = InputsOf(n, 5);
    EXPECT_EQ(executable.Run(inputs), Interpreter(original).Run(inputs)) << n;
  }
}

// TensorFlow's crop_and_resize cuts each region in a round, and may get none.
TEST_F(ComputedSizesTest, RowsOfNoRoundsHaveExtentsOfNothing) {
  const Program program = Optimized(Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[M, N, 3], f32>
    %k = nn.feed() {name = "k"} : () -> v_tensor<[], i64>
    %e = nn.feed() {name = "e"} : () -> v_tensor<[1], i64>
    %first = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>
    %pairs = builtin.constant() {value = tensor<[2], i64> [-1, 6]} : () -> v_tensor<[2], i64>
    %row = builtin.constant() {value = tensor<[2], i64> [-1, 3]} : () -> v_tensor<[2], i64>
    %one = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %t = cf.while(%k, %go) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>):
      %start = nn.reshape(%i, %one) {allowzero = false} : (v_tensor<[], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
      %end = nn.add(%start, %one) : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
      %plane = nn.slice(%x, %start, %end, %first) : (v_tensor<[M, N, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, N, 3], f32>
      %flat = nn.reshape(%plane, %row) {allowzero = false} : (v_tensor<[?, N, 3], f32>, v_tensor<[2], i64>) -> v_tensor<[?, 3], f32>
      %part = nn.slice(%flat, %first, %e, %first) : (v_tensor<[?, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, 3], f32>
      cf.yield(%c, %part) : (v_tensor<[], bool>, v_tensor<[?, 3], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>) -> v_tensor<[?, ?, 3], f32>
    %y = nn.reshape(%t, %pairs) {allowzero = false} : (v_tensor<[?, ?, 3], f32>, v_tensor<[2], i64>) -> v_tensor<[?, 6], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, 6], f32>) -> ())"));
  Program original = program.Clone();
  const EveryWay ways(program, {.threads = 1});
  for (const auto& [name, way] : ways.all()) {
    for (const int64_t rounds : {0, 1, 3, 0}) {
      const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {3, 5, 3}, 3)},
                                  {"k", Tensor::Scalar<int64_t>(rounds)},
                                  {"e", Tensor::Of<int64_t>({1}, {4})}};
      EXPECT_EQ(way.Run(inputs), Interpreter(original).Run(inputs)) << name << rounds;
    }
  }
}

TEST_F(ComputedSizesTest, SlicesHaveAsManyEndsAsStarts) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4, 4], f32>
    %a = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %e = nn.feed() {name = "e"} : () -> v_tensor<[?], i64>
    %y = nn.slice(%x, %a, %e) : (v_tensor<[4, 4], f32>, v_tensor<[1], i64>, v_tensor<[?], i64>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ())");
  const EveryWay ways(program, {.threads = 1});
  for (const auto& [name, way] : ways.all()) {
    SCOPED_TRACE(name);
    const auto outcome = [&](const std::vector<int64_t>& ends) {
      const NamedValues inputs = {
          {"x", RandomTensor(ElementType::kF32, {4, 4}, 3)},
          {"e", Tensor::Of<int64_t>({static_cast<int64_t>(ends.size())}, ends)}};
      return OutcomeOf([&] { (void)way.Run(inputs); }).substr(0, 11);
    };
    EXPECT_EQ(outcome({3}), "no error");
    EXPECT_NE(outcome({3, 3}), "no error");
  }
}

// What is made before the size is known does not lie in memory that is placed by it.
TEST_F(ComputedSizesTest, NothingOfAComputedSize) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 0, 1], f32>
    %a = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>
    %r = nn.reduce_sum(%x, %a) : (v_tensor<[1, 0, 1], f32>, v_tensor<[1], i64>) -> v_tensor<[1, 0, 1], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[1], i64>
    %y = nn.expand(%r, %s) : (v_tensor<[1, 0, 1], f32>, v_tensor<[1], i64>) -> v_tensor<[1, 0, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[1, 0, ?], f32>) -> ())");
  const EveryWay ways(Optimized(program), {.threads = 1});
  ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
  for (const int64_t n : {31, 1}) {
    const NamedValues got = ways.Run(
        {{"x", Tensor(ElementType::kF32, {1, 0, 1})}, {"s", Tensor::Of<int64_t>({1}, {n})}});
    EXPECT_EQ(got[0].second.tensor().shape(), (Shape{1, 0, n}));
  }
}

TEST_F(ComputedSizesTest, StringsThatAreNotEmpty) {
  const Program program = Optimized(Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[3], string>
    %y = nn.non_zero(%x) : (v_tensor<[3], string>) -> v_tensor<[1, ?], i64>
    nn.fetch(%y) {name = "y"} : (v_tensor<[1, ?], i64>) -> ())"));
  const Executable executable(program, {.threads = 1});
  const std::array<std::string, 3> words{"s3s8", "", "x"};
  const NamedValues got = executable.Run({{"x", Tensor::Of<std::string>({3}, words)}});
  EXPECT_EQ(got[0].second.tensor(), Tensor::Of<int64_t>({1, 2}, {0, 2}));
}

// Rounds take turns, and what one region relies on is no matter of the other one.
// The interpreter reads words; what becomes of their numbers has kernels, for any count of them.
TEST_F(ComputedSizesTest, WordsThatAreLeft) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N], string>
    %w = nn.string_normalizer(%x) {case_change_action = "LOWER", stopwords = ["the"]} : (v_tensor<[N], string>) -> v_tensor<[?], string>
    %t = nn.tokenize(%w) {mark = false, mincharnum = 1, pad_value = "", tokenexp = "."} : (v_tensor<[?], string>) -> v_tensor<[?, ?], string>
    %c = nn.label_encoder(%t) {keys_strings = ["a", "b", ""], values_floats = [1.5, 2.5, 0.0]} : (v_tensor<[?, ?], string>) -> v_tensor<[?, ?], f32>
    %e = nn.exp(%c) : (v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
    %a = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %y = nn.reduce_sum(%e, %a) {keepdims = false} : (v_tensor<[?, ?], f32>, v_tensor<[1], i64>) -> v_tensor<[?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?], f32>) -> ())");
  Program optimized = Optimized(program);
  const EveryWay ways(optimized, {.threads = 2});
  const auto has_rows = [](const CompiledFunctionInfo& f) { return f.strategy == "rows"; };
  EXPECT_TRUE(std::ranges::any_of(ways.made().functions(), has_rows));
  Program original = program.Clone();
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"a", "The", "Ab"}, Words{}, Words{"the", "THE"}, Words{"b"},
                             Words{"", "the", "\xC3\xA9\xFF"}, Words(70, "Ba")}) {
    const NamedValues inputs{{"x", testing::Vec(words)}};
    const NamedValues wanted = Interpreter(original).Run(inputs), got = ways.Run(inputs);
    EXPECT_TRUE(AllClose(got[0].second, wanted[0].second, 1e-5, 1e-6)) << words.size();
  }
}

TEST_F(ComputedSizesTest, InTurns) {
  Check(R"(
    %n = nn.reshape(%k, %e0) : (v_tensor<[1], i64>, v_tensor<[0], i64>) -> v_tensor<[], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %two = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
    %others = nn.not(%m) : (v_tensor<[N], bool>) -> v_tensor<[N], bool>
    %t = cf.while(%n, %go, %zero) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %sum: v_tensor<[], f32>):
      %rest = nn.mod(%i, %two) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], i64>
      %odd = nn.equal(%rest, %one) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
      %a, %b = cf.if(%odd) ({
        %p = nn.compress(%x, %m) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?, 3], f32>
        %q = nn.compress(%x, %others) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?, 3], f32>
        cf.yield(%p, %q) : (v_tensor<[?, 3], f32>, v_tensor<[?, 3], f32>) -> ()
      }, {
        %p = nn.concat(%x, %x) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N, 3], f32>) -> v_tensor<[2 * N, 3], f32>
        %o = nn.compress(%x, %m) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?, 3], f32>
        %q = nn.concat(%o, %x) {axis = 0} : (v_tensor<[?, 3], f32>, v_tensor<[N, 3], f32>) -> v_tensor<[?, 3], f32>
        cf.yield(%p, %q) : (v_tensor<[2 * N, 3], f32>, v_tensor<[?, 3], f32>) -> ()
      }) : (v_tensor<[], bool>) -> (v_tensor<[?, 3], f32>, v_tensor<[?, 3], f32>)
      %t = nn.transpose(%b) {perm = [1, 0]} : (v_tensor<[?, 3], f32>) -> v_tensor<[3, ?], f32>
      %ab = nn.matmul(%a, %t) : (v_tensor<[?, 3], f32>, v_tensor<[3, ?], f32>) -> v_tensor<[?, ?], f32>
      %e = nn.sigmoid(%ab) : (v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
      %all = nn.reduce_sum(%e) {keepdims = false} : (v_tensor<[?, ?], f32>) -> v_tensor<[], f32>
      %next = nn.add(%sum, %all) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], f32>
      cf.yield(%c, %next) : (v_tensor<[], bool>, v_tensor<[], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[], f32>) -> v_tensor<[], f32>
    nn.fetch(%t) {name = "t"} : (v_tensor<[], f32>) -> ())");
}

TEST_F(ComputedSizesTest, ManyThreadsRunOne) {
  Program program = Optimized(Of(kReshaped));
  const Executable executable(program, {.threads = 2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      const NamedValues inputs = InputsOf(5 + t, static_cast<uint64_t>(t));
      const NamedValues wanted = executable.Run(inputs);
      for (int i = 0; i < 50; ++i) EXPECT_EQ(executable.Run(inputs), wanted);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Whoever gives memory is asked for it when it is known how much.
TEST_F(ComputedSizesTest, MemoryIsAskedFor) {
  Program program = Optimized(Of(kReshaped));
  const Executable executable(program, {.threads = 1});
  const NamedValues inputs = InputsOf(4, 3);
  std::vector<runtime::InputView> views;
  for (const auto& [name, value] : inputs) {
    views.push_back({value.tensor().element_type(), value.tensor().raw(), value.tensor().shape()});
  }
  const runtime::Executor& executor = *executable.executor();
  EXPECT_EQ(OutcomeOf([&] { (void)executor.OutputShapes(views); }).substr(0, 16),
            "run/output-shape");
  Tensor y;
  executor.RunInto(views, [&](size_t, std::span<const int64_t> shape, uint64_t) {
    y = Tensor(ElementType::kF32, Shape(shape.begin(), shape.end()));
    return runtime::OutputView{y.mutable_raw(), y.byte_size()};
  });
  EXPECT_EQ(RtValue(y), executable.Run(inputs)[0].second);
}

}  // namespace
}  // namespace lathe
