// Placements of sizes that steps compute, and what is taken over from the run before.

#include "src/runtime/placement.h"

#include <gtest/gtest.h>

#include "test/unit/runtime/plan_util.h"

namespace lathe::runtime {
namespace {

constexpr uint32_t kA = 1, kB = 2;  // symbols that are computed; N is that of the input

class PlacementTest : public ::testing::Test {
 protected:
  PlacementTest() {
    const Dim n = Dim::Symbol("N"), a = Dim::Symbol("a"), b = Dim::Symbol("b");
    maker_.Input("x", {n});
    first_ = maker_.Arena({n, a}, 0, 1);
    second_ = maker_.Arena({a * b, 3}, 0, 1);
    for (const char* name : {"a", "b"}) maker_.plan.symbols.push_back({name, kNone});
    placements_.emplace(maker_.plan, 4);
  }

  Placement Begin(int64_t n) { return *placements_->For(std::vector{n}); }
  std::vector<int64_t> ShapeOf(const Placement& placement, uint32_t value) const {
    const auto shape = placements_->ShapeOf(placement, value);
    return {shape.begin(), shape.end()};
  }
  // As if placed anew.
  void ExpectSame(const Placement& got, int64_t n, int64_t a, int64_t b) {
    Placement wanted = Begin(n);
    placements_->Bind(wanted, kA, a, nullptr);
    placements_->Bind(wanted, kB, b, nullptr);
    for (const uint32_t v : {first_, second_}) EXPECT_EQ(ShapeOf(got, v), ShapeOf(wanted, v));
    EXPECT_EQ(got.value_bytes, wanted.value_bytes);
    EXPECT_EQ(got.arena_bytes, wanted.arena_bytes);
    EXPECT_EQ(got.storage_offsets, wanted.storage_offsets);
  }

  PlanMaker maker_;
  uint32_t first_ = 0, second_ = 0;
  std::optional<Placements> placements_;
};

TEST_F(PlacementTest, SizesOfTheRunBefore) {
  Placement before = Begin(7);
  placements_->Bind(before, kA, 2, nullptr);
  placements_->Bind(before, kB, 5, nullptr);
  EXPECT_EQ(ShapeOf(before, second_), (std::vector<int64_t>{10, 3}));
  for (const int64_t a : {2, 3}) {
    for (const int64_t b : {5, 4, 0}) {
      Placement now = Begin(7);
      placements_->Bind(now, kA, a, &before);
      placements_->Bind(now, kB, b, &before);
      ExpectSame(now, 7, a, b);
    }
  }
}

// A loop may bind a size again that a later one was made with, and leave that as it is.
TEST_F(PlacementTest, SizesThatWereBoundAgain) {
  Placement before = Begin(7);
  placements_->Bind(before, kA, 1, nullptr);
  placements_->Bind(before, kB, 5, nullptr);
  placements_->Bind(before, kA, 2, nullptr);
  Placement now = Begin(7);
  placements_->Bind(now, kA, 2, &before);
  placements_->Bind(now, kB, 5, &before);
  ExpectSame(now, 7, 2, 5);
}

TEST_F(PlacementTest, RunsThatEndedEarly) {
  Placement before = Begin(7);
  placements_->Bind(before, kA, 2, nullptr);
  Placement now = Begin(7);
  placements_->Bind(now, kA, 2, &before);
  placements_->Bind(now, kB, 5, &before);
  ExpectSame(now, 7, 2, 5);
}

}  // namespace
}  // namespace lathe::runtime
