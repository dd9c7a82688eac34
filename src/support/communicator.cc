#include "lathe/support/communicator.h"

#include <cstdlib>

#include "lathe/support/background_communication.h"
#include "lathe/support/companion.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

thread_local CommunicatorScope* current = nullptr;

int NumberIn(const char* variable) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return text == nullptr ? 1 : std::atoi(text);
}

}  // namespace

void ThrowRankTimeout(int rank, std::string_view what, double seconds) {
  throw Error(ErrorCode::kLimit, "rank/timeout",
              StrCat("rank ", rank, " has not taken part in '", what, "' within ", seconds,
                     " seconds: it hangs, is lost, or runs another program"))
      .Hint("a longer time for slow ranks: --rank-timeout");
}

void ThrowRankFailed(int rank, const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "rank/failed", StrCat("rank ", rank, " has failed"))
      .Note(message);
}

void ThrowRankMessage(int rank, std::string_view what, size_t sent, size_t expected) {
  throw Error(ErrorCode::kInvalidArgument, "rank/message",
              StrCat("rank ", rank, " sends ", sent, " bytes for '", what, "', where ", expected,
                     " are expected"))
      .Hint("all ranks must run the same program on inputs of the same sizes");
}

CommunicatorScope::CommunicatorScope(Communicator* communicator)
    : before_(current), communicator_(communicator) {
  current = this;
}
CommunicatorScope::~CommunicatorScope() { current = before_; }

Communicator* CurrentCommunicator() {
  return current == nullptr ? nullptr : current->communicator_;
}

namespace {

Communicator& Matching(int64_t nranks) {
  Communicator* const here = CurrentCommunicator();
  const int have = here == nullptr ? 1 : here->size();
  if (here != nullptr && have == nranks) return *here;
  if (nranks == 1) {
    thread_local const std::unique_ptr<Communicator> alone = std::move(MakeThreadRanks(1)[0]);
    return *alone;
  }
  throw Error(ErrorCode::kInvalidArgument, "run/ranks",
              StrCat("this collective joins ", nranks, " ranks, and here ",
                     have == 1 ? "is " : "are ", have == 1 ? std::string("one") : StrCat(have)));
}

}  // namespace

BackgroundCommunication* CurrentBackground() {
  return current == nullptr ? nullptr : current->background_.get();
}

CommunicationTimes CommunicationSoFar() {
  const BackgroundCommunication* background = CurrentBackground();
  return background == nullptr ? CommunicationTimes() : background->times();
}

BackgroundCommunication& BackgroundOf(int64_t nranks) {
  if (BackgroundCommunication* background = CurrentBackground()) return *background;
  Communicator& ranks = Matching(nranks);
  LATHE_CHECK(&ranks == CurrentCommunicator(), "a rank alone has nothing in the background");
  current->background_ = std::make_unique<BackgroundCommunication>(ranks);
  return *current->background_;
}

Communicator& CommunicatorOf(int64_t nranks) {
  if (BackgroundCommunication* background = CurrentBackground()) background->WaitForAll();
  return Matching(nranks);
}

int RankOf(int64_t nranks) { return Matching(nranks).rank(); }

std::unique_ptr<Communicator> OpenMpi(double timeout) {
  std::string why;
  void* entry = FindInCompanion("liblathe_mpi.so", "LatheOpenMpi", why);
  if (entry == nullptr) {
    throw Error(ErrorCode::kUnsupported, "rank/no-mpi",
                "several processes need Lathe's library for MPI, which cannot be loaded")
        .Note(why)
        .Hint("install MPI (Debian: libopenmpi-dev) and build Lathe again");
  }
  return std::unique_ptr<Communicator>(reinterpret_cast<OpenMpiFunction>(entry)(timeout));
}

bool StartedByMpirun() { return NumberIn("OMPI_COMM_WORLD_SIZE") > 1 || NumberIn("PMI_SIZE") > 1; }

}  // namespace lathe
