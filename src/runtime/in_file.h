#pragma once

#include <string>

#include "lathe/support/error.h"

namespace lathe::runtime {

/// What `f` gives; its errors say that they come from the file.
template <class F>
auto InFile(const std::string& name, F&& f) {
  try {
    return f();
  } catch (Error& error) {
    const std::string where = error.where();
    if (where != name) error.At(where.empty() ? name : StrCat(name, ", ", where));
    throw;
  }
}

}  // namespace lathe::runtime
