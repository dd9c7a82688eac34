#pragma once

#include <cstdint>
#include <string>

namespace lathe {

/// What this process may use of the machine. `root` is where the file system begins, for tests.

/// Processor time that control groups (of containers, say) allow, in processors, rounded up; 0 if
/// they set no limit.
int ProcessorQuota(const std::string& root = "");

/// Processor cores that the process may run on: threads of one core count once. At least 1, at most
/// ProcessorQuota(). More threads than that rarely make kernels faster, and often slower.
int UsableCores(const std::string& root = "");

/// `threads` as it is: the number that somebody asks for, where 0 leaves it to us. Throws
/// run/threads if it is negative or above kMaxThreads.
inline constexpr int kMaxThreads = 1024;
int CheckedThreads(int threads);

/// Bytes of memory that the process may fill: those of the machine, or what control groups allow
/// if that is less.
uint64_t UsableMemory(const std::string& root = "");

}  // namespace lathe
