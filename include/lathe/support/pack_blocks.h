#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lathe {

/// A block of memory that is needed from step `begin` to step `end`, both included.
struct MemoryBlock {
  size_t bytes;
  uint32_t begin;
  uint32_t end;
  size_t offset = 0;
};
/// Gives each block an offset, a multiple of `alignment`, so that blocks needed at one step do not
/// overlap; returns the bytes needed in all. Near n log n; the same on every run.
size_t PackBlocks(std::vector<MemoryBlock>& blocks, size_t alignment);
/// The most bytes, aligned, that are needed at one step.
size_t MaxLiveBytes(const std::vector<MemoryBlock>& blocks, size_t alignment);

}  // namespace lathe
