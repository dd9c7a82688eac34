// The entry of liblathe_functions.so.

#include <string_view>

#include "lathe/runtime/function.h"
#include "lathe/support/version.h"
#include "src/functions/program_function.h"

/// A runtime::FunctionLibrary, or null if `version` is not that of this library: values pass
/// between the two as they lie in memory.
extern "C" __attribute__((visibility("default"))) lathe::runtime::FunctionLibrary
lathe_function_library(const char* version) {
  return version == lathe::Version() ? &lathe::FunctionsFromText : nullptr;
}
