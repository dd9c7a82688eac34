#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "src/transform/canonicalize.h"

namespace lathe {

namespace {

/// The result keeps its shape when operand `at` has the shape `instead`.
bool BroadcastsTheSame(Operation* op, size_t at, const SymShape& instead) {
  const AnyTensorType type = TensorOrNull(op->result(0));
  if (!type || !type.has_rank()) return false;
  SymShape all = instead;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (i == at) continue;
    const AnyTensorType other = TensorOrNull(op->operand(i));
    if (!other || !other.has_rank()) return false;
    all = Broadcast(all, other.shape());
  }
  if (all.rank() != type.rank()) return false;
  for (size_t d = 0; d < all.rank(); ++d) {
    if (!ProvablyEqual(all.dims[d], type.dims()[d])) return false;
  }
  return true;
}

/// A reader of the op that broadcasts and may read a tensor of this shape instead. One at a time:
/// who reads the op twice may need one of the two.
OpOperand FindReader(const Site& s, const SymShape& instead) {
  for (const OpOperand use : s.op->result(0).uses()) {
    Operation* reader = use.owner();
    const bool broadcasts =
        reader->HasTrait<Elementwise>() && reader->HasTrait<HasValueSemantics>();
    if (broadcasts && reader->num_results() == 1 &&
        BroadcastsTheSame(reader, use.index(), instead)) {
      return use;
    }
  }
  return {};
}

/// Readers that broadcast read what the op repeats.
bool ReadInput(const Site& s) {
  const AnyTensorType type = TensorOrNull(s.op->operand(0));
  if (!type || !type.has_rank()) return false;
  const OpOperand use = FindReader(s, type.shape());
  if (!use) return false;
  s.rewriter.SetOperand(use.owner(), use.index(), s.op->operand(0));
  s.rewriter.EraseDead(s.op);
  return true;
}

/// A tile that repeats only axes of extent 1 is an expand.
bool TileToBroadcast(const Site& s) {
  const AnyTensorType from = TensorOrNull(s.op->operand(0)), to = TensorOrNull(s.op->result(0));
  if (!from || !to || !from.has_rank() || !to.has_rank() || from.rank() != to.rank()) return false;
  for (size_t d = 0; d < from.rank(); ++d) {
    const Dim& own = from.dims()[d];
    if (!own.IsConstant(1) && !ProvablyEqual(own, to.dims()[d])) return false;
  }
  return ReadInput(s);
}

/// A tensor of equal elements that is only broadcast is its one element.
bool FillToBroadcast(const Site& s) {
  const auto value = s.op->attribute("value").dyn_cast<TensorAttribute>();
  const AnyTensorType type = TensorOrNull(s.op->result(0));
  const OpOperand use = FindReader(s, SymShape(std::vector<Dim>()));
  if (!type || !use) return false;
  const Tensor element =
      value ? value.value().Reshaped({}) : Tensor(type.element(), Shape{});  // absent: zero
  s.rewriter.SetOperand(use.owner(), use.index(), s.rewriter.Constant(element));
  s.rewriter.EraseDead(s.op);
  return true;
}

constexpr CanonicalRow kRules[] = {
    {"expand-to-broadcast", nn::kExpand, ReadInput},
    {"tile-to-broadcast", nn::kTile, TileToBroadcast},
    {"fill-to-broadcast", nn::kConstantOfShape, FillToBroadcast},
};

}  // namespace

std::span<const CanonicalRow> BroadcastRules() { return kRules; }

}  // namespace lathe
