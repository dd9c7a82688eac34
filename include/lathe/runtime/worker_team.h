#pragma once

#include <cstdint>
#include <memory>

#include "lathe/support/kernel.h"

namespace lathe::runtime {

/// Threads for the parallel loops of kernels. Any number of threads may call kernels with one team
/// at once: one of them at a time gets the workers, a loop of another (or a loop within a loop)
/// runs on its own thread, at once and without waiting.
///
/// Workers start with the first loop that has work for them. One that finds nothing to do looks for
/// more for 20 microseconds, then sleeps and takes no processor time; the thread that runs a loop
/// sleeps, too, if others still work on it after 20 microseconds. Nothing is allocated per loop.
class WorkerTeam : public KernelTeam {
 public:
  /// `threads` counts the caller, so 1 starts none; 0 means UsableCores().
  explicit WorkerTeam(int threads = 0);
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;
  ~WorkerTeam();  // joins

  int threads() const { return threads_; }

  /// What to call a kernel with: null if there is one thread.
  KernelTeam* for_kernels() { return threads_ > 1 ? this : nullptr; }

 private:
  struct Shared;

  static void Run(KernelTeam* team, int64_t extent, Body body, void* captured);

  const int threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace lathe::runtime
