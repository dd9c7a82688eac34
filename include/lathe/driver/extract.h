#pragma once

#include <span>
#include <string>

#include "lathe/ir/program.h"

namespace lathe {

/// Leaves of a program what computes `outputs` of `inputs`: names of inputs, of outputs, or of
/// intermediate values (lathe/driver/intermediate_values.h). Without `inputs` those that the
/// program has, without `outputs` the same. Errors: run/value-name for an unknown name;
/// extract/input for an input that the outputs need and that is not listed.
void Extract(Program& program, std::span<const std::string> inputs,
             std::span<const std::string> outputs);

/// A `builtin.func` of `program` as a program by itself, with the functions and weights that it
/// uses (shared): its arguments are inputs `in0`, `in1`, ..., its results outputs `out0`, `out1`,
/// ...
Program FunctionProgram(const Operation* function, const Program& program);

}  // namespace lathe
