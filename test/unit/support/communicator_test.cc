#include "lathe/support/communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>

#include "lathe/support/background_communication.h"
#include "lathe/support/collectives.h"
#include "lathe/support/error.h"
#include "lathe/support/float_types.h"

namespace lathe {
namespace {

template <class F>
std::string IdOf(F&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.id();
  }
  return "";
}

// What rank `rank` has at `i`: sums of these depend on the order in f32.
float Element(int rank, int64_t i) {
  return std::ldexp(static_cast<float>((i * 37 + rank * 11) % 101) - 50.0F, (rank * 7) % 20 - 10);
}

std::vector<float> ElementsOf(int rank, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(Element(rank, i));
  return values;
}

// Fewer elements than ranks, more, a multiple, none; several blocks.
TEST(Collectives, AllReduceAddsInTheOrderOfRanks) {
  for (const int size : {1, 2, 3, 4, 7}) {
    for (const int64_t count : {0, 1, 5, 12, 5000}) {
      RunAsThreadRanks(size, [&](Communicator& ranks) {
        std::vector<float> mine = ElementsOf(ranks.rank(), count);
        void* data = mine.data();
        AllReduce(ranks, Reduction::kSum, ElementType::kF32, count, {{data}}, {{data}});
        for (int64_t i = 0; i < count; ++i) {
          double sum = 0;
          for (int r = 0; r < size; ++r) sum += Element(r, i);
          ASSERT_EQ(mine[static_cast<size_t>(i)], static_cast<float>(sum)) << size << " " << i;
        }
      });
    }
  }
}

TEST(Collectives, EveryReductionAndElementType) {
  RunAsThreadRanks(3, [](Communicator& ranks) {
    const int r = ranks.rank();
    const auto reduced = [&]<class T>(Reduction reduction, ElementType element, T value) {
      void* data = &value;
      AllReduce(ranks, reduction, element, 1, {{data}}, {{data}});
      return value;
    };
    const auto nan = std::nanf("");
    EXPECT_EQ(reduced(Reduction::kMean, ElementType::kI32, int32_t{r == 2 ? 5 : 1}), 2);
    EXPECT_EQ(reduced(Reduction::kMin, ElementType::kF64, 1.0 - r), -1.0);
    EXPECT_EQ(reduced(Reduction::kMax, ElementType::kU8, static_cast<uint8_t>(250 + r)), 252);
    EXPECT_EQ(reduced(Reduction::kSum, ElementType::kU8, uint8_t{100}), 300 - 256);
    EXPECT_TRUE(std::isnan(reduced(Reduction::kMin, ElementType::kF32, r == 1 ? nan : 1.0F)));
    EXPECT_TRUE(std::isnan(reduced(Reduction::kMax, ElementType::kF32, r == 0 ? nan : 1.0F)));
    EXPECT_EQ(float(reduced(Reduction::kMean, ElementType::kF16, Half(1.0F + r))), 2.0F);
    EXPECT_EQ(float(reduced(Reduction::kSum, ElementType::kBF16, BFloat16(0.5F))), 1.5F);
  });
}

// Tensors of a bucket lie anywhere; the bits are those of each by itself where bounds agree.
TEST(Collectives, ABucketReducesEachTensor) {
  RunAsThreadRanks(4, [](Communicator& ranks) {
    std::vector<float> a = ElementsOf(ranks.rank(), 3), b = ElementsOf(ranks.rank(), 1001);
    std::vector<float> sum_a(3), sum_b(1001);
    const BucketPart parts[] = {{3, a.data(), sum_a.data()}, {1001, b.data(), sum_b.data()}};
    AllReduceBucket(ranks, Reduction::kSum, ElementType::kF32, parts);
    void *pa = a.data(), *pb = b.data();
    AllReduce(ranks, Reduction::kSum, ElementType::kF32, 3, {{pa}}, {{pa}});
    AllReduce(ranks, Reduction::kSum, ElementType::kF32, 1001, {{pb}}, {{pb}});
    EXPECT_EQ(a, sum_a);
    EXPECT_EQ(b, sum_b);
  });
}

TEST(Collectives, PartsGoWhereTheyBelong) {
  for (const int size : {1, 2, 3, 5}) {
    RunAsThreadRanks(size, [&](Communicator& ranks) {
      const int me = ranks.rank();
      const auto n = static_cast<size_t>(size);
      std::vector<int64_t> gathered(n), given(n), taken(n);
      const int64_t mine = 10 * me;
      AllGather(ranks, &mine, sizeof(mine), gathered.data());
      std::iota(given.begin(), given.end(), int64_t{100} * me);
      AllToAll(ranks, given.data(), sizeof(int64_t), taken.data());
      int64_t sum = 0;
      const void* input = given.data();
      ReduceScatter(ranks, Reduction::kSum, ElementType::kI64, 1, {{input}}, &sum);
      EXPECT_EQ(sum, 100 * size * (size - 1) / 2 + me * size);
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(gathered[static_cast<size_t>(r)], 10 * r);
        EXPECT_EQ(taken[static_cast<size_t>(r)], 100 * r + me);
        int64_t word = me == r ? 7 + r : -1;
        Broadcast(ranks, r, &word, sizeof(word));
        EXPECT_EQ(word, 7 + r);
      }
      Barrier(ranks);
      const std::vector<std::string> texts =
          GatherTexts(ranks, std::string(static_cast<size_t>(me), 'x'), "texts");
      for (size_t r = 0; r < n; ++r) EXPECT_EQ(texts[r], std::string(r, 'x'));
    });
  }
}

// Nobody may be in the second phase before everybody has entered the first.
TEST(Collectives, ABarrierWaitsForAll) {
  std::mutex mutex;
  int entered = 0;
  RunAsThreadRanks(4, [&](Communicator& ranks) {
    {
      const std::lock_guard lock(mutex);
      ++entered;
    }
    Barrier(ranks);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(entered, 4);
  });
}

TEST(Communicator, ARankThatFailsEndsTheOthers) {
  int failed = 0;
  std::mutex mutex;
  const std::string id = IdOf([&] {
    RunAsThreadRanks(3, [&](Communicator& ranks) {
      if (ranks.rank() == 1) throw Error(ErrorCode::kIo, "test/disk", "the disk is full");
      try {
        Barrier(ranks);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        failed += error.id() == "rank/failed" ? 1 : 0;
        EXPECT_EQ(error.message(), "rank 1 has failed");
        EXPECT_EQ(error.notes().at(0).text, "the disk is full");
        throw;
      }
    });
  });
  EXPECT_EQ(id, "test/disk");
  EXPECT_EQ(failed, 2);
}

TEST(Communicator, ARankThatDoesNotComeIsNamed) {
  const auto ranks = MakeThreadRanks(2, 0.01);
  try {
    Barrier(*ranks[0], "the end");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "rank/timeout");
    EXPECT_NE(error.message().find("rank 1 has not taken part in 'the end'"), std::string::npos);
  }
}

// Rank 0 waits for rank 1, which waits for rank 2.
TEST(Communicator, ARankThatWaitsItselfIsNotBlamed) {
  const auto begin = [](Communicator& ranks) {
    char byte = 0;
    const Communicator::Receive receive{ranks.rank() + 1, &byte, 1};
    if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (ranks.rank() < 2) ranks.Exchange({}, {&receive, 1}, "it");
  };
  try {
    RunAsThreadRanks(3, begin, 0.3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "rank/timeout");
    EXPECT_NE(error.message().find("rank 2 has not"), std::string::npos) << error.message();
  }
}

TEST(Communicator, RanksThatWaitForEachOtherBlameTheOther) {
  const auto wait = [](Communicator& ranks) {
    char byte = 0;
    const Communicator::Receive receive{1 - ranks.rank(), &byte, 1};
    if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks.Exchange({}, {&receive, 1}, "it");
  };
  try {
    RunAsThreadRanks(2, wait, 0.3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("rank 1 has not"), std::string::npos) << error.message();
  }
}

TEST(BackgroundCommunication, GoesOnInTheOrderOfItsStart) {
  RunAsThreadRanks(3, [](Communicator&) {
    std::vector<std::vector<float>> data;
    for (int i = 0; i < 20; ++i) data.push_back(ElementsOf(RankOf(3) + i, 1000 + i));
    const auto expected = [](int i, int64_t at) {
      double sum = 0;
      for (int r = 0; r < 3; ++r) sum += Element(r + i, at);
      return static_cast<float>(sum);
    };
    BackgroundCommunication& background = BackgroundOf(3);
    for (auto& d : data) {
      background.Start(d.data(), [&d](Communicator& ranks) {
        void* const all = d.data();
        AllReduce(ranks, Reduction::kSum, ElementType::kF32, static_cast<int64_t>(d.size()),
                  {{all}}, {{all}});
      });
    }
    Barrier(CommunicatorOf(3));  // behind all of them
    for (int i = 19; i >= 0; --i) {
      background.Wait(data[static_cast<size_t>(i)].data());
      EXPECT_EQ(data[static_cast<size_t>(i)][7], expected(i, 7));
    }
    EXPECT_GT(background.times().seconds, 0);
  });
}

TEST(BackgroundCommunication, WhoWaitsHearsOfAFailure) {
  const auto run = [](Communicator& ranks) {
    if (ranks.rank() == 1) throw Error(ErrorCode::kIo, "test/disk", "full");
    int data = 0;
    BackgroundOf(2).Start(&data, [](Communicator& r) { Barrier(r); });
    EXPECT_EQ(IdOf([&] { BackgroundOf(2).Wait(&data); }), "rank/failed");
    EXPECT_EQ(IdOf([&] { CommunicatorOf(2); }), "rank/failed");
  };
  EXPECT_EQ(IdOf([&] { RunAsThreadRanks(2, run, 30); }), "test/disk");
}

TEST(Communicator, OtherSizesAreAnError) {
  EXPECT_EQ(IdOf([] {
              RunAsThreadRanks(2, [](Communicator& ranks) {
                std::vector<std::byte> all(64);
                AllGather(ranks, all.data(), ranks.rank() == 0 ? 4 : 8, all.data());
              });
            }),
            "rank/message");
}

TEST(Communicator, IsThatOfTheThread) {
  EXPECT_EQ(CurrentCommunicator(), nullptr);
  EXPECT_EQ(IdOf([] { CommunicatorOf(2); }), "run/ranks");
  RunAsThreadRanks(2, [](Communicator& ranks) {
    EXPECT_EQ(&CommunicatorOf(2), &ranks);
    EXPECT_EQ(IdOf([] { CommunicatorOf(3); }), "run/ranks");
    const CommunicatorScope none(nullptr);
    EXPECT_EQ(CurrentCommunicator(), nullptr);
  });
}

}  // namespace
}  // namespace lathe
