#include "python/src/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <exception>

#include "lathe/support/error.h"
#include "python/src/lent.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

nb::tuple TextsOf(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(text);
  return nb::tuple(list);
}

nb::tuple NotesOf(const Error& error) {
  nb::list list;
  for (const Note& note : error.notes()) list.append(note.text);
  return nb::tuple(list);
}

nb::object ExceptionOf(const Error& error, nb::handle make) {
  nb::list others;
  for (const Error& other : error.others) others.append(ExceptionOf(other, make));
  return make(Name(error.code()), error.id(), error.message(), error.where(), NotesOf(error),
              TextsOf(error.hints()), others);
}

void Raise(const Error& error) {
  nb::object cause = CauseOf(error);
  if (cause.is_valid() && PyObject_IsInstance(cause.ptr(), PyExc_Exception) == 0) {
    // KeyboardInterrupt, SystemExit: what ends programs is not an error of them.
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(cause.ptr())), cause.ptr());
    return;
  }
  const nb::object make = nb::module_::import_("lathe._errors").attr("exception_of");
  const nb::object exception = ExceptionOf(error, make);
  if (cause.is_valid()) PyException_SetCause(exception.ptr(), cause.release().ptr());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

}  // namespace

void RegisterErrors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      Raise(error);
    }
  });
}

}  // namespace lathe::python
