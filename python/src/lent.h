#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lathe/support/error.h"
#include "python/src/views.h"

/// Functions of Python that the library calls: passes, rules, operators, external compilers.
namespace lathe::python {

/// A Python object that C++ keeps where nobody has the interpreter's lock.
using Kept = std::shared_ptr<nanobind::object>;
Kept Keep(nanobind::object object);
/// Null for None.
Kept KeepSome(nanobind::handle object);

/// The error that stands for an exception of Python while C++ handles it, "ValueError: ..." at the
/// line that raised it; needs the interpreter's lock. `what` raised it: "pass 'halve'".
Error FailureOf(const std::string& what, nanobind::python_error& raised);
/// "file.py:12" where a function of Python begins; empty for what is not written in Python.
/// Needs the lock.
std::string DefinitionOf(nanobind::handle function);

/// The exception that `error` stands for, once; null if it is none. Needs the lock.
nanobind::object CauseOf(const Error& error);

/// `function()` with the interpreter's lock. What Python raises is a lathe::Error python/exception.
template <class F>
auto CallPython(const std::string& what, F&& function) {
  const nanobind::gil_scoped_acquire acquire;
  try {
    return std::forward<F>(function)();
  } catch (nanobind::python_error& raised) {
    throw FailureOf(what, raised);
  }
}

/// A program that belongs to somebody else, for Python to see while this lives. Needs the lock.
class Lent {
 public:
  /// Changes go through `rewriter` if there is one, else are those of `pass`.
  Lent(Program& program, Pass* pass, Rewriter* rewriter = nullptr);
  /// Operations alone, to look at: what program they are of is not known.
  explicit Lent(const IrContext& context);
  ~Lent();
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  const Holder& holder() const { return holder_; }

 private:
  Holder holder_;
};

/// Registers the operators of Python with a new context.
void LoadPythonOps(IrContext& context);

/// A pass or a named pipeline.
struct PassEntry {
  std::string name, doc;
};
/// All passes, sorted by name.
std::vector<PassEntry> PassEntries();

void BindCompilers(nanobind::module_& m);
void BindPasses(nanobind::module_& m);
void BindRules(nanobind::module_& m);
void BindTrainer(nanobind::module_& m);
void BindPythonOps(nanobind::module_& m);

}  // namespace lathe::python
