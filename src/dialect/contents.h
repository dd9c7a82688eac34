#pragma once

#include <optional>
#include <vector>

#include "lathe/ir/interfaces.h"

/// Symbolic contents of small integer tensors, through which exporters compute shapes
/// (Shape -> Gather -> Mul -> Concat -> Reshape). A shape rule publishes what it knows about its
/// result with these helpers; bool elements count as 0 and 1.
namespace lathe {

/// Longer tensors are not followed.
inline constexpr size_t kMaxContents = 256;

/// Contents of operand `i` if it is an i32, i64, index or bool tensor of rank 0 or 1 with at most
/// kMaxContents elements; elements not known are unknown dims.
std::optional<std::vector<Dim>> SmallContents(const InferShapeContext& c, size_t i);

/// The same for any rank: the elements in row-major order, and the extents.
struct SmallArray {
  std::vector<int64_t> extents;
  std::vector<Dim> elements;
};
std::optional<SmallArray> SmallArrayOf(const InferShapeContext& c, size_t i);

/// Result 0 holds the same elements as operand `i`.
void ForwardContents(InferShapeContext& c, size_t i = 0);

/// Result 0 is `f` of operands 0 and 1 (or of all operands from the left), numpy broadcasting.
/// Does nothing where an operand has no known contents or a rank above 1.
using DimFunction = Dim (*)(const Dim&, const Dim&);
void PublishElementwise(InferShapeContext& c, DimFunction f);
/// The same with one operand.
void PublishElementwise(InferShapeContext& c, Dim (*f)(const Dim&));

// Functions for PublishElementwise beside the operators of Dim; unknown where not decided.
Dim DimAdd(const Dim& a, const Dim& b);
Dim DimSub(const Dim& a, const Dim& b);
Dim DimMul(const Dim& a, const Dim& b);
/// Integer division as ONNX Div does it: towards zero; 0 by zero.
Dim DimDiv(const Dim& a, const Dim& b);
/// What is left of a division downwards; 0 by zero.
Dim DimMod(const Dim& a, const Dim& b);
Dim DimMax(const Dim& a, const Dim& b);
Dim DimMin(const Dim& a, const Dim& b);
Dim DimEqual(const Dim& a, const Dim& b);
Dim DimLess(const Dim& a, const Dim& b);
Dim DimNeg(const Dim& a);
Dim DimNot(const Dim& a);

/// Constants as dims.
std::vector<Dim> ToDims(std::span<const int64_t> values);

}  // namespace lathe
