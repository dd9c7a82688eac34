#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/support/dim.h"
#include "lathe/support/executable_memory.h"
#include "lathe/support/kernel.h"

namespace lathe::codegen {

/// Position-independent machine code: nothing in it is written, nothing outside is named. The same
/// bytes are mapped by the compiler, kept in a cache and stored in files.
struct CodeImage {
  static constexpr size_t kAlignment = 64;  ///< of the first byte in memory

  struct Entry {
    std::string name;
    uint64_t offset = 0;
    /// Scratch memory in bytes that a caller hands over as further KernelBuffers (without shape,
    /// aligned to 64) behind the outputs; of symbols that name extents of the kernel's arguments.
    std::vector<Dim> workspaces;
    bool checks = false;  ///< the last workspace holds a KernelStatus afterwards
  };

  std::string bytes;
  std::vector<Entry> entries;

  /// An unknown name is an internal error.
  const Entry& Find(std::string_view name) const;
  /// Adds another one's code and entries behind its own.
  void Append(const CodeImage& other);
};

/// An image in memory that may be called. Threads: everything is const.
class KernelLibrary {
 public:
  explicit KernelLibrary(CodeImage image) : image_(std::move(image)), memory_(image_.bytes) {}
  /// Valid as long as the library; an unknown name is an internal error.
  KernelFunction Find(std::string_view name) const {
    return memory_.FunctionAt<KernelFunction>(image_.Find(name).offset);
  }
  const CodeImage& image() const { return image_; }

 private:
  CodeImage image_;
  ExecutableMemory memory_;
};

}  // namespace lathe::codegen
