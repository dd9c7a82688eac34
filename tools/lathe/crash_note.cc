#include "tools/lathe/crash_note.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "lathe/support/printable.h"
#include "lathe/support/text.h"

namespace lathe::command {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

// What a handler may read: it can neither allocate nor wait.
char note[1024];

void Tell(int signal) {
  const size_t size = strnlen(note, sizeof(note));
  if (size > 0) (void)!write(STDERR_FILENO, note, size);
  raise(signal);  // again, once this returns, and then without a handler
}

void SetNote(const std::string& text) {
  const size_t size = std::min(text.size(), sizeof(note) - 1);
  std::memcpy(note, text.data(), size);
  note[size] = '\0';
}

class CrashNote : public PassInstrumentation {
 public:
  explicit CrashNote(const std::string& reproducer)
      : hint_(StrCat("   = help: `lathe opt ", PrintableLine(reproducer), "` repeats it\n")) {
    struct sigaction action = {};
    action.sa_handler = &Tell;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (const int signal : kSignals) sigaction(signal, &action, nullptr);
  }
  void BeforePass(const Pass& pass, Program&) override {
    SetNote(StrCat("error[internal/crash]: a crash in pass '", pass.ToText(), "'\n", hint_));
  }
  void AfterPass(const Pass&, Program&) override { SetNote(""); }
  void AfterFailure(const Pass&, Program&, const Error&) override { SetNote(""); }

 private:
  std::string hint_;
};

}  // namespace

std::shared_ptr<PassInstrumentation> MakeCrashNote(const std::string& reproducer) {
  return std::make_shared<CrashNote>(reproducer);
}

}  // namespace lathe::command
