#pragma once

#include <cstdio>
#include <string>

#include "lathe/runtime/model.h"

// What checks of lathe/runtime/model.h share: a program is given as a file, and what is wrong with
// it, or "fine", is printed.

using lathe::runtime::Array;
using lathe::runtime::ArrayView;
using lathe::runtime::Model;

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

inline int Report(int argc, char** argv, std::string (*check)(const char* path)) {
  if (argc != 2) return 2;
  const std::string result = check(argv[1]);
  std::puts(result.c_str());
  return result == "fine" ? 0 : 1;
}
