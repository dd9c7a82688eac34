#include "python/src/lent.h"

#include <nanobind/stl/string.h>

#include <deque>

namespace nb = nanobind;

namespace lathe::python {
namespace {

constexpr const char* kRaised = "python/exception";
// Causes of errors that nobody asks about, such as those that constant folding ignores, are few.
constexpr size_t kMaxPending = 8;

struct Pending {
  std::string message;
  nb::object exception;
};
struct AllPending {
  nb::ft_mutex mutex;
  std::deque<Pending> failures;
};
// Never freed: the interpreter may be gone when the process ends.
AllPending& ThePending() {
  static auto* pending = new AllPending;
  return *pending;
}

// "file.py:12" of the innermost frame.
std::string LineOf(nb::handle traceback) {
  if (!traceback.is_valid() || traceback.is_none()) return "";
  nb::object last = nb::borrow(traceback);
  while (!last.attr("tb_next").is_none()) last = last.attr("tb_next");
  const auto file = nb::cast<std::string>(last.attr("tb_frame").attr("f_code").attr("co_filename"));
  return StrCat(file, ":", nb::cast<int64_t>(last.attr("tb_lineno")));
}

}  // namespace

std::string DefinitionOf(nb::handle function) {
  const nb::object code = nb::getattr(function, "__code__", nb::none());
  if (code.is_none()) return "";
  return StrCat(nb::cast<std::string>(code.attr("co_filename")), ":",
                nb::cast<int64_t>(code.attr("co_firstlineno")));
}

Kept Keep(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* kept) {
            if (!nb::is_alive()) return;  // with the interpreter, all objects are gone
            const nb::gil_scoped_acquire acquire;
            delete kept;
          }};
}

Kept KeepSome(nb::handle object) { return object.is_none() ? nullptr : Keep(nb::borrow(object)); }

Error FailureOf(const std::string& what, nb::python_error& raised) {
  const auto type = nb::cast<std::string>(raised.type().attr("__name__"));
  nb::object exception = nb::borrow(raised.value());
  std::string text;
  try {
    text = nb::cast<std::string>(nb::str(exception));
  } catch (nb::python_error&) {
    text = "(its text cannot be had)";
  }
  Error error(ErrorCode::kInvalidArgument, kRaised,
              StrCat(what, " raised ", type, text.empty() ? "" : ": ", text));
  if (const std::string line = LineOf(raised.traceback()); !line.empty()) {
    error.At(line).Note(StrCat("raised at ", line));  // operations put their own place first
  }
  AllPending& all = ThePending();
  const nb::ft_lock_guard lock(all.mutex);
  if (all.failures.size() == kMaxPending) all.failures.pop_front();
  all.failures.push_back({error.message(), std::move(exception)});
  return error;
}

nb::object CauseOf(const Error& error) {
  if (error.id() != kRaised) return {};
  AllPending& all = ThePending();
  const nb::ft_lock_guard lock(all.mutex);
  for (auto at = all.failures.rbegin(); at != all.failures.rend(); ++at) {
    if (!error.message().ends_with(at->message)) continue;  // it may name an operation first
    nb::object exception = std::move(at->exception);
    all.failures.erase(std::next(at).base());
    return exception;
  }
  return {};
}

Lent::Lent(Program& program, Pass* pass, Rewriter* rewriter) {
  const auto context = OwnerOf(program.context());
  holder_ = std::make_shared<ProgramHolder>(context, Program(*context));
  holder_->lent = &program;
  holder_->pass = pass;
  holder_->rewriter = rewriter;
}

Lent::Lent(const IrContext& context) {
  const auto owner = OwnerOf(context);
  holder_ = std::make_shared<ProgramHolder>(owner, Program(*owner));
  holder_->hidden = true;
}

Lent::~Lent() {
  holder_->ended = true;
  holder_->lent = nullptr;
  holder_->rewriter = nullptr;
  Replaced(*holder_);
}

}  // namespace lathe::python
