#pragma once

#include <map>
#include <string>

#include "lathe/ir/program.h"

namespace lathe {

/// Which floats become which, and where a value has its own type again.
struct Widening {
  /// Smaller floats than this one are computed in it.
  ElementType wide = ElementType::kF32;
  /// Each result of an operation is rounded to the type that it had.
  bool rounds = false;
  /// Outputs of the program have the types that they had.
  bool keeps_outputs = true;
};

/// Values become `wide` where something computes with them: what only moves elements of inputs and
/// parameters moves them as they are. Without `rounds`, nothing is rounded on the way, casts to
/// smaller floats included. Integers, 8-bit floats and what is quantized stay what they are; random
/// operations draw what they drew. The program holds values, no mutable tensors, and its types are
/// inferred; functions are not entered. Returns the operations that have no form in `wide`, by
/// name, and how many: they compute as they did, and what they take is rounded as it was.
std::map<std::string, int> Widen(Program& program, const Widening& widening);

/// How many operations of the program compute with a float smaller than `wide`.
bool HasNarrower(const Program& program, ElementType wide);

}  // namespace lathe
