#pragma once

#include <nanobind/nanobind.h>

#include <csignal>
#include <optional>
#include <type_traits>

#include "lathe/support/budget.h"

/// Long work without the interpreter's lock that ctrl-C ends.
namespace lathe::python {

/// Remembers which thread runs Python's signal handlers. Called once, when the module is loaded.
void FindMainThread();

/// On Python's main thread, an interrupt (SIGINT) cancels `token` while this lives, besides what
/// Python does about it; elsewhere nothing. Nests: the innermost is cancelled. Needs no lock.
class InterruptScope {
 public:
  explicit InterruptScope(CancelToken& token);
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope();

 private:
  bool active_ = false, installed_ = false;
  CancelToken* outer_ = nullptr;
  struct sigaction before_ = {};
};

/// Whether `error` says that `token` was cancelled.
bool IsCancelled(const Error& error, const CancelToken& token);

/// `work()` without the interpreter's lock, which the caller holds. An interrupt ends it, and
/// Python's handler decides: KeyboardInterrupt, or, if the handler raises nothing, `work` runs
/// again; it must not mind.
template <class Work>
auto WithoutLock(Work&& work) -> std::invoke_result_t<Work> {
  using Result = std::invoke_result_t<Work>;
  while (true) {
    CancelToken interrupted;
    try {
      const InterruptScope scope(interrupted);
      const nanobind::gil_scoped_release release;
      // Between kernels is soon enough; looking within them costs short ones a few percent.
      return RunUnder({.cancel = &interrupted, .within_kernels = false},
                      [&]() -> Result { return work(); });
    } catch (const Error& error) {
      if (!IsCancelled(error, interrupted)) throw;
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
}

}  // namespace lathe::python
