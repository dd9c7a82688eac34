// What sizes that depend on the elements of inputs contradict is an error, with a plan and without.

#include <array>

#include "test/unit/driver/computed_sizes.h"

namespace lathe {
namespace {

// Without a plan the interpreter calls the code, which takes sizes as they are.
TEST_F(ComputedSizesTest, SizesOfObjectsThatContradictAreErrors) {
  const Program program = Parse(R"(
    %u = nn.feed() {name = "u"} : () -> v_tensor<*, f32>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 3], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[2], f32>
    %r = nn.resize(%x, none, %s) {mode = "cubic"} : (v_tensor<[1, 3], f32>, none, v_tensor<[2], f32>) -> v_tensor<[?, ?], f32>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[1, 6], f32>
    %y = nn.min(%r, %b) : (v_tensor<[?, ?], f32>, v_tensor<[1, 6], f32>) -> v_tensor<[?, 6], f32>
    nn.fetch(%u) {name = "u"} : (v_tensor<*, f32>) -> ()
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, 6], f32>) -> ())");
  const Executable executable(program, {.threads = 1});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  const auto outcome = [&](float rows, float columns) {
    const NamedValues inputs = {{"u", Tensor::Scalar(1.0f)},
                                {"x", RandomTensor(ElementType::kF32, {1, 3}, 3)},
                                {"s", Tensor::Of<float>({2}, {rows, columns})},
                                {"b", RandomTensor(ElementType::kF32, {1, 6}, 4)}};
    return OutcomeOf([&] { (void)executable.Run(inputs); }).substr(0, 15);
  };
  EXPECT_EQ(outcome(1, 2), "no error");
  EXPECT_EQ(outcome(4, 2), "no error");
  EXPECT_EQ(outcome(1, 0.5), "no error");
  EXPECT_EQ(outcome(1, 1), "shape/broadcast");
  EXPECT_EQ(outcome(1, 4), "shape/broadcast");
}

// Sizes that are those of the run before are placed as there, unless that run has failed over them.
TEST_F(ComputedSizesTest, SizesOfRunsThatFailed) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, N], f32>
    %a = nn.feed() {name = "a"} : () -> v_tensor<[2], i64>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[2], i64>
    %t = nn.tile(%x, %a) : (v_tensor<[2, N], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    %u = nn.tile(%x, %b) : (v_tensor<[2, N], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    %e = nn.exp(%t) : (v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
    %y = nn.add(%e, %u) : (v_tensor<[?, ?], f32>, v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ())");
  const Executable executable(program, {.threads = 1});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  const auto check = [&](int64_t n, std::array<int64_t, 2> a, std::array<int64_t, 2> b, bool fits) {
    SCOPED_TRACE(StrCat(n, ": ", a[0], ", ", a[1], "; ", b[0], ", ", b[1]));
    const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {2, n}, 3)},
                                {"a", Tensor::Of<int64_t>({2}, {a[0], a[1]})},
                                {"b", Tensor::Of<int64_t>({2}, {b[0], b[1]})}};
    if (!fits) {
      EXPECT_EQ(OutcomeOf([&] { (void)executable.Run(inputs); }).substr(0, 15), "shape/broadcast");
      return;
    }
    const NamedValues wanted = Interpreter(program).Run(inputs);
    EXPECT_TRUE(AllClose(executable.Run(inputs)[0].second, wanted[0].second, 1e-5, 1e-6));
  };
  const std::array<int64_t, 2> same{2, 1}, more{3, 1}, wide{2, 3}, none{0, 2};
  check(5, same, same, true);
  check(5, same, more, false);
  check(5, same, more, false);
  check(5, same, same, true);
  check(5, wide, same, false);
  check(5, wide, wide, true);
  check(4, wide, wide, true);
  check(5, wide, wide, true);
  check(5, none, none, true);
  check(5, more, none, false);
  check(5, more, more, true);
  check(0, more, more, true);
}

// What an operation says beside objects binds sizes that constraints wait for: code of a slice that
// is expanded would read rows that there are not.
TEST_F(ComputedSizesTest, RowsOfObjectsThatContradictAreErrors) {
  const Program program = Parse(R"(
    %u = nn.feed() {name = "u"} : () -> v_tensor<*, f32>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, ?, 4], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[1, 1, ?], f32>
    %most = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
    %over = builtin.constant() {value = tensor<[], f32> [0.5]} : () -> v_tensor<[], f32>
    %b = nn.non_max_suppression(%x, %s, %most, %over) {center_point_box = true} : (v_tensor<[1, ?, 4], f32>, v_tensor<[1, 1, ?], f32>, v_tensor<[], i64>, v_tensor<[], f32>) -> v_tensor<[?, 3], i64>
    %three = builtin.constant() {value = tensor<[1], i64> [3]} : () -> v_tensor<[1], i64>
    %k = nn.feed() {name = "k"} : () -> v_tensor<[1], i64>
    %to = nn.concat(%three, %k) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[2], i64>
    %y = nn.expand(%b, %to) : (v_tensor<[?, 3], i64>, v_tensor<[2], i64>) -> v_tensor<[3, 3], i64>
    nn.fetch(%u) {name = "u"} : (v_tensor<*, f32>) -> ()
    nn.fetch(%y) {name = "y"} : (v_tensor<[3, 3], i64>) -> ())");
  const Executable executable(program, {.threads = 1});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  const auto outcome = [&](int64_t boxes) {
    Tensor x(ElementType::kF32, {1, boxes, 4});
    for (size_t i = 0; i < x.mutable_data<float>().size(); ++i) {
      x.mutable_data<float>()[i] = i % 4 < 2 ? static_cast<float>(10 * (i / 4)) : 1.0f;
    }
    const NamedValues inputs = {{"u", Tensor::Scalar(1.0f)},
                                {"x", std::move(x)},
                                {"s", RandomTensor(ElementType::kF32, {1, 1, boxes}, 4)},
                                {"k", Tensor::Of<int64_t>({1}, {3})}};
    return OutcomeOf([&] { (void)executable.Run(inputs); }).substr(0, 15);
  };
  EXPECT_EQ(outcome(0), "shape/broadcast");
  EXPECT_EQ(outcome(1), "no error");
  EXPECT_EQ(outcome(2), "shape/broadcast");
  EXPECT_EQ(outcome(3), "no error");
  EXPECT_EQ(outcome(0), "shape/broadcast");
}

// An extent of an argument that is made of symbols tells them.
TEST_F(ComputedSizesTest, SumsBesideObjectsThatContradictAreErrors) {
  const Program program = Parse(R"(
    %u = nn.feed() {name = "u"} : () -> v_tensor<*, f32>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, ?], f32>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[1, ?], f32>
    %z = nn.concat(%x, %x, %x) {axis = 1} : (v_tensor<[1, ?], f32>, v_tensor<[1, ?], f32>, v_tensor<[1, ?], f32>) -> v_tensor<[1, ?], f32>
    %n = builtin.constant() {value = tensor<[], i64> [1]} : () -> v_tensor<[], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %y = cf.while(%n, %go, %z) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %a: v_tensor<[1, ?], f32>):
      %r = nn.add(%a, %b) : (v_tensor<[1, ?], f32>, v_tensor<[1, ?], f32>) -> v_tensor<[1, ?], f32>
      cf.yield(%c, %r) : (v_tensor<[], bool>, v_tensor<[1, ?], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[1, ?], f32>) -> v_tensor<[1, ?], f32>
    nn.fetch(%u) {name = "u"} : (v_tensor<*, f32>) -> ()
    nn.fetch(%y) {name = "y"} : (v_tensor<[1, ?], f32>) -> ())");
  const Executable executable(program, {.threads = 1});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  const auto outcome = [&](int64_t x, int64_t b) {
    const NamedValues inputs = {{"u", Tensor::Scalar(1.0f)},
                                {"x", RandomTensor(ElementType::kF32, {1, x}, 3)},
                                {"b", RandomTensor(ElementType::kF32, {1, b}, 4)}};
    return OutcomeOf([&] { (void)executable.Run(inputs); }).substr(0, 15);
  };
  EXPECT_EQ(outcome(2, 6), "no error");
  EXPECT_EQ(outcome(2, 1), "no error");
  EXPECT_EQ(outcome(2, 12), "shape/broadcast");
}

TEST_F(ComputedSizesTest, WhatIsLeftOfNothingMustDivide) {
  const Program program = Optimized(Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, N, 0, 1], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[4], i64>
    %y = nn.reshape(%x, %s) : (v_tensor<[1, N, 0, 1], f32>, v_tensor<[4], i64>) -> v_tensor<[?, ?, ?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?, ?, ?], f32>) -> ())"));
  const EveryWay ways(program, {.threads = 1});
  const auto outcome = [&](int64_t n, int64_t rows) {
    const NamedValues inputs = {{"x", Tensor(ElementType::kF32, {1, n, 0, 1})},
                                {"s", Tensor::Of<int64_t>({4}, {1, rows, 0, -1})}};
    return OutcomeOf([&] { (void)ways.Run(inputs); });
  };
  EXPECT_EQ(outcome(8, 4), "no error");
  EXPECT_NE(outcome(1, 4), "no error");
}

// What passes compute while compiling says sizes that types did not.
TEST_F(ComputedSizesTest, FoldedSizesAreReliedOn) {
  const Program program = Parse(R"(
    %w = builtin.constant() {value = tensor<[4], i64> [1, 2, 3, 3]} : () -> v_tensor<[4], i64>
    %u, %i, %v, %c = nn.unique(%w) {sorted = true} : (v_tensor<[4], i64>) -> (v_tensor<[?], i64>, v_tensor<[?], i64>, v_tensor<[4], i64>, v_tensor<[?], i64>)
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N], i64>
    %y = nn.max(%u, %x) : (v_tensor<[?], i64>, v_tensor<[N], i64>) -> v_tensor<[?], i64>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?], i64>) -> ())");
  const Executable executable(program, {.threads = 1});
  const auto outcome = [&](int64_t n) {
    const NamedValues inputs = {{"x", RandomTensor(ElementType::kI64, {n}, 3)}};
    return OutcomeOf([&] { (void)executable.Run(inputs); }).substr(0, 15);
  };
  EXPECT_EQ(outcome(3), "no error");
  EXPECT_EQ(outcome(1), "no error");
  EXPECT_EQ(outcome(2), "shape/broadcast");
}

// Of the result only the extents are read, which are known.
TEST_F(ComputedSizesTest, AnExpandThatNobodyReadsIsCheckedStill) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[1], i64>
    %y = nn.expand(%x, %s) : (v_tensor<[1, 2], f32>, v_tensor<[1], i64>) -> v_tensor<[1, 2], f32>
    %n = nn.size(%y) : (v_tensor<[1, 2], f32>) -> v_tensor<[], i64>
    nn.fetch(%n) {name = "n"} : (v_tensor<[], i64>) -> ())");
  const Executable executable(program, {.threads = 1});
  const auto outcome = [&](int64_t n) {
    const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {1, 2}, 3)},
                                {"s", Tensor::Of<int64_t>({1}, {n})}};
    return OutcomeOf([&] { (void)executable.Run(inputs); }).substr(0, 15);
  };
  EXPECT_EQ(outcome(2), "no error");
  EXPECT_EQ(outcome(1), "no error");
  EXPECT_EQ(outcome(3), "shape/broadcast");
}

// Pieces whose lengths are data: all of them together need not be what was split.
TEST_F(ComputedSizesTest, PiecesThatGoTogetherAgainMustBeTheWhole) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 2], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[1], i64>
    %t = nn.feed() {name = "t"} : () -> v_tensor<[2], i64>
    %one = nn.split(%x, %s) {axis = 0} : (v_tensor<[N, 2], f32>, v_tensor<[1], i64>) -> v_tensor<[?, 2], f32>
    %a, %b = nn.split(%x, %t) {axis = 0} : (v_tensor<[N, 2], f32>, v_tensor<[2], i64>) -> (v_tensor<[?, 2], f32>, v_tensor<[?, 2], f32>)
    %c = nn.concat(%a, %b) {axis = 0} : (v_tensor<[?, 2], f32>, v_tensor<[?, 2], f32>) -> v_tensor<[?, 2], f32>
    nn.fetch(%one) {name = "one"} : (v_tensor<[?, 2], f32>) -> ()
    nn.fetch(%c) {name = "c"} : (v_tensor<[?, 2], f32>) -> ())");
  const Executable executable(program, {.threads = 1});
  const auto outcome = [&](int64_t one, int64_t first, int64_t second) {
    const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {3, 2}, 3)},
                                {"s", Tensor::Of<int64_t>({1}, {one})},
                                {"t", Tensor::Of<int64_t>({2}, {first, second})}};
    return OutcomeOf([&] { (void)executable.Run(inputs); }).substr(0, 11);
  };
  EXPECT_EQ(outcome(3, 1, 2), "no error");
  EXPECT_EQ(outcome(3, 3, 0), "no error");
  EXPECT_EQ(outcome(2, 1, 2), "shape/split");
  EXPECT_EQ(outcome(3, 1, 1), "shape/split");
  EXPECT_EQ(outcome(3, 2, 2), "shape/split");
}

// The second round's rows are not as many as x has.
TEST_F(ComputedSizesTest, ALoopReliesOnWhatAnIfGives) {
  Program program = Optimized(Of(R"(
    %n = nn.reshape(%k, %e0) : (v_tensor<[1], i64>, v_tensor<[0], i64>) -> v_tensor<[], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %t = cf.while(%n, %go, %zero) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %sum: v_tensor<[], f32>):
      %later = nn.equal(%i, %one) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
      %a = cf.if(%later) ({
        %p = nn.compress(%x, %m) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?, 3], f32>
        cf.yield(%p) : (v_tensor<[?, 3], f32>) -> ()
      }, {
        %p = nn.exp(%x) : (v_tensor<[N, 3], f32>) -> v_tensor<[N, 3], f32>
        cf.yield(%p) : (v_tensor<[N, 3], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[?, 3], f32>
      %e = nn.add(%a, %x) : (v_tensor<[?, 3], f32>, v_tensor<[N, 3], f32>) -> v_tensor<[?, 3], f32>
      %all = nn.reduce_sum(%e) {keepdims = false} : (v_tensor<[?, 3], f32>) -> v_tensor<[], f32>
      %next = nn.add(%sum, %all) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], f32>
      cf.yield(%c, %next) : (v_tensor<[], bool>, v_tensor<[], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[], f32>) -> v_tensor<[], f32>
    nn.fetch(%t) {name = "t"} : (v_tensor<[], f32>) -> ())"));
  const EveryWay ways(program, {.threads = 1});
  ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
  for (const auto& [name, way] : ways.all()) {
    SCOPED_TRACE(name);
    const auto outcome = [&](int64_t rounds) {
      NamedValues inputs = InputsOf(12, 3);
      inputs[2].second = Tensor::Of<int64_t>({1}, {rounds});
      return OutcomeOf([&] { (void)way.Run(inputs); }).substr(0, 15);
    };
    EXPECT_EQ(outcome(1), "no error");
    EXPECT_EQ(outcome(2), "shape/broadcast");
    EXPECT_EQ(outcome(1), "no error");
  }
}

// What only the sizes of an iteration contradict, where a rank that the run decides leaves no plan.
TEST_F(ComputedSizesTest, IterationsSayTheirSizesBesideObjects) {
  const Program program = Of(R"(
    %two = builtin.constant() {value = tensor<[1], i64> [2]} : () -> v_tensor<[1], i64>
    %line = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>
    %go = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %open = nn.compress(%x, %m) {axis = 0} : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?, 3], f32>
    %ranked = nn.squeeze(%open) : (v_tensor<[?, 3], f32>) -> v_tensor<*, f32>
    %rounds = nn.gather(%k, %none) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[], i64>) -> v_tensor<[], i64>
    %begin = nn.constant_of_shape(%two) {value = tensor<[1], f32> [0.5]} : (v_tensor<[1], i64>) -> v_tensor<[2], f32>
    %end, %sum = cf.while(%rounds, %go, %begin, %zero) ({
    ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %v: v_tensor<[?], f32>, %t: v_tensor<[], f32>):
      %l = nn.reshape(%v, %s) {allowzero = true} : (v_tensor<[?], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
      %r = nn.reshape(%l, %line) {allowzero = false} : (v_tensor<[?, ?], f32>, v_tensor<[1], i64>) -> v_tensor<[?], f32>
      %e = nn.exp(%r) : (v_tensor<[?], f32>) -> v_tensor<[?], f32>
      %all = nn.reduce_sum(%e) {keepdims = false} : (v_tensor<[?], f32>) -> v_tensor<[], f32>
      %next = nn.add(%t, %all) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], f32>
      %longer = nn.concat(%v, %v) {axis = 0} : (v_tensor<[?], f32>, v_tensor<[?], f32>) -> v_tensor<[?], f32>
      cf.yield(%c, %longer, %next) : (v_tensor<[], bool>, v_tensor<[?], f32>, v_tensor<[], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[2], f32>, v_tensor<[], f32>) -> (v_tensor<[?], f32>, v_tensor<[], f32>)
    nn.fetch(%ranked) {name = "ranked"} : (v_tensor<*, f32>) -> ()
    nn.fetch(%sum) {name = "sum"} : (v_tensor<[], f32>) -> ())");
  const Executable executable(program, {.threads = 1});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  Program original = program.Clone();
  for (const int64_t rounds : {1, 2, 0, 1}) {
    SCOPED_TRACE(rounds);
    NamedValues inputs = InputsOf(4, 3);
    inputs[2].second = Tensor::Of<int64_t>({1}, {rounds});
    inputs[3].second = Tensor::Of<int64_t>({2}, {2, 1});
    const auto outcome = [&](auto&& run) { return OutcomeOf(run).substr(0, 13); };
    const std::string wanted = outcome([&] { (void)Interpreter(original).Run(inputs); });
    EXPECT_EQ(wanted, rounds == 2 ? "shape/reshape" : "no error");
    EXPECT_EQ(outcome([&] { (void)executable.Run(inputs); }), wanted);
  }
}

TEST_F(ComputedSizesTest, SizesThatContradictAreErrors) {
  for (const bool optimized : {false, true}) {
    const Program program = Of(kReshaped);
    const EveryWay ways(optimized ? Optimized(program) : program.Clone(), {.threads = 1});
    for (const auto& [name, way] : ways.all()) {
      SCOPED_TRACE(name);
      const auto outcome = [&](int64_t rows, int64_t columns) {
        NamedValues inputs = InputsOf(4, 3);
        inputs[3].second = Tensor::Of<int64_t>({2}, {rows, columns});
        return OutcomeOf([&] { (void)way.Run(inputs); });
      };
      EXPECT_EQ(outcome(2, 6), "no error");
      EXPECT_EQ(outcome(5, 3).substr(0, 13), "shape/reshape");
      EXPECT_EQ(outcome(2, 3).substr(0, 13), "shape/reshape");
      EXPECT_EQ(outcome(-4, -3).substr(0, 8), "run/size");
      EXPECT_EQ(outcome(int64_t{1} << 62, 8).substr(0, 6), "shape/");
      EXPECT_EQ(outcome(4, 3), "no error");  // and the next run is right again
    }
  }
}

struct InnerReshape {
  std::string_view line;  ///< makes %l
  std::string_view type;  ///< of %l
};

// What one reshape refuses is refused where another one takes whatever it gives.
TEST_F(ComputedSizesTest, ReshapesThatContradictBeforeOthers) {
  const InnerReshape reshapes[] = {
      {R"(%l = nn.reshape(%c, %s) {allowzero = true} : (v_tensor<[?], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>)",
       "v_tensor<[?, ?], f32>"},
      {R"(%l = nn.reshape(%c, %pairs) {allowzero = false} : (v_tensor<[?], f32>, v_tensor<[2], i64>) -> v_tensor<[?, 2], f32>)",
       "v_tensor<[?, 2], f32>"},
      {R"(%l = nn.squeeze(%p, %first) : (v_tensor<[?, ?], f32>, v_tensor<[1], i64>) -> v_tensor<[?], f32>)",
       "v_tensor<[?], f32>"},
  };
  for (const InnerReshape& inner : reshapes) {
    SCOPED_TRACE(inner.line);
    const Program program = Of(StrCat(R"(
    %far = builtin.constant() {value = tensor<[1], i64> [9]} : () -> v_tensor<[1], i64>
    %axis = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %line = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>
    %pairs = builtin.constant() {value = tensor<[2], i64> [-1, 2]} : () -> v_tensor<[2], i64>
    %c = nn.compress(%x, %m) : (v_tensor<[N, 3], f32>, v_tensor<[N], bool>) -> v_tensor<[?], f32>
    %q = nn.slice(%x, %k, %far) : (v_tensor<[N, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, 3], f32>
    %p = nn.slice(%q, %k, %far, %axis) : (v_tensor<[?, 3], f32>, v_tensor<[1], i64>, v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[?, ?], f32>
    )",
                                      inner.line, R"(
    %r = nn.reshape(%l, %line) : ()",
                                      inner.type, R"(, v_tensor<[1], i64>) -> v_tensor<[?], f32>
    %y = nn.exp(%r) : (v_tensor<[?], f32>) -> v_tensor<[?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?], f32>) -> ())"));
    const auto inputs = [](int64_t kept, int64_t from) {
      NamedValues values = InputsOf(3, 3);
      Tensor m(ElementType::kBool, {3});
      for (int64_t i = 0; i < kept; ++i) m.mutable_data<bool>()[static_cast<size_t>(i)] = true;
      values[1].second = std::move(m);
      values[2].second = Tensor::Of<int64_t>({1}, {from});
      values[3].second = Tensor::Of<int64_t>({2}, {2, 1});
      return values;
    };
    const EveryWay ways(program, {.threads = 1});
    EXPECT_EQ(OutcomeOf([&] { ways.Run(inputs(2, 2)); }), "no error");
    EXPECT_EQ(OutcomeOf([&] { ways.Run(inputs(3, 1)); }).substr(0, 6), "shape/");
    Program original = program.Clone();
    EXPECT_EQ(OutcomeOf([&] { Interpreter(original).Run(inputs(3, 1)); }).substr(0, 6), "shape/");
  }
}

// A batch that data make empty has rows as long as any other.
TEST_F(ComputedSizesTest, WhatIsLeftBesideAnEmptyBatch) {
  const std::string_view body = R"(
    %line = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>
    %twice = nn.add(%k, %k) : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[1], i64>
    %to = nn.concat(%twice, %line) {axis = 0} : (v_tensor<[1], i64>, v_tensor<[1], i64>) -> v_tensor<[2], i64>
    %l = nn.reshape(%x, %to) {allowzero = true} : (v_tensor<[N, 3], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    %y = nn.exp(%l) : (v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ())";
  const EveryWay ways(Of(body), {.threads = 1});
  const auto shape_of = [&](int64_t n) {
    NamedValues inputs = InputsOf(n, 3);
    return ways.Run(inputs)[0].second.tensor().shape();
  };
  EXPECT_EQ(shape_of(4), (Shape{4, 3}));
  EXPECT_EQ(shape_of(0), (Shape{0, 3}));
  EXPECT_EQ(shape_of(8), (Shape{8, 3}));
  EXPECT_NE(OutcomeOf([&] { (void)shape_of(1); }), "no error");  // none, though there are three
}

}  // namespace
}  // namespace lathe
