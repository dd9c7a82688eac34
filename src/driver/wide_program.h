#pragma once

#include <map>
#include <string>

#include "lathe/ir/program.h"

namespace lathe {

/// A program that computes in f64 what another one computes in smaller floats.
struct WideProgram {
  Program program;
  /// Operations that have no form in f64, by name, and how many: they compute as they did, and what
  /// they take is rounded as it was.
  std::map<std::string, int> kept;
};

/// Inputs and parameters keep their types; their values become f64 where they are first used, so
/// that nothing is rounded on the way to an output. Outputs of f16, bf16 and f32 become f64. What a
/// program rounds to these types, by a cast, it does not round. Integers, 8-bit floats and what is
/// quantized stay what they are; random operations draw what they drew.
WideProgram Widened(const Program& program);

}  // namespace lathe
