#pragma once

#include "lathe/ir/interfaces.h"

// What functions `Fold` share. Element types are those of the op's declaration, so only shapes and
// values are looked at.
namespace lathe {

// Operand `i` as a constant; null if it is none, absent, or the op has no such operand.
const Tensor* FoldConstant(const FoldContext& c, size_t i);
// There is an element, and every one is this number; zeros also agree in sign.
bool IsFilledWith(const Tensor* t, double value);
// The shape is known and the same as that of result `result`: the op may be `value` itself.
bool HasShapeOfResult(Value value, Operation* op, size_t result = 0);
// Broadcasting `x` with a tensor of shape `other` gives the shape of `x`.
bool KeepsShape(Value x, const Shape& other);
// It is made of constants and sizes alone, those that a program binds included: whether it says the
// same as the type of a result is a condition on sizes. Other numbers are looked at by a run.
bool FollowsFromSizes(Value numbers);

// Result 0 becomes operand 0 if that has the same known shape.
void FoldSameShape(FoldContext& c);
// The same where operand `numbers` tells the shape: what only a run knows stays, to be looked at.
void FoldTold(FoldContext& c, size_t numbers);
// Result 0 becomes operand 0 if that is of the same kind of op, with the same attributes.
void FoldIdempotent(FoldContext& c);
// f(f(x)) becomes x.
void FoldInvolution(FoldContext& c);
// Result 0 becomes operand 0 if operand 1 is filled with `neutral`.
void FoldNeutralRight(FoldContext& c, double neutral);
// The same with the operands either way.
void FoldNeutral(FoldContext& c, double neutral);
// A variadic op of one operand, or of equal ones, is that operand.
void FoldAllEqual(FoldContext& c);

}  // namespace lathe
