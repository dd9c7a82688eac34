#include "python/src/interrupts.h"

#include <pthread.h>

#include <atomic>

namespace nb = nanobind;

namespace lathe::python {
namespace {

std::atomic<pthread_t> main_thread{};
std::atomic<CancelToken*> current{nullptr};
// What SIGINT did before the outermost scope.
struct sigaction chained = {};

// Calls what was there, then cancels; only what a signal handler may do.
void OnInterrupt(int number, siginfo_t* info, void* context) {
  if ((chained.sa_flags & SA_SIGINFO) != 0) {
    chained.sa_sigaction(number, info, context);
  } else {
    chained.sa_handler(number);
  }
  if (CancelToken* token = current.load(std::memory_order_relaxed)) token->Cancel();
}

bool IsIgnored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 &&
         (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
}

}  // namespace

void FindMainThread() {
  const nb::object main = nb::module_::import_("threading").attr("main_thread")();
  main_thread = static_cast<pthread_t>(nb::cast<uint64_t>(main.attr("ident")));
  // The thread that forks is the main one of the child.
  pthread_atfork(nullptr, nullptr, [] { main_thread = pthread_self(); });
}

InterruptScope::InterruptScope(CancelToken& token) {
  if (pthread_equal(pthread_self(), main_thread.load(std::memory_order_relaxed)) == 0) return;
  active_ = true;
  outer_ = current.exchange(&token);
  if (outer_ != nullptr) return;
  sigaction(SIGINT, nullptr, &chained);
  if (IsIgnored(chained)) return;
  struct sigaction ours = {};
  ours.sa_sigaction = OnInterrupt;
  ours.sa_flags = SA_SIGINFO | (chained.sa_flags & (SA_ONSTACK | SA_RESTART));
  ours.sa_mask = chained.sa_mask;
  installed_ = sigaction(SIGINT, &ours, &before_) == 0;
}

InterruptScope::~InterruptScope() {
  if (!active_) return;
  if (installed_) sigaction(SIGINT, &before_, nullptr);
  current = outer_;
}

bool IsCancelled(const Error& error, const CancelToken& token) {
  return token.cancelled() && error.id() == "run/cancelled";
}

}  // namespace lathe::python
