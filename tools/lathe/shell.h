#pragma once

#include <string>

#include "lathe/support/error.h"

namespace lathe::command {

/// A word that the shell takes as it is.
std::string ShellQuoted(const std::string& word);

/// The exit code of a command that the shell runs; 128 and more: a signal ended it, as shells say.
int RunShell(const std::string& command);

struct ShellResult {
  int code;        ///< as of RunShell
  bool timed_out;  ///< and then it was killed, with the processes that it has started
};
/// The same for a command that reads nothing, whose output goes to the file `output`, and that may
/// take `seconds` (0: any time). Ends it when the budget of this thread does. Any number of threads
/// may do so at a time. Errors: io/spawn.
ShellResult RunShellWithin(const std::string& command, double seconds, const std::string& output);

/// Adds the first lines of what a command has printed to an error, as notes.
void AddOutput(Error& error, const std::string& text);

}  // namespace lathe::command
