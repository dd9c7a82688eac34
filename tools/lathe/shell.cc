#include "tools/lathe/shell.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "lathe/support/budget.h"
#include "lathe/support/clock.h"

namespace lathe::command {
namespace {

int CodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// A shell with a command, in a process group of its own: what it starts is in it, too.
class ShellProcess {
 public:
  ShellProcess(const std::string& command, const std::string& output) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    constexpr int kNewFile = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), kNewFile, 0600);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    std::string shell = "sh", option = "-c", text = command;
    char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
    const int error = posix_spawn(&pid_, "/bin/sh", &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw Error(ErrorCode::kIo, "io/spawn", std::strerror(error)).At("/bin/sh");
  }
  ShellProcess(const ShellProcess&) = delete;
  ShellProcess& operator=(const ShellProcess&) = delete;
  ~ShellProcess() {
    kill(-pid_, SIGKILL);  // what it has left running, too
    if (!ended_) waitpid(pid_, &status_, 0);
  }

  bool Ended() { return ended_ = ended_ || waitpid(pid_, &status_, WNOHANG) == pid_; }
  int code() const { return CodeOf(status_); }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace

std::string ShellQuoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

int RunShell(const std::string& command) { return CodeOf(std::system(command.c_str())); }

ShellResult RunShellWithin(const std::string& command, double seconds, const std::string& output) {
  constexpr auto kLongestSleep = std::chrono::milliseconds(20);
  const double start = SecondsNow();
  ShellProcess process(command, output);
  std::chrono::microseconds sleep(200);
  while (!process.Ended()) {
    CheckBudget();
    if (seconds > 0 && SecondsNow() - start > seconds) return {128 + SIGKILL, true};
    std::this_thread::sleep_for(sleep);
    sleep = std::min<std::chrono::microseconds>(2 * sleep, kLongestSleep);
  }
  return {process.code(), false};
}

void AddOutput(Error& error, const std::string& text) {
  constexpr size_t kMost = 6;
  size_t begin = 0;
  for (size_t line = 0; line < kMost && begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) error.Note(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace lathe::command
