#include "tools/lathe/limits.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "lathe/support/budget.h"
#include "lathe/support/text.h"
#include "tools/lathe/command.h"

namespace lathe::command {
namespace {

// What a signal handler may touch.
CancelToken interrupted;                        // by the user
volatile std::sig_atomic_t interrupted_by = 0;  // which signal
timespec interrupted_at = {};                   // of the monotonic clock
volatile std::sig_atomic_t has_grace = 1;       // whether the process ends soon after

constexpr double kGrace = 1;  // second, from a limit until the process ends whatever it does
constexpr double kSameInterrupt = 0.5;  // seconds

void RaiseAfter(double seconds) {
  itimerval timer = {};
  timer.it_value.tv_sec = static_cast<time_t>(seconds);
  timer.it_value.tv_usec = static_cast<suseconds_t>(std::fmod(seconds, 1) * 1e6);
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void EndBy(int signal) {
  std::signal(signal, SIG_DFL);
  raise(signal);
}

// A second time, the user means it. One that follows at once is the same one: timeout(1) and mpirun
// send it to the process and to its group.
void HandleInterrupt(int signal) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (interrupted_by != 0) {
    const double seconds = static_cast<double>(now.tv_sec - interrupted_at.tv_sec) +
                           static_cast<double>(now.tv_nsec - interrupted_at.tv_nsec) * 1e-9;
    if (seconds > kSameInterrupt) EndBy(signal);
    return;
  }
  interrupted_at = now;
  interrupted_by = signal;
  interrupted.Cancel();
  if (has_grace != 0) RaiseAfter(kGrace);
}

// Nobody has looked at the limit in time.
void OnGraceOver(int) {
  if (interrupted_by != 0) EndBy(interrupted_by);
  constexpr std::string_view kText =
      "error[limit/time]: not done within the limit of --timeout, and stopped in the middle of a "
      "step\n";
  const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(written >= 0 ? kInputAtFault : kOurBug);
}

void Handle(int signal, void (*handler)(int)) {
  struct sigaction before = {};
  sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;  // of a job in the background, say
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

// Beside tensors, which are counted as they are allocated, what programs, passes and the code
// generator take: then the system refuses, and std::bad_alloc becomes limit/memory. A sanitizer
// keeps more memory than that, and ends the process where it gets none.
void LimitProcess([[maybe_unused]] uint64_t bytes) {
#ifndef LATHE_SANITIZED
  constexpr uint64_t kOfProcess = uint64_t{64} << 20;  // code generator, stacks of threads
  rlimit limit = {};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return;
  const rlim_t wanted = bytes > RLIM_INFINITY - kOfProcess ? RLIM_INFINITY : bytes + kOfProcess;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  setrlimit(RLIMIT_DATA, &limit);
#endif
}

}  // namespace

void LimitOptions::AddTo(CLI::App& app) {
  app.add_option("--timeout", seconds, "ends the command after so many seconds (limit/time)")
      ->check(NumberBetween(1e-3, 1e9))
      ->type_name("SECONDS");
  app.add_option("--max-memory", max_memory,
                 "that loading, compiling and running may take: 2GB, 512MiB (limit/memory)")
      ->type_name("SIZE");
}

uint64_t ParseSize(const std::string& option, std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12},
                                            {"KiB", 0x1p10},
                                            {"MiB", 0x1p20},
                                            {"GiB", 0x1p30},
                                            {"TiB", 0x1p40}}};
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = ParseDouble(text.substr(0, end));
  std::string_view unit = text.substr(end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& u : kUnits) {
    const double bytes = number.value_or(-1) * u.bytes;
    if (u.name == unit && bytes >= 1 && bytes < 0x1p63) return static_cast<uint64_t>(bytes);
  }
  throw UsageError(StrCat(option, " takes a size, not '", text, "'"),
                   "such as 2GB (10^9 bytes each) or 512MiB (2^20 bytes each)");
}

const CancelToken& InterruptToken() { return interrupted; }

int RunWithin(const LimitOptions& options, OnInterrupt interrupt, const Run& run) {
  const bool ends = interrupt == OnInterrupt::kEnds;
  has_grace = ends ? 1 : 0;
  Limits limits{.seconds = options.seconds,
                .cancel = ends ? &interrupted : nullptr,
                .within_kernels = options.seconds > 0};
  if (!options.max_memory.empty()) {
    limits.bytes = ParseSize("--max-memory", options.max_memory);
    LimitProcess(limits.bytes);
  }
  Handle(SIGINT, &HandleInterrupt);
  Handle(SIGTERM, &HandleInterrupt);
  Handle(SIGALRM, &OnGraceOver);
  if (limits.seconds > 0) RaiseAfter(limits.seconds + kGrace);
  return RunUnder(limits, run);
}

int EndAsInterrupted(int code) {
  if (interrupted_by != 0) EndBy(interrupted_by);
  return code;
}

}  // namespace lathe::command
