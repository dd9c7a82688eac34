#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// Linux, x86-64 and AArch64: Landlock (Linux 5.13) and seccomp.
struct SandboxOptions {
  // Files that the child may open for reading, and nothing else.
  std::vector<std::string> readable = {};
  // Open for writing, in this process: the child's standard output. -1: what the child writes there
  // goes to `output`.
  int result = -1;
  uint64_t max_result_bytes = uint64_t{16} << 30;
  uint64_t max_bytes = 0;    // of the child's own memory; 0: four fifths of what may be used
  uint64_t cpu_seconds = 0;  // of all its threads together; 0: any
  // Gets what the child writes to its standard output and error; called on this thread.
  std::function<void(std::string_view)> output = {}, errors = {};
};

// Runs `work` in a forked child that can compute, start threads, read the files named, and write to
// its standard output and error. It can open no other file, no connection, start no program, and
// signal no other process: what tries ends it. Its environment is empty. Before it forks this
// process must have loaded the libraries that the work needs, and should have no other threads: the
// child has a copy of all its memory.
//
// Gives what `work` returned, an exit code. The child ends early, and limits are in force in it, as
// this thread's Budget says. Errors: sandbox/unsupported, sandbox/violation (it tried what it may
// not), sandbox/ended (by another signal: it crashed, or reached a limit), those of the Budget.
[[nodiscard]] int RunInSandbox(const SandboxOptions& options, const std::function<int()>& work);

}  // namespace lathe
