#include "lathe/support/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/unit/in_child.h"

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

int64_t SumOf(ThreadPool& pool, int64_t end) {
  std::atomic<int64_t> sum{0};
  pool.ParallelFor(0, end, 9, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) sum += i;
  });
  return sum;
}

TEST(ParallelTest, FewerThreadsThanAskedFor) {
  ThreadPool before(3);
  const NoMoreThreads none;
  ThreadPool pool(4);
  EXPECT_EQ(pool.threads(), 1);
  EXPECT_EQ(SumOf(pool, 100), 4950);
  EXPECT_EQ(SumOf(before, 100), 4950);
}

// The first `given` of all threads that are asked for.
struct Asked {
  static constexpr int kGiven = 2;
  static inline std::atomic<int> asked{0};
  static int Create(pthread_t* t, const pthread_attr_t* a, void* (*run)(void*), void* argument) {
    return asked++ < kGiven ? pthread_create(t, a, run, argument) : EAGAIN;
  }
  void Work() { ++runs; }
  std::atomic<int> runs{0};
};

TEST(ParallelTest, WorkersThatThereAreWork) {
  Asked owner;
  Workers workers;
  workers.Start(5, &owner, &Asked::Create);
  EXPECT_EQ(workers.size(), 2u);
  EXPECT_EQ(Asked::asked, 3) << "nobody asks again";
  workers.Join();
  EXPECT_EQ(owner.runs, 2);
}

TEST(ParallelTest, AForkedChildUsesAndDestroysPools) {
  auto pool = std::make_unique<ThreadPool>(4);
  auto unused = std::make_unique<ThreadPool>(2);
  EXPECT_EQ(SumOf(*pool, 1000), 499500);
  EXPECT_EQ(SumOf(DefaultThreadPool(), 1000), 499500);
  const Child child = InChild([&] {
    unused.reset();
    const bool right = SumOf(*pool, 1000) == 499500 && pool->threads() == 4 &&
                       SumOf(DefaultThreadPool(), 1000) == 499500;
    pool.reset();
    return right ? 0 : 1;
  });
  EXPECT_EQ(child.exit_code, 0) << "signal " << child.signal;
  EXPECT_EQ(SumOf(*pool, 1000), 499500);
}

TEST(ParallelTest, ChildrenOfChildren) {
  ThreadPool pool(3);
  const Child child = InChild([&] {
    const bool right = SumOf(pool, 100) == 4950;
    const Child inner = InChild([&] { return SumOf(pool, 100) == 4950 ? 0 : 1; }, 20);
    return right && inner.exit_code == 0 && SumOf(pool, 100) == 4950 ? 0 : 1;
  });
  EXPECT_EQ(child.exit_code, 0) << "signal " << child.signal;
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
