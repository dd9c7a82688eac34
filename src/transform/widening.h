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
  /// So have products whose right factor is an input or a parameter: weights then take half the
  /// bytes, sums are f32 anyway, and processors multiply bf16.
  bool keeps_products = false;
};

struct WideningResult {
  bool changed = false;  ///< whether anything has another type now
  /// Operations that have no form in the wide type, by name, and how many: they compute as they
  /// did, and what they take is rounded as it was.
  std::map<std::string, int> kept;
};

/// Values become `wide` where something computes with them: what only moves elements of inputs and
/// parameters moves them as they are. Without `rounds`, nothing is rounded on the way, casts to
/// smaller floats included but for those that are taken back at once. Integers, 8-bit floats and
/// what is quantized stay what they are; random operations draw what they drew; mutable tensors,
/// and what calls of functions take and give, keep their types. The program's types are inferred.
WideningResult Widen(Program& program, const Widening& widening);

}  // namespace lathe
