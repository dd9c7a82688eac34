#pragma once

#include <functional>
#include <string>

namespace lathe::testing {

/// What became of work in a process of its own.
struct IsolatedResult {
  std::string text;   ///< what the work returned
  std::string death;  ///< "crash: Segmentation fault", "time", "" if it returned
};

/// Runs `work` in a child with limits: seconds of processor time (and three times that of a clock),
/// and bytes of address space. The caller must have no other threads.
IsolatedResult RunIsolated(const std::function<std::string()>& work, int seconds,
                           uint64_t max_bytes);

}  // namespace lathe::testing
