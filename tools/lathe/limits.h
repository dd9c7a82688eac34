#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "lathe/support/budget.h"
#include "tools/lathe/command.h"

namespace lathe::command {

/// What a command may take, whatever it does.
struct LimitOptions {
  double seconds = 0;      ///< 0: any time
  std::string max_memory;  ///< "2GB", "512MiB"; empty: what the system gives

  void AddTo(CLI::App& app);
};

/// "2GB" (10^9 each), "512MiB" (2^20 each), "1.5 GiB", "4096" in bytes. UsageError for anything
/// else, and for less than one byte.
uint64_t ParseSize(const std::string& option, std::string_view text);

/// What an interrupt by the user does to a command.
enum class OnInterrupt : uint8_t {
  kEnds,      ///< it ends (run/cancelled), a second later at the latest
  kIsLooked,  ///< the command looks at InterruptToken, and finishes what it must; a second one ends
              ///< it
};

/// Runs a command, which ends when a limit is reached (limit/time, limit/memory) or the user
/// interrupts it (run/cancelled): at the next place where it looks, so that files that are not
/// finished are removed, or else a second later, whatever it does.
int RunWithin(const LimitOptions& limits, OnInterrupt interrupt, const Run& run);

/// Cancelled when the user interrupts the command.
const CancelToken& InterruptToken();

/// `code`; or if the user has interrupted the command, ends the process by that signal, as shells
/// expect of it.
int EndAsInterrupted(int code);

}  // namespace lathe::command
