#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lathe/support/element_type.h"
#include "lathe/support/kernel.h"
#include "lathe/support/rt_value.h"

/// What computes a PlanFunction. Whoever has the operators makes it: the compiler's library, or
/// liblathe_functions.so, which the run time alone loads when a program needs it.
namespace lathe::runtime {

/// What a function reads or writes.
struct FunctionArgument {
  KernelBuffer buffer = {};  ///< a tensor in memory, of this type
  ElementType element = ElementType::kUndefined;
  size_t rank = 0;
  RtValue* object = nullptr;  ///< or an object, which a function that reads it may have
};

/// What the functions of one run share.
struct FunctionRun {
  uint64_t seed = 0;       ///< of random numbers
  uint64_t draws = 0;      ///< of these so far
  uint64_t max_bytes = 0;  ///< that a function may allocate at once; 0: any number
};

/// Any number of threads may call it. Throws what its operations throw.
using Function = std::function<void(std::span<FunctionArgument> reads,
                                    std::span<FunctionArgument> writes, FunctionRun& run)>;

/// Makes what computes the functions of a program, given by PlanFunction::text. Errors: parse/...,
/// verify/...
using FunctionLibrary = std::vector<Function> (*)(const std::vector<std::string>& texts);

/// The library of this process. It is set once, before any program is loaded.
void SetFunctionLibrary(FunctionLibrary library);

/// By the library of this process, else by liblathe_functions.so, which must lie beside the library
/// that this code is in: run/functions if it does not.
std::vector<Function> MakeFunctions(const std::vector<std::string>& texts);

}  // namespace lathe::runtime
