#include "lathe/lower/condition.h"

#include <gtest/gtest.h>

#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

const Dim kN = Dim::Symbol("N"), kM = Dim::Symbol("M");

TEST(Condition, ConstantsAreDecided) {
  EXPECT_EQ(Condition::AtLeast(16, 16).Prove(), Truth::kTrue);
  EXPECT_EQ(Condition::Greater(16, 16).Prove(), Truth::kFalse);
  EXPECT_EQ(Condition::Divides(8, 24).Prove(), Truth::kTrue);
  EXPECT_EQ(Condition::Divides(8, 25).Prove(), Truth::kFalse);
  EXPECT_EQ(Condition().Prove(), Truth::kTrue);
}

TEST(Condition, SymbolsAreAtLeastZero) {
  EXPECT_EQ(Condition::AtLeast(kN, 0).Prove(), Truth::kTrue);
  EXPECT_EQ(Condition::AtLeast(kN, 1).Prove(), Truth::kUnknown);
  EXPECT_EQ(Condition::Less(kN, 0).Prove(), Truth::kFalse);
  EXPECT_EQ(Condition::AtLeast(kN + 16, 16).Prove(), Truth::kTrue);
  EXPECT_EQ(Condition::Equal(kN, kN).Prove(), Truth::kTrue);
  EXPECT_EQ(Condition::Equal(kN, kN + 1).Prove(), Truth::kFalse);
  EXPECT_EQ(Condition::Equal(kN, kM).Prove(), Truth::kUnknown);
  EXPECT_EQ(Condition::Divides(4, kN * 8).Prove(), Truth::kTrue);
}

TEST(Condition, UnknownExtentsProveNothing) {
  const Dim any;
  for (const Condition& c :
       {Condition::AtLeast(any, 0), Condition::AtLeast(any, 1), Condition::Less(any, 5),
        Condition::Equal(any, any), Condition::Divides(8, any)}) {
    EXPECT_EQ(c.Prove(), Truth::kUnknown) << c.ToString();
    EXPECT_EQ((!c).Prove(), Truth::kUnknown) << c.ToString();
  }
}

TEST(Condition, AndOrNot) {
  const Condition big = Condition::AtLeast(kN, 16), even = Condition::Divides(2, kN);
  EXPECT_EQ((big && even).ToString(), "N >= 16 and mod(N, 2) == 0");
  EXPECT_EQ((!(big && even)).ToString(), "N < 16 or mod(N, 2) != 0");
  EXPECT_EQ(((big || even) && !big).ToString(), "(N >= 16 or mod(N, 2) == 0) and N < 16");
  EXPECT_EQ((big && Condition::Always(false)).Prove(), Truth::kFalse);
  EXPECT_EQ((big || Condition::AtLeast(3, 2)).Prove(), Truth::kTrue);
  EXPECT_EQ((big || !big).Prove(), Truth::kTrue);
  EXPECT_EQ((big && !big).Prove(), Truth::kFalse);
}

TEST(Condition, EvaluatesAsFarAsItCan) {
  const auto n7 = [](std::string_view name) {
    return name == "N" ? std::optional<int64_t>(7) : std::nullopt;
  };
  const Condition big = Condition::AtLeast(kN, 16), other = Condition::Less(kM, 3);
  EXPECT_EQ(big.Evaluate(n7), std::optional(false));
  EXPECT_EQ(other.Evaluate(n7), std::nullopt);
  EXPECT_EQ((big && other).Evaluate(n7), std::optional(false));
  EXPECT_EQ((!big || other).Evaluate(n7), std::optional(true));
  EXPECT_EQ((big || other).Evaluate(n7), std::nullopt);
}

// What is proven holds for every choice of small integers, zero included.
TEST(Condition, ProofsHoldOnRandomConditions) {
  RandomStream random(3);
  size_t proven = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto dim = [&]() -> Dim {
      const Dim s = random.Int(0, 1) == 0 ? kN : kM;
      const Dim d = s * random.Int(0, 2) + random.Int(-2, 3);
      switch (random.Int(0, 3)) {
        case 0:
          return Mod(d, random.Int(1, 4));
        case 1:
          return Max(d, kM);
        case 2:
          return d * kN;
        default:
          return d;
      }
    };
    const auto leaf = [&] {
      return Condition::Compare(dim(), static_cast<Condition::Relation>(random.Int(0, 3)), dim());
    };
    const Condition a = leaf(), b = leaf();
    const Condition c = random.Int(0, 1) == 0 ? (a && !b) : (!a || b);
    const Truth truth = c.Prove();
    proven += truth == Truth::kUnknown ? 0 : 1;
    for (int64_t n = 0; n < 5; ++n) {
      for (int64_t m = 0; m < 5; ++m) {
        const auto value = c.Evaluate(
            [&](std::string_view name) -> std::optional<int64_t> { return name == "N" ? n : m; });
        ASSERT_TRUE(value.has_value()) << c.ToString();
        const Dim::Binding extents[] = {{"N", n}, {"M", m}};
        ASSERT_EQ(c.Indicator().Evaluate(extents), std::optional<int64_t>(*value)) << c.ToString();
        if (truth == Truth::kUnknown) continue;
        ASSERT_EQ(*value, truth == Truth::kTrue) << c.ToString() << " N=" << n << " M=" << m;
        ASSERT_EQ((!c).Evaluate([&](std::string_view name) -> std::optional<int64_t> {
          return name == "N" ? n : m;
        }),
                  std::optional(!*value));
      }
    }
  }
  EXPECT_GT(proven, 300U);
}

}  // namespace
}  // namespace lathe
