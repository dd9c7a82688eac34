#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "lathe/support/budget.h"
#include "lathe/support/communicator.h"

namespace lathe {

/// What a rank has spent on communication in the background.
struct CommunicationTimes {
  double seconds = 0;  ///< from the beginning of each piece to its end, waiting for others included
  double waited = 0;   ///< that the rank's own thread has waited for them

  /// That the rank computed meanwhile.
  double hidden() const { return seconds > waited ? seconds - waited : 0; }

  friend CommunicationTimes operator-(const CommunicationTimes& a, const CommunicationTimes& b) {
    return {a.seconds - b.seconds, a.waited - b.waited};
  }
};

/// Communication of a rank that goes on, on a thread of its own, while the rank computes: one piece
/// after another, in the order of Start, so that ranks that start the same pieces in one order
/// agree. For the thread whose rank it is.
class BackgroundCommunication {
 public:
  /// The communicator must outlive it.
  explicit BackgroundCommunication(Communicator& ranks) : ranks_(ranks) {}
  BackgroundCommunication(const BackgroundCommunication&) = delete;
  BackgroundCommunication& operator=(const BackgroundCommunication&) = delete;
  /// As Abandon.
  ~BackgroundCommunication();

  /// `data` names the piece until it is waited for; what `work` uses must be there until then. The
  /// piece is done at once if the communicator is for one thread alone. Under the budget of this
  /// thread, which must live as long.
  void Start(const void* data, std::function<void(Communicator&)> work);
  /// Returns when that piece is done. Errors: its own, or of the first one before it that failed.
  void Wait(const void* data);
  /// Returns when nothing goes on; pieces may still be waited for. Errors: of the first piece that
  /// failed.
  void WaitForAll();
  /// Ends what goes on, for the other ranks with rank/failed, unless all is done.
  void Abandon() noexcept;

  CommunicationTimes times() const;

 private:
  struct Piece {
    const void* data;
    std::function<void(Communicator&)> work;
    const Budget* budget;
  };
  void Work();
  struct Outcome {
    double seconds;
    std::exception_ptr failure;
  };
  Outcome Run(const Piece& piece);
  void Record(const Outcome& outcome);
  template <class Done>
  void WaitUntil(std::unique_lock<std::mutex>& lock, Done done);
  bool IsOpen(const void* data) const;

  Communicator& ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> open_;  // the first one goes on
  std::exception_ptr failure_;
  CommunicationTimes times_;
  bool ends_ = false;
  std::thread thread_;
};

/// Of this thread's communicator, which has `nranks` ranks, as long as the scope lasts that put it
/// in force. Errors: as CommunicatorOf.
BackgroundCommunication& BackgroundOf(int64_t nranks);
/// The same if it has been asked for; else null.
BackgroundCommunication* CurrentBackground();
/// Of this thread's communicator, since the scope began that put it in force.
CommunicationTimes CommunicationSoFar();

}  // namespace lathe
