#include "lathe/support/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/processors.h"

namespace lathe {
namespace {

// True on a thread that is inside a piece of a loop.
thread_local bool inside_loop = false;

// One loop. Pieces are begun in order, so when piece i throws, all before it have been begun and
// will report too: the lowest failing piece is the same in every run.
struct Loop {
  Loop(int64_t first, int64_t last, int64_t step, internal::RangeFunction function)
      : begin(first),
        end(last),
        grain(step),
        pieces((static_cast<uint64_t>(last) - static_cast<uint64_t>(first) - 1) /
                   static_cast<uint64_t>(step) +
               1),
        fn(function),
        budget(Budget::Current()) {}

  const int64_t begin;
  const int64_t end;
  const int64_t grain;
  const uint64_t pieces;
  const internal::RangeFunction fn;
  const Budget* const budget;  // of the thread that started it, which waits
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  uint64_t failed_piece = 0;
  std::exception_ptr failure;

  void RunPiece(uint64_t piece) {
    const int64_t from = begin + static_cast<int64_t>(piece) * grain;
    const int64_t to = end - from > grain ? from + grain : end;
    try {
      CheckBudget();
      fn(from, to);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failure == nullptr || piece < failed_piece) {
        failure = std::current_exception();
        failed_piece = piece;
      }
      failed.store(true, std::memory_order_relaxed);
    }
  }

  void RunPieces() {
    const Budget::Share share(budget);
    while (!failed.load(std::memory_order_relaxed)) {
      const uint64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) return;
      RunPiece(piece);
    }
  }
};

class InsideLoop {
 public:
  InsideLoop() : before_(std::exchange(inside_loop, true)) {}
  InsideLoop(const InsideLoop&) = delete;
  InsideLoop& operator=(const InsideLoop&) = delete;
  ~InsideLoop() { inside_loop = before_; }

 private:
  bool before_;
};

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int threads) { workers.Start(threads - 1, this); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    workers.Join();
  }

  std::mutex one_loop;  // held by whoever runs a loop
  std::mutex mutex;     // guards what follows
  std::condition_variable wake;
  std::condition_variable idle;
  Loop* loop = nullptr;
  uint64_t generation = 0;
  int working = 0;
  bool stopping = false;
  Workers workers;  // last: they use what stands above

  void Work() {
    const InsideLoop inside;
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || (loop != nullptr && generation != seen); });
      if (stopping) return;
      seen = generation;
      Loop* mine = loop;
      ++working;
      lock.unlock();
      mine->RunPieces();
      lock.lock();
      if (--working == 0) idle.notify_all();
    }
  }

  void RunShared(Loop& job) {
    const std::lock_guard turn(one_loop);
    {
      const std::lock_guard lock(mutex);
      loop = &job;
      ++generation;
    }
    wake.notify_all();
    {
      const InsideLoop inside;
      job.RunPieces();
    }
    std::unique_lock lock(mutex);
    loop = nullptr;  // nobody joins from here on
    idle.wait(lock, [this] { return working == 0; });
  }
};

ThreadPool::ThreadPool(int threads)
    : impl_(CheckedThreads(threads) > 0 ? threads : HardwareThreads()) {}
ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::Run(int64_t begin, int64_t end, int64_t grain, internal::RangeFunction fn) {
  LATHE_CHECK(grain >= 1);
  if (begin >= end) return;
  const uint64_t span = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
  LATHE_CHECK(span <= uint64_t{1} << 62, "the range of a loop is too long");
  Loop loop(begin, end, grain, fn);
  if (loop.pieces == 1 || inside_loop || impl_->workers.size() == 0) {
    loop.RunPieces();
  } else {
    impl_->RunShared(loop);
  }
  if (loop.failure != nullptr) std::rethrow_exception(loop.failure);
}

int HardwareThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0;
  const int allowed =
      known ? CPU_COUNT(&set) : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int quota = ProcessorQuota();
  return quota == 0 ? allowed : std::min(allowed, quota);
}

ThreadPool& DefaultThreadPool() {
  static ThreadPool pool;
  return pool;
}

}  // namespace lathe
