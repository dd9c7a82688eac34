#pragma once

#include <string>

namespace lathe {

/// Function `entry` of a library that lies beside the one that this code is in ("liblathe_x.so");
/// it is never unloaded. Null if it cannot be loaded, and then `why` says the reason.
void* FindInCompanion(const char* library, const char* entry, std::string& why);

}  // namespace lathe
