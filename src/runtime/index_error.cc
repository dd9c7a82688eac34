#include "lathe/runtime/index_error.h"

#include "lathe/support/text.h"

namespace lathe::runtime {

Error IndexError(const KernelStatus& status, std::string_view label, std::string_view origin) {
  Error error(ErrorCode::kInvalidArgument, "run/index",
              StrCat("index ", status.index, " is out of range: there are ", status.extent));
  if (!origin.empty()) error.At(std::string(origin));
  error.Note(StrCat("axis ", status.axis, " of what is indexed in: ", label));
  if (status.extent > 0) {
    error.Hint(StrCat("valid are ", -status.extent, " to ", status.extent - 1));
  }
  return error;
}

}  // namespace lathe::runtime
