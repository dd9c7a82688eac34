#pragma once

#include <string>

#include "lathe/runtime/model.h"

/// "run/input-type: ..." of the ModelError that `f` throws; "nothing" if it throws none.
template <class F>
std::string ErrorOf(F&& f) {
  try {
    f();
    return "nothing";
  } catch (const lathe::runtime::ModelError& error) {
    return error.id() + ": " + error.what();
  }
}
