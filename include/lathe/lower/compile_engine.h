#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/lower/disk_cache.h"
#include "lathe/lower/strategy.h"

namespace lathe {

/// What decides which code a function becomes: its structure and the target.
struct CompileKey {
  std::string structure;  ///< StructureText of its region
  std::string target;
  uint64_t hash = 0;
  CompileKey(const Region& function, const TargetKeys& for_target);
  bool operator==(const CompileKey& other) const {
    return hash == other.hash && target == other.target && structure == other.structure;
  }
};

/// A lowered function. Immutable, shared by everyone who asked for it.
struct CompiledFunction {
  std::string name;  ///< of what it computes: `fused_matmul_add_0123456789abcdef`
  std::string target;
  std::string bytes;  ///< what the lowering gave
};

/// Lowers functions, each structure once per target, and keeps the results [NNVM, TVM compile
/// engine]. Any number of threads may use one engine; different functions are lowered at the same
/// time, threads that want the same one wait for it. Names and bytes do not depend on who came
/// first.
class CompileEngine {
 public:
  /// Turns the region of a `builtin.group` or `builtin.func` into bytes; called from any thread.
  /// What it throws reaches everyone who waits; the next one who asks tries again.
  using Lower =
      std::function<std::string(const Region& function, const TargetKeys&, std::string_view name)>;
  /// Without `lower` the bytes are the structure itself. A `disk` is asked before anything is
  /// lowered, and told afterwards.
  explicit CompileEngine(Lower lower = {}, std::shared_ptr<const DiskCache> disk = nullptr);

  std::shared_ptr<const CompiledFunction> Compile(const Region& function, const TargetKeys& target);

  /// All, by name and target.
  std::vector<std::shared_ptr<const CompiledFunction>> Items() const;
  size_t hits() const { return hits_; }            ///< found in memory
  size_t misses() const { return misses_; }        ///< not found there
  size_t disk_hits() const { return disk_hits_; }  ///< of these, found on disk
  void Clear();

 private:
  using Result = std::shared_ptr<const CompiledFunction>;
  struct Entry {
    CompileKey key;
    std::shared_future<Result> result;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::multimap<uint64_t, Entry> entries;  ///< by hash
  };
  Shard& ShardOf(const CompileKey& key) { return shards_[key.hash % shards_.size()]; }
  Result Make(const CompileKey& key, const Region& function, const TargetKeys& target);
  void Forget(const CompileKey& key);

  Lower lower_;
  std::shared_ptr<const DiskCache> disk_;
  std::array<Shard, 16> shards_;
  std::atomic<size_t> hits_ = 0, misses_ = 0, disk_hits_ = 0;
};

/// `fused_<op>_<op>...`, at most 80 characters, of the region's operations without dialect and
/// constants; then `_<hash>` of its structure.
std::string KernelName(const Region& function, uint64_t hash);

}  // namespace lathe
