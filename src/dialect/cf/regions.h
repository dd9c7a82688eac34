#pragma once

#include <vector>

#include "lathe/dialect/region_interface.h"
#include "lathe/ir/interfaces.h"

/// Rules that the ops with regions share.
namespace lathe::cf {

/// The `cf.yield` that ends the region's single block, or null.
Operation* YieldOf(const Region& region);
/// Type of value `i` that the region yields, or null.
Type YieldType(const Region& region, size_t i);

/// Type of operand `i`; null if it is absent.
Type OperandType(const Operation* op, size_t i);

/// The most specific type that covers both; null if there is none.
Type Join(Type a, Type b);
/// `type` with every shape within unknown.
Type Weaken(Type type);

/// Throws unless the region has one block with `arguments` arguments that ends in a yield of
/// `yields` values.
void CheckRegion(Operation* op, const Region& region, const char* name, size_t arguments,
                 size_t yields);
/// Throws unless a value of type `actual` may stand where the op promises `expected`.
void CheckCovered(Operation* op, Type actual, Type expected, std::string_view what);
[[noreturn]] void VerifyFail(Operation* op, std::string id, std::string_view message);

/// Sets argument `i` of a block; true if that changed it.
bool SetArgument(Block& block, size_t i, Type type);
/// Carried argument `argument` of the region's block, which starts as `initial` and becomes what
/// the region yields as value `yield`. `name`: of its extents that change, if they have names.
bool SetCarried(const Region& region, RegionRound round, size_t argument, Type initial,
                size_t yield, const std::string& name = {});
/// Types of carried results: what the region starts from or yields.
void InferCarried(InferShapeContext& c, const Region& region, size_t result, size_t operand,
                  size_t yield, const std::string& name = {});

/// The one element of a bool (i64) tensor of any rank.
bool TruthOf(EvalContext& c, const RtValue& value, std::string_view what);
int64_t CountOf(EvalContext& c, size_t operand, std::string_view what);
/// That it has one, if it is given.
void AssumeOneElement(const InferShapeContext& c, size_t operand, const char* id,
                      std::string_view what);

/// An empty tensor of the result's type, whose dim `axis` is 0; so are those that neither the type
/// nor the values around (src/dialect/size_scope.h) tell.
Tensor NoPieces(EvalContext& c, size_t result, size_t axis);
/// All pieces, of one shape, along a new axis.
Tensor Stack(EvalContext& c, const std::vector<RtValue>& pieces, size_t axis);
/// Slice `i` of `x` along `axis`, without that axis.
Tensor SliceAt(const Tensor& x, size_t axis, int64_t i);

}  // namespace lathe::cf
