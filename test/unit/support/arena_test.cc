#include "lathe/support/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

namespace lathe {
namespace {

TEST(ArenaTest, BlocksAreAlignedAndApart) {
  Arena arena(256);
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (size_t i = 0; i < 500; ++i) {
    const size_t size = i * 7 % 150;
    const size_t alignment = size_t{1} << (i % 7);
    auto* block = static_cast<unsigned char*>(arena.Allocate(size, alignment));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0U);
    std::memset(block, static_cast<int>(i % 256), size);
    blocks.emplace_back(block, size);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t j = 0; j < blocks[i].second; ++j) ASSERT_EQ(blocks[i].first[j], i % 256);
  }
}

TEST(ArenaTest, CopiesAndClears) {
  Arena arena;
  const std::vector<int> values = {1, 2, 3};
  const std::span<int> copy = arena.Copy(std::span<const int>(values));
  EXPECT_EQ(copy[2], 3);
  EXPECT_EQ(arena.Copy(std::string_view("abc")), "abc");
  EXPECT_EQ(arena.Copy(std::string_view()), "");
  EXPECT_EQ(*arena.New<int>(7), 7);
  EXPECT_GT(arena.bytes_reserved(), 0U);
  arena.Clear();
  EXPECT_EQ(arena.bytes_reserved(), 0U);
  EXPECT_EQ(*arena.New<int>(8), 8);
}

TEST(ArenaTest, MovesKeepAddresses) {
  Arena first;
  int* value = first.New<int>(5);
  Arena second(std::move(first));
  EXPECT_EQ(*value, 5);
  EXPECT_EQ(*second.New<int>(6), 6);
  first = std::move(second);
  EXPECT_EQ(*value, 5);
}

TEST(ArenaTest, SmallAllocationsShareBlocks) {
  Arena arena(1 << 16);
  for (int i = 0; i < 1000; ++i) (void)arena.Allocate(32);
  EXPECT_LE(arena.bytes_reserved(), size_t{1} << 16);
}

}  // namespace
}  // namespace lathe
