#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "lathe/support/budget.h"
#include "lathe/support/communicator.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;

// What the ranks of a group share.
struct Group {
  struct Failure {
    int rank;
    std::string message;
  };
  int size;
  double timeout;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::string>> messages;  // by sender and receiver
  std::map<int, int> waits_for;                                     // of the ranks that wait
  std::optional<Failure> failure;
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  void Exchange(std::span<const Send> sends, std::span<const Receive> receives,
                std::string_view what) override {
    Post(sends);
    const auto deadline = Clock::now() + std::chrono::duration<double>(group_->timeout);
    for (const Receive& r : receives) {
      const std::string message = Take(r.from, what, deadline);
      if (message.size() != r.bytes) ThrowRankMessage(r.from, what, message.size(), r.bytes);
      if (r.bytes > 0) std::memcpy(r.data, message.data(), r.bytes);
    }
  }

  void Abort(const std::string& message) noexcept override {
    const std::lock_guard lock(group_->mutex);
    if (!group_->failure) group_->failure = {rank_, message};
    group_->changed.notify_all();
  }

 private:
  void Post(std::span<const Send> sends) {
    const std::lock_guard lock(group_->mutex);
    for (const Send& s : sends) {
      LATHE_CHECK(s.to != rank_ && s.to >= 0 && s.to < size());
      group_->messages[{rank_, s.to}].emplace_back(static_cast<const char*>(s.data), s.bytes);
    }
    group_->changed.notify_all();
  }

  template <class Time>
  std::string Take(int from, std::string_view what, Time deadline) {
    std::unique_lock lock(group_->mutex);
    auto& queue = group_->messages[{from, rank_}];
    group_->waits_for[rank_] = from;
    for (;;) {
      if (group_->failure) ThrowRankFailed(group_->failure->rank, group_->failure->message);
      if (!queue.empty()) break;
      if (Clock::now() >= deadline) ThrowRankTimeout(LastWaitedFor(), what, group_->timeout);
      CheckBudget();
      group_->changed.wait_for(lock, std::chrono::milliseconds(20));
    }
    group_->waits_for.erase(rank_);
    std::string message = std::move(queue.front());
    queue.pop_front();
    return message;
  }

  // The rank that is waited for and does not wait; any other one if they wait in a circle.
  int LastWaitedFor() const {
    std::map<int, int>& waits_for = group_->waits_for;
    int rank = waits_for[rank_];
    for (int hops = 0; hops < size() && waits_for.contains(rank); ++hops) {
      if (waits_for[rank] == rank_) break;
      rank = waits_for[rank];
    }
    return rank;
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
};

std::string MessageOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown error";
  }
}

// Of the failure of another rank, which may be told before that one's error arrives.
bool Follows(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.id() == "rank/failed";
  } catch (...) {
    return false;
  }
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadRanks(int size, double timeout) {
  LATHE_CHECK(size > 0);
  auto group = std::make_shared<Group>();
  group->size = size;
  group->timeout = timeout;
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<ThreadRank>(group, r));
  return ranks;
}

void RunAsThreadRanks(int size, const std::function<void(Communicator&)>& body, double timeout) {
  const auto ranks = MakeThreadRanks(size, timeout);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](Communicator& rank) {
    const CommunicatorScope scope(&rank);
    try {
      body(rank);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (first == nullptr || Follows(first)) first = std::current_exception();
      rank.Abort(MessageOf(std::current_exception()));
    }
  };
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back(run, std::ref(*rank));
  for (std::thread& t : threads) t.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace lathe
