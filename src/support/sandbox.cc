#include "lathe/support/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>

#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/processors.h"
#include "src/support/sandbox_filter.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kConfinementFailed = 125;
constexpr auto kGrace = std::chrono::milliseconds(500);

std::string Reason() { return std::generic_category().message(errno); }

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorCode::kLimit, "limit/files", StrCat("cannot open a pipe: ", Reason()));
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  [[nodiscard]] int read_end() const { return ends_[0]; }
  [[nodiscard]] int write_end() const { return ends_[1]; }
  void CloseRead() { Close(ends_[0]); }
  void CloseWrite() { Close(ends_[1]); }

 private:
  static void Close(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

// `more`: between the limit that is told by a signal, and the one that ends the process.
void Limit(int what, rlim_t most, rlim_t more = 0) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource>(what), &limit) != 0) return;
  limit.rlim_cur = std::min({limit.rlim_cur, limit.rlim_max, most});
  limit.rlim_max = std::min(limit.rlim_max, most + more);
  setrlimit(static_cast<__rlimit_resource>(what), &limit);
}

void LimitResources(const SandboxOptions& options) {
  const uint64_t usable = UsableMemory() / 5 * 4;
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_NOFILE, 128);
  Limit(RLIMIT_MEMLOCK, 0);
  Limit(RLIMIT_FSIZE, options.result < 0 ? 0 : std::min(options.max_result_bytes, usable));
  Limit(RLIMIT_DATA, options.max_bytes > 0 ? options.max_bytes : usable);
  if (options.cpu_seconds > 0) Limit(RLIMIT_CPU, options.cpu_seconds, 1);
}

// Descriptors from 3 on.
void CloseOthers() {
#if defined(SYS_close_range)
  if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0) return;
#endif
  const long most = sysconf(_SC_OPEN_MAX);
  for (int fd = 3; fd < std::min(most, 65536L); ++fd) close(fd);
}

[[noreturn]] void BeTheChild(const SandboxOptions& options, int out, int err, pid_t parent,
                             const std::function<int()>& work) {
  int code = kConfinementFailed;
  try {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kConfinementFailed);
    const int null = open("/dev/null", O_RDONLY);
    if (dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(err, STDERR_FILENO) < 0) {
      _exit(kConfinementFailed);
    }
    CloseOthers();
    clearenv();
    LimitResources(options);
    AllowReadingOnly(options.readable);
    AllowComputingOnly();
    code = work();
    if (fflush(stdout) != 0) code = kConfinementFailed;
  } catch (const Error& error) {
    const std::string text = error.Render();
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(kConfinementFailed);
  } catch (...) {
    _exit(kConfinementFailed);
  }
  _exit(code);
}

// The parent's side of a child that has been started.
class Relay {
 public:
  Relay(pid_t child, const SandboxOptions& options) : child_(child), options_(options) {}
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  // What the child wrote until nobody can write any more; `out` is -1 if that goes elsewhere.
  void Forward(int out, int err) {
    std::array<pollfd, 2> ends = {{{out, POLLIN, 0}, {err, POLLIN, 0}}};
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
      CheckTime();
      poll(ends.data(), ends.size(), kTickMs);
      if (ends[0].revents != 0) Read(ends[0], options_.output);
      if (ends[1].revents != 0) Read(ends[1], options_.errors);
    }
  }

  // The status that waitpid gives.
  int Wait() {
    int status = 0;
    while (waitpid(child_, &status, WNOHANG) == 0) {
      CheckTime();
      poll(nullptr, 0, 1);
    }
    child_ = 0;
    return status;
  }

 private:
  static constexpr int kTickMs = 50;

  // The child, which has the same limits, may say more about how it reached them, but not for long.
  void CheckTime() {
    const Budget* budget = Budget::Current();
    if (budget == nullptr || !budget->stopped()) return;
    if (!late_since_) late_since_ = Clock::now();
    if (Clock::now() - *late_since_ > kGrace) budget->Check();
  }

  static void Read(pollfd& end, const std::function<void(std::string_view)>& sink) {
    std::array<char, 1 << 16> bytes;
    const ssize_t count = read(end.fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) {
      end.fd = -1;
      end.revents = 0;
    } else if (sink) {
      sink({bytes.data(), static_cast<size_t>(count)});
    }
  }

  pid_t child_;
  const SandboxOptions& options_;
  std::optional<Clock::time_point> late_since_;
};

int CodeOf(int status) {
  if (WIFEXITED(status)) {
    if (WEXITSTATUS(status) != kConfinementFailed) return WEXITSTATUS(status);
    throw Error(ErrorCode::kUnsupported, "sandbox/unsupported", "the sandbox could not be set up");
  }
  const int signal = WTERMSIG(status);
  if (signal == SIGSYS) {
    throw Error(ErrorCode::kVerify, "sandbox/violation",
                "the sandboxed process was ended: it tried what a compiler has no reason to, such "
                "as opening a connection, starting a program, or writing to a file")
        .Hint("the model may be an attack on a defect of ours; please report it");
  }
  if (signal == SIGXCPU || signal == SIGXFSZ) {
    throw Error(ErrorCode::kLimit, signal == SIGXCPU ? "limit/time" : "limit/memory",
                StrCat("the sandboxed process used more ", signal == SIGXCPU ? "time" : "memory",
                       " than it may"));
  }
  throw Error(
      ErrorCode::kInternal, "sandbox/ended",
      StrCat("the sandboxed process was ended by signal ", signal, " (", strsignal(signal), ")"));
}

}  // namespace

int RunInSandbox(const SandboxOptions& options, const std::function<int()>& work) {
  if (const std::string why = WhyNoSandbox(); !why.empty()) {
    throw Error(ErrorCode::kUnsupported, "sandbox/unsupported",
                StrCat("this system cannot confine a process: ", why))
        .Hint("it takes Linux 5.13 with seccomp and Landlock; containers may forbid them");
  }
  Pipe out, err;
  const bool has_result = options.result >= 0;
  fflush(stdout);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    throw Error(ErrorCode::kLimit, "limit/processes", StrCat("cannot start a process: ", Reason()));
  }
  if (child == 0) {
    BeTheChild(options, has_result ? options.result : out.write_end(), err.write_end(), parent,
               work);
  }
  Relay relay(child, options);
  out.CloseWrite();
  err.CloseWrite();
  relay.Forward(has_result ? -1 : out.read_end(), err.read_end());
  return CodeOf(relay.Wait());
}

}  // namespace lathe
