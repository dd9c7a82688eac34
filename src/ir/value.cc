#include "lathe/ir/value.h"

#include <algorithm>

#include "lathe/ir/operation.h"
#include "lathe/support/error.h"

namespace lathe {

using detail::BlockArgumentImpl;
using detail::OpOperandImpl;
using detail::OutOfLineResultImpl;
using detail::ValueImpl;

namespace detail {

// A slot that points at a use may be the head of a value's chain, whose low bits are the value's
// kind; other slots have zeros there. Writes keep them, so both are handled alike.
namespace {
void PointAt(uintptr_t* slot, uintptr_t operand) {
  *slot = operand | (*slot & ValueImpl::kKindMask);
}
}  // namespace

void OpOperandImpl::Link(ValueImpl* v) {
  value = v;
  next = 0;
  back = nullptr;
  if (v == nullptr) return;
  next = v->uses & ~ValueImpl::kKindMask;
  back = &v->uses;
  if (next != 0) reinterpret_cast<OpOperandImpl*>(next)->back = &next;
  PointAt(back, reinterpret_cast<uintptr_t>(this));
}

void OpOperandImpl::Unlink() {
  if (value == nullptr) return;
  PointAt(back, next);
  if (next != 0) reinterpret_cast<OpOperandImpl*>(next)->back = back;
  value = nullptr;
}

}  // namespace detail

Value OpOperand::value() const { return Value(impl_->value); }

void OpOperand::Set(Value value) const {
  impl_->Unlink();
  impl_->Link(value.impl());
}

size_t OpOperand::index() const {
  return static_cast<size_t>(impl_ - impl_->owner->operand_impls());
}

Operation* Value::defining_op() const {
  const uintptr_t kind = impl_->kind();
  if (kind == ValueImpl::kBlockArgument) return nullptr;
  if (kind < ValueImpl::kOutOfLine) return reinterpret_cast<Operation*>(impl_ + kind + 1);
  const auto* result = static_cast<const OutOfLineResultImpl*>(impl_);
  const uintptr_t first_inline =
      reinterpret_cast<uintptr_t>(result + (result->index - Operation::kInlineResults) + 1);
  return reinterpret_cast<Operation*>(first_inline + Operation::kInlineResults * sizeof(ValueImpl));
}

size_t Value::index() const {
  const uintptr_t kind = impl_->kind();
  if (kind == ValueImpl::kBlockArgument) return static_cast<const BlockArgumentImpl*>(impl_)->index;
  if (kind < ValueImpl::kOutOfLine) return kind;
  return static_cast<const OutOfLineResultImpl*>(impl_)->index;
}

Block* Value::argument_block() const {
  return is_block_argument() ? static_cast<const BlockArgumentImpl*>(impl_)->owner : nullptr;
}

Block* Value::parent_block() const {
  return is_block_argument() ? argument_block() : defining_op()->block();
}

bool Value::has_one_use() const {
  const UseRange all = uses();
  return !all.empty() && ++all.begin() == all.end();
}

size_t Value::NumUses() const {
  size_t count = 0;
  for ([[maybe_unused]] const OpOperand use : uses()) ++count;
  return count;
}

void Value::ReplaceAllUsesWith(Value other) const {
  LATHE_CHECK(other != *this, "a value cannot replace itself");
  while (!use_empty()) (*uses().begin()).Set(other);
}

Attribute Value::property(const char* name) const {
  Operation* op = defining_op();
  if (op == nullptr) return Attribute();
  const auto entries = op->attribute(name).dyn_cast<ArrayAttribute>();
  return entries && index() < entries.values().size() ? entries.values()[index()] : Attribute();
}

void Value::set_property(const char* name, Attribute value) const {
  Operation* op = defining_op();
  LATHE_CHECK(op != nullptr, "a block argument has no properties");
  const Attribute unset = BoolAttribute::Get(*op->context(), false);
  std::vector<Attribute> entries(op->num_results(), unset);
  const Attribute before = op->attribute(name);
  if (before && !before.isa<ArrayAttribute>()) {
    throw Error(
        ErrorCode::kInvalidArgument, "ir/property",
        StrCat(op->Describe(), ": attribute '", name,
               "' is not a list with one entry per result, so it is not a property of a value"));
  }
  if (const auto old = before.dyn_cast<ArrayAttribute>()) {
    std::copy_n(old.values().begin(), std::min(old.values().size(), entries.size()),
                entries.begin());
  }
  entries[index()] = value ? value : unset;
  const bool is_set = std::ranges::count(entries, unset) < std::ssize(entries);
  op->SetAttribute(name,
                   value || is_set ? ArrayAttribute::Get(*op->context(), entries) : Attribute());
}

}  // namespace lathe
