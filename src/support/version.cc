#include "lathe/support/version.h"

namespace lathe {

std::string_view Version() { return LATHE_VERSION; }

}  // namespace lathe
