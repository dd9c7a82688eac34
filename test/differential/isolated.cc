#include "test/differential/isolated.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>

#include "lathe/support/error.h"

namespace lathe::testing {

namespace {

void Limit(int what, rlim_t value) {
  const rlimit limit{value, value};
  setrlimit(what, &limit);
}

void WriteAll(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n <= 0) return;
    at += static_cast<size_t>(n);
  }
}

[[noreturn]] void Work(const std::function<std::string()>& work, int fd, int seconds,
                       uint64_t max_bytes) {
  Limit(RLIMIT_CPU, static_cast<rlim_t>(seconds));
  Limit(RLIMIT_CORE, 0);
  if (max_bytes != 0) Limit(RLIMIT_AS, max_bytes);
  try {
    WriteAll(fd, StrCat("ok\n", work()));
  } catch (const std::exception& e) {
    WriteAll(fd, StrCat("thrown\n", e.what()));
  }
  _exit(0);
}

/// False when the time is over.
bool ReadAll(int fd, std::string& text, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  char buffer[1 << 16];
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0) return true;
    text.append(buffer, static_cast<size_t>(n));
  }
}

std::string DeathOf(int status, bool in_time) {
  if (!in_time) return "time";
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGXCPU || signal == SIGKILL) return "time";
    return StrCat("crash: ", strsignal(signal));
  }
  return WEXITSTATUS(status) == 0 ? "" : StrCat("exit ", WEXITSTATUS(status));
}

}  // namespace

IsolatedResult RunIsolated(const std::function<std::string()>& work, int seconds,
                           uint64_t max_bytes) {
  int ends[2];
  LATHE_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = fork();
  LATHE_CHECK(child >= 0, "fork");
  if (child == 0) {
    close(ends[0]);
    Work(work, ends[1], seconds, max_bytes);
  }
  close(ends[1]);
  IsolatedResult result;
  const bool in_time = ReadAll(ends[0], result.text, 3.0 * seconds);
  if (!in_time) kill(child, SIGKILL);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.death = DeathOf(status, in_time);
  if (!result.death.empty()) return result;
  if (result.text.starts_with("ok\n")) {
    result.text = result.text.substr(3);
  } else {
    result.death = StrCat("exception: ", result.text.substr(result.text.find('\n') + 1));
  }
  return result;
}

}  // namespace lathe::testing
