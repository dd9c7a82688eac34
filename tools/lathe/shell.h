#pragma once

#include <string>

namespace lathe::command {

/// A word that the shell takes as it is.
std::string ShellQuoted(const std::string& word);

/// The exit code of a command that the shell runs; 128 and more: a signal ended it, as shells say.
int RunShell(const std::string& command);

}  // namespace lathe::command
