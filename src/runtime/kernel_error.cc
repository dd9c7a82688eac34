#include "lathe/runtime/kernel_error.h"

#include "lathe/support/text.h"

namespace lathe::runtime {
namespace {

Error IndexError(const KernelStatus& status, std::string_view label) {
  Error error(ErrorCode::kInvalidArgument, "run/index",
              StrCat("index ", status.index, " is out of range: there are ", status.extent));
  error.Note(StrCat("axis ", status.axis, " of what is indexed in: ", label));
  if (status.extent > 0) {
    error.Hint(StrCat("valid are ", -status.extent, " to ", status.extent - 1));
  }
  return error;
}

Error AccessError(const KernelStatus& status, std::string_view label) {
  Error error(ErrorCode::kInternal, "run/out-of-bounds",
              StrCat("an access from byte ", status.index, " on is out of bounds: there are ",
                     status.extent, " bytes"));
  error.Note(status.access);
  error.Note(StrCat("in the code of: ", label));
  return error;
}

}  // namespace

Error KernelError(const KernelStatus& status, std::string_view label, std::string_view origin) {
  Error error = status.failed == KernelStatus::kAccess ? AccessError(status, label)
                                                       : IndexError(status, label);
  if (!origin.empty()) error.At(std::string(origin));
  return error;
}

}  // namespace lathe::runtime
