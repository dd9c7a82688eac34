#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Ranks: processes, or threads, that run one program together, each on data of its own.
namespace lathe {

/// How one rank reaches the others of its group. An engine (MPI, threads of one process) says how
/// bytes go from rank to rank; all collectives are made of that (collectives.h), so they give the
/// same bits with any engine. For one thread at a time, but for Abort.
class Communicator {
 public:
  struct Send {
    int to;
    const void* data;
    size_t bytes;
  };
  struct Receive {
    int from;
    void* data;
    size_t bytes;
  };

  virtual ~Communicator() = default;
  /// In [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Makes all transfers at once and returns when this rank's part in them is done. Messages from
  /// one rank to another arrive in the order of calls. `what` is for messages: "all_reduce". A rank
  /// sends nothing to itself. Errors: rank/timeout if another rank does not take part in time,
  /// rank/failed if one has called Abort, rank/message if one sends another number of bytes; those
  /// of the limits that the thread is under.
  virtual void Exchange(std::span<const Send> sends, std::span<const Receive> receives,
                        std::string_view what) = 0;
  /// This rank gives up: whatever others wait for, now or later, ends with rank/failed and the
  /// message, as does an Exchange of this rank on another thread. Without effect on a group that
  /// has failed already. Any thread may call it.
  virtual void Abort(const std::string& message) noexcept = 0;
  /// Whether one thread after another may call it, and not only the one that has made it.
  virtual bool allows_threads() const { return true; }
};

/// Errors of ranks; what every engine throws alike.
[[noreturn]] void ThrowRankTimeout(int rank, std::string_view what, double seconds);
[[noreturn]] void ThrowRankFailed(int rank, const std::string& message);
[[noreturn]] void ThrowRankMessage(int rank, std::string_view what, size_t sent, size_t expected);

class BackgroundCommunication;

/// Makes a communicator that of its thread: collectives that run there go through it, those that
/// run in the background until the scope ends.
class CommunicatorScope {
 public:
  /// Null: none. It must outlive the scope.
  explicit CommunicatorScope(Communicator* communicator);
  CommunicatorScope(const CommunicatorScope&) = delete;
  CommunicatorScope& operator=(const CommunicatorScope&) = delete;
  ~CommunicatorScope();

 private:
  friend Communicator* CurrentCommunicator();
  friend BackgroundCommunication* CurrentBackground();
  friend BackgroundCommunication& BackgroundOf(int64_t nranks);

  CommunicatorScope* const before_;
  Communicator* const communicator_;
  std::unique_ptr<BackgroundCommunication> background_;  // once it is asked for
};
/// Of this thread; null if there is none.
Communicator* CurrentCommunicator();
/// The one of this thread, which has `nranks` ranks, once nothing goes on in the background; for 1
/// there always is one. Errors: run/ranks if there is none, or it has another number; those of what
/// went on.
Communicator& CommunicatorOf(int64_t nranks);
/// The number of this rank of so many, whatever goes on in the background. Errors: run/ranks.
int RankOf(int64_t nranks);

// ---- engines ----

/// Seconds after which a rank that others wait for counts as lost.
inline constexpr double kRankTimeout = 300;

/// A group of `size` ranks in this process, one for each of as many threads; element i is rank i.
std::vector<std::unique_ptr<Communicator>> MakeThreadRanks(int size, double timeout = kRankTimeout);

/// Runs `body` as each rank of such a group, on a thread of its own, with the communicator in force
/// on it. If one fails, the others end with rank/failed and its error is thrown.
void RunAsThreadRanks(int size, const std::function<void(Communicator&)>& body,
                      double timeout = kRankTimeout);

/// The processes that mpirun has started, or one alone, by the library liblathe_mpi.so, which is
/// loaded by the first call. Calls MPI_Init, and MPI_Finalize when it is destroyed, unless the
/// process has called MPI_Init before; works on a copy of MPI_COMM_WORLD. Errors: rank/no-mpi if
/// Lathe was built without MPI or its library is missing; rank/mpi.
std::unique_ptr<Communicator> OpenMpi(double timeout = kRankTimeout);

/// Whether mpirun has started this process as one of several.
bool StartedByMpirun();

/// What liblathe_mpi.so exports as `LatheOpenMpi`.
using OpenMpiFunction = Communicator* (*)(double timeout);

}  // namespace lathe
