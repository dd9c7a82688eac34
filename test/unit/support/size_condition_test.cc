#include "lathe/support/size_condition.h"

#include <gtest/gtest.h>

#include "lathe/support/error.h"

namespace lathe {
namespace {

const Dim n = Dim::Symbol("N"), k = Dim::Symbol("K");

bool Holds(const SizeCondition& condition, int64_t n_value, int64_t k_value = 0) {
  return condition.Holds([&](std::string_view name) -> std::optional<int64_t> {
    if (name == "N") return n_value;
    return name == "K" ? std::optional(k_value) : std::nullopt;
  });
}

TEST(SizeConditionTest, DecidesWhatHoldsForAllSymbols) {
  EXPECT_EQ(SizeCondition::Equal(n, n).Decide(), true);
  EXPECT_EQ(SizeCondition::Equal(n + 1, n).Decide(), false);
  EXPECT_EQ(SizeCondition::Equal(n, k).Decide(), std::nullopt);
  EXPECT_EQ(SizeCondition::Equal(n, -1).Decide(), false);
  EXPECT_EQ(SizeCondition::Equal(Dim(), 1).Decide(), std::nullopt);
  EXPECT_EQ(SizeCondition::AtLeast(n + 3, 3).Decide(), true);
  EXPECT_EQ(SizeCondition::AtLeast(2, n + 3).Decide(), false);
  EXPECT_EQ(SizeCondition::AtLeast(n, 1).Decide(), std::nullopt);
  EXPECT_EQ(SizeCondition::AtLeast(Dim(), 0).Decide(), std::nullopt);
  EXPECT_EQ(SizeCondition::Divides(4, 8 * n).Decide(), true);
  EXPECT_EQ(SizeCondition::Divides(4, 8 * n + 2).Decide(), false);
  EXPECT_EQ(SizeCondition::Divides(4, n).Decide(), std::nullopt);
  EXPECT_EQ(SizeCondition::Broadcast(n, 1).Decide(), true);
  EXPECT_EQ(SizeCondition::Broadcast(3, 4).Decide(), false);
  EXPECT_EQ(SizeCondition::Broadcast(n, 50).Decide(), std::nullopt);
  EXPECT_EQ(SizeCondition::BroadcastTo(1, n).Decide(), true);
  EXPECT_EQ(SizeCondition::BroadcastTo(n, 1).Decide(), std::nullopt);
  EXPECT_EQ(SizeCondition::BroadcastTo(4, 1).Decide(), false);
}

TEST(SizeConditionTest, HoldsForSizes) {
  EXPECT_TRUE(Holds(SizeCondition::Equal(n, k), 3, 3));
  EXPECT_FALSE(Holds(SizeCondition::Equal(n, k), 3, 4));
  EXPECT_TRUE(Holds(SizeCondition::AtLeast(n, k), 4, 4));
  EXPECT_FALSE(Holds(SizeCondition::AtLeast(n, k), 3, 4));
  for (const auto& [a, b, both, to] : {std::tuple(50, 50, true, true),
                                       {1, 50, true, true},
                                       {50, 1, true, false},
                                       {2, 50, false, false},
                                       {0, 50, false, false},
                                       {0, 1, true, false}}) {
    EXPECT_EQ(Holds(SizeCondition::Broadcast(n, k), a, b), both) << a << " " << b;
    EXPECT_EQ(Holds(SizeCondition::BroadcastTo(n, k), a, b), to) << a << " " << b;
  }
  EXPECT_FALSE(Holds(SizeCondition::Divides(k, n), 6, 0)) << "it has no value";
  EXPECT_FALSE(Holds(SizeCondition::Equal(Dim::Symbol("Z"), 1), 1, 1)) << "nobody knows Z";
}

TEST(SizeConditionTest, SaysWhatItIs) {
  EXPECT_EQ(SizeCondition::Equal(n, k).ToString(), "N = K");
  EXPECT_EQ(SizeCondition::AtLeast(n, 3).ToString(), "N >= 3");
  EXPECT_EQ(SizeCondition::Broadcast(n, k).ToString(), "N = K, or one of them is 1");
  EXPECT_EQ(SizeCondition::BroadcastTo(n, 50).ToString(), "N = 50, or N = 1");
}

TEST(SizeConditionTest, AScopeHasWhatIsAssumedWithinIt) {
  const auto message = [] { return std::string("they differ"); };
  std::vector<SizeAssumption> outer, inner;
  Assume(SizeCondition::Equal(n, k), "shape/a", message);
  {
    const AssumptionScope scope(outer);
    Assume(SizeCondition::Equal(n, k), "shape/b", message, "make them equal");
    Assume(SizeCondition::Equal(n, n), "shape/c", message);
    Assume(SizeCondition::Equal(n, Dim()), "shape/d", message);
    {
      const AssumptionScope nested(inner);
      Assume(SizeCondition::AtLeast(n, k), "shape/e", message);
    }
  }
  EXPECT_FALSE(AssumptionScope::IsOpen());
  ASSERT_EQ(outer.size(), 1u);
  EXPECT_EQ(outer[0].condition, SizeCondition::Equal(n, k));
  EXPECT_EQ(outer[0].id, "shape/b");
  EXPECT_EQ(outer[0].message, "they differ");
  EXPECT_EQ(outer[0].hint, "make them equal");
  ASSERT_EQ(inner.size(), 1u);
  EXPECT_EQ(inner[0].id, "shape/e");
}

TEST(SizeConditionTest, WhatIsRefutedThrows) {
  try {
    Assume(SizeCondition::Equal(3, 4), "shape/a", [] { return std::string("they differ"); }, "no");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
    EXPECT_EQ(error.id(), "shape/a");
    EXPECT_EQ(error.message(), "they differ");
    EXPECT_EQ(error.hints(), std::vector<std::string>{"no"});
  }
}

}  // namespace
}  // namespace lathe
