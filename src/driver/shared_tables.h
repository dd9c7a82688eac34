#pragma once

#include <vector>

#include "lathe/ir/operation.h"
#include "src/driver/pack_arguments.h"

/// A large constant of which one function takes rows, and another, a product, all of it in an order
/// of its own (the embedding of a language model, which gives its words again in the end): the rows
/// are taken from that order, so that the constant is held once.
namespace lathe {

/// Whether a function that is not lowered yet takes rows of such a constant. It should be lowered
/// when those that may pack it have been.
bool SharesTable(const Operation* function, const FunctionCalls& calls, const Program& program);

/// Has such a function, and its calls, take rows from the constant as it was packed, if it was.
void ReadPackedTables(Operation* function, const FunctionCalls& calls, ArgumentPacker& packer);

}  // namespace lathe
