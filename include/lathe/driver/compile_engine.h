#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/codegen/code_image.h"
#include "lathe/codegen/target.h"
#include "lathe/ir/operation.h"
#include "lathe/lower/disk_cache.h"
#include "lathe/lower/lower_function.h"

namespace lathe {

/// Compiles functions, each structure once per target, and keeps what they become [NNVM, TVM
/// compile engine]: in memory, and in a folder for other processes and times. Threads: any number
/// may use one engine; different functions are compiled at the same time, threads that want the
/// same one wait for it.
class CompileEngine {
 public:
  /// What a function has become.
  struct Made {
    lower::Lowered how;  ///< from a file: without knobs
    codegen::CodeImage image;
  };
  struct Kernel {
    explicit Kernel(Made made) : how(std::move(made.how)), code(std::move(made.image)) {}
    lower::Lowered how;
    codegen::KernelLibrary code;
  };

  /// An empty folder: in memory only. A missing one is made, for its owner alone; one that others
  /// may write is not used (DiskCache::WhyRefused). `limit` of its files in bytes; 0: none.
  explicit CompileEngine(const std::string& folder = "", uint64_t limit = DiskCache::kDefaultLimit);

  /// What decides what becomes of a function that is not lowered yet: its operations and types,
  /// which of its arguments are constant, and the target. Empty if it is not to be kept: what
  /// strategies of plug-ins would do is not known.
  static std::string KeyOf(Operation* function, const std::vector<bool>& constant,
                           const codegen::Target& target);

  /// Compiles; nothing if that cannot be. Must not ask the engine.
  using Make = std::function<std::optional<Made>()>;
  /// The kernel of that key, which `make` is asked for if nobody has made it; null if `make` gives
  /// nothing, which is not kept. What it throws reaches everyone who waits; the next one who asks
  /// tries again. An empty key is never found.
  std::shared_ptr<const Kernel> Compile(const std::string& key, const Make& make);

  size_t hits() const { return hits_; }            ///< found in memory
  size_t disk_hits() const { return disk_hits_; }  ///< found in a file
  size_t misses() const { return misses_; }        ///< made

 private:
  using Result = std::shared_ptr<const Kernel>;
  Result Find(const std::string& key, const Make& make);
  void Forget(const std::string& key);

  const std::unique_ptr<const DiskCache> disk_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_future<Result>> kernels_;  // looked up only
  std::atomic<size_t> hits_ = 0, disk_hits_ = 0, misses_ = 0;
};

}  // namespace lathe
