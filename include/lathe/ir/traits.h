#pragma once

namespace lathe {

/// Traits: properties of an op type without state. See spec section 8 for the four about aliasing.
struct ReadOnly {};           ///< writes no operand; may alias them
struct HasValueSemantics {};  ///< neither writes nor aliases an operand
struct Inplace {};            ///< name ends in `_`; writes operand 0 and returns it as result 0
struct ViewLike {};           ///< result 0 aliases operand 0
struct SideEffect {};         ///< must not be dropped, merged or reordered with its kind
struct ConstantLike {};       ///< no operands; its value is known at compile time
struct Commutative {};        ///< the first two operands may be swapped
struct Terminator {};         ///< ends a block
struct IsolatedFromAbove {};  ///< regions see no values from outside
struct SameOperandsAndResultType {};
struct SameOperandsAndResultShape {};
struct SameOperandsAndResultElementType {};
struct Elementwise {};  ///< each result element depends on the matching operand elements, broadcast
struct Random {};       ///< two runs may differ: never folded or merged
struct ProgramInput {};   ///< an input of the program; its attribute `name` names it
struct ProgramOutput {};  ///< an output of the program; its attribute `name` names it

}  // namespace lathe
