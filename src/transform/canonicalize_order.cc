#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "src/dialect/fold_util.h"
#include "src/transform/canonicalize.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

// ---- transposes ----

/// The permutation of a transpose of known rank.
std::optional<std::vector<int64_t>> PermOf(const Operation* op) {
  if (const auto list = op->attribute("perm").dyn_cast<ArrayAttribute>()) {
    std::optional<std::vector<int64_t>> perm = list.AsInts();
    if (!perm) return std::nullopt;
    for (int64_t& axis : *perm) axis += axis < 0 ? static_cast<int64_t>(perm->size()) : 0;
    return perm;
  }
  const AnyTensorType type = TensorOrNull(op->operand(0));
  if (!type || !type.has_rank()) return std::nullopt;
  std::vector<int64_t> reversed(type.rank());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return reversed;
}

bool TransposeOfTranspose(const Site& s) {
  Operation* inner = s.Maker(0);
  if (!IsA(inner, nn::kTranspose)) return false;
  std::optional<std::vector<int64_t>> perm = PermOf(s.op), first = PermOf(inner);
  if (!perm || !first || perm->size() != first->size()) return false;
  for (int64_t& p : *perm) p = (*first)[static_cast<size_t>(p)];
  if (std::is_sorted(perm->begin(), perm->end())) return s.ReplaceBy(inner->operand(0));
  return s.ReplaceByNew(inner, nn::kTranspose, {inner->operand(0)}, {s.Attr("perm", *perm)});
}

/// Only axes of extent 1 change their place: the order of the elements stays.
bool TransposeOfOnes(const Site& s) {
  const AnyTensorType from = TensorOrNull(s.op->operand(0));
  const auto perm = PermOf(s.op);
  if (!perm || !from || !from.has_rank() || std::is_sorted(perm->begin(), perm->end()))
    return false;
  int64_t last = -1;
  for (const int64_t p : *perm) {
    if (from.dims()[static_cast<size_t>(p)].IsConstant(1)) continue;
    if (p < last) return false;
    last = p;
  }
  const auto target = ReshapeTarget(from, s.type().cast<AnyTensorType>(), true);
  return target && s.ReplaceByNew(s.op, nn::kReshape, {s.op->operand(0), s.Constant(*target)}, {});
}

// ---- reshapes ----

bool IsReshape(const Operation* op) {
  return IsA(op, nn::kReshape) || IsA(op, nn::kFlatten) || IsA(op, nn::kSqueeze) ||
         IsA(op, nn::kUnsqueeze);
}

bool HasOpenExtents(Value v) {
  const AnyTensorType type = TensorOrNull(v);
  return !type || !type.has_rank() || std::ranges::any_of(type.dims(), &Dim::is_unknown);
}

/// -1 beside copied extents and ones: whatever the extents of its operand are.
bool TakesAnyExtents(const Site& s) {
  const auto target = s.Ints(1);
  return target && std::ranges::find(*target, -1) != target->end() &&
         std::ranges::all_of(*target, [](int64_t n) { return n <= 1; });
}

/// A reshape that refuses extents or numbers which have no symbols yet: no constraint says so, and
/// without it nothing does.
bool MayContradict(const Site& s) {
  if (IsA(s.op, nn::kSqueeze)) return HasOpenExtents(s.op->operand(0));
  if (!IsA(s.op, nn::kReshape)) return false;
  if (!FollowsFromSizes(s.op->operand(1))) return true;
  return HasOpenExtents(s.op->operand(0)) && !TakesAnyExtents(s);
}

/// A chain of reshapes that comes back to where it began.
bool ReshapedBack(const Site& s) {
  Operation* inner = s.Maker(0);
  return IsReshape(inner) && !MayContradict({inner, s.rewriter}) &&
         SameKnownShape(inner->operand(0), s.op->result(0)) && s.ReplaceBy(inner->operand(0));
}

/// Nothing that it says of extents needs a check: it has a -1, or is no reshape to extents.
bool TakesTheRest(const Site& s) {
  if (!IsA(s.op, nn::kReshape)) return true;
  const auto target = s.Ints(1);
  return target && std::ranges::find(*target, -1) != target->end();
}

/// Both become one reshape where its target can be written down.
bool ReshapeOfReshape(const Site& s) {
  Operation* inner = s.Maker(0);
  if (!IsReshape(inner) || MayContradict({inner, s.rewriter})) return false;
  const auto target = ReshapeTarget(TensorOrNull(inner->operand(0)), s.type().cast<AnyTensorType>(),
                                    TakesTheRest(s));
  return target &&
         s.ReplaceByNew(inner, nn::kReshape, {inner->operand(0), s.Constant(*target)}, {});
}

/// Axes of both: those of the inner one as they stand in the outer result.
bool UnsqueezeOfUnsqueeze(const Site& s) {
  Operation* inner = s.Maker(0);
  const AnyTensorType type = s.type().dyn_cast<AnyTensorType>();
  if (!IsA(inner, nn::kUnsqueeze) || !type || !type.has_rank()) return false;
  const auto outer_axes = s.Ints(1), inner_axes = Site{inner, s.rewriter}.Ints(1);
  if (!outer_axes || !inner_axes) return false;
  const auto rank = static_cast<int64_t>(type.rank());
  const auto inner_rank = rank - static_cast<int64_t>(outer_axes->size());
  std::vector<bool> added(type.rank());
  for (const int64_t a : *outer_axes) added[static_cast<size_t>(a < 0 ? a + rank : a)] = true;
  std::vector<bool> added_before(static_cast<size_t>(inner_rank));
  for (const int64_t a : *inner_axes) {
    added_before[static_cast<size_t>(a < 0 ? a + inner_rank : a)] = true;
  }
  std::vector<int64_t> axes;
  for (size_t i = 0, k = 0; i < added.size(); ++i) {
    if (added[i] || added_before[k++]) axes.push_back(static_cast<int64_t>(i));
  }
  return s.ReplaceByNew(inner, nn::kUnsqueeze, {inner->operand(0), s.Constant(axes)}, {});
}

// ---- casts ----

/// Bits that hold every integer of the type exactly; those of a floating type.
int IntegerDigits(ElementType t) {
  if (t == ElementType::kBool) return 1;
  return static_cast<int>(BitWidth(t)) - (IsSigned(t) ? 1 : 0);
}
int FloatDigits(ElementType t) {
  switch (t) {
    case ElementType::kBF16:
      return 8;
    case ElementType::kF16:
      return 11;
    case ElementType::kF32:
      return 24;
    case ElementType::kF64:
      return 53;
    default:
      return 0;
  }
}

bool IsWhole(ElementType t) { return IsInteger(t) || t == ElementType::kBool; }

/// Every value of `a` is exactly one of `b`.
bool Widens(ElementType a, ElementType b) {
  if (IsWhole(a) && IsInteger(b)) {
    return IntegerDigits(a) <= IntegerDigits(b) && (!IsSigned(a) || IsSigned(b));
  }
  if (IsWhole(a) && IsFloat(b)) return IntegerDigits(a) <= FloatDigits(b);
  if (b == ElementType::kF64) return FloatDigits(a) != 0;
  return b == ElementType::kF32 && (a == ElementType::kF16 || a == ElementType::kBF16);
}

/// What is lost is lost in the outer cast alone, and the same way: integers wrap, numbers that were
/// floating saturate.
bool CastOfCast(const Site& s) {
  Operation* inner = s.Maker(0);
  if (!IsA(inner, nn::kCast)) return false;
  const AnyTensorType from = TensorOrNull(inner->operand(0)),
                      middle = TensorOrNull(s.op->operand(0)), to = TensorOrNull(s.op->result(0));
  if (!from || !middle || !to || !Widens(from.element(), middle.element())) return false;
  const bool through_float = IsWhole(from.element()) && IsFloat(middle.element());
  if (through_float && !IsFloat(to.element()) && !Widens(from.element(), to.element()))
    return false;
  const auto attributes = s.op->attributes().entries();
  return s.ReplaceByNew(inner, nn::kCast, {inner->operand(0)},
                        std::vector<NamedAttribute>(attributes.begin(), attributes.end()));
}

constexpr CanonicalRow kRules[] = {
    {"transpose-of-transpose", nn::kTranspose, TransposeOfTranspose},
    {"transpose-of-ones", nn::kTranspose, TransposeOfOnes},
    {"reshaped-back", nn::kReshape, ReshapedBack},
    {"reshaped-back", nn::kFlatten, ReshapedBack},
    {"reshaped-back", nn::kSqueeze, ReshapedBack},
    {"reshaped-back", nn::kUnsqueeze, ReshapedBack},
    {"reshape-of-reshape", nn::kReshape, ReshapeOfReshape},
    {"reshape-of-reshape", nn::kFlatten, ReshapeOfReshape},
    {"unsqueeze-of-unsqueeze", nn::kUnsqueeze, UnsqueezeOfUnsqueeze},
    {"cast-of-cast", nn::kCast, CastOfCast},
};

}  // namespace

std::span<const CanonicalRow> OrderRules() { return kRules; }

}  // namespace lathe
