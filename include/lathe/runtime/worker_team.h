#pragma once

#include <cstdint>

#include "lathe/support/kernel.h"
#include "lathe/support/per_process.h"

namespace lathe::runtime {

/// Threads for the parallel loops of kernels. Any number of threads may call kernels with one team
/// at once: one of them at a time gets the workers, a loop of another (or a loop within a loop)
/// runs on its own thread, at once and without waiting.
///
/// Workers start with the first loop that has work for them. One that finds nothing to do looks for
/// more for 20 microseconds, then sleeps and takes no processor time; the thread that runs a loop
/// sleeps, too, if others still work on it after 20 microseconds. While an `InRun` exists, and the
/// team has no more threads than there are processors, both look for up to a millisecond, and give
/// way to other threads that are ready. Nothing is allocated per loop.
///
/// Where the system does not give so many threads, there are fewer. A forked child starts workers
/// of its own with its first loop, and never waits for those of its parent.
class WorkerTeam : public KernelTeam {
 public:
  /// `threads` counts the caller, so 1 starts none; 0 means UsableCores(). Errors: run/threads.
  explicit WorkerTeam(int threads = 0);
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;
  ~WorkerTeam();  // joins

  int threads() const { return threads_; }

  /// As long as one exists, more loops are to be expected soon.
  class InRun {
   public:
    explicit InRun(WorkerTeam& team) : team_(team) { team_.BeginRun(); }
    InRun(const InRun&) = delete;
    InRun& operator=(const InRun&) = delete;
    ~InRun() { team_.EndRun(); }

   private:
    WorkerTeam& team_;
  };

  /// What to call a kernel with: null if there is one thread.
  KernelTeam* for_kernels() { return threads_ > 1 ? this : nullptr; }

 private:
  struct Shared;

  void BeginRun();
  void EndRun();
  static void Run(KernelTeam* team, int64_t extent, Body body, void* captured);

  const int threads_;
  PerProcess<Shared> shared_;
};

}  // namespace lathe::runtime
