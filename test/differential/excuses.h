#pragma once

#include <unordered_set>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/support/error.h"

// What a compiled program may leave out that the interpreter does: docs/runtime.md, "Runs".
namespace lathe::testing {

using OpSet = std::unordered_set<const Operation*>;

/// Whether a compiled program may run although the interpreter ended with `error` at `refused`, an
/// operation of the program or of its regions:
/// - nothing that an output holds depends on its elements (of a list that is known one by one, only
///   what is taken counts), and the error is about elements, or the
///   types do not tell the sizes, or it is in a region, which may never run;
/// - the error is about numbers that say again what is known: the length of a scan input that no
///   round reads, how many numbers a slice within a region is given beside those that it reads.
bool MayBeAccepted(const Program& program, const Operation* refused, const Error& error);

/// Which outputs, in the order of the fetches, something of `ops` can reach: through operands, into
/// regions and out of them.
std::vector<bool> OutputsBehind(const Program& program, const OpSet& ops);
/// Whether something of `ops` can reach the operation.
bool IsBehind(const OpSet& ops, const Operation* op);

}  // namespace lathe::testing
