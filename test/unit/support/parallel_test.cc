#include "lathe/support/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lathe {
namespace {

std::set<std::pair<int64_t, int64_t>> Pieces(ThreadPool& pool, int64_t begin, int64_t end,
                                             int64_t grain) {
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> pieces;
  pool.ParallelFor(begin, end, grain, [&](int64_t b, int64_t e) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(pieces.emplace(b, e).second);
  });
  return pieces;
}

TEST(ParallelTest, PiecesDoNotDependOnThreads) {
  ThreadPool one(1);
  ThreadPool seven(7);
  EXPECT_EQ(one.threads(), 1);
  EXPECT_EQ(seven.threads(), 7);
  for (const auto& [begin, end, grain] : {std::tuple<int64_t, int64_t, int64_t>{0, 10, 3},
                                          {-5, 5, 1},
                                          {0, 0, 1},
                                          {3, 1, 1},
                                          {0, 5, 100},
                                          {0, 1000, 7}}) {
    EXPECT_EQ(Pieces(one, begin, end, grain), Pieces(seven, begin, end, grain));
  }
  EXPECT_EQ(Pieces(seven, 0, 10, 4),
            (std::set<std::pair<int64_t, int64_t>>{{0, 4}, {4, 8}, {8, 10}}));
}

TEST(ParallelTest, EveryIndexOnceAgainAndAgain) {
  ThreadPool pool(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<int> hits(997);
    pool.ParallelFor(0, 997, 10, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) ++hits[static_cast<size_t>(i)];
    });
    for (const int hit : hits) ASSERT_EQ(hit, 1);
  }
}

TEST(ParallelTest, LowestFailureIsReported) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    try {
      pool.ParallelFor(0, 100, 1, [](int64_t b, int64_t) {
        if (b >= 10 && b % 2 == 0) throw std::runtime_error(std::to_string(b));
      });
      FAIL();
    } catch (const std::runtime_error& error) {
      ASSERT_STREQ(error.what(), "10");
    }
  }
}

TEST(ParallelTest, NestedLoopsRun) {
  ThreadPool pool(4);
  std::atomic<int> count{0};
  pool.ParallelFor(0, 8, 1, [&](int64_t, int64_t) {
    pool.ParallelFor(0, 8, 1, [&](int64_t, int64_t) { ++count; });
  });
  EXPECT_EQ(count, 64);
}

TEST(ParallelTest, SeveralThreadsMayStartLoops) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  std::vector<std::thread> starters;
  for (int t = 0; t < 4; ++t) {
    starters.emplace_back([&] {
      for (int i = 0; i < 50; ++i) pool.ParallelFor(0, 10, 1, [&](int64_t, int64_t) { ++count; });
    });
  }
  for (auto& starter : starters) starter.join();
  EXPECT_EQ(count, 4 * 50 * 10);
}

TEST(ParallelTest, DefaultPool) {
  EXPECT_GE(HardwareThreads(), 1);
  EXPECT_EQ(DefaultThreadPool().threads(), HardwareThreads());
  std::atomic<int64_t> sum{0};
  ParallelFor(0, 100, 9, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) sum += i;
  });
  EXPECT_EQ(sum, 4950);
}

}  // namespace
}  // namespace lathe
