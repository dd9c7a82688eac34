#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/support/error.h"

namespace lathe {

// Ends work early, from any thread or a signal handler.
class CancelToken {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  void Reset() { cancelled_.store(false, std::memory_order_relaxed); }
  [[nodiscard]] bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

// What a piece of work (loading a model, compiling it, a run) may take.
struct Limits {
  double seconds = 0;                   // 0: any time
  uint64_t bytes = 0;                   // of tensors that it holds at once; 0: any
  const CancelToken* cancel = nullptr;  // must outlive the work
  // Whether to look within compiled kernels, too: takes a few percent of the time of short ones.
  bool within_kernels = true;
};

// run/cancelled.
[[nodiscard]] Error Cancelled();

// Unwinds work that is to end. It is no Error, so that nobody takes it for a failure that there is
// a way around; RunUnder makes an Error of it.
class Stopped : public std::exception {
 public:
  explicit Stopped(Error error) : error_(std::move(error)) {}
  [[nodiscard]] Error& error() { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return error_.what(); }

 private:
  Error error_;
};

// Limits in force on a thread, within those that were in force before. Pieces of loops of a
// ThreadPool are under the limits of the thread that started the loop. Thread-safe but for creating
// and destroying.
class Budget {
 public:
  // From here on, on this thread, until it is destroyed.
  explicit Budget(const Limits& limits);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget();

  // The innermost on this thread; null if there is none.
  [[nodiscard]] static const Budget* Current();

  // Throws Stopped with run/cancelled or limit/time if the work is to end: its own, or any that it
  // is within. Costs a reading of the clock if there is a limit of time.
  void Check() const;
  [[nodiscard]] bool stopped() const { return WhyStopped() != Reason::kNone; }
  [[nodiscard]] bool within_kernels() const { return within_kernels_; }

  // Held as long as memory is that was allocated under this budget; null if there is no limit.
  // Throws limit/memory.
  [[nodiscard]] std::shared_ptr<const void> Claim(size_t bytes) const;

  // On another thread that does a part of the work. Null: nothing is in force.
  class Share {
   public:
    explicit Share(const Budget* budget);
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share();

   private:
    const Budget* before_;
  };

 private:
  enum class Reason : uint8_t { kNone, kCancelled, kTime };
  struct Account;

  [[nodiscard]] Reason WhyStopped() const;

  const Budget* const outer_;
  const Limits limits_;
  const std::chrono::steady_clock::time_point deadline_;
  const bool within_kernels_;
  std::shared_ptr<Account> account_;  // null: no limit
};

// Budget::Check of this thread's, if there is one. To be called every millisecond or so by whatever
// may take long.
void CheckBudget();

// For loops that are too short to look each time round: CheckBudget now and then.
class BudgetTicker {
 public:
  void Tick() {
    if (++count_ % kInterval == 0) CheckBudget();
  }

 private:
  static constexpr uint32_t kInterval = 1 << 12;
  uint32_t count_ = 0;
};

// `work()` under `limits`. Errors: what it throws, run/cancelled, limit/time, limit/memory.
template <class F>
decltype(auto) RunUnder(const Limits& limits, F&& work) {
  try {
    const Budget budget(limits);
    return std::forward<F>(work)();
  } catch (Stopped& stopped) {
    throw std::move(stopped.error());
  }
}

namespace internal {
[[nodiscard]] Error OutOfMemory();
}  // namespace internal

// `work()`, whose errors about limits say that they happened `doing` something: "importing m.onnx".
// What the system has no memory for becomes limit/memory.
template <class F>
decltype(auto) WhileDoing(std::string_view doing, F&& work) {
  const auto note = [&] { return StrCat("while ", doing); };
  try {
    return std::forward<F>(work)();
  } catch (Stopped& stopped) {
    stopped.error().Note(note());
    throw;
  } catch (Error& error) {
    if (error.code() == ErrorCode::kLimit) error.Note(note());
    throw;
  } catch (const std::bad_alloc&) {
    throw internal::OutOfMemory().Note(note());
  }
}

}  // namespace lathe
