#include "python/src/timeouts.h"

#include "lathe/support/error.h"

namespace lathe::python {

double SecondsOf(std::optional<double> timeout) {
  constexpr double kCentury = 3.2e9;
  if (!timeout) return 0;
  if (*timeout > 0) return *timeout < kCentury ? *timeout : 0;
  throw Error(ErrorCode::kInvalidArgument, "run/timeout",
              StrCat("a timeout is more than 0 seconds, not ", *timeout))
      .Hint("None means without a limit");
}

}  // namespace lathe::python
