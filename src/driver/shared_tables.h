#pragma once

#include <span>
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

/// In which order such a function can take its constants because other kernels do, for each of
/// which that is so.
std::vector<lower::PackedLayout> PackedTables(const Operation* function, const FunctionCalls& calls,
                                              const PackedOrders& orders);

/// Has a function take those arguments in that order, and rows from it.
void ReadPackedTables(Operation* function, std::span<const lower::PackedLayout> tables);

}  // namespace lathe
