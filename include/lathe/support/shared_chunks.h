#pragma once

#include <memory>
#include <span>

#include "lathe/support/buffer.h"

namespace lathe {

// While it lives, buffers of this thread that are neither small nor large (64 KiB to 4 MiB) lie
// side by side in large ones, whose memory comes in huge pages: the system takes a seventh of the
// time to hand it out. Whole pages of a buffer that is gone are given back at once, what is left of
// a chunk when all buffers in it are gone: those of one scope should be of one fate. Nests: the
// innermost counts.
class SharedChunks {
 public:
  static constexpr size_t kChunk = size_t{16} << 20;

  SharedChunks();
  SharedChunks(const SharedChunks&) = delete;
  SharedChunks& operator=(const SharedChunks&) = delete;
  ~SharedChunks();

  // Of this thread; null if there are none.
  [[nodiscard]] static SharedChunks* Current();
  // Zeroed, aligned as Buffer's are. At most kChunk.
  [[nodiscard]] std::shared_ptr<Buffer> Take(size_t size);

 private:
  SharedChunks* previous_;
  std::shared_ptr<Buffer> chunk_;
  size_t used_ = 0;
};

// Pages of a mapped file that lie in `bytes` leave this process's memory; whoever reads them again
// gets them from the file. Nothing happens to memory of which that is not known.
void ReleaseFilePages(std::span<const std::byte> bytes);

}  // namespace lathe
