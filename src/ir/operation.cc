#include "lathe/ir/operation.h"

#include <bit>
#include <new>

#include "lathe/ir/context.h"
#include "lathe/ir/observer.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"

namespace lathe {

// ---- observers ----

namespace {
thread_local DestructionObserver* innermost_observer = nullptr;
}  // namespace

DestructionObserver::DestructionObserver() : outer_(innermost_observer) {
  innermost_observer = this;
}
DestructionObserver::~DestructionObserver() { innermost_observer = outer_; }
void DestructionObserver::Tell(Operation* op) {
  for (DestructionObserver* o = innermost_observer; o != nullptr; o = o->outer_) o->Destroying(op);
}

using detail::OpOperandImpl;
using detail::OutOfLineResultImpl;
using detail::ValueImpl;

namespace {

size_t OutOfLineCount(size_t results) {
  return results > Operation::kInlineResults ? results - Operation::kInlineResults : 0;
}

/// Bytes of results in front of the operation.
size_t PrefixSize(size_t results) {
  const size_t outside = OutOfLineCount(results);
  return outside * sizeof(OutOfLineResultImpl) + (results - outside) * sizeof(ValueImpl);
}

/// The dictionary with the defaults of the op's declaration filled in.
DictionaryAttribute WithDefaults(const OpInfoImpl& info, DictionaryAttribute given) {
  std::vector<NamedAttribute> missing;
  const std::span<const StrAttribute> names = info.attribute_names();
  for (size_t i = 0; i < names.size(); ++i) {
    const Attribute value = info.default_value(i);
    if (value && !given.Find(names[i])) missing.push_back({names[i], value});
  }
  if (missing.empty()) return given;
  missing.insert(missing.end(), given.entries().begin(), given.entries().end());
  return DictionaryAttribute::Get(*info.context, missing);
}

}  // namespace

Operation* Operation::Create(const OperationArgs& args) {
  thread_local BudgetTicker ticker;  // whatever grows without end does it here
  ticker.Tick();
  const size_t results = args.result_types.size();
  const size_t prefix = PrefixSize(results);
  const size_t size = prefix + sizeof(Operation) + args.operands.size() * sizeof(OpOperandImpl) +
                      args.num_regions * sizeof(Region);
  std::byte* memory = static_cast<std::byte*>(::operator new(size));
  auto* op = new (memory + prefix) Operation();
  op->info_ = args.info;
  op->location_ = args.location;
  op->num_results_ = static_cast<uint32_t>(results);
  op->num_operands_ = static_cast<uint32_t>(args.operands.size());
  op->num_regions_ = static_cast<uint32_t>(args.num_regions);
  op->attributes_ =
      args.attributes ? args.attributes : DictionaryAttribute::Empty(*args.info.context());
  if (args.info.impl()->has_defaults()) {
    op->attributes_ = WithDefaults(*args.info.impl(), op->attributes_);
  }
  for (size_t i = 0; i < results; ++i) {
    ValueImpl* slot = op->ResultImpl(i);
    if (i < kInlineResults) {
      new (slot) ValueImpl{args.result_types[i], i};
    } else {
      new (slot) OutOfLineResultImpl{{args.result_types[i], ValueImpl::kOutOfLine}, i};
    }
  }
  for (size_t i = 0; i < args.operands.size(); ++i) {
    auto* slot = new (op->operand_impls() + i) OpOperandImpl();
    slot->owner = op;
    slot->Link(args.operands[i].impl());
  }
  for (size_t i = 0; i < args.num_regions; ++i) new (op->region_array() + i) Region(op);
  return op;
}

ValueImpl* Operation::ResultImpl(size_t i) const {
  std::byte* self = reinterpret_cast<std::byte*>(const_cast<Operation*>(this));
  if (i < kInlineResults) return reinterpret_cast<ValueImpl*>(self) - (i + 1);
  self -= kInlineResults * sizeof(ValueImpl);
  return reinterpret_cast<OutOfLineResultImpl*>(self) - (i - kInlineResults + 1);
}

void Operation::Destroy() {
  LATHE_CHECK(block_ == nullptr, name(), " is destroyed while in a block");
  LATHE_CHECK(use_empty(), name(), " is destroyed while a result has uses");
  DestructionObserver::Tell(this);
  for (Region& r : regions()) r.~Region();
  for (OpOperandImpl& o : operands()) o.Unlink();
  void* memory = reinterpret_cast<std::byte*>(this) - PrefixSize(num_results_);
  this->~Operation();
  ::operator delete(memory);
}

void Operation::Erase() {
  LATHE_CHECK(use_empty(), Describe(), " is erased while a result has uses");
  RemoveFromBlock();
  Destroy();
}

bool Operation::use_empty() const {
  for (size_t i = 0; i < num_results_; ++i) {
    if (!result(i).use_empty()) return false;
  }
  return true;
}

void Operation::ReplaceAllUsesWith(std::span<const Value> values) {
  LATHE_CHECK(values.size() == num_results_, name(), " has another number of results");
  for (size_t i = 0; i < num_results_; ++i) {
    if (!result(i).use_empty()) result(i).ReplaceAllUsesWith(values[i]);
  }
}

void Operation::SetAttribute(std::string_view attribute_name, Attribute value) {
  attributes_ = attributes_.With(attribute_name, value);
}

Operation* Operation::parent_op() const {
  return block_ == nullptr ? nullptr : block_->parent_op();
}

namespace {

constexpr uint64_t kAppendStride = 64;

/// Operations that get new numbers, and the numbers around them.
struct OrderWindow {
  const Operation* first;
  const Operation* last;
  uint64_t count;
  uint64_t low, high;
};

/// Takes in up to `more` operations on each side, and ends at numbered ones.
template <class Order>
void Widen(OrderWindow& w, uint64_t more, const Order& order) {
  const auto grows = [&](const Operation* next, uint64_t taken) {
    return next != nullptr && (taken < more || order(next) == 0);
  };
  for (uint64_t taken = 0; grows(w.first->prev(), taken); ++taken, ++w.count) {
    w.first = w.first->prev();
  }
  for (uint64_t taken = 0; grows(w.last->next(), taken); ++taken, ++w.count) {
    w.last = w.last->next();
  }
  w.low = w.first->prev() == nullptr ? 0 : order(w.first->prev());
  w.high =
      w.last->next() == nullptr ? w.low + kAppendStride * (w.count + 1) : order(w.last->next());
}

/// Numbers `op`, which has none, and all around it up to where there is room. The more are numbered
/// again, the more room they get, so that insertions in one place stay cheap.
template <class Order>
void FindNumbers(const Operation* op, const Order& order) {
  OrderWindow w{op, op, 1, 0, 0};
  Widen(w, 0, order);
  const auto room = [&] { return (w.high - w.low) / (w.count + 1); };
  while (room() < 2 + 3 * static_cast<uint64_t>(std::bit_width(w.count)) / 2) {
    if (w.first->prev() == nullptr && w.last->next() == nullptr) break;
    Widen(w, w.count, order);
  }
  const uint64_t step = room();
  if (step == 0 || w.low + step * w.count > UINT32_MAX) {
    op->block()->Renumber();
    return;
  }
  uint64_t number = w.low;
  for (const Operation* at = w.first;; at = at->next()) {
    order(at) = static_cast<uint32_t>(number += step);
    if (at == w.last) break;
  }
}

}  // namespace

bool Operation::IsBefore(const Operation* other) const {
  LATHE_CHECK(block_ != nullptr && block_ == other->block_, "order of operations in two blocks");
  const auto order = [](const Operation* op) -> uint32_t& {
    return const_cast<Operation*>(op)->order_;
  };
  if (!block_->is_ordered()) block_->Renumber();
  if (order_ == 0) FindNumbers(this, order);
  if (other->order_ == 0) FindNumbers(other, order);
  return order_ < other->order_;
}

void Operation::RemoveFromBlock() {
  if (block_ != nullptr) block_->Unlink(this);
}

void Operation::MoveBefore(Operation* other) {
  RemoveFromBlock();
  other->block_->InsertBefore(other, this);
}

void Operation::MoveToEnd(Block* block) {
  RemoveFromBlock();
  block->PushBack(this);
}

void Operation::BadCast(const char* wanted) const {
  LATHE_CHECK(false, Describe(), " is not a ", wanted);
  __builtin_unreachable();
}

std::string Operation::Describe() const {
  if (location_.is_unknown()) return std::string(name());
  return StrCat(name(), " at ", location_.ToString(*context()));
}

OwningOp& OwningOp::operator=(OwningOp&& other) noexcept {
  std::swap(op_, other.op_);
  return *this;
}

OwningOp::~OwningOp() {
  if (op_ != nullptr) op_->Destroy();
}

}  // namespace lathe
