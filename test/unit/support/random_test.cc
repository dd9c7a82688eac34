#include "lathe/support/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lathe/support/hash.h"

namespace lathe {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32, 10 rounds).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox({ones, ones, ones, ones}, {ones, ones}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStreamTest, SkipsInConstantTime) {
  RandomStream a(1, 2);
  RandomStream b(1, 2);
  for (int i = 0; i < 1001; ++i) (void)a.NextU32();
  b.Skip(1001);
  EXPECT_EQ(a.NextU32(), b.NextU32());
  EXPECT_NE(RandomStream(1, 2).NextU64(), RandomStream(1, 3).NextU64());
  EXPECT_NE(RandomStream(1, 2).NextU64(), RandomStream(2, 2).NextU64());
}

TEST(RandomStreamTest, Ranges) {
  RandomStream random(3);
  std::set<int64_t> seen;
  double sum = 0, squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double uniform = random.NextDouble();
    ASSERT_GE(uniform, 0);
    ASSERT_LT(uniform, 1);
    seen.insert(random.Int(-2, 2));
    const double normal = random.Normal();
    sum += normal;
    squares += normal * normal;
  }
  EXPECT_EQ(seen, (std::set<int64_t>{-2, -1, 0, 1, 2}));
  EXPECT_NEAR(sum / kCount, 0, 0.05);
  EXPECT_NEAR(squares / kCount, 1, 0.05);
  EXPECT_EQ(random.Int(7, 7), 7);
  (void)random.Int(INT64_MIN, INT64_MAX);
}

TEST(RandomTensorTest, SameSeedSameTensor) {
  const Tensor t = RandomTensor(ElementType::kF32, {1000}, 5);
  EXPECT_EQ(t, RandomTensor(ElementType::kF32, {1000}, 5));
  for (const float x : t.data<float>()) {
    ASSERT_GE(x, -1);
    ASSERT_LE(x, 1);
  }
  for (const int64_t x : ToInt64s(RandomTensor(ElementType::kI8, {1000}, 5))) {
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 10);
  }
}

TEST(HashTest, DependsOnValueOrderAndLength) {
  EXPECT_EQ(HashString("abc"), HashString("abc"));
  EXPECT_NE(HashString("abc"), HashString("abd"));
  EXPECT_NE(HashString(std::string_view("a\0", 2)), HashString("a"));
  EXPECT_NE(HashString("a", 1), HashString("a", 2));
  EXPECT_NE(HashCombine(HashCombine(0, 1), 2), HashCombine(HashCombine(0, 2), 1));
  std::set<uint64_t> hashes;
  for (uint64_t i = 0; i < 100000; ++i) hashes.insert(HashCombine(0, i));
  EXPECT_EQ(hashes.size(), 100000U);
  // Pinned: written into files and golden tests, so it may not change from run to run.
  EXPECT_EQ(HashMix(1), 0x5692161d100b05e5U);
}

}  // namespace
}  // namespace lathe
