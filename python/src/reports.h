#pragma once

#include <nanobind/nanobind.h>

#include <functional>

namespace lathe::python {

/// Calls a function of Python, from threads without the interpreter's lock and as long as the
/// caller holds it; none for None.
template <class... Args>
std::function<void(Args...)> ReportTo(nanobind::handle callback) {
  if (callback.is_none()) return {};
  return [callback](Args... args) {
    const nanobind::gil_scoped_acquire acquire;
    callback(args...);
  };
}

}  // namespace lathe::python
