#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lathe::command {

/// What help says of an option or a positional argument.
struct OptionEntry {
  std::vector<std::string> names;  ///< "-i", "--input"; of a positional its name
  std::string value;               ///< "NAME=VALUE"; empty for flags and positionals
  std::string about;
  std::vector<std::string> choices = {};  ///< values that it may have, if these are some words
};

/// What help says of a command: completion and manual pages are written from it.
struct CommandEntry {
  std::string name, about;
  std::vector<OptionEntry> options, positionals;
};

CommandEntry EntryOf(const CLI::App& command);
/// Those of all commands, in their order.
std::vector<CommandEntry> EntriesOf(const CLI::App& app);

/// A script that a shell reads: "bash", "zsh" or "fish"; empty for another name.
std::string CompletionScript(const std::string& shell, const std::vector<CommandEntry>& commands);

/// The manual page (man(7)) of a command, `lathe-NAME`, and the one of `lathe` itself.
std::string ManualPage(const CommandEntry& command);
std::string ManualOverview(const std::vector<CommandEntry>& commands);

}  // namespace lathe::command
