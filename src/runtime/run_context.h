#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lathe/runtime/executor.h"
#include "lathe/runtime/profile.h"
#include "lathe/support/buffer.h"
#include "lathe/support/kernel.h"
#include "src/runtime/objects.h"
#include "src/runtime/placement.h"

namespace lathe::runtime {

/// What one run needs beside its arguments. Taken over by later runs.
struct RunContext {
  std::vector<int64_t> symbols;
  std::shared_ptr<const Placement> placement;   ///< that `buffers` are made for, of stage 0
  std::unique_ptr<Placement> staged;            ///< its copy that later stages are added to
  std::unique_ptr<Placement> before;            ///< that of the run before, if inputs were alike
  std::vector<std::shared_ptr<Buffer>> arenas;  ///< by stage
  std::vector<KernelBuffer> buffers;            ///< of all steps, one after the other
  std::vector<Profile::Event> events;
  RunObjects objects;
  // Of this run:
  std::span<const InputView> inputs;
  std::vector<OutputView> outputs;
  const OutputMemory* memory = nullptr;

  const Placement& current() const { return staged != nullptr ? *staged : *placement; }
  uint64_t arena_bytes(size_t stage) const {
    return stage < arenas.size() && arenas[stage] != nullptr ? arenas[stage]->size() : 0;
  }
};

/// Contexts that no run uses, and the count of what all of an executor's hold. Thread-safe.
class ContextPool {
 public:
  /// `allocate`: see ExecutorOptions.
  using Allocate = std::function<std::shared_ptr<Buffer>(uint64_t bytes)>;
  ContextPool(uint64_t max_bytes, Allocate allocate)
      : max_bytes_(max_bytes), allocate_(std::move(allocate)) {}

  /// The one used last, or a new one.
  std::unique_ptr<RunContext> Take();
  void GiveBack(std::unique_ptr<RunContext> context);
  /// Makes the arena of a stage at least that large; its contents are lost. Throws limit/memory.
  void Reserve(RunContext& context, uint32_t stage, uint64_t bytes);
  /// Drops what no run uses.
  void Trim();

  uint64_t bytes() const { return bytes_.load(); }

 private:
  void Release(RunContext& context, size_t stage);
  bool Claim(uint64_t bytes);

  const uint64_t max_bytes_;
  const Allocate allocate_;
  std::atomic<uint64_t> bytes_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<RunContext>> idle_;
};

}  // namespace lathe::runtime
