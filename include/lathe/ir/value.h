#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "lathe/ir/type.h"

namespace lathe {

class Attribute;
class Block;
class Operation;

namespace detail {

/// A value carries its type and its use chain, nothing else. The low three bits of `uses` say what
/// it is: 0..5 an inline result of that index, 6 an out-of-line result, 7 a block argument; the
/// rest is the first use.
struct ValueImpl {
  Type type;
  uintptr_t uses;
  static constexpr uintptr_t kKindMask = 7;
  static constexpr uintptr_t kOutOfLine = 6;
  static constexpr uintptr_t kBlockArgument = 7;
  uintptr_t kind() const { return uses & kKindMask; }
};

struct OutOfLineResultImpl : ValueImpl {
  uint64_t index;
};

struct BlockArgumentImpl : ValueImpl {
  Block* owner;
  uint64_t index;
};

/// One use of a value. `back` points at the slot that points here, so that insert and remove take
/// constant time; slots keep the kind bits of the value when they are its head.
struct OpOperandImpl {
  ValueImpl* value;
  uintptr_t next;
  uintptr_t* back;
  Operation* owner;

  void Link(ValueImpl* v);
  void Unlink();
};

static_assert(sizeof(ValueImpl) == 16 && sizeof(OutOfLineResultImpl) == 24 &&
              sizeof(BlockArgumentImpl) == 32 && sizeof(OpOperandImpl) == 32);

}  // namespace detail

/// One operand slot of an operation.
class OpOperand {
 public:
  constexpr OpOperand() = default;
  explicit constexpr OpOperand(detail::OpOperandImpl* impl) : impl_(impl) {}
  explicit operator bool() const { return impl_ != nullptr; }
  bool operator==(const OpOperand&) const = default;

  class Value value() const;
  /// Makes this slot read `value` (null: absent). O(1).
  void Set(class Value value) const;
  Operation* owner() const { return impl_->owner; }
  /// Position in the owner's operand list, by address arithmetic.
  size_t index() const;
  detail::OpOperandImpl* impl() const { return impl_; }

 private:
  detail::OpOperandImpl* impl_ = nullptr;
};

/// The uses of a value, newest first.
class UseRange {
 public:
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = OpOperand;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = OpOperand;
    iterator() = default;
    explicit iterator(detail::OpOperandImpl* at) : at_(at) {}
    OpOperand operator*() const { return OpOperand(at_); }
    iterator& operator++() {
      at_ = reinterpret_cast<detail::OpOperandImpl*>(at_->next);
      return *this;
    }
    iterator operator++(int) {
      iterator old = *this;
      ++*this;
      return old;
    }
    bool operator==(const iterator&) const = default;

   private:
    detail::OpOperandImpl* at_ = nullptr;
  };
  explicit UseRange(detail::OpOperandImpl* first) : first_(first) {}
  iterator begin() const { return iterator(first_); }
  iterator end() const { return iterator(); }
  bool empty() const { return first_ == nullptr; }

 private:
  detail::OpOperandImpl* first_;
};

/// An SSA value: a result of an operation or an argument of a block. One pointer wide; a null value
/// stands for an absent optional operand.
class Value {
 public:
  constexpr Value() = default;
  explicit constexpr Value(detail::ValueImpl* impl) : impl_(impl) {}
  explicit operator bool() const { return impl_ != nullptr; }
  bool operator==(const Value&) const = default;

  Type type() const { return impl_->type; }
  /// Changes the declared type; the caller keeps the program valid.
  void set_type(Type type) const { impl_->type = type; }
  IrContext* context() const { return type().context(); }

  bool is_block_argument() const { return impl_->kind() == detail::ValueImpl::kBlockArgument; }
  /// The operation whose result this is; null for a block argument.
  Operation* defining_op() const;
  /// Index among the results of `defining_op`, or among the arguments of `argument_block`.
  size_t index() const;
  /// The block whose argument this is; null for a result.
  Block* argument_block() const;
  /// The block in which the value is defined.
  Block* parent_block() const;

  UseRange uses() const {
    return UseRange(
        reinterpret_cast<detail::OpOperandImpl*>(impl_->uses & ~detail::ValueImpl::kKindMask));
  }
  bool use_empty() const { return (impl_->uses & ~detail::ValueImpl::kKindMask) == 0; }
  bool has_one_use() const;
  size_t NumUses() const;
  /// Points every use at `other`. O(uses).
  void ReplaceAllUsesWith(Value other) const;

  /// A property that only some scenes need (`stop_gradient`, `persistable`): an attribute of the
  /// defining op that holds one entry per result. Null when unset; block arguments have none.
  Attribute property(const char* name) const;
  void set_property(const char* name, Attribute value) const;

  detail::ValueImpl* impl() const { return impl_; }

 protected:
  detail::ValueImpl* impl_ = nullptr;
};

}  // namespace lathe

template <>
struct std::hash<lathe::Value> {
  size_t operator()(lathe::Value v) const noexcept { return std::hash<const void*>()(v.impl()); }
};
