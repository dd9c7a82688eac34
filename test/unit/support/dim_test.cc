#include "lathe/support/dim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "lathe/support/error.h"
#include "lathe/support/random.h"

namespace lathe {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Dim S(int i) { return Dim::Symbol("S" + std::to_string(i)); }

TEST(DimTest, KindsAreDistinct) {
  EXPECT_TRUE(Dim().is_unknown());
  EXPECT_TRUE(Dim(0).is_constant());
  EXPECT_FALSE(Dim(0).is_unknown());
  EXPECT_TRUE(S(0).is_symbol());
  EXPECT_TRUE((S(0) + 1).is_expression());
  EXPECT_EQ(Dim(), Dim::Unknown());
  EXPECT_FALSE(Dim() == Dim(0));
  EXPECT_FALSE(ProvablyEqual(Dim(), Dim()));
  EXPECT_FALSE(ProvablyDifferent(Dim(), Dim(3)));
}

TEST(DimTest, ConstantsOfAnySize) {
  for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{1} << 61, int64_t{1} << 62,
                              -(int64_t{1} << 62), -(int64_t{1} << 62) - 1, kMin, kMax}) {
    const Dim dim(value);
    ASSERT_TRUE(dim.is_constant());
    EXPECT_EQ(dim.value(), value);
    EXPECT_EQ(dim, Dim(value));
    EXPECT_EQ(dim.Hash(), Dim(value).Hash());
    EXPECT_EQ(Dim::Parse(dim.ToString()), dim);
  }
}

TEST(DimTest, OverflowIsUnknown) {
  EXPECT_TRUE((Dim(kMax) + 1).is_unknown());
  EXPECT_TRUE((Dim(kMin) - 1).is_unknown());
  EXPECT_TRUE((Dim(kMax) * 2).is_unknown());
  EXPECT_TRUE((Dim(0) - Dim(kMin)).is_unknown());
  EXPECT_TRUE(FloorDiv(kMin, -1).is_unknown());
  EXPECT_TRUE(FloorDiv(5, 0).is_unknown());
  EXPECT_TRUE((S(0) * kMax * 2).is_unknown());
  EXPECT_TRUE((Dim() * 2).is_unknown());
  EXPECT_EQ(Dim() * 0, Dim(0));
}

TEST(DimTest, CanonicalSums) {
  EXPECT_EQ(S(0) + S(1), S(1) + S(0));
  EXPECT_EQ((S(0) + 1) * (S(0) - 1), S(0) * S(0) - 1);
  EXPECT_EQ(S(0) + S(0) - S(0) * 2, Dim(0));
  EXPECT_EQ((S(0) * 2 - S(1) + 3).ToString(), "2*S0 - S1 + 3");
  EXPECT_EQ((Dim(0) - S(1)).ToString(), "-S1");
}

TEST(DimTest, Division) {
  EXPECT_EQ(FloorDiv(S(0) * 4 + 6, 4), S(0) + 1 + FloorDiv(2, 4));
  EXPECT_EQ(FloorDiv(S(0) * 4 + 6, 2), S(0) * 2 + 3);
  EXPECT_EQ(FloorDiv(FloorDiv(S(0), 2), 3), FloorDiv(S(0), 6));
  EXPECT_EQ(FloorDiv(S(0) * S(1) * 768, S(0) * 768), S(1));
  EXPECT_EQ(FloorDiv((S(0) + S(1)) * S(2) * 12, (S(0) + S(1)) * 12), S(2));
  EXPECT_EQ(CeilDiv(S(0), 2), FloorDiv(S(0) + 1, 2));
  EXPECT_EQ(FloorDiv(Mod(S(0), 4), 4), Dim(0));
  EXPECT_EQ(FloorDiv(-7, 2), Dim(-4));
  EXPECT_EQ(CeilDiv(-7, 2), Dim(-3));
  EXPECT_EQ(Mod(-7, 2), Dim(1));
  EXPECT_EQ(Mod(S(0) * 4 + 5, 4), Dim(1));
  EXPECT_EQ(Mod(Mod(S(0), 8), 4), Mod(S(0), 4));
  EXPECT_EQ(Mod(S(0) * 6, 4), Mod(S(0), 2) * 2);
}

TEST(DimTest, MinMax) {
  EXPECT_EQ(Max(S(0), 0), S(0));
  EXPECT_EQ(Min(S(0), 0), Dim(0));
  EXPECT_EQ(Max(S(0) + 1, S(0)), S(0) + 1);
  EXPECT_EQ(Max(Max(S(0), S(1)), S(0)), Max(S(1), S(0)));
  // Windows counted with ceil_mode, three layers of them.
  Dim extent = S(0);
  for (int i = 0; i < 3; ++i) extent = Min(FloorDiv(extent, 2), FloorDiv(extent + 1, 2));
  EXPECT_EQ(extent, FloorDiv(S(0), 8));
  EXPECT_EQ(Min(extent, extent + 1), extent);
  EXPECT_EQ(Max(FloorDiv(S(0), 3) + 1, FloorDiv(S(0) + 2, 3)), FloorDiv(S(0) + 3, 3));
  EXPECT_NE(Max(FloorDiv(S(0), 3) + 1, FloorDiv(S(0) + 4, 3)), FloorDiv(S(0) + 3, 3));
  EXPECT_NE(Min(FloorDiv(S(0), 2), FloorDiv(S(0) + 1, 3)), FloorDiv(S(0), 2));
  EXPECT_EQ(Min(Min(S(0), S(1)), Min(S(0), S(1)) + 1), Min(S(0), S(1)));
  // What exporters write for all there are.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Min(kMost, S(0)), S(0));
  EXPECT_EQ(Min(S(0), kMost), S(0));
  EXPECT_EQ(CeilDiv(Min(S(0), kMost - 1), 1), Min(S(0), kMost - 1));
}

TEST(DimTest, BroadcastIsRightForZero) {
  const Dim sum = S(0) + S(1);
  const Dim both = Broadcast(sum, S(0));
  EXPECT_FALSE(both == sum);
  // S0 = 0, S1 = 1: the sum is 1, so the other extent, 0, wins.
  const std::vector<Dim::Binding> bindings = {{"S0", 0}, {"S1", 1}};
  EXPECT_EQ(both.Evaluate(bindings), 0);
  EXPECT_EQ(Broadcast(S(0), 1), S(0));
  EXPECT_EQ(Broadcast(S(0), 0), Dim(0));
  EXPECT_EQ(Broadcast(S(0), 5), Dim(5));
  EXPECT_EQ(Broadcast(Dim(), 5), Dim(5));
  EXPECT_TRUE(Broadcast(Dim(), S(0)).is_unknown());
  EXPECT_TRUE(Broadcast(2, 3).is_unknown());
  EXPECT_EQ(Broadcast(S(0) + 2, S(1)), S(0) + 2);
  EXPECT_EQ(Broadcast(Broadcast(S(0), S(1)), S(0)), Broadcast(S(1), S(0)));
  // What is cut to at most 512 fits beside the whole only where nothing is cut.
  EXPECT_EQ(Broadcast(S(0), Min(512, S(0))), S(0));
  EXPECT_EQ(Broadcast(Broadcast(Min(512, S(0)), S(1)), S(0)), Broadcast(S(0), S(1)));
  EXPECT_NE(Broadcast(S(0), Min(1, S(0))), S(0));
  EXPECT_NE(Broadcast(S(0), Min(S(1), S(0))), S(0));
}

TEST(DimTest, SmallLaws) {
  EXPECT_EQ(Dim(5) + (Dim(0) - 5), Dim(0));
  EXPECT_EQ(Dim(5) * 5, Dim(25));
  EXPECT_EQ(FloorDiv(5, 5), Dim(1));
  EXPECT_EQ(Dim(0) - (Dim(0) - 1), Dim(1));
  EXPECT_EQ(Dim(0) - Dim(0), Dim(0));
  EXPECT_EQ((Dim(6) - 5) * S(0), S(0));
  EXPECT_EQ(FloorDiv(S(0) * 3, 3), S(0));
  // Only where it is not zero is a number divided by itself one.
  EXPECT_EQ(FloorDiv(S(0) + 1, S(0) + 1), Dim(1));
  EXPECT_EQ(Max(4, 6), Dim(6));
  EXPECT_EQ(Min(2, 3), Dim(2));
  const Dim left = Broadcast(Broadcast(S(0), S(1)), S(2));
  EXPECT_EQ(left, Broadcast(S(0), Broadcast(S(1), S(2))));
  EXPECT_EQ(left, Broadcast(Broadcast(S(2), S(0)), S(1)));
}

// What networks add whose ways halve, double and pad in different orders.
TEST(DimTest, LeastAndLeastPlusOneCancel) {
  const Dim least = Min(85, S(0)), next = Min(84, S(0) - 1);
  EXPECT_EQ(least - next, Dim(1));
  EXPECT_EQ(S(1) * least * 6 - S(1) * (least - 1) * 6, S(1) * 6);
  EXPECT_EQ(least * 3 + next, next * 4 + 3);
  EXPECT_EQ(Max(S(0), S(1)) * 2 - Max(S(0) + 4, S(1) + 4) * 2, Dim(-8));
  EXPECT_EQ((Max(S(0), S(1)) - Max(S(0) + 4, S(1) + 5)).LowerBound(), std::nullopt);
}

TEST(DimTest, BroadcastOfWhatCannotBeOne) {
  const Dim h = S(0), quarter = CeilDiv(h, 4), doubled = CeilDiv(h, 8) * 2;
  EXPECT_EQ(Broadcast(quarter, doubled), doubled);
  EXPECT_EQ(Broadcast(h, Max(1, h)), h);
  EXPECT_EQ(Broadcast(CeilDiv(h, 16), FloorDiv(Max(0, h - 1), 16) + 1), CeilDiv(h, 16));
  EXPECT_NE(Broadcast(h, Max(2, h)), h);
}

TEST(DimTest, SamePaddingHasTheExtentThatItIsFor) {
  const Dim h = S(0), halves = CeilDiv(h, 2);
  const Dim padding = Max(0, (halves - 1) * 2 + 3 - h);
  EXPECT_EQ(FloorDiv(h + padding - 3, 2) + 1, halves);
  EXPECT_EQ(Max(0, h - 1) + 1, Max(1, h));
  EXPECT_EQ(FloorDiv(h * S(1) * 8, Max(1, h) * Max(1, S(1))), Min(1, h) * Min(1, S(1)) * 8);
}

// Whatever a broadcast of products becomes, it is right wherever the extents fit, zero included.
TEST(DimTest, BroadcastOfProducts) {
  const Dim both = Broadcast(S(0) * S(1), S(0));
  for (int64_t a = 0; a < 5; ++a) {
    for (int64_t b = 0; b < 5; ++b) {
      const int64_t x = a * b, y = a;
      if (x != y && x != 1 && y != 1) continue;  // they do not fit
      const std::vector<Dim::Binding> bindings = {{"S0", a}, {"S1", b}};
      EXPECT_EQ(both.Evaluate(bindings), x == 1 ? y : x) << a << " " << b;
    }
  }
}

TEST(DimTest, Provable) {
  EXPECT_TRUE(ProvablyDifferent(S(0) + 1, S(0)));
  EXPECT_TRUE(ProvablyDifferent(S(0) + 1, 0));
  EXPECT_TRUE(ProvablyDifferent(S(0) * 2, S(1) * 2 + 1));
  EXPECT_FALSE(ProvablyDifferent(S(0), S(1)));
  EXPECT_FALSE(ProvablyDifferent(S(0), 0));
  EXPECT_TRUE(ProvablyEqual(S(0) + S(1), S(1) + S(0)));
}

TEST(DimTest, Bounds) {
  EXPECT_EQ((S(0) + 3).LowerBound(), 3);
  EXPECT_EQ((S(0) + 3).UpperBound(), std::nullopt);
  EXPECT_EQ(Mod(S(0), 4).UpperBound(), 3);
  EXPECT_EQ((Dim(5) - Mod(S(0), 4) * 2).LowerBound(), -1);
  EXPECT_EQ((S(0) - S(1)).LowerBound(), std::nullopt);
  const Dim twos = FloorDiv(S(0), 2) * 2, sixes = FloorDiv(S(0), 6) * 6;  // rounded down
  EXPECT_EQ((twos - sixes + 1).LowerBound(), 1);
  EXPECT_EQ((twos - sixes + 1).UpperBound(), 5);
  EXPECT_EQ((S(1) * twos - S(1) * sixes).LowerBound(), 0);
  const Dim of_rest = FloorDiv(Mod(S(0), 6), 2) * 2;  // sixes + of_rest is twos
  EXPECT_EQ((twos - sixes - of_rest).LowerBound(), 0);
  EXPECT_EQ((twos - sixes - of_rest).UpperBound(), 0);
  EXPECT_EQ((sixes - twos).LowerBound(), -4);
  EXPECT_EQ((twos * 3 - sixes).LowerBound(), 0);
  EXPECT_EQ((twos - FloorDiv(S(0), 5) * 5).LowerBound(), -1);
  EXPECT_EQ((twos - FloorDiv(S(0), 5) * 5).UpperBound(), 4);
  EXPECT_EQ((FloorDiv(S(0) + 1, 2) * 2 - S(0)).LowerBound(), 0);  // rounded up
  EXPECT_EQ((FloorDiv(S(0) + 1, 2) * 2 - S(0)).UpperBound(), 1);
  EXPECT_EQ((twos - FloorDiv(S(1), 6) * 6).LowerBound(), std::nullopt);
  EXPECT_EQ(Dim().LowerBound(), 0);
  // A bound beyond 64 bits is no bound, also after dividing it down again.
  const Dim huge = Max(S(0), kMax) * 4;
  EXPECT_EQ(huge.LowerBound(), std::nullopt);
}

TEST(DimTest, SubstituteAndCollect) {
  const Dim dim = FloorDiv(S(0) * S(1) + 1, 2) + S(2);
  std::vector<std::string> names;
  dim.CollectSymbols(names);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"S0", "S1", "S2"}));
  const Dim replaced = dim.Substitute([](std::string_view name) -> std::optional<Dim> {
    if (name == "S0") return Dim(4);
    if (name == "S1") return Dim::Symbol("S0");
    return std::nullopt;
  });
  EXPECT_EQ(replaced, S(0) * 2 + S(2));
}

TEST(DimTest, ParseErrorsNameTheOffset) {
  for (const char* text : {"", "1 +", "(S0", "floordiv(S0)", "floordiv(1,2,3)", "S0 S1", "\"a",
                           "\"\"", "9223372036854775808", "min(", "*", "\"\\q\"", "3 4"}) {
    try {
      (void)Dim::Parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "parse/dim");
      EXPECT_NE(error.message().find("offset"), std::string::npos);
    }
  }
  EXPECT_THROW((void)Dim::Parse(std::string(100000, '(')), Error);
  EXPECT_EQ(Dim::Parse(std::string(100000, '-') + "3"), Dim(3));
}

TEST(DimTest, ParsePrefixStopsBehindTheExpression) {
  std::string_view text = "2*batch + 1, 3] -> x";
  EXPECT_EQ(Dim::ParsePrefix(text).ToString(), "2*batch + 1");
  EXPECT_EQ(text, ", 3] -> x");
  text = "n -> m";
  EXPECT_EQ(Dim::ParsePrefix(text), Dim::Symbol("n"));
  EXPECT_EQ(text, " -> m");
}

TEST(DimTest, StrangeNamesAreQuoted) {
  for (const char* name : {"a-b", "min", "0", "a b", "\n", "ü", "a\"b"}) {
    const Dim dim = Dim::Symbol(name) + 1;
    EXPECT_EQ(Dim::Parse(dim.ToString()), dim) << dim.ToString();
  }
  EXPECT_THROW((void)Dim::Symbol(""), Error);
}

TEST(DimTest, LargeExpressionsBecomeUnknown) {
  Dim sum = 0;
  for (int i = 0; i < 1000; ++i) sum += S(i);
  EXPECT_TRUE(sum.is_unknown());
  Dim deep = S(0);
  for (int i = 0; i < 1000; ++i) deep = FloorDiv(deep + S(1), S(2)) + 1;
  EXPECT_TRUE(deep.is_unknown());
}

TEST(DimTest, SharedBetweenThreads) {
  const Dim shared = S(0) * S(1) + 7;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([shared] {
      for (int i = 0; i < 10000; ++i) {
        Dim copy = shared;
        copy += 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(shared.ToString(), "S0*S1 + 7");
}

// An expression built twice: as a Dim, and as a tree that is evaluated without any cleverness.
struct Tree {
  enum Op {
    kConst,
    kSymbol,
    kAdd,
    kSub,
    kMul,
    kFloor,
    kCeil,
    kMod,
    kMinimum,
    kMaximum,
    kBroadcast
  };
  Op op = kConst;
  int64_t value = 0;
  std::unique_ptr<Tree> left, right;
};

std::optional<int64_t> Naive(const Tree& tree, const std::vector<int64_t>& symbols) {
  if (tree.op == Tree::kConst) return tree.value;
  if (tree.op == Tree::kSymbol) return symbols[static_cast<size_t>(tree.value)];
  const auto x = Naive(*tree.left, symbols);
  const auto y = Naive(*tree.right, symbols);
  if (!x || !y) return std::nullopt;
  const int64_t a = *x;
  const int64_t b = *y;
  const auto floor = [](int64_t n, int64_t d) {
    int64_t q = n / d;
    while (d > 0 ? q * d > n : q * d < n) --q;
    return q;
  };
  switch (tree.op) {
    case Tree::kAdd:
      return a + b;
    case Tree::kSub:
      return a - b;
    case Tree::kMul:
      return a * b;
    case Tree::kFloor:
      return b == 0 ? std::nullopt : std::optional(floor(a, b));
    case Tree::kCeil:
      return b == 0 ? std::nullopt : std::optional(-floor(-a, b));
    case Tree::kMod:
      return b == 0 ? std::nullopt : std::optional(a - b * floor(a, b));
    case Tree::kMinimum:
      return std::min(a, b);
    case Tree::kMaximum:
      return std::max(a, b);
    default:
      if (a == 1 || a == b) return b;
      return b == 1 ? std::optional(a) : std::nullopt;
  }
}

struct Grown {
  std::unique_ptr<Tree> tree = std::make_unique<Tree>();
  Dim dim;
};

Dim Apply(Tree::Op op, const Dim& a, const Dim& b) {
  switch (op) {
    case Tree::kAdd:
      return a + b;
    case Tree::kSub:
      return a - b;
    case Tree::kMul:
      return a * b;
    case Tree::kFloor:
      return FloorDiv(a, b);
    case Tree::kCeil:
      return CeilDiv(a, b);
    case Tree::kMod:
      return Mod(a, b);
    case Tree::kMinimum:
      return Min(a, b);
    case Tree::kMaximum:
      return Max(a, b);
    default:
      return Broadcast(a, b);
  }
}

Grown Grow(RandomStream& random, int depth) {
  Grown grown;
  if (depth == 0 || random.Int(0, 5) == 0) {
    const bool symbol = random.Int(0, 2) != 0;
    grown.tree->op = symbol ? Tree::kSymbol : Tree::kConst;
    grown.tree->value = symbol ? random.Int(0, 2) : random.Int(-3, 8);
    grown.dim = symbol ? S(static_cast<int>(grown.tree->value)) : Dim(grown.tree->value);
    return grown;
  }
  Grown left = Grow(random, depth - 1);
  Grown right = Grow(random, depth - 1);
  grown.tree->op = static_cast<Tree::Op>(random.Int(Tree::kAdd, Tree::kBroadcast));
  grown.dim = Apply(grown.tree->op, left.dim, right.dim);
  grown.tree->left = std::move(left.tree);
  grown.tree->right = std::move(right.tree);
  return grown;
}

void CheckOne(const Grown& grown, const std::vector<int64_t>& values) {
  const auto wanted = Naive(*grown.tree, values);
  if (!wanted) return;
  const std::vector<Dim::Binding> bindings = {
      {"S0", values[0]}, {"S1", values[1]}, {"S2", values[2]}};
  const auto got = grown.dim.Evaluate(bindings);
  ASSERT_TRUE(got.has_value()) << grown.dim.ToString();
  ASSERT_EQ(*got, *wanted) << grown.dim.ToString() << " at " << values[0] << "," << values[1] << ","
                           << values[2];
  const auto low = grown.dim.LowerBound();
  const auto high = grown.dim.UpperBound();
  ASSERT_TRUE(!low || *low <= *got) << grown.dim.ToString();
  ASSERT_TRUE(!high || *high >= *got) << grown.dim.ToString();
}

TEST(DimPropertyTest, SimplifiedEqualsNaive) {
  constexpr int kExpressions = 20000;
  int known = 0;
  for (int i = 0; i < kExpressions; ++i) {
    RandomStream random(20, static_cast<uint64_t>(i));
    const Grown grown = Grow(random, 2 + i % 3);
    if (grown.dim.is_unknown()) continue;  // division by zero, or a broadcast that cannot be
    ++known;
    SCOPED_TRACE(i);
    const Dim reread = Dim::Parse(grown.dim.ToString());
    ASSERT_EQ(reread, grown.dim) << grown.dim.ToString() << " became " << reread.ToString();
    ASSERT_EQ(reread.Hash(), grown.dim.Hash());
    for (int64_t code = 0; code < 5 * 5 * 5; ++code) {
      CheckOne(grown, {code % 5, code / 5 % 5, code / 25});
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(known, kExpressions / 2);
}

TEST(DimPropertyTest, SubstitutionEqualsEvaluation) {
  for (uint64_t i = 0; i < 2000; ++i) {
    RandomStream random(21, i);
    const Grown grown = Grow(random, 3);
    const std::vector<int64_t> values = {random.Int(0, 6), random.Int(0, 6), random.Int(0, 6)};
    const auto wanted = Naive(*grown.tree, values);
    if (grown.dim.is_unknown() || !wanted) continue;
    const Dim constant = grown.dim.Substitute([&](std::string_view name) -> std::optional<Dim> {
      return Dim(values[static_cast<size_t>(name[1] - '0')]);
    });
    ASSERT_EQ(constant, Dim(*wanted)) << grown.dim.ToString();
  }
}

TEST(DimPropertyTest, ProvableFactsHold) {
  for (uint64_t i = 0; i < 4000; ++i) {
    RandomStream random(22, i);
    const Grown a = Grow(random, 2);
    const Grown b = Grow(random, 2);
    const bool equal = ProvablyEqual(a.dim, b.dim);
    const bool different = ProvablyDifferent(a.dim, b.dim);
    ASSERT_FALSE(equal && different);
    for (int64_t code = 0; code < 64; ++code) {
      const std::vector<int64_t> values = {code % 4, code / 4 % 4, code / 16};
      const auto x = Naive(*a.tree, values);
      const auto y = Naive(*b.tree, values);
      if (!x || !y) continue;
      ASSERT_FALSE(equal && *x != *y) << a.dim.ToString() << " and " << b.dim.ToString();
      ASSERT_FALSE(different && *x == *y) << a.dim.ToString() << " and " << b.dim.ToString();
    }
  }
}

TEST(SymShapeTest, RankZeroUnknownAndEmptyDiffer) {
  EXPECT_EQ(SymShape::Unranked().ToString(), "[*]");
  EXPECT_EQ(SymShape(std::vector<Dim>{}).ToString(), "[]");
  EXPECT_EQ(SymShape({Dim(0)}).ToString(), "[0]");
  EXPECT_EQ(SymShape({S(0), 3, Dim()}).ToString(), "[S0,3,?]");
  EXPECT_FALSE(SymShape::Unranked() == SymShape(std::vector<Dim>{}));
  EXPECT_EQ(SymShape({S(0), 3}).NumElements(), S(0) * 3);
  EXPECT_EQ(SymShape({2, 3}).Constants(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(SymShape({2, S(0)}).Constants(), std::nullopt);
}

TEST(SymShapeTest, Broadcast) {
  EXPECT_EQ(Broadcast(SymShape({S(0), 1, 3}), SymShape({5, 1})), SymShape({S(0), 5, 3}));
  EXPECT_EQ(Broadcast(SymShape({Dim(0)}), SymShape({Dim(1)})), SymShape({Dim(0)}));
  EXPECT_FALSE(Broadcast(SymShape::Unranked(), SymShape({Dim(1)})).ranked);
  try {
    (void)Broadcast(SymShape({2, 3}), SymShape({2, 4}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "shape/broadcast");
  }
  EXPECT_THROW((void)Broadcast(SymShape({S(0) + 2}), SymShape({S(0) + 3})), Error);
  EXPECT_NO_THROW((void)Broadcast(SymShape({S(0) + 1}), SymShape({S(0) + 2})));
}

TEST(SymShapeTest, Meet) {
  EXPECT_EQ(Meet(SymShape({Dim(), S(0)}), SymShape({4, Dim()})), SymShape({4, S(0)}));
  EXPECT_EQ(Meet(SymShape({S(0)}), SymShape({Dim(4)})), SymShape({Dim(4)}));
  EXPECT_EQ(Meet(SymShape::Unranked(), SymShape({Dim(4)})), SymShape({Dim(4)}));
  EXPECT_THROW((void)Meet(SymShape({Dim(3)}), SymShape({Dim(4)})), Error);
  EXPECT_THROW((void)Meet(SymShape({Dim(3)}), SymShape({Dim(3), Dim(3)})), Error);
}

}  // namespace
}  // namespace lathe
