#include "lathe/support/budget.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lathe/support/buffer.h"
#include "lathe/support/file.h"
#include "lathe/support/parallel.h"
#include "lathe/support/shared_chunks.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

template <class F>
Error ErrorOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "none", "no error"};
}

// Work that looks at its budget, and would take hours.
void Forever() {
  for (int i = 0; i < 10'000'000; ++i) {
    CheckBudget();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(BudgetTest, WithoutLimitsNothingEnds) {
  EXPECT_EQ(Budget::Current(), nullptr);
  CheckBudget();
  EXPECT_EQ(RunUnder({},
                     [] {
                       CheckBudget();
                       return 3;
                     }),
            3);
}

TEST(BudgetTest, EndsInTime) {
  const Error error = ErrorOf([] { RunUnder({.seconds = 0.02}, Forever); });
  EXPECT_EQ(error.id(), "limit/time");
  EXPECT_EQ(error.message(), "not done within the limit of 0.02 seconds");
  EXPECT_EQ(error.code(), ErrorCode::kLimit);
  EXPECT_EQ(Budget::Current(), nullptr);
}

TEST(BudgetTest, EndsWhenCancelledByAnotherThread) {
  CancelToken token;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    token.Cancel();
  });
  EXPECT_EQ(ErrorOf([&] { RunUnder({.cancel = &token}, Forever); }).id(), "run/cancelled");
  other.join();
}

TEST(BudgetTest, LimitsAroundHoldWithin) {
  CancelToken token;
  token.Cancel();
  EXPECT_EQ(ErrorOf([&] {
              RunUnder({.cancel = &token}, [] { RunUnder({.seconds = 1000}, Forever); });
            }).id(),
            "run/cancelled");
  EXPECT_EQ(ErrorOf([&] {
              RunUnder({.seconds = 0.01}, [] { RunUnder({.seconds = 1000}, Forever); });
            }).message(),
            "not done within the limit of 0.01 seconds");
}

// Code that has a way around errors must not take the end of its time for one.
TEST(BudgetTest, HandlersOfErrorsLetItThrough) {
  int handled = 0;
  EXPECT_EQ(ErrorOf([&] {
              RunUnder({.seconds = 0.01}, [&] {
                while (true) {
                  try {
                    Forever();
                  } catch (const Error&) {
                    ++handled;
                  }
                }
              });
            }).id(),
            "limit/time");
  EXPECT_EQ(handled, 0);
}

TEST(BudgetTest, PiecesOfLoopsAreUnderIt) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(ErrorOf([&] {
                RunUnder({.seconds = 0.02}, [&] {
                  pool.ParallelFor(0, 1000, 1, [](int64_t, int64_t) { Forever(); });
                });
              }).id(),
              "limit/time");
    std::atomic<int> pieces = 0;
    EXPECT_EQ(ErrorOf([&] {
                RunUnder({.seconds = 0.02}, [&] {
                  pool.ParallelFor(0, 100'000, 1, [&](int64_t, int64_t) {
                    ++pieces;
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  });
                });
              }).id(),
              "limit/time");
    EXPECT_LT(pieces, 50'000);
    pool.ParallelFor(0, 10, 1, [](int64_t, int64_t) { EXPECT_EQ(Budget::Current(), nullptr); });
  }
}

TEST(BudgetTest, CountsMemoryAsLongAsItIsHeld) {
  std::shared_ptr<Buffer> kept;
  RunUnder({.bytes = 1 << 20}, [&] {
    kept = Buffer::Allocate(600 << 10);
    const Error error = ErrorOf([] { (void)Buffer::Allocate(600 << 10); });
    EXPECT_EQ(error.id(), "limit/memory");
    EXPECT_EQ(error.message(),
              "an allocation of 600 KiB beside 600 KiB exceeds the limit of 1.0 MiB");
    kept.reset();
    kept = Buffer::Allocate(1 << 20);
    EXPECT_EQ(ErrorOf([] { (void)Buffer::Allocate(1); }).id(), "limit/memory");
  });
  EXPECT_EQ(kept->size(), 1U << 20);  // outlives the budget
  kept.reset();
}

TEST(BudgetTest, MemoryOfThreadsAndChunksCounts) {
  ThreadPool pool(4);
  EXPECT_EQ(ErrorOf([&] {
              RunUnder({.bytes = 1 << 20}, [&] {
                std::array<std::shared_ptr<Buffer>, 16> all;
                pool.ParallelFor(0, 16, 1, [&](int64_t i, int64_t) {
                  all[static_cast<size_t>(i)] = Buffer::Allocate(100 << 10);
                });
              });
            }).id(),
            "limit/memory");
  EXPECT_EQ(ErrorOf([&] {
              RunUnder({.bytes = 4 << 20}, [&] {
                const SharedChunks chunks;
                const auto one = Buffer::Allocate(1 << 20);
                EXPECT_EQ(one->size(), 1U << 20) << "no need of a chunk";
                const auto more = Buffer::Allocate((3 << 20) + 1);
              });
            }).id(),
            "limit/memory");
}

TEST(BudgetTest, LimitsOfMemoryNest) {
  RunUnder({.bytes = 1000}, [] {
    EXPECT_EQ(ErrorOf([] { RunUnder({.bytes = 100}, [] { (void)Buffer::Allocate(101); }); }).id(),
              "limit/memory");
    EXPECT_EQ(
        ErrorOf([] { RunUnder({.bytes = 10'000}, [] { (void)Buffer::Allocate(1001); }); }).id(),
        "limit/memory");
    RunUnder({.bytes = 10'000}, [] { (void)Buffer::Allocate(1000); });
    (void)Buffer::Allocate(1000);  // what was refused does not count
  });
}

TEST(BudgetTest, SaysWhatWasBeingDone) {
  const auto notes = [](const Error& error) {
    std::string all;
    for (const Note& note : error.notes()) all += note.text + ";";
    return all;
  };
  const auto within = [](auto work) {
    return ErrorOf([&] { WhileDoing("reading", [&] { WhileDoing("adding", work); }); });
  };
  EXPECT_EQ(notes(within([] { throw Error(ErrorCode::kLimit, "limit/memory", "no"); })),
            "while adding;while reading;");
  EXPECT_EQ(notes(within([] { throw Error(ErrorCode::kShape, "a/b", "no"); })), "");
  const Error memory = within([] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.id(), "limit/memory");
  EXPECT_EQ(notes(memory), "while adding;while reading;");
  EXPECT_EQ(
      notes(ErrorOf([] { RunUnder({.seconds = 0.01}, [] { WhileDoing("waiting", Forever); }); })),
      "while waiting;");
}

// What is cut off must not look like a result.
TEST(BudgetTest, AFileThatIsNotFinishedIsRemoved) {
  const TempFolder folder;
  const std::string path = folder.path() + "/out";
  EXPECT_EQ(ErrorOf([&] {
              RunUnder({.seconds = 0.02}, [&] {
                FileWriter file(path);
                while (true) {
                  file.Write("text");
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
              });
            }).id(),
            "limit/time");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace lathe
