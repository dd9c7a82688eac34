#include "lathe/support/background_communication.h"

#include <algorithm>

#include "lathe/support/clock.h"
#include "lathe/support/error.h"

namespace lathe {

BackgroundCommunication::~BackgroundCommunication() {
  Abandon();
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundCommunication::Start(const void* data, std::function<void(Communicator&)> work) {
  Piece piece{data, std::move(work), Budget::Current()};
  if (!ranks_.allows_threads()) {
    const Outcome outcome = Run(piece);
    times_.waited += outcome.seconds;
    Record(outcome);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  {
    const std::lock_guard lock(mutex_);
    LATHE_CHECK(!IsOpen(data), "a piece of communication is started twice");
    open_.push_back(std::move(piece));
  }
  changed_.notify_all();
}

BackgroundCommunication::Outcome BackgroundCommunication::Run(const Piece& piece) {
  const double begin = SecondsNow();
  Outcome outcome{0, nullptr};
  try {
    const Budget::Share share(piece.budget);
    piece.work(ranks_);
  } catch (...) {
    outcome.failure = std::current_exception();
  }
  outcome.seconds = SecondsNow() - begin;
  return outcome;
}

void BackgroundCommunication::Record(const Outcome& outcome) {
  times_.seconds += outcome.seconds;
  if (failure_ == nullptr) failure_ = outcome.failure;
}

// After a failure nothing is begun any more.
void BackgroundCommunication::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !open_.empty(); });
    if (open_.empty()) return;
    const Piece piece = open_.front();
    if (failure_ == nullptr) {
      lock.unlock();
      const Outcome outcome = Run(piece);
      lock.lock();
      Record(outcome);
    }
    open_.pop_front();
    changed_.notify_all();
  }
}

bool BackgroundCommunication::IsOpen(const void* data) const {
  return std::ranges::find(open_, data, &Piece::data) != open_.end();
}

template <class Done>
void BackgroundCommunication::WaitUntil(std::unique_lock<std::mutex>& lock, Done done) {
  const double begin = SecondsNow();
  changed_.wait(lock, done);
  times_.waited += SecondsNow() - begin;
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void BackgroundCommunication::Wait(const void* data) {
  std::unique_lock lock(mutex_);
  WaitUntil(lock, [&] { return !IsOpen(data); });
}

void BackgroundCommunication::WaitForAll() {
  std::unique_lock lock(mutex_);
  WaitUntil(lock, [&] { return open_.empty(); });
}

void BackgroundCommunication::Abandon() noexcept {
  std::unique_lock lock(mutex_);
  if (open_.empty()) return;
  lock.unlock();
  ranks_.Abort("a run ended while others waited for it");
  lock.lock();
  changed_.wait(lock, [this] { return open_.empty(); });
}

CommunicationTimes BackgroundCommunication::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

}  // namespace lathe
