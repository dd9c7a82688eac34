#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/block.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"

namespace lathe {

/// What operations rely on of sizes that only a run knows, and the error where it does not hold.
struct SizeConstraint {
  SizeCondition condition;
  Error error;  ///< kShape: the operation, its place and its operands in terms of symbols
};

/// What a block states that it relies on, beside what its operations assume: passes have merged or
/// dropped operations that showed it. An attribute of the program, or of the terminator of a block
/// within it, so that it goes where the program goes, also into a file:
///
///     relies_on = [{kind = "equal", a = dim<K>, b = dim<M>, id = "shape/concat", message = "..."}]
///
/// Other kinds are at-least, broadcast and broadcast-to; `where`, `notes` and `hint` are optional.
inline constexpr const char* kReliesOnAttr = "relies_on";

/// In order, without what is proven. Errors: verify/relies-on, where it is malformed.
std::vector<SizeConstraint> StatedConstraints(const Block& block);
/// Replaces what it states; an empty list leaves nothing.
void StateConstraints(Block& block, std::span<const SizeConstraint> constraints);

/// Symbols become other sizes, in conditions as in the types of values. What is proven then, or an
/// expression that is too large, goes.
void ReplaceSizes(std::vector<SizeConstraint>& constraints, const Dim::Replacement& of);
/// The same of all that is stated within an operation, such as the module of a program.
void ReplaceStatedSizes(Operation* within, const Dim::Replacement& of);

/// The list as text, for files of other formats; empty if there is none.
std::string StatementText(const Block& block);
/// Makes the block state what such a text says. Errors: verify/relies-on, parse/...
void StateText(Block& block, std::string_view text);

}  // namespace lathe
