#include "lathe/runtime/worker_team.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "test/unit/in_child.h"

namespace lathe::runtime {
namespace {

struct Marks {
  explicit Marks(size_t n) : counts(n) {}
  std::vector<std::atomic<int>> counts;
};

void Mark(int64_t begin, int64_t end, void* captured) {
  auto& counts = static_cast<Marks*>(captured)->counts;
  for (int64_t i = begin; i < end; ++i) counts[static_cast<size_t>(i)].fetch_add(1);
}

void ExpectAllOnce(KernelTeam& team, size_t extent) {
  Marks marks(extent);
  team.run(&team, static_cast<int64_t>(extent), &Mark, &marks);
  for (size_t i = 0; i < extent; ++i) ASSERT_EQ(marks.counts[i], 1) << i << " of " << extent;
}

double ProcessorSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(WorkerTeamTest, CoversEachExtentOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    WorkerTeam team(threads);
    EXPECT_EQ(team.threads(), threads);
    for (const size_t extent : {0, 1, 2, 3, 11, 28, 29, 1000}) ExpectAllOnce(team, extent);
  }
}

TEST(WorkerTeamTest, ManyShortLoops) {
  WorkerTeam team(3);
  for (size_t i = 0; i < 20000; ++i) ExpectAllOnce(team, i % 17);
}

TEST(WorkerTeamTest, ManyShortLives) {
  for (int i = 0; i < 2000; ++i) {
    WorkerTeam team(3);
    ExpectAllOnce(team, static_cast<size_t>(i % 5));
  }
}

TEST(WorkerTeamTest, LoopsAfterSleep) {
  WorkerTeam team(3);
  for (size_t i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ExpectAllOnce(team, 6);
  }
}

TEST(WorkerTeamTest, OneTeamForManyCallers) {
  WorkerTeam team(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 8; ++c) {
    callers.emplace_back([&] {
      for (size_t i = 0; i < 2000; ++i) ExpectAllOnce(team, i % 40);
    });
  }
  for (std::thread& t : callers) t.join();
}

struct Nest {
  KernelTeam* team;
  std::atomic<int64_t> sum{0};
};

TEST(WorkerTeamTest, LoopsWithinLoops) {
  WorkerTeam team(4);
  Nest nest{&team};
  team.run(
      &team, 20,
      [](int64_t begin, int64_t end, void* captured) {
        auto* n = static_cast<Nest*>(captured);
        for (int64_t i = begin; i < end; ++i) {
          n->team->run(
              n->team, 10,
              [](int64_t b, int64_t e, void* c) { static_cast<Nest*>(c)->sum.fetch_add(e - b); },
              n);
        }
      },
      &nest);
  EXPECT_EQ(nest.sum, 200);
}

TEST(WorkerTeamTest, LoopsInRunsOfManyCallers) {
  for (const int threads : {2, 3}) {
    WorkerTeam team(threads);
    std::vector<std::thread> callers;
    for (int c = 0; c < 3; ++c) {
      callers.emplace_back([&] {
        for (size_t i = 0; i < 300; ++i) {
          const WorkerTeam::InRun run(team);
          ExpectAllOnce(team, i % 7);
          ExpectAllOnce(team, 9);
        }
      });
    }
    for (std::thread& t : callers) t.join();
  }
}

bool AllOnce(KernelTeam& team, size_t extent) {
  Marks marks(extent);
  team.run(&team, static_cast<int64_t>(extent), &Mark, &marks);
  return std::all_of(marks.counts.begin(), marks.counts.end(),
                     [](const auto& c) { return c == 1; });
}

TEST(WorkerTeamTest, WithoutMoreThreads) {
  const NoMoreThreads none;
  WorkerTeam team(4);
  for (const size_t extent : {1, 5, 1000}) ExpectAllOnce(team, extent);
}

TEST(WorkerTeamTest, AForkedChildRunsAndDestroysTeams) {
  auto team = std::make_unique<WorkerTeam>(4);
  auto other = std::make_unique<WorkerTeam>(2);
  ExpectAllOnce(*team, 1000);
  ExpectAllOnce(*other, 1000);
  const Child child = InChild([&] {
    other.reset();
    const bool right = AllOnce(*team, 1000) && AllOnce(*team, 7);
    team.reset();
    return right ? 0 : 1;
  });
  EXPECT_EQ(child.exit_code, 0) << "signal " << child.signal;
  ExpectAllOnce(*team, 1000);
}

// The copy of a team that is in the middle of a loop.
TEST(WorkerTeamTest, AChildForkedDuringALoopOfAnotherThread) {
  WorkerTeam team(3);
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) ExpectAllOnce(team, 50);
  });
  for (int i = 0; i < 20; ++i) {
    const Child child = InChild([&] { return AllOnce(team, 1000) ? 0 : 1; }, 20);
    EXPECT_EQ(child.exit_code, 0) << "signal " << child.signal;
  }
  stop = true;
  busy.join();
}

TEST(WorkerTeamTest, RunsWithoutLoopsTakeLittleProcessorTime) {
  WorkerTeam team(2);
  const WorkerTeam::InRun run(team);
  ExpectAllOnce(team, 1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = ProcessorSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(ProcessorSeconds() - before, 0.02);
}

TEST(WorkerTeamTest, IdleTakesNoProcessorTime) {
  WorkerTeam team(8);
  ExpectAllOnce(team, 1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = ProcessorSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(ProcessorSeconds() - before, 0.02);
}

}  // namespace
}  // namespace lathe::runtime
