#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lathe/ir/op.h"

namespace lathe {

/// How a result element depends on the operands: what decides which ops one loop nest can compute.
/// In the order of what fusion may do with them, most first.
enum class OpKind : uint8_t {
  /// From the elements at the same index; all operands have the shape of the results.
  kElementwise,
  /// The same after numpy's broadcasting of the operands.
  kBroadcast,
  /// From at most one element of each operand, at any index: transpose, concat, gather.
  kInjective,
  /// From slices along some axes of the operands: sum, softmax, layer normalization.
  kReduction,
  /// Anything, element by element finished, so that elementwise ops can follow in registers:
  /// convolution, matrix product, pooling.
  kOutElementwiseFusable,
  /// Nothing is known.
  kOpaque,
};

/// "elementwise", "out_elementwise_fusable", ...
std::string_view Name(OpKind kind);
/// The kind of that name; an unknown one is an error with the nearest.
OpKind ParseOpKind(std::string_view name);

/// Declared by `kind` (and by `whole` of an input) in the op's YAML entry. Every registered op has
/// it; `kind: varies` asks the op class: static OpKind Kind(const Operation*).
class OpKindInterface : public OpInterface<OpKindInterface> {
 public:
  struct Concept {
    OpKind (*kind)(const Operation*);
    /// Bit i: the op needs all of operand i before it computes anything (a shape, a list of axes).
    uint64_t whole;
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Kind, 0} {}
  };
  using OpInterface::OpInterface;
};

/// Table of an op of one kind, whatever its attributes.
template <OpKind kKind, uint64_t kWhole>
struct FixedOpKind : OpKindInterface::Concept {
  FixedOpKind() : Concept{[](const Operation*) { return kKind; }, kWhole} {}
};
/// Table of an op whose class says which kind an operation is of.
template <class OpT, uint64_t kWhole>
struct VaryingOpKind : OpKindInterface::Concept {
  VaryingOpKind() : Concept{&OpT::Kind, kWhole} {}
};

/// Opaque for ops without a declaration.
OpKind KindOf(const Operation* op);
/// Operand `i` says sizes or positions: it is never computed in the loops that use it.
bool NeedsWhole(const Operation* op, size_t i);

}  // namespace lathe
