#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace lathe {

/// What became of a forked child.
struct Child {
  int exit_code = -1;  ///< -1: a signal ended it
  int signal = 0;
};

/// Runs `work` in a forked child that then ends with the code that it gives. One that hangs is
/// ended by SIGALRM.
template <class F>
Child InChild(F&& work, unsigned seconds = 60) {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(seconds);
    _exit(work());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  Child child;
  if (WIFEXITED(status)) child.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.signal = WTERMSIG(status);
  return child;
}

/// The system gives no more threads while it lives: no stack fits. (Root may have more processes
/// than RLIMIT_NPROC.)
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 46);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

}  // namespace lathe
