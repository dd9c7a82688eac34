#include "src/lower/in_place.h"

#include <random>

#include "test/unit/lower/loop_text.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

using Pairs = std::vector<std::pair<size_t, size_t>>;
using schedule::LoopText;

class InPlaceTest : public LowerTest {
 protected:
  // What is found of a case, lowered by the strategy of that name for each target.
  void ExpectPairs(const Case& c, const std::string& strategy, const Pairs& pairs,
                   double rtol = 1e-4) {
    for (const Target* target : codegen::RunnableTargets()) {
      Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
      const Lowered lowered = LowerFunction(codegen::FirstFunction(program), MachineFor(*target),
                                            constant_, {.strict = true});
      EXPECT_EQ(lowered.in_place, pairs) << strategy << " for " << target->name;
    }
    Expect(c, strategy, rtol);
  }

  // Of loops over arguments %a, %b of `dims` and a result %m of the same.
  Pairs PairsOf(const std::string& loops, const std::string& dims = "8, 6") {
    const std::string v = StrCat("v_tensor<[", dims, "], f32>");
    const std::string text =
        StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(%a: ", v, ", %b: ", v,
               "):\n%m = loop.alloc() : () -> tensor<[", dims, "], f32>\n", loops,
               "%r = builtin.to_vtensor(%m) : (tensor<[", dims, "], f32>) -> ", v,
               "\nbuiltin.return(%r) : (", v, ") -> ()\n})\n}\n");
    kept_.push_back(ParseProgram(context_, text, {.file_locations = false}));
    return InPlacePairs(*codegen::FirstFunction(kept_.back())->region(0).front(), {});
  }

  // The outermost loop, in parallel.
  static std::string InParallel(std::string loops) {
    const size_t end = loops.find("} ({");
    return loops.insert(end, ", parallel = true");
  }

  std::vector<Program> kept_;
};

const std::string kA = "v_tensor<[8, 6], f32>", kM = "tensor<[8, 6], f32>";
const Pairs kNone, kFirst = {{0, 0}}, kBoth = {{0, 0}, {1, 0}};

// ---- what strategies make ----

TEST_F(InPlaceTest, ElementwiseOperands) {
  ExpectPairs({{"v_tensor<[37, 19], f32>", "v_tensor<[37, 19], f32>"},
               "%r = nn.add(%a, %b) : (v_tensor<[37, 19], f32>, v_tensor<[37, 19], f32>) -> "
               "v_tensor<[37, 19], f32>",
               "v_tensor<[37, 19], f32>"},
              "elementwise", kBoth);
}

TEST_F(InPlaceTest, ManyElementsInPiecesOfThreads) {
  ExpectPairs({{"v_tensor<[70001], f32>"},
               "%r = nn.tanh(%a) : (v_tensor<[70001], f32>) -> v_tensor<[70001], f32>",
               "v_tensor<[70001], f32>"},
              "elementwise", kFirst);
}

TEST_F(InPlaceTest, SymbolicSizes) {
  const std::string t = "v_tensor<[N, 7], f32>";
  for (const int64_t n : {0, 1, 5, 33}) {
    symbol_ = n;
    ExpectPairs({{t, t}, StrCat("%r = nn.sub(%a, %b) : (", t, ", ", t, ") -> ", t), t},
                "elementwise", kBoth);
    const std::string one = "v_tensor<[N], f32>";
    ExpectPairs({{one}, StrCat("%r = nn.exp(%a) : (", one, ") -> ", one), one}, "elementwise",
                kFirst);
  }
}

TEST_F(InPlaceTest, OtherSizesOfElementsAreNone) {
  ExpectPairs({{"v_tensor<[40], f32>"},
               "%r = nn.cast(%a) {to = f64} : (v_tensor<[40], f32>) -> v_tensor<[40], f64>",
               "v_tensor<[40], f64>"},
              "elementwise", kNone);
  ExpectPairs({{"v_tensor<[40], f32>"},
               "%r = nn.cast(%a) {to = i32} : (v_tensor<[40], f32>) -> v_tensor<[40], i32>",
               "v_tensor<[40], i32>"},
              "elementwise", kFirst);
}

// A row that every row of the result reads is not a pair, even where it is as large.
TEST_F(InPlaceTest, BroadcastOperandsAreNone) {
  ExpectPairs({{"v_tensor<[9, 16], f32>", "v_tensor<[16], f32>"},
               "%r = nn.mul(%a, %b) : (v_tensor<[9, 16], f32>, v_tensor<[16], f32>) -> "
               "v_tensor<[9, 16], f32>",
               "v_tensor<[9, 16], f32>"},
              "elementwise", kFirst);
  ExpectPairs({{"v_tensor<[16], f32>", "v_tensor<[1, 16], f32>"},
               "%r = nn.mul(%a, %b) : (v_tensor<[16], f32>, v_tensor<[1, 16], f32>) -> "
               "v_tensor<[1, 16], f32>",
               "v_tensor<[1, 16], f32>"},
              "elementwise", kBoth);
}

// Each row is read as often as there are passes, and all of it before it is written.
TEST_F(InPlaceTest, RowsOfSoftmax) {
  for (const char* dims : {"37, 50", "3, 4000", "N, 50", "1, 7"}) {
    const std::string t = StrCat("v_tensor<[", dims, "], f32>");
    ExpectPairs({{t}, StrCat("%r = nn.softmax(%a) : (", t, ") -> ", t), t}, "rows", kFirst);
    ExpectPairs({{t}, StrCat("%r = nn.softmax(%a) {axis = 0} : (", t, ") -> ", t), t}, "rows",
                kFirst);
  }
}

TEST_F(InPlaceTest, TransposedReadsAreNone) {
  const std::string t = "v_tensor<[24, 24], f32>";
  const Case c{{t, t},
               StrCat("%t = nn.transpose(%a) {perm = [1, 0]} : (", t, ") -> ", t,
                      "\n%r = nn.add(%t, %b) : (", t, ", ", t, ") -> ", t),
               t};
  Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
  const Lowered lowered = LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()));
  ASSERT_TRUE(lowered.done);
  EXPECT_EQ(std::ranges::count(lowered.in_place, std::pair<size_t, size_t>(0, 0)), 0);
}

// What is added to a product is read where it is stored; the matrices are read again and again.
TEST_F(InPlaceTest, WhatIsAddedToAProduct) {
  for (const char* rows : {"64", "5", "N"}) {
    const std::string t = StrCat("v_tensor<[", rows, ", 64], f32>"), w = "v_tensor<[64, 64], f32>";
    const Case c{
        {t, w, t},
        StrCat("%p = nn.matmul(%a, %b) : (", t, ", ", w, ") -> ", t, "\n%s = nn.add(%p, %c) : (", t,
               ", ", t, ") -> ", t, "\n%r = nn.relu(%s) : (", t, ") -> ", t),
        t};
    ExpectPairs(c, "matmul", {{2, 0}});
  }
}

TEST_F(InPlaceTest, WhatIsAddedToAConvolution) {
  const std::string x = "v_tensor<[1, 16, 20, 20], f32>", w = "v_tensor<[16, 16, 3, 3], f32>";
  const Case c{
      {x, w, x},
      StrCat("%p = nn.conv(%a, %b, none) {auto_pad = \"NOTSET\", pads = [1, 1, 1, 1], "
             "kernel_shape = [3, 3], strides = [1, 1], dilations = [1, 1], group = 1} : (",
             x, ", ", w, ", none) -> ", x, "\n%r = nn.add(%p, %c) : (", x, ", ", x, ") -> ", x),
      x};
  Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
  const Lowered lowered = LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()));
  ASSERT_TRUE(lowered.done) << lowered.why_not;
  EXPECT_EQ(lowered.in_place, (Pairs{{2, 0}}));
  Expect(c, lowered.strategy, 1e-4);
}

TEST_F(InPlaceTest, SeveralResults) {
  const std::string t = "v_tensor<[33, 5], f32>";
  ExpectPairs({{t, t},
               StrCat("%r = nn.add(%a, %b) : (", t, ", ", t, ") -> ", t, "\n%r1 = nn.neg(%a) : (",
                      t, ") -> ", t),
               t,
               {t}},
              "elementwise", {{0, 0}, {1, 0}, {0, 1}, {1, 1}});
}

// ---- loops by hand ----

// m[i, j] = a[i + di, j + dj] + b[i, j], as far as there are such elements.
std::string Shifted(int64_t di, int64_t dj) {
  LoopText t;
  t.For(6, [&](const std::string& i) {
    t.For(4, [&](const std::string& j) {
      const std::string row = t.Index({i}, {1}, 1 + di), column = t.Index({j}, {1}, 1 + dj);
      const std::string a = t.Load("%a", kA, {row, column});
      const std::string b = t.Load("%b", kA, {t.Index({i}, {1}, 1), t.Index({j}, {1}, 1)});
      t.Store("%m", kM, t.Binary("nn.add", a, b), {t.Index({i}, {1}, 1), t.Index({j}, {1}, 1)});
    });
  });
  return t.text;
}

TEST_F(InPlaceTest, ShiftedReads) {
  EXPECT_EQ(PairsOf(Shifted(0, 0)), kBoth);
  EXPECT_EQ(PairsOf(Shifted(1, 0)), kBoth);  // reads what is written later
  EXPECT_EQ(PairsOf(Shifted(0, 1)), kBoth);
  EXPECT_EQ(PairsOf(Shifted(-1, 0)), (Pairs{{1, 0}}));  // reads what was written before
  EXPECT_EQ(PairsOf(Shifted(0, -1)), (Pairs{{1, 0}}));
  EXPECT_EQ(PairsOf(Shifted(-1, 1)), (Pairs{{1, 0}}));
  EXPECT_EQ(PairsOf(InParallel(Shifted(0, 0))), kBoth);
  EXPECT_EQ(PairsOf(InParallel(Shifted(1, 0))), (Pairs{{1, 0}}));  // another thread's row
  EXPECT_EQ(PairsOf(InParallel(Shifted(0, 1))), kBoth);            // rows are a thread's own
}

TEST_F(InPlaceTest, TransposedAndRepeated) {
  LoopText t;
  t.For(6, [&](const std::string& i) {
    t.For(6, [&](const std::string& j) {
      const std::string a = t.Load("%a", "v_tensor<[6, 6], f32>", {j, i});
      const std::string b = t.Load("%b", "v_tensor<[6, 6], f32>", {i, i});
      t.Store("%m", "tensor<[6, 6], f32>", t.Binary("nn.add", a, b), {i, j});
    });
  });
  EXPECT_EQ(PairsOf(t.text, "6, 6"), kNone);
}

// All is written as often as the outer loop runs.
TEST_F(InPlaceTest, LoopsThatRepeatWhatTheyWrite) {
  for (const int64_t times : {1, 2}) {
    LoopText t;
    t.For(times, [&](const std::string&) {
      t.For(8, [&](const std::string& i) {
        t.For(6, [&](const std::string& j) {
          const std::string a = t.Load("%a", kA, {i, j});
          t.Store("%m", kM, t.Binary("nn.add", a, a), {i, j});
        });
      });
    });
    EXPECT_EQ(PairsOf(t.text), times == 1 ? kBoth : (Pairs{{1, 0}}));  // nothing reads %b
  }
}

TEST_F(InPlaceTest, AfterThePassThatWrites) {
  const auto text = [](bool reads_again) {
    LoopText t;
    t.For(8, [&](const std::string& i) {
      t.For(6, [&](const std::string& j) { t.Store("%m", kM, t.Load("%a", kA, {i, j}), {i, j}); });
      t.For(6, [&](const std::string& j) {
        const std::string b = t.Load(reads_again ? "%a" : "%b", kA, {i, j});
        t.Store("%m", kM, t.Binary("nn.add", t.Load("%m", kM, {i, j}), b), {i, j});
      });
    });
    return t.text;
  };
  EXPECT_EQ(PairsOf(text(true)), (Pairs{{1, 0}}));
  EXPECT_EQ(PairsOf(text(false)), kFirst);  // %b is read after all was written
}

TEST_F(InPlaceTest, SumsOfRowsThatAreReadAgain) {
  const auto text = [](bool of_all_rows) {
    LoopText t;
    t.For(8, [&](const std::string& i) {
      const std::string sum = t.Sum(6, [&](const std::string& k) {
        return t.Load("%a", kA, {of_all_rows ? k : i, of_all_rows ? t.Index({}, {}, 0) : k});
      });
      t.For(6, [&](const std::string& j) {
        t.Store("%m", kM, t.Binary("nn.sub", t.Load("%a", kA, {i, j}), sum), {i, j});
      });
    });
    return t.text;
  };
  EXPECT_EQ(PairsOf(text(false)), kBoth);
  EXPECT_EQ(PairsOf(InParallel(text(false))), kBoth);
  EXPECT_EQ(PairsOf(text(true)), (Pairs{{1, 0}}));
}

// A box of one tile reaches into the next one.
TEST_F(InPlaceTest, TilesThatOverlap) {
  const auto text = [](int64_t step, int64_t reads) {
    LoopText t;
    t.For(2, [&](const std::string& tile) {
      const std::string sum = t.Sum(reads, [&](const std::string& k) {
        return t.Load("%a", kA, {t.Index({tile, k}, {step, 1}, 0), t.Index({}, {}, 0)});
      });
      t.For(step, [&](const std::string& i) {
        t.Store("%m", kM, sum, {t.Index({tile, i}, {step, 1}, 0), t.Index({}, {}, 0)});
      });
    });
    return t.text;
  };
  EXPECT_EQ(PairsOf(text(3, 3)), kBoth);
  EXPECT_EQ(PairsOf(text(3, 4)), kBoth);  // row 3 is read before it is written
  EXPECT_EQ(PairsOf(InParallel(text(3, 3))), kBoth);
  EXPECT_EQ(PairsOf(InParallel(text(3, 4))), (Pairs{{1, 0}}));
}

// Rows of one shape over rows of another.
TEST_F(InPlaceTest, OtherShapesOfTheSameElements) {
  const auto text = [](const std::string& row, const std::string& column) {
    return StrCat(
        "%v = nn.view_reshape(%a) {shape = [48]} : (", kA, ") -> v_tensor<[48], f32>\n",
        "loop.for() {extent = 8} ({\n^(%i: v_tensor<[], i64>):\nloop.for() {extent = 6} ({\n^(%j: "
        "v_tensor<[], i64>):\n%n = loop.index(%i, %j) {expr = dim<d0 * ",
        row, " + d1 * ", column,
        ">} : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], i64>\n",
        "%x = loop.load(%v, none, %n) : (v_tensor<[48], f32>, none, v_tensor<[], i64>) -> "
        "v_tensor<[], f32>\n%s = loop.store_(%m, %x, none, %i, %j) : (",
        kM, ", v_tensor<[], f32>, none, v_tensor<[], i64>, v_tensor<[], i64>) -> ", kM,
        "\ncf.yield()\n})\ncf.yield()\n})\n");
  };
  EXPECT_EQ(PairsOf(text("6", "1")), kBoth);
  EXPECT_EQ(PairsOf(text("1", "8")), (Pairs{{1, 0}}));
}

// ---- random loops against what they give ----

class RandomLoops {
 public:
  explicit RandomLoops(uint32_t seed) : random_(seed) {}

  std::string Text() {
    Nest(0, {});
    return text_.text;
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void Nest(int depth, std::vector<std::string> counters) {
    if (Below(3) == 0) Statement(counters);
    if (depth < 3) {
      text_.For(1 + Below(3), [&](const std::string& i) {
        std::vector<std::string> inner = counters;
        inner.push_back(i);
        Nest(depth + 1, inner);
      });
    }
    if (depth == 3 || Below(3) == 0) Statement(counters);
  }

  // Counters are at most 2 and there are at most three: indices below 16.
  std::vector<std::string> Place(const std::vector<std::string>& counters,
                                 const std::vector<int64_t>& like) {
    std::vector<std::string> place;
    for (size_t axis = 0; axis < 2; ++axis) {
      std::vector<int64_t> factors;
      for (size_t c = 0; c < counters.size(); ++c) factors.push_back(like[2 * c + axis]);
      place.push_back(text_.Index(counters, factors, Below(4) == 0 ? Below(3) : 1));
    }
    return place;
  }

  void Statement(const std::vector<std::string>& counters) {
    const std::string type = "v_tensor<[16, 16], f32>", memory = "tensor<[16, 16], f32>";
    std::vector<int64_t> factors, others;
    for (int i = 0; i < 6; ++i) {
      factors.push_back(Below(3));
      others.push_back(Below(8) == 0 ? Below(3) : factors.back());
    }
    const std::string a = text_.Load("%a", type, Place(counters, factors));
    const std::string b = text_.Load("%b", type, Place(counters, factors));
    text_.Store("%m", memory, text_.Binary("nn.add", a, b), Place(counters, others));
  }

  std::mt19937 random_;
  LoopText text_;
};

TEST_F(InPlaceTest, RandomLoopsGiveTheSame) {
  size_t right = 0, wrong = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Pairs found = PairsOf(RandomLoops(seed).Text(), "16, 16");
    const codegen::CompiledKernel kernel(codegen::FirstFunction(kept_.back())->region(0).front(),
                                         Target::Host(), kBoth);
    const std::vector<Tensor> inputs = {RandomTensor(ElementType::kF32, {16, 16}, seed),
                                        RandomTensor(ElementType::kF32, {16, 16}, seed + 1000)};
    for (const auto& pair : kBoth) {
      const Tensor before = inputs[pair.first];  // what is not written stays
      const Tensor apart = kernel.Call(inputs, {before})[0];
      const Tensor shared = kernel.CallInPlace(inputs, {before}, {pair}, nullptr)[0];
      const bool is_same = std::ranges::equal(apart.bytes(), shared.bytes());
      const bool is_found = std::ranges::count(found, pair) != 0;
      EXPECT_TRUE(is_same || !is_found) << "seed " << seed << ", operand " << pair.first;
      right += is_found ? 1 : 0;
      wrong += is_same ? 0 : 1;
    }
  }
  EXPECT_GT(right, 20u);
  EXPECT_GT(wrong, 100u);
}

}  // namespace
}  // namespace lathe::lower
