#include "lathe/support/budget.h"

#include <algorithm>
#include <cstdio>

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;

thread_local const Budget* current = nullptr;

Clock::time_point DeadlineIn(double seconds) {
  constexpr double kYear = 365 * 86400.0;
  if (seconds <= 0) return Clock::time_point::max();
  const std::chrono::duration<double> span(std::min(seconds, kYear));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(span);
}

std::string ShortText(double value) {
  char text[32];
  snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

// Bytes that memory under a budget holds. Lives as long as some of that memory does.
struct Budget::Account {
  Account(uint64_t bytes, std::shared_ptr<Account> within)
      : limit(bytes), outer(std::move(within)) {}

  bool Add(uint64_t bytes) {
    uint64_t held = used.load(std::memory_order_relaxed);
    do {
      if (bytes > limit || held > limit - bytes) return false;
    } while (!used.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return true;
  }

  const uint64_t limit;
  const std::shared_ptr<Account> outer;
  std::atomic<uint64_t> used{0};
};

namespace {

// Bytes that count in an account and those around it until this is destroyed.
template <class A>
class Claimed {
 public:
  Claimed(std::shared_ptr<A> account, uint64_t bytes)
      : account_(std::move(account)), bytes_(bytes) {
    for (A* a = account_.get(); a != nullptr; a = a->outer.get()) {
      if (a->Add(bytes)) continue;
      const uint64_t held = a->used.load(std::memory_order_relaxed);
      Release(a);
      throw Error(ErrorCode::kLimit, "limit/memory",
                  StrCat("an allocation of ", HumanBytes(bytes), " beside ", HumanBytes(held),
                         " exceeds the limit of ", HumanBytes(a->limit)));
    }
  }
  Claimed(const Claimed&) = delete;
  Claimed& operator=(const Claimed&) = delete;
  ~Claimed() { Release(nullptr); }

 private:
  void Release(const A* end) {
    for (A* a = account_.get(); a != end; a = a->outer.get()) {
      a->used.fetch_sub(bytes_, std::memory_order_relaxed);
    }
  }

  const std::shared_ptr<A> account_;
  const uint64_t bytes_;
};

}  // namespace

Budget::Budget(const Limits& limits)
    : outer_(current),
      limits_(limits),
      deadline_(DeadlineIn(limits.seconds)),
      within_kernels_((limits.within_kernels && (limits.seconds > 0 || limits.cancel != nullptr)) ||
                      (outer_ != nullptr && outer_->within_kernels_)),
      account_(outer_ == nullptr ? nullptr : outer_->account_) {
  if (limits.bytes > 0) account_ = std::make_shared<Account>(limits.bytes, std::move(account_));
  current = this;
}

Budget::~Budget() { current = outer_; }

const Budget* Budget::Current() { return current; }

Budget::Reason Budget::WhyStopped() const {
  Clock::time_point earliest = Clock::time_point::max();
  for (const Budget* b = this; b != nullptr; b = b->outer_) {
    if (b->limits_.cancel != nullptr && b->limits_.cancel->cancelled()) return Reason::kCancelled;
    earliest = std::min(earliest, b->deadline_);
  }
  const bool late = earliest != Clock::time_point::max() && Clock::now() >= earliest;
  return late ? Reason::kTime : Reason::kNone;
}

void Budget::Check() const {
  const Reason reason = WhyStopped();
  if (reason == Reason::kNone) return;
  if (reason == Reason::kCancelled) throw Stopped(Cancelled());
  const Budget* late = this;
  while (Clock::now() < late->deadline_) late = late->outer_;
  throw Stopped(
      Error(ErrorCode::kLimit, "limit/time",
            StrCat("not done within the limit of ", ShortText(late->limits_.seconds), " seconds")));
}

std::shared_ptr<const void> Budget::Claim(size_t bytes) const {
  if (account_ == nullptr) return nullptr;
  return std::make_shared<const Claimed<Account>>(account_, bytes);
}

Error Cancelled() { return {ErrorCode::kLimit, "run/cancelled", "the work was cancelled"}; }

Budget::Share::Share(const Budget* budget) : before_(std::exchange(current, budget)) {}
Budget::Share::~Share() { current = before_; }

void CheckBudget() {
  if (current != nullptr) current->Check();
}

namespace internal {
Error OutOfMemory() {
  return {ErrorCode::kLimit, "limit/memory", "the system has no more memory for this process"};
}
}  // namespace internal

}  // namespace lathe
