#include "lathe/runtime/worker_team.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "lathe/support/processors.h"
#include "src/runtime/float_mode.h"

namespace lathe::runtime {
namespace {

constexpr std::chrono::microseconds kSpin(20);
// Within a run the next loop is near: to be woken costs more than most kernels take.
constexpr std::chrono::microseconds kSpinInRun(1000);
// Enough pieces that a thread which starts late, or is slow, does not hold up the others.
constexpr int kPiecesPerThread = 4;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// True as soon as `done` is; false when kSpin has passed, or kSpinInRun as long as `in_run` is.
template <class F, class G>
bool Spin(F done, G in_run) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      Pause();
    }
    const auto passed = std::chrono::steady_clock::now() - begin;
    if (passed < kSpin) continue;
    if (passed >= kSpinInRun || !in_run()) return false;
    std::this_thread::yield();  // another process may need the processor more
  }
}

// Signals are for the threads of the program; debuggers show whose thread it is.
void BehaveAsWorker() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  pthread_setname_np(pthread_self(), "lathe-worker");
}

// A loop in pieces; valid while one of its pieces is not finished.
struct Loop {
  int64_t extent = 0;
  KernelTeam::Body body = nullptr;
  void* captured = nullptr;
  uint32_t pieces = 0;

  void RunPiece(uint32_t piece) const {
    const int64_t size = extent / pieces;
    const int64_t longer = extent % pieces;  // so many pieces have one more
    const int64_t begin = piece * size + std::min<int64_t>(piece, longer);
    body(begin, begin + size + (piece < longer ? 1 : 0), captured);
  }
};

}  // namespace

struct WorkerTeam::Shared {
  explicit Shared(int threads) : patient(threads <= UsableCores()) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    stopping.store(true);
    epoch.fetch_add(1);
    epoch.notify_all();
    workers.Join();
  }

  const bool patient;              // there is a processor for each thread
  std::atomic<bool> taken{false};  // somebody runs a loop
  Loop loop;
  // Pieces of `loop` that nobody has begun. Whoever lowers it owns a piece, so the loop stays what
  // it is until that piece is finished; a late worker that finds 0 touches nothing else.
  std::atomic<uint32_t> open{0};
  std::atomic<int32_t> unfinished{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<int32_t> epoch{0};  // raised by each loop; workers sleep on it
  std::atomic<bool> stopping{false};
  std::atomic<int32_t> runs{0};
  std::once_flag started;
  Workers workers;

  auto in_run() const {
    return [this] { return patient && runs.load(std::memory_order_relaxed) > 0; };
  }

  // The pieces are begun in order.
  bool RunOpenPiece() {
    uint32_t left = open.load(std::memory_order_relaxed);
    do {
      if (left == 0) return false;
    } while (!open.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                         std::memory_order_relaxed));
    loop.RunPiece(loop.pieces - left);
    if (unfinished.fetch_sub(1) == 1 && caller_sleeps.load()) unfinished.notify_one();
    return true;
  }

  void Work() {
    BehaveAsWorker();
    const FloatMode mode;
    while (true) {
      const int32_t seen = epoch.load();  // first, so that what comes after it ends the sleep
      if (stopping.load()) return;
      while (RunOpenPiece()) {
      }
      const bool more = Spin([&] { return open.load(std::memory_order_relaxed) != 0; }, in_run());
      if (!more) epoch.wait(seen);
    }
  }

  void WaitUntilFinished() {
    const auto finished = [&] { return unfinished.load() == 0; };
    if (Spin(finished, in_run())) return;
    caller_sleeps.store(true);
    for (int32_t left = unfinished.load(); left != 0; left = unfinished.load()) {
      unfinished.wait(left);
    }
    caller_sleeps.store(false);
  }

  void RunTogether(const Loop& job) {
    loop = job;
    unfinished.store(static_cast<int32_t>(job.pieces), std::memory_order_relaxed);
    open.store(job.pieces, std::memory_order_release);
    epoch.fetch_add(1);
    if (job.pieces > workers.size()) {
      epoch.notify_all();
    } else {
      for (uint32_t i = 1; i < job.pieces; ++i) epoch.notify_one();
    }
    while (RunOpenPiece()) {
    }
    WaitUntilFinished();
  }
};

WorkerTeam::WorkerTeam(int threads)
    : KernelTeam{&Run},
      threads_(CheckedThreads(threads) > 0 ? threads : UsableCores()),
      shared_(threads_) {
  num_threads = threads_;
}
WorkerTeam::~WorkerTeam() = default;

void WorkerTeam::BeginRun() { shared_->runs.fetch_add(1, std::memory_order_relaxed); }
void WorkerTeam::EndRun() { shared_->runs.fetch_sub(1, std::memory_order_relaxed); }

void WorkerTeam::Run(KernelTeam* team, int64_t extent, Body body, void* captured) {
  auto& self = *static_cast<WorkerTeam*>(team);
  Shared& shared = *self.shared_;
  if (extent <= 0) return;
  const bool alone = extent == 1 || self.threads_ == 1 || shared.taken.exchange(true);
  if (alone) {
    body(0, extent, captured);
    return;
  }
  std::call_once(shared.started, [&] { shared.workers.Start(self.threads_ - 1, &shared); });
  const int64_t pieces = std::min<int64_t>(extent, int64_t{kPiecesPerThread} * self.threads_);
  shared.RunTogether({extent, body, captured, static_cast<uint32_t>(pieces)});
  shared.taken.store(false);
}

}  // namespace lathe::runtime
