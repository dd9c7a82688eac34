#ifndef LATHE_SUPPORT_VERSION_H_
#define LATHE_SUPPORT_VERSION_H_

#include <string_view>

namespace lathe {

// The version of the library that is linked, "MAJOR.MINOR.PATCH".
std::string_view Version();

}  // namespace lathe

#endif  // LATHE_SUPPORT_VERSION_H_
