// liblathe_mpi.so: ranks that are processes of MPI. Nothing else of Lathe knows MPI.

#define OMPI_SKIP_MPICXX 1  // the C interface is what every MPI has
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "lathe/support/budget.h"
#include "lathe/support/communicator.h"
#include "lathe/support/divide.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDataTag = 1, kAbortTag = 2, kQuestionTag = 3, kAnswerTag = 4;
constexpr size_t kPiece = size_t{1} << 30;  // MPI counts in int
constexpr int kSpins = 200;                 // polls before a rank lets others have the processor
constexpr std::chrono::microseconds kPause{50};
constexpr std::chrono::seconds kStopped{1};     // between two polls
constexpr std::chrono::seconds kNoticeTime{2};  // for others to hear of an end
constexpr double kAnswerTime = 1;               // seconds in which a rank that waits answers

void Check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::kIo, "rank/mpi", StrCat(function, " of MPI fails: ", text));
}

size_t NumPieces(size_t bytes) { return std::max<size_t>(1, CeilDiv(bytes, kPiece)); }
int PieceBytes(size_t bytes, size_t piece) {
  return static_cast<int>(std::min(kPiece, bytes - piece * kPiece));
}

// Polls until everything is done: looks at limits, at ranks that give up, and at the clock.
class Waiting {
 public:
  explicit Waiting(double seconds)
      : deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(seconds))) {}
  /// A time in which this rank itself was stopped does not count: others may have come meanwhile.
  bool IsLate() {
    const Clock::time_point now = Clock::now();
    if (now - polled_ > kStopped) deadline_ += now - polled_;
    polled_ = now;
    return now >= deadline_;
  }
  void Pause() {
    if (++polls_ < kSpins) return;
    std::this_thread::sleep_for(kPause);
  }

 private:
  Clock::time_point deadline_, polled_ = Clock::now();
  int polls_ = 0;
};

class MpiRanks : public Communicator {
 public:
  explicit MpiRanks(double timeout) : timeout_(timeout) {
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    owns_mpi_ = is_initialized == 0;
    int provided = 0;
    if (owns_mpi_) {
      Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init");
    } else {
      Check(MPI_Query_thread(&provided), "MPI_Query_thread");
    }
    allows_threads_ = provided >= MPI_THREAD_SERIALIZED;
    Check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    Check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    Check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

  ~MpiRanks() override {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized != 0) return;
    if (failed_) {
      Leave();
    } else {
      MPI_Comm_free(&comm_);
      if (owns_mpi_) MPI_Finalize();
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool allows_threads() const override { return allows_threads_; }

  void Exchange(std::span<const Send> sends, std::span<const Receive> receives,
                std::string_view what) override {
    Post(sends, receives);
    Wait(sends, receives, what);
    CheckSizes(receives, what);
  }

  void Abort(const std::string& message) noexcept override {
    std::vector<MPI_Request> requests;
    {
      const std::lock_guard lock(mutex_);
      if (failed_) return;
      failed_ = true;
      notice_ = message;
      for (int r = 0; r < size_; ++r) {
        if (r == rank_) continue;
        MPI_Isend(notice_.data(), static_cast<int>(notice_.size()), MPI_CHAR, r, kAbortTag, comm_,
                  &requests.emplace_back());
      }
    }
    const auto deadline = Clock::now() + kNoticeTime;
    for (int done = 0; done == 0 && Clock::now() < deadline;) {
      {
        const std::lock_guard lock(mutex_);
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      }
      if (done == 0) std::this_thread::sleep_for(kPause);
    }
  }

 private:
  void Post(std::span<const Send> sends, std::span<const Receive> receives) {
    const std::lock_guard lock(mutex_);
    requests_.clear();
    for (const Receive& r : receives) {
      for (size_t i = 0; i < NumPieces(r.bytes); ++i) {
        Check(MPI_Irecv(static_cast<char*>(r.data) + i * kPiece, PieceBytes(r.bytes, i), MPI_BYTE,
                        r.from, kDataTag, comm_, &requests_.emplace_back()),
              "MPI_Irecv");
      }
    }
    for (const Send& s : sends) {
      for (size_t i = 0; i < NumPieces(s.bytes); ++i) {
        Check(MPI_Isend(static_cast<const char*>(s.data) + i * kPiece, PieceBytes(s.bytes, i),
                        MPI_BYTE, s.to, kDataTag, comm_, &requests_.emplace_back()),
              "MPI_Isend");
      }
    }
  }

  // A rank that is late may only wait for another one, so that all are asked whom they wait for.
  void Wait(std::span<const Send> sends, std::span<const Receive> receives, std::string_view what) {
    statuses_.resize(requests_.size());
    // Ranks that wait for the same one give up one after another, so that the first tells the rest.
    if (IsDoneWithin(timeout_ + 0.25 * rank_, sends, receives, what)) return;
    {
      const std::lock_guard lock(mutex_);
      Ask();
    }
    if (IsDoneWithin(kAnswerTime, sends, receives, what)) return;
    const std::lock_guard lock(mutex_);
    int lost = FirstMissing(sends, receives);
    for (int hops = 0; hops < size_ && answers_.contains(lost); ++hops) {
      if (answers_[lost] == rank_) break;  // they wait in a circle
      lost = answers_[lost];
    }
    ThrowRankTimeout(lost, what, timeout_);
  }

  bool IsDoneWithin(double seconds, std::span<const Send> sends, std::span<const Receive> receives,
                    std::string_view what) {
    for (Waiting waiting(seconds);; waiting.Pause()) {
      if (IsDone(sends, receives, what)) return true;
      if (waiting.IsLate()) return false;
      CheckBudget();
    }
  }

  bool IsDone(std::span<const Send> sends, std::span<const Receive> receives,
              std::string_view what) {
    const std::lock_guard lock(mutex_);
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
    if (code == MPI_ERR_IN_STATUS) ThrowMismatch(receives, what);
    Check(code, "MPI_Testall");
    if (done != 0) return true;
    if (failed_) ThrowRankFailed(rank_, notice_);  // by another thread
    LookForNotice();
    HearAnswers();
    Answer(sends, receives);
    return false;
  }

  bool IsThere(int tag, MPI_Status& status) {
    int is_there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &is_there, &status);
    return is_there != 0;
  }

  // A few bytes that nobody may ever receive.
  void SendAside(int to, int tag, const std::array<int, 2>& message) {
    aside_.push_back(message);
    MPI_Request request;
    MPI_Isend(aside_.back().data(), 2, MPI_INT, to, tag, comm_, &request);
    MPI_Request_free(&request);
  }
  std::array<int, 2> ReceiveAside(const MPI_Status& from) {
    std::array<int, 2> message{};
    MPI_Recv(message.data(), 2, MPI_INT, from.MPI_SOURCE, from.MPI_TAG, comm_, MPI_STATUS_IGNORE);
    return message;
  }

  void Ask() {
    answers_.clear();
    ++question_;
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) SendAside(r, kQuestionTag, {question_, 0});
    }
  }
  void Answer(std::span<const Send> sends, std::span<const Receive> receives) {
    for (MPI_Status status; IsThere(kQuestionTag, status);) {
      SendAside(status.MPI_SOURCE, kAnswerTag,
                {ReceiveAside(status)[0], FirstMissing(sends, receives)});
    }
  }
  void HearAnswers() {
    for (MPI_Status status; IsThere(kAnswerTag, status);) {
      const auto [question, waits_for] = ReceiveAside(status);
      if (question == question_) answers_[status.MPI_SOURCE] = waits_for;
    }
  }

  void LookForNotice() {
    MPI_Status status;
    if (!IsThere(kAbortTag, status)) return;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string message(static_cast<size_t>(std::max(length, 0)), ' ');
    MPI_Recv(message.data(), length, MPI_CHAR, status.MPI_SOURCE, kAbortTag, comm_,
             MPI_STATUS_IGNORE);
    failed_ = true;
    ThrowRankFailed(status.MPI_SOURCE, message);
  }

  // Of the requests, which are those of receives and then of sends.
  int FirstMissing(std::span<const Send> sends, std::span<const Receive> receives) {
    size_t at = 0;
    const auto is_missing = [&](size_t bytes) {
      bool missing = false;
      for (size_t i = 0; i < NumPieces(bytes); ++i) {
        int done = 1;
        MPI_Request& request = requests_[at++];
        if (request != MPI_REQUEST_NULL) {
          MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
        }
        missing |= done == 0;
      }
      return missing;
    };
    for (const Receive& r : receives) {
      if (is_missing(r.bytes)) return r.from;
    }
    for (const Send& s : sends) {
      if (is_missing(s.bytes)) return s.to;
    }
    return receives.empty() ? sends[0].to : receives[0].from;
  }

  void CheckSizes(std::span<const Receive> receives, std::string_view what) {
    size_t at = 0;
    for (const Receive& r : receives) {
      size_t got = 0;
      for (size_t i = 0; i < NumPieces(r.bytes); ++i) {
        int count = 0;
        MPI_Get_count(&statuses_[at++], MPI_BYTE, &count);
        got += static_cast<size_t>(count);
      }
      if (got != r.bytes) ThrowRankMessage(r.from, what, got, r.bytes);
    }
  }

  // A message was longer than what it was received in.
  [[noreturn]] void ThrowMismatch(std::span<const Receive> receives, std::string_view what) {
    size_t at = 0;
    for (const Receive& r : receives) {
      for (size_t i = 0; i < NumPieces(r.bytes); ++i) {
        const int code = statuses_[at++].MPI_ERROR;
        if (code == MPI_SUCCESS || code == MPI_ERR_PENDING) continue;
        int error_class = 0;
        MPI_Error_class(code, &error_class);
        if (error_class != MPI_ERR_TRUNCATE) Check(code, "MPI_Irecv");
        throw Error(ErrorCode::kInvalidArgument, "rank/message",
                    StrCat("rank ", r.from, " sends more for '", what, "' than the ", r.bytes,
                           " bytes that are expected"))
            .Hint("all ranks must run the same program on inputs of the same sizes");
      }
    }
    throw Error(ErrorCode::kIo, "rank/mpi", StrCat("a message of '", what, "' fails"));
  }

  // MPI_Finalize would wait for ranks that are lost. Rank 0 has said why before it comes here, and
  // ends all; the others give it the time, in case that it is the one that is lost.
  void Leave() const {
    if (!owns_mpi_) return;
    if (rank_ != 0) std::this_thread::sleep_for(2 * kNoticeTime);
    MPI_Abort(comm_, 1);
  }

  const double timeout_;
  bool owns_mpi_ = false, allows_threads_ = false;
  std::mutex mutex_;                      // one thread calls MPI at a time: an exchange, or Abort
  bool failed_ = false;                   // this rank or another one
  std::string notice_;                    // lives as long as it is being sent
  std::deque<std::array<int, 2>> aside_;  // as does this
  int question_ = 0;                      // the last one that this rank has asked
  std::map<int, int> answers_;            // to that one: whom a rank waits for
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace
}  // namespace lathe

extern "C" __attribute__((visibility("default"))) lathe::Communicator* LatheOpenMpi(
    double timeout) {
  return new lathe::MpiRanks(timeout);
}
