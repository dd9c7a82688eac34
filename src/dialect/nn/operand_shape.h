#pragma once

#include <vector>

#include "lathe/ir/interfaces.h"

// Shape rules that InferShape and Eval share: the rule is a function of operand shapes, which are
// symbolic at compile time and constant at run time. All of it throws Error kShape without a place.
namespace lathe::nn {

// Of each operand that the op may have (`count` of them); unranked for an absent one.
std::vector<SymShape> OperandShapes(const InferShapeContext& c, size_t count);
std::vector<SymShape> OperandShapes(const EvalContext& c, size_t count);
std::vector<SymShape> OperandShapes(const Operation* op, size_t count);

// `shape` with `rank` dims, unknown ones if its rank is unknown; throws shape/rank.
SymShape WithRank(const SymShape& shape, size_t rank, const char* what);
// Both must be equal; `a` becomes the more precise of them. Throws shape/extent.
void Unify(Dim& a, const Dim& b, const char* what);
// `shape` is unknown or fits `expected` dim by dim; throws shape/operand.
void ExpectShape(const SymShape& shape, const SymShape& expected, const char* what);
// The extents of a result, worked out of constants; throws limit/size or limit/memory when it is
// too large to make.
std::vector<int64_t> ConstantsOf(const SymShape& shape);

}  // namespace lathe::nn
