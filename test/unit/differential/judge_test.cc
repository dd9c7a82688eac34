// What random graphs excuse (docs/runtime.md, "Runs"), and next to it what they must not.

#include "test/differential/judge.h"

#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

constexpr std::string_view kFeeds = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N], f32>
  %z = nn.feed() {name = "z"} : () -> v_tensor<[M], f32>
  %i = nn.feed() {name = "i"} : () -> v_tensor<[2], i64>
  %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
)";

class JudgeTest : public ProgramTest {
 protected:
  Expectation Expect(std::string_view body, const NamedValues& changed = {}) {
    NamedValues inputs = {{"x", Vec<float>({1, 2, 3})},
                          {"z", Vec<float>({4, 5, 6})},
                          {"i", Vec<int64_t>({0, 9})},
                          {"c", Tensor::Scalar(true)}};
    for (auto& [name, value] : inputs) {
      if (const RtValue* other = Find(changed, name)) value = *other;
    }
    return ExpectOf(body, inputs);
  }

  Expectation ExpectOf(std::string_view body, const NamedValues& inputs) {
    program_ = Parse(StrCat(kFeeds, body));
    ShapeInferencer(&program_->parameters()).Visit(*program_);
    return Expectation(*program_, inputs, 1);
  }

  /// What is found where a compiled program runs; the interpreter ends with an error.
  std::string FoundIfItRuns(std::string_view body, const NamedValues& changed = {}) {
    const Expectation wanted = Expect(body, changed);
    EXPECT_TRUE(wanted.error().has_value());
    return Judge(wanted, {}).finding;
  }

  static std::string FoundIfItEnds(const Expectation& wanted, ErrorCode code,
                                   const std::string& id) {
    return Judge(wanted, {{}, Error(code, id, "")}).finding;
  }

  std::optional<Program> program_;
};

// ---- operations that nobody needs ----

TEST_F(JudgeTest, ElementsThatNoOutputHolds) {
  constexpr std::string_view kTaken =
      "%y = nn.gather(%x, %i) : (v_tensor<[N], f32>, "
      "v_tensor<[2], i64>) -> v_tensor<[2], f32>\n";
  constexpr std::string_view kSize =
      "%s = nn.shape(%y) : (v_tensor<[2], f32>) -> v_tensor<[1], i64>\n"
      "nn.fetch(%s) {name = \"s\"} : (v_tensor<[1], i64>) -> ()\n";
  constexpr std::string_view kFetch = "nn.fetch(%y) {name = \"y\"} : (v_tensor<[2], f32>) -> ()\n";
  EXPECT_EQ(FoundIfItRuns(StrCat(kTaken, kSize)), "");
  EXPECT_EQ(FoundIfItRuns(StrCat(kTaken, kFetch)), "accepted run/index");
  EXPECT_EQ(FoundIfItRuns(StrCat(kTaken, kSize, kFetch)), "accepted run/index");
}

TEST_F(JudgeTest, StringsThatAreNoNumbersInAListOfWhichTheLengthIsRead) {
  constexpr std::string_view kList = R"(
    %t = builtin.constant() {value = tensor<[1], string> ["s3s2"]} : () -> v_tensor<[1], string>
    %y = nn.cast(%t) {to = f32} : (v_tensor<[1], string>) -> v_tensor<[1], f32>
    %l = nn.sequence_construct(%y) : (v_tensor<[1], f32>) -> list<v_tensor<[1], f32>>
    %n = nn.sequence_length(%l) : (list<v_tensor<[1], f32>>) -> v_tensor<[], i64>
    nn.fetch(%n) {name = "n"} : (v_tensor<[], i64>) -> ()
  )";
  constexpr std::string_view kFetch = "nn.fetch(%y) {name = \"y\"} : (v_tensor<[1], f32>) -> ()\n";
  EXPECT_EQ(FoundIfItRuns(kList), "");
  EXPECT_EQ(FoundIfItRuns(StrCat(kList, kFetch)), "accepted parse/number");
}

TEST_F(JudgeTest, SizesAreCheckedOfWhatNobodyNeeds) {
  const NamedValues two = {{"z", Vec<float>({1, 2})}};
  EXPECT_EQ(FoundIfItRuns(R"(
    %a = nn.add(%x, %z) : (v_tensor<[N], f32>, v_tensor<[M], f32>) -> v_tensor<[broadcast(N, M)], f32>
    nn.fetch(%x) {name = "y"} : (v_tensor<[N], f32>) -> ()
  )",
                          two),
            "accepted shape/broadcast");
}

TEST_F(JudgeTest, SizesThatTypesDoNotTell) {
  const NamedValues two = {{"z", Vec<float>({1, 2})}};
  EXPECT_EQ(FoundIfItRuns(R"(
    %p = nn.non_zero(%x) : (v_tensor<[N], f32>) -> v_tensor<[1, ?], i64>
    %r = nn.transpose(%p) {perm = [1, 0]} : (v_tensor<[1, ?], i64>) -> v_tensor<[?, 1], i64>
    %k = nn.gather_nd(%x, %r) : (v_tensor<[N], f32>, v_tensor<[?, 1], i64>) -> v_tensor<[?], f32>
    %a = nn.add(%k, %z) : (v_tensor<[?], f32>, v_tensor<[M], f32>) -> v_tensor<[?], f32>
    nn.fetch(%x) {name = "y"} : (v_tensor<[N], f32>) -> ()
  )",
                          two),
            "");
}

// The interpreter refuses %k, or the list; who reads `at` of it may never see that.
std::string OfList(std::string_view list, int at) {
  return StrCat(R"(
    %p = nn.non_zero(%x) : (v_tensor<[N], f32>) -> v_tensor<[1, ?], i64>
    %r = nn.transpose(%p) {perm = [1, 0]} : (v_tensor<[1, ?], i64>) -> v_tensor<[?, 1], i64>
    %g = nn.gather_nd(%x, %r) : (v_tensor<[N], f32>, v_tensor<[?, 1], i64>) -> v_tensor<[?], f32>
    %k = nn.add(%g, %z) : (v_tensor<[?], f32>, v_tensor<[M], f32>) -> v_tensor<[?], f32>
    %first = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
    %at = builtin.constant() {value = tensor<[], i64> [)",
                at, R"(]} : () -> v_tensor<[], i64>
    )",
                list, R"(
    %y = nn.sequence_at(%l, %at) : (list<v_tensor<[?], f32>>, v_tensor<[], i64>) -> v_tensor<[?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?], f32>) -> ()
  )");
}

TEST_F(JudgeTest, ItemsOfListsThatNobodyTakes) {
  const NamedValues two = {{"z", Vec<float>({1, 2})}};
  constexpr std::string_view kMade = R"(
    %l = nn.sequence_construct(%k, %x) : (v_tensor<[?], f32>, v_tensor<[N], f32>) -> list<v_tensor<[?], f32>>
  )";
  EXPECT_EQ(FoundIfItRuns(OfList(kMade, 1), two), "");
  EXPECT_EQ(FoundIfItRuns(OfList(kMade, -1), two), "");
  EXPECT_EQ(FoundIfItRuns(OfList(kMade, 0), two), "accepted shape/broadcast");
  constexpr std::string_view kInserted = R"(
    %m = nn.sequence_construct(%x, %z) : (v_tensor<[N], f32>, v_tensor<[M], f32>) -> list<v_tensor<[?], f32>>
    %n = nn.sequence_erase(%m, %first) : (list<v_tensor<[?], f32>>, v_tensor<[], i64>) -> list<v_tensor<[?], f32>>
    %l = nn.sequence_insert(%n, %k) : (list<v_tensor<[?], f32>>, v_tensor<[?], f32>) -> list<v_tensor<[?], f32>>
  )";
  EXPECT_EQ(FoundIfItRuns(OfList(kInserted, 0), two), "");
  EXPECT_EQ(FoundIfItRuns(OfList(kInserted, -1), two), "accepted shape/broadcast");
}

TEST_F(JudgeTest, ListThatIsReadAtNoPlaceOfIt) {
  constexpr std::string_view kMade = R"(
    %l = nn.sequence_construct(%x, %x) : (v_tensor<[N], f32>, v_tensor<[N], f32>) -> list<v_tensor<[?], f32>>
  )";
  EXPECT_EQ(FoundIfItRuns(OfList(kMade, 2)), "accepted run/index");
}

// ---- regions ----

constexpr std::string_view kBranches = R"(
  %y, %n = cf.if(%c) ({
    %g = nn.gather(%x, %i) : (v_tensor<[N], f32>, v_tensor<[2], i64>) -> v_tensor<[2], f32>
    %a = nn.neg(%i) : (v_tensor<[2], i64>) -> v_tensor<[2], i64>
    cf.yield(%g, %a) : (v_tensor<[2], f32>, v_tensor<[2], i64>) -> ()
  }, {
    %o = builtin.constant() {value = tensor<[2], f32> [1.0, 2.0]} : () -> v_tensor<[2], f32>
    cf.yield(%o, %i) : (v_tensor<[2], f32>, v_tensor<[2], i64>) -> ()
  }) : (v_tensor<[], bool>) -> (v_tensor<[2], f32>, v_tensor<[2], i64>)
)";

TEST_F(JudgeTest, ResultOfABranchThatNobodyReads) {
  EXPECT_EQ(FoundIfItRuns(StrCat(kBranches, R"(
    nn.fetch(%n) {name = "n"} : (v_tensor<[2], i64>) -> ()
  )")),
            "");
  EXPECT_EQ(FoundIfItRuns(StrCat(kBranches, R"(
    nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ()
  )")),
            "accepted run/index");
}

TEST_F(JudgeTest, BranchThatSizesDecideAndThatWasTaken) {
  constexpr std::string_view kBySize = R"(
    %s = nn.size(%x) : (v_tensor<[N], f32>) -> v_tensor<[], i64>
    %three = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
    %d = nn.equal(%s, %three) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
  )";
  constexpr std::string_view kInside = R"(
    %y = cf.if(%d) ({
      %g = nn.gather(%x, %i) : (v_tensor<[N], f32>, v_tensor<[2], i64>) -> v_tensor<[2], f32>
      cf.yield(%g) : (v_tensor<[2], f32>) -> ()
    }, {
      %o = builtin.constant() {value = tensor<[2], f32> [1.0, 2.0]} : () -> v_tensor<[2], f32>
      cf.yield(%o) : (v_tensor<[2], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ()
  )";
  EXPECT_EQ(FoundIfItRuns(StrCat(kBySize, kInside)), "accepted run/index");
}

// The first result is computed of what the body gathers, the second is not.
constexpr std::string_view kLoop = R"(
  %t = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
  %y, %n = cf.while(%t, none, %x, %z) ({
  ^(%k: v_tensor<[], i64>, %on: v_tensor<[], bool>, %p: v_tensor<[?], f32>, %q: v_tensor<[M], f32>):
    %g = nn.gather(%p, %i) : (v_tensor<[?], f32>, v_tensor<[2], i64>) -> v_tensor<[2], f32>
    %m = nn.neg(%q) : (v_tensor<[M], f32>) -> v_tensor<[M], f32>
    cf.yield(%on, %g, %m) : (v_tensor<[], bool>, v_tensor<[2], f32>, v_tensor<[M], f32>) -> ()
  }) : (v_tensor<[], i64>, none, v_tensor<[N], f32>, v_tensor<[M], f32>) -> (v_tensor<[?], f32>, v_tensor<[M], f32>)
)";

TEST_F(JudgeTest, CarriedValueThatNobodyReads) {
  EXPECT_EQ(FoundIfItRuns(StrCat(kLoop, R"(
    nn.fetch(%n) {name = "n"} : (v_tensor<[M], f32>) -> ()
  )")),
            "");
  EXPECT_EQ(FoundIfItRuns(StrCat(kLoop, R"(
    nn.fetch(%y) {name = "y"} : (v_tensor<[?], f32>) -> ()
  )")),
            "accepted run/index");
}

TEST_F(JudgeTest, SlicesThatNoRoundReads) {
  const auto scan = [](std::string_view read) {
    return StrCat(R"(
      %y = cf.scan(%x, %z) {num_scan_inputs = 2} ({
      ^(%a: v_tensor<[], f32>, %b: v_tensor<[], f32>):
        %n = nn.add(%a, %)",
                  read, R"() : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], f32>
        cf.yield(%n) : (v_tensor<[], f32>) -> ()
      }) : (v_tensor<[N], f32>, v_tensor<[M], f32>) -> v_tensor<[N], f32>
      nn.fetch(%y) {name = "y"} : (v_tensor<[N], f32>) -> ()
    )");
  };
  const NamedValues two = {{"z", Vec<float>({1, 2})}};
  EXPECT_EQ(FoundIfItRuns(scan("a"), two), "");
  EXPECT_EQ(FoundIfItRuns(scan("b"), two), "accepted shape/scan-length");
}

TEST_F(JudgeTest, SliceWithMoreNumbersThanItReads) {
  constexpr std::string_view kSlice = R"(
      %from = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>
      %s = nn.slice(%x, %from, %ends) : (v_tensor<[N], f32>, v_tensor<[1], i64>, v_tensor<[E], i64>) -> v_tensor<[?], f32>
  )";
  constexpr std::string_view kEnds =
      "%ends = nn.feed() {name = \"ends\"} : () -> v_tensor<[E], i64>\n";
  const auto found = [&](const std::string& body) {
    const NamedValues inputs = {{"x", Vec<float>({1, 2, 3})},
                                {"z", Vec<float>({4, 5, 6})},
                                {"i", Vec<int64_t>({0, 9})},
                                {"c", Tensor::Scalar(true)},
                                {"ends", Vec<int64_t>({2, 3, 4})}};
    return Judge(ExpectOf(StrCat(kEnds, body), inputs), {}).finding;
  };
  EXPECT_EQ(found(StrCat(R"(%y = cf.if(%c) ({)", kSlice, R"(
      cf.yield(%s) : (v_tensor<[?], f32>) -> ()
    }, {
      cf.yield(%z) : (v_tensor<[M], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?], f32>) -> ()
  )")),
            "");
  EXPECT_EQ(found(StrCat(kSlice, R"(
    nn.fetch(%s) {name = "y"} : (v_tensor<[?], f32>) -> ()
  )")),
            "accepted shape/slice");
}

// ---- numbers that say again what is known ----

TEST_F(JudgeTest, ExpandOfExtentsThatAreNotOne) {
  const NamedValues wrong = {{"i", Vec<int64_t>({2, 9})}};
  constexpr std::string_view kConstant = R"(
    %k = builtin.constant() {value = tensor<[1, 2], f32> [1.0, 2.0]} : () -> v_tensor<[1, 2], f32>
    %y = nn.expand(%k, %i) : (v_tensor<[1, 2], f32>, v_tensor<[2], i64>) -> v_tensor<[?, 2], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, 2], f32>) -> ()
  )";
  EXPECT_EQ(FoundIfItRuns(kConstant, wrong), "accepted shape/broadcast");
  constexpr std::string_view kOpen = R"(
    %y = nn.expand(%x, %i) : (v_tensor<[N], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ()
  )";
  EXPECT_EQ(FoundIfItRuns(kOpen, wrong), "accepted shape/broadcast");
}

TEST_F(JudgeTest, ShapeThatTheNextReshapeReplaces) {
  constexpr std::string_view kReshape =
      "%r = nn.reshape(%x, %i) : (v_tensor<[N], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], "
      "f32>\n";
  constexpr std::string_view kAgain = R"(
    %k = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>
    %y = nn.reshape(%r, %k) : (v_tensor<[?, ?], f32>, v_tensor<[1], i64>) -> v_tensor<[?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?], f32>) -> ()
  )";
  constexpr std::string_view kFetch = R"(
    nn.fetch(%r) {name = "r"} : (v_tensor<[?, ?], f32>) -> ()
  )";
  EXPECT_EQ(FoundIfItRuns(StrCat(kReshape, kAgain)), "accepted shape/reshape");
  EXPECT_EQ(FoundIfItRuns(StrCat(kReshape, kFetch)), "accepted shape/reshape");
  EXPECT_EQ(FoundIfItRuns(StrCat(kReshape, kAgain, kFetch)), "accepted shape/reshape");
}

// ---- refusals ----

constexpr std::string_view kComputedShape = R"(
  %y = nn.reshape(%x, %i) : (v_tensor<[N], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ()
)";

TEST_F(JudgeTest, ZeroInAComputedShape) {
  const Expectation zero = Expect(kComputedShape, {{"i", Vec<int64_t>({0, 1})}});
  EXPECT_EQ(FoundIfItEnds(zero, ErrorCode::kShape, "shape/reshape-zero"), "");
  EXPECT_EQ(FoundIfItEnds(zero, ErrorCode::kShape, "shape/reshape-infer"), "");
  EXPECT_EQ(FoundIfItEnds(zero, ErrorCode::kShape, "shape/reshape"), "error shape/reshape");
  const Expectation none = Expect(kComputedShape, {{"i", Vec<int64_t>({-1, 1})}});
  EXPECT_EQ(FoundIfItEnds(none, ErrorCode::kShape, "shape/reshape-infer"),
            "error shape/reshape-infer");
}

TEST_F(JudgeTest, OurBugsAreNeverExcused) {
  const Expectation refused = Expect(kComputedShape, {{"i", Vec<int64_t>({2, 9})}});
  ASSERT_TRUE(refused.error().has_value());
  EXPECT_EQ(FoundIfItEnds(refused, ErrorCode::kInternal, "internal/check"), "error internal/check");
  EXPECT_EQ(FoundIfItEnds(refused, ErrorCode::kShape, "shape/reshape"), "");
}

// ---- numbers ----

TEST_F(JudgeTest, AnOverflowHidesWhatIsComputedOfItAlone) {
  constexpr std::string_view kTwo = R"(
    %big = builtin.constant() {value = tensor<[], f32> [1e30]} : () -> v_tensor<[], f32>
    %a = nn.mul(%x, %big) : (v_tensor<[N], f32>, v_tensor<[], f32>) -> v_tensor<[N], f32>
    %b = nn.mul(%a, %big) : (v_tensor<[N], f32>, v_tensor<[], f32>) -> v_tensor<[N], f32>
    %y = nn.relu(%b) : (v_tensor<[N], f32>) -> v_tensor<[N], f32>
    %w = nn.neg(%z) : (v_tensor<[M], f32>) -> v_tensor<[M], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N], f32>) -> ()
    nn.fetch(%w) {name = "w"} : (v_tensor<[M], f32>) -> ()
  )";
  const Expectation wanted = Expect(kTwo);
  EXPECT_FALSE(wanted.comparable());
  const RtValue right = Vec<float>({-4, -5, -6}), wrong = Vec<float>({-4, -5, 6});
  const RtValue any = Vec<float>({0, 0, 0});
  EXPECT_EQ(Judge(wanted, {{{"y", any}, {"w", right}}, {}}).finding, "");
  EXPECT_EQ(Judge(wanted, {{{"y", any}, {"w", wrong}}, {}}).finding, "differs");
  EXPECT_EQ(Judge(wanted, {{{"y", Vec<float>({0})}, {"w", right}}, {}}).finding, "differs");
}

TEST_F(JudgeTest, RowsThatNothingTellsHideWhatIsMadeOfThemAlone) {
  constexpr std::string_view kRows = R"(
    %t = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
    %last, %rows = cf.while(%t, none, %x) ({
    ^(%k: v_tensor<[], i64>, %on: v_tensor<[], bool>, %p: v_tensor<[N], f32>):
      %s = nn.non_zero(%p) : (v_tensor<[N], f32>) -> v_tensor<[1, ?], i64>
      cf.yield(%on, %p, %s) : (v_tensor<[], bool>, v_tensor<[N], f32>, v_tensor<[1, ?], i64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N], f32>) -> (v_tensor<[N], f32>, v_tensor<[?, 1, ?], i64>)
    %w = nn.neg(%z) : (v_tensor<[M], f32>) -> v_tensor<[M], f32>
    nn.fetch(%rows) {name = "rows"} : (v_tensor<[?, 1, ?], i64>) -> ()
    nn.fetch(%w) {name = "w"} : (v_tensor<[M], f32>) -> ()
  )";
  const Expectation wanted = Expect(kRows);
  ASSERT_TRUE(wanted.vague());
  const RtValue rows = Tensor(ElementType::kI64, {0, 1, 7});
  EXPECT_EQ(Judge(wanted, {{{"rows", rows}, {"w", Vec<float>({-4, -5, -6})}}, {}}).finding, "");
  EXPECT_EQ(Judge(wanted, {{{"rows", rows}, {"w", Vec<float>({4, 5, 6})}}, {}}).finding, "differs");
}

TEST_F(JudgeTest, TangentsNearAPole) {
  constexpr std::string_view kTan = R"(
    %d = nn.cast(%x) {to = bf16} : (v_tensor<[N], f32>) -> v_tensor<[N], bf16>
    %t = nn.tan(%d) : (v_tensor<[N], bf16>) -> v_tensor<[N], bf16>
    %y = nn.cast(%t) {to = f32} : (v_tensor<[N], bf16>) -> v_tensor<[N], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N], f32>) -> ()
  )";
  const Expectation wanted = Expect(kTan, {{"x", Vec<float>({-4.7124f, 1, 1.5708f})}});
  const auto found = [&](float pole, float other) {
    return Judge(wanted, {{{"y", Vec<float>({pole, other, -pole})}}, {}}).finding;
  };
  EXPECT_EQ(found(-2064, 1.5547f), "");
  EXPECT_EQ(found(35072, 1.5547f), "");
  EXPECT_EQ(found(35072, 3), "differs");
}

// Of a loop without rounds; 3 is the size that a run with rounds has.
TEST_F(JudgeTest, ErrorOfRowsThatNothingTells) {
  constexpr std::string_view kRows = R"(
    %t = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
    %last, %rows = cf.while(%t, none, %x) ({
    ^(%k: v_tensor<[], i64>, %on: v_tensor<[], bool>, %p: v_tensor<[N], f32>):
      %s = nn.non_zero(%p) : (v_tensor<[N], f32>) -> v_tensor<[1, ?], i64>
      cf.yield(%on, %p, %s) : (v_tensor<[], bool>, v_tensor<[N], f32>, v_tensor<[1, ?], i64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N], f32>) -> (v_tensor<[N], f32>, v_tensor<[?, 1, ?], i64>)
    %three = builtin.constant() {value = tensor<[3], i64> [1, 2, 3]} : () -> v_tensor<[3], i64>
    %b = nn.add(%rows, %three) : (v_tensor<[?, 1, ?], i64>, v_tensor<[3], i64>) -> v_tensor<[?, 1, 3], i64>
    nn.fetch(%b) {name = "b"} : (v_tensor<[?, 1, 3], i64>) -> ()
  )";
  EXPECT_EQ(FoundIfItRuns(kRows), "");
}

// The error is in a loop that carries them.
TEST_F(JudgeTest, ErrorOfCarriedRowsThatNothingTells) {
  constexpr std::string_view kRows = R"(
    %t = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
    %one = builtin.constant() {value = tensor<[], i64> [1]} : () -> v_tensor<[], i64>
    %last, %rows = cf.while(%t, none, %x) ({
    ^(%k: v_tensor<[], i64>, %on: v_tensor<[], bool>, %p: v_tensor<[N], f32>):
      %s = nn.non_zero(%p) : (v_tensor<[N], f32>) -> v_tensor<[1, ?], i64>
      cf.yield(%on, %p, %s) : (v_tensor<[], bool>, v_tensor<[N], f32>, v_tensor<[1, ?], i64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[N], f32>) -> (v_tensor<[N], f32>, v_tensor<[?, 1, ?], i64>)
    %three = builtin.constant() {value = tensor<[3], i64> [1, 2, 3]} : () -> v_tensor<[3], i64>
    %last_rows = cf.while(%one, none, %rows) ({
    ^(%k: v_tensor<[], i64>, %on: v_tensor<[], bool>, %p: v_tensor<[?, 1, ?], i64>):
      %b = nn.add(%p, %three) : (v_tensor<[?, 1, ?], i64>, v_tensor<[3], i64>) -> v_tensor<[?, 1, 3], i64>
      cf.yield(%on, %b) : (v_tensor<[], bool>, v_tensor<[?, 1, 3], i64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[?, 1, ?], i64>) -> v_tensor<[?, 1, ?], i64>
    nn.fetch(%last_rows) {name = "c"} : (v_tensor<[?, 1, ?], i64>) -> ()
  )";
  EXPECT_EQ(FoundIfItRuns(kRows), "");
}

TEST_F(JudgeTest, SumsOfATransformThatCancel) {
  constexpr std::string_view kCeil = R"(
    %w = builtin.constant() {value = tensor<[3], f32> [1.0, 1.0, 1.0]} : () -> v_tensor<[3], f32>
    %n = builtin.constant() {value = tensor<[], i64> [1]} : () -> v_tensor<[], i64>
    %k = builtin.constant() {value = tensor<[3], i64> [1, -1, 1]} : () -> v_tensor<[3], i64>
    %s = nn.reshape(%x, %k) : (v_tensor<[N], f32>, v_tensor<[3], i64>) -> v_tensor<[1, N, 1], f32>
    %f = nn.stft(%s, %n, %w) {onesided = false} : (v_tensor<[1, N, 1], f32>, v_tensor<[], i64>, v_tensor<[3], f32>) -> v_tensor<[1, N - 2, 3, 2], f32>
    %y = nn.ceil(%f) : (v_tensor<[1, N - 2, 3, 2], f32>) -> v_tensor<[1, N - 2, 3, 2], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[1, N - 2, 3, 2], f32>) -> ()
  )";
  const Expectation wanted = Expect(kCeil, {{"x", Vec<float>({1, 1, 1})}});
  const auto found = [&](std::vector<float> bins) {
    return Judge(wanted, {{{"y", Tensor::Of<float>({1, 1, 3, 2}, bins)}}, {}}).finding;
  };
  EXPECT_EQ(found({3, 0, 0, 0, 0, 0}), "");
  EXPECT_EQ(found({3, 0, 1, 1, 1, 0}), "");
  EXPECT_EQ(found({9, 0, 0, 0, 0, 0}), "differs");
}

TEST_F(JudgeTest, NumbersNearAndFar) {
  constexpr std::string_view kExp = R"(
    %y = nn.exp(%x) : (v_tensor<[N], f32>) -> v_tensor<[N], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N], f32>) -> ()
  )";
  const Expectation wanted = Expect(kExp);
  const auto found = [&](float third) {
    return Judge(wanted, {{{"y", Vec<float>({2.7182817f, 7.389056f, third})}}, {}}).finding;
  };
  EXPECT_EQ(found(20.085537f), "");
  EXPECT_EQ(found(20.085539f), "");
  EXPECT_EQ(found(20.09f), "differs");
}

}  // namespace
}  // namespace lathe::testing
