#pragma once

#include <atomic>

#include "lathe/support/budget.h"
#include "lathe/support/kernel.h"

namespace lathe::runtime {

/// A team for the kernels of one run that ends early when a budget says so: pieces of loops that
/// would take longer than a millisecond are cut smaller, and no more begin. The rest of a loop is
/// left out then, so what kernels have written means nothing.
class StoppableTeam : public KernelTeam {
 public:
  /// Both must outlive it. Without `team`, loops run on the caller's thread.
  StoppableTeam(const Budget* budget, KernelTeam* team);

  /// Some part of a kernel was left out.
  bool has_stopped() const { return stopped_.load(std::memory_order_relaxed); }

 private:
  struct Loop;

  static void RunLoop(KernelTeam* team, int64_t extent, Body body, void* captured);
  static void RunPiece(int64_t begin, int64_t end, void* loop);
  static bool Ask(KernelTeam* team);

  const Budget* budget_;
  KernelTeam* team_;
  std::atomic<bool> stopped_{false};
};

}  // namespace lathe::runtime
