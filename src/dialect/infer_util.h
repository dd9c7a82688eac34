#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/ir/interfaces.h"

// What shape rules share. All of it throws Error kShape with the place of the op.
namespace lathe {

// The shape of a tensor value, as declared.
SymShape ShapeOf(Value value);

// Result `result` has the shape of operand `from`.
void InferShapeOf(InferShapeContext& c, size_t from = 0, size_t result = 0);

// The shape of operand `i`, which must have this rank if its rank is known; unknown extents
// otherwise. `what` names the operand in the message ("scale").
SymShape ExpectRank(const InferShapeContext& c, size_t i, size_t rank, const char* what);
// Its rank is unknown or at least `rank`; the shape as it is.
SymShape ExpectMinRank(const InferShapeContext& c, size_t i, size_t rank, const char* what);
// Operand `i` is absent, or a tensor of one element.
void ExpectScalar(const InferShapeContext& c, size_t i, const char* what);

// Assumes that `a` and `b` are equal; the more precise of both.
Dim ExpectEqual(const Dim& a, const Dim& b, const char* id, const std::string& message,
                const char* hint = "");

// Operand `i` broadcasts to `shape` without making it larger.
void ExpectBroadcastableTo(const InferShapeContext& c, size_t i, const SymShape& shape,
                           const char* what);

// `axis` counted from the front; throws shape/axis.
size_t InferAxis(const InferShapeContext& c, int64_t axis, size_t rank);

}  // namespace lathe
