#include "src/driver/knob_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

namespace lathe {
namespace {

std::vector<lower::KnobChoice> Knobs() {
  return {{"rows", 4, {4, 1, 2, 3, 5, 6}}, {"vectors", 2, {2, 1, 3}}, {"depth", 64, {64, 32}}};
}

// The whole of a small space, each point once, and not the one that it began at.
TEST(KnobSearchTest, TriesAllOfASmallSpace) {
  KnobSearch search(Knobs(), 1);
  std::set<std::string> seen;
  while (const auto knobs = search.Next()) {
    EXPECT_TRUE(seen.insert(knobs->ToString()).second) << knobs->ToString();
    search.Tell(2);
  }
  EXPECT_EQ(seen.size(), 6U * 3 * 2 - 1);
  EXPECT_FALSE(seen.contains(""));
  EXPECT_EQ(search.best_seconds(), 1);
}

// A valley is walked down, a knob at a time: long before a large space is through.
TEST(KnobSearchTest, FollowsWhatIsBetter) {
  std::vector<lower::KnobChoice> knobs;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    knobs.push_back({name, 9, {9, 0, 1, 2, 3, 4, 5, 6, 7, 8}});
  }
  KnobSearch search(knobs, 1e9);
  int tries = 0;
  while (search.best_seconds() > 0 && tries < 1000) {
    const auto next = search.Next();
    ASSERT_TRUE(next);
    lower::Knobs chosen = *next;
    double seconds = 0;
    for (const lower::KnobChoice& k : knobs) {
      seconds += std::abs(static_cast<double>(chosen.Choose(k.name, k.values)) - 3);
    }
    ++tries;
    search.Tell(seconds);
  }
  EXPECT_EQ(search.best_seconds(), 0);
  EXPECT_LT(tries, 400);
}

TEST(KnobSearchTest, GoesOnWhereAPointCanNotBeTried) {
  KnobSearch search(Knobs(), 1);
  size_t count = 0;
  while (search.Next()) {
    search.Tell(std::nullopt);
    ++count;
  }
  EXPECT_EQ(count, 35U);
}

TEST(KnobSearchTest, NoKnobs) {
  KnobSearch search({}, 1);
  EXPECT_FALSE(search.Next());
}

TEST(KnobSearchTest, TheSameAnswersGiveTheSameOrder) {
  const auto order = [] {
    KnobSearch search(Knobs(), 1);
    std::string text;
    double seconds = 1;
    while (const auto knobs = search.Next()) {
      text += knobs->ToString();
      search.Tell(seconds *= 0.99);
    }
    return text;
  };
  EXPECT_EQ(order(), order());
}

}  // namespace
}  // namespace lathe
