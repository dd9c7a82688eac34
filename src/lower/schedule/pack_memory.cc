#include <algorithm>
#include <optional>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/lower/schedule.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/lower/compute/index_space.h"
#include "src/lower/schedule/touched.h"

namespace lathe::schedule {
namespace {

constexpr char kOther = 'o';

bool IsStore(const Operation* op) { return op->name() == loop::StoreInplaceOp::kName; }
bool IsLoad(const Operation* op) { return op->name() == loop::LoadOp::kName; }

std::string WhyNotAccess(Operation* user) {
  if (user->isa<loop::DimOp>()) return "an extent of it is asked for";
  if (!IsStore(user) && !IsLoad(user)) return StrCat(user->name(), " takes all of it");
  if (IsStore(user) && !user->result(0).use_empty()) return "what a store gives is used";
  const Value value = IsStore(user) ? user->operand(loop::StoreInplaceOp::kValue) : user->result(0);
  return value.type().cast<AnyTensorType>().rank() == 0 ? "" : "there are vectors already";
}

// The number of the block that an index is in, and its place there: without a division where the
// extents of loops show that there is none.
std::pair<Dim, Dim> Divided(const Dim& index, int64_t factor, Leaves& leaves) {
  lower::IndexSpace space;
  std::vector<Dim> behind, others;  // of the integers of the space, and of what it does not know
  const Dim known = index.Substitute([&](std::string_view name) -> std::optional<Dim> {
    const Value leaf = leaves.Leaf(name);
    const Operation* owner =
        leaf.is_block_argument() ? leaf.argument_block()->parent_op() : nullptr;
    if (owner != nullptr && owner->name() == loop::ForOp::kName && leaf == CounterOf(owner)) {
      if (const auto extent = loop::ForOp(owner).extent()) {
        const Dim integer = space.Add(*extent);
        if (integer.is_symbol()) behind.push_back(leaves.SymbolOf(leaf));
        return integer;
      }
    }
    others.push_back(leaves.SymbolOf(leaf));
    return Dim::Symbol(StrCat(kOther, others.size() - 1));
  });
  const auto back = [&](const Dim& expr) {
    return expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
      if (const auto number = space.Number(name)) return behind[*number];
      return others[*ParseInt(name.substr(1))];
    });
  };
  const auto [block, place] = space.Divide(known, factor);
  return {back(block), back(place)};
}

}  // namespace

std::string WhyNotPack(Value memory, size_t axis, int64_t factor) {
  const Operation* alloc = memory.defining_op();
  if (alloc == nullptr || !alloc->isa<loop::AllocOp>())
    return "it is not the function's own memory";
  const auto type = memory.type().cast<AnyTensorType>();
  if (axis >= type.rank()) return StrCat("there is no axis ", axis, "; the rank is ", type.rank());
  if (factor < 1) return StrCat("the factor is ", factor);
  if (!type.dims()[axis].is_constant()) return "the extent of the axis is not constant";
  for (const OpOperand use : memory.uses()) {
    if (std::string why = WhyNotAccess(use.owner()); !why.empty()) return why;
  }
  return "";
}

namespace {

// Memory of the new shape, where the old one is made.
Value AllocPacked(Operation* alloc, size_t axis, int64_t factor) {
  const auto type = alloc->result(0).type().cast<AnyTensorType>();
  std::vector<Dim> dims(type.dims().begin(), type.dims().end());
  dims[axis] = CeilDiv(dims[axis], factor);
  dims.emplace_back(factor);
  Builder b = Builder::Before(alloc);
  b.set_location(alloc->location());
  std::vector<Value> sizes;
  const Leaves leaves;
  for (size_t a = 0; a < dims.size() && alloc->num_operands() > 0; ++a) {
    const bool is_old = a != axis && a + 1 < dims.size();
    sizes.push_back(is_old ? alloc->operand(a) : leaves.Emit(b, dims[a]));
  }
  const Type packed = TensorType::Get(b.context(), SymShape(dims), type.element());
  return loop::AllocOp::Create(b, sizes, {&packed, 1}).memory();
}

// The same load or store of the packed memory.
void Rewrite(Operation* user, Value packed, size_t axis, int64_t factor) {
  const size_t first = IsStore(user) ? loop::StoreInplaceOp::kIndices : loop::LoadOp::kIndices;
  Leaves leaves;
  Builder b = Builder::Before(user);
  b.set_location(user->location());
  const auto [block, place] = Divided(leaves.Of(user->operand(first + axis)), factor, leaves);
  std::vector<Value> indices;
  for (size_t i = first; i < user->num_operands(); ++i) indices.push_back(user->operand(i));
  indices[axis] = leaves.Emit(b, block);
  indices.push_back(leaves.Emit(b, place));
  if (IsStore(user)) {
    const Value value = user->operand(loop::StoreInplaceOp::kValue);
    loop::StoreInplaceOp::Create(b, packed, value, {}, indices);
  } else {
    user->result(0).ReplaceAllUsesWith(loop::LoadOp::Create(b, packed, {}, indices, {}).value());
  }
  user->Erase();
}

}  // namespace

Value Pack(Value memory, size_t axis, int64_t factor) {
  if (const std::string why = WhyNotPack(memory, axis, factor); !why.empty()) {
    const Operation* at = memory.defining_op();
    Refuse(at != nullptr ? at : memory.argument_block()->parent_op(), "pack", why);
  }
  Operation* alloc = memory.defining_op();
  const Value packed = AllocPacked(alloc, axis, factor);
  std::vector<Operation*> users;
  for (const OpOperand use : memory.uses()) users.push_back(use.owner());
  for (Operation* user : users) Rewrite(user, packed, axis, factor);
  alloc->Erase();
  return packed;
}

}  // namespace lathe::schedule
