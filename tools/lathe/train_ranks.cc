#include "tools/lathe/train_ranks.h"

#include <exception>

#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "tools/lathe/command.h"

namespace lathe::command {
namespace {

// Rank 0 hears of what happens on others. If it does not take part itself, who waits for it speaks;
// and when it goes on too late, that has been said.
bool Reports(int rank, const std::exception_ptr& error) {
  constexpr std::string_view kFirst = "rank 0 ";
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const bool was_late =
        e.id() == "rank/failed" && !e.notes().empty() && e.notes()[0].text.starts_with(kFirst);
    if (rank == 0) return !was_late;
    return e.id() == "rank/timeout" && e.message().starts_with(kFirst);
  } catch (...) {
    return rank == 0;
  }
}

}  // namespace

int RunOnRanks(double timeout, const std::function<int(Communicator*)>& train) {
  if (!StartedByMpirun()) return train(nullptr);
  const std::unique_ptr<Communicator> ranks = OpenMpi(timeout);
  Silence(ranks->rank() != 0);
  std::exception_ptr failure;
  try {
    return train(ranks.get());
  } catch (Stopped& stopped) {
    ranks->Abort(stopped.error().message());
    failure = std::make_exception_ptr(stopped.error());
  } catch (const std::exception& error) {
    ranks->Abort(error.what());
    failure = std::current_exception();
  }
  // While the communicator is there: without it, the processes end.
  Silence(!Reports(ranks->rank(), failure));
  return Guarded([&]() -> int { std::rethrow_exception(failure); });
}

}  // namespace lathe::command
