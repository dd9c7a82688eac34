#include "lathe/support/version.h"

#include "lathe/version.h"

namespace lathe {

std::string_view Version() { return LATHE_VERSION_STRING; }

}  // namespace lathe
