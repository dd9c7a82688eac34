#pragma once

#include <cstdint>
#include <optional>

#include "lathe/dialect/shape_inference.h"

namespace lathe {

/// Infers types of `op` and of all within its regions again, and says of how many values, arguments
/// of blocks included, the type is another one afterwards. Errors are those of the inferencer.
int64_t RefineTypes(Operation* op, ShapeInferencer& facts);

/// The same for the whole program.
int64_t RefineTypes(Program& program, ShapeInferencer& facts);

/// Whether refining changes the type of any value of `op`; nullopt, and all types stay, where the
/// operation cannot run, which is for whoever runs it to say.
std::optional<bool> InferAgain(Operation* op, ShapeInferencer& facts);

}  // namespace lathe
