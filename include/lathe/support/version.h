#pragma once

#include <string_view>

namespace lathe {

// The version of the library that is linked, "MAJOR.MINOR.PATCH".
std::string_view Version();

}  // namespace lathe
