#pragma once

#include <string>
#include <vector>

namespace lathe {

/// Why this system cannot confine a process; empty if it can.
std::string WhyNoSandbox();

/// From here on this process, which must have one thread, may open only these files, for reading.
/// Throws sandbox/unsupported.
void AllowReadingOnly(const std::vector<std::string>& files);

/// From here on it may compute, have threads, read, and write to what is open. Throws
/// sandbox/unsupported.
void AllowComputingOnly();

}  // namespace lathe
