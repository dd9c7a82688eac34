#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/attribute.h"
#include "lathe/ir/block.h"
#include "lathe/ir/location.h"
#include "lathe/ir/op_info.h"
#include "lathe/ir/value.h"

namespace lathe {

/// What `Operation::Create` needs. Views only; nothing is kept.
struct OperationArgs {
  OpInfo info;
  std::span<const Value> operands;  ///< null entries are absent optional operands
  std::span<const Type> result_types;
  DictionaryAttribute attributes;  ///< null: empty; missing attributes with a default are filled in
  size_t num_regions = 0;
  Location location;
};

/// One operation. One allocation, low to high address:
///
///   out-of-line results (reversed) | inline results 5..0 | Operation | operands | regions
///
/// so that a result finds its owner, and an operand its index, by address arithmetic. The numbers
/// of operands, results and regions are fixed at creation.
class Operation {
 public:
  static constexpr size_t kInlineResults = 6;

  /// A new operation in no block. Regions start empty. Operands are linked into use lists.
  static Operation* Create(const OperationArgs& args);
  /// Frees an operation in no block. A result that still has uses is an internal error.
  void Destroy();
  /// Removes the operation from its block and frees it.
  void Erase();

  OpInfo info() const { return info_; }
  std::string_view name() const { return info_.name(); }  ///< "nn.conv"
  IrContext* context() const { return info_.context(); }
  Dialect* dialect() const { return info_.dialect(); }

  Location location() const { return location_; }
  void set_location(Location location) { location_ = location; }

  // ---- operands ----
  size_t num_operands() const { return num_operands_; }
  Value operand(size_t i) const { return Value(operand_impls()[i].value); }
  OpOperand op_operand(size_t i) const { return OpOperand(operand_impls() + i); }
  void set_operand(size_t i, Value value) { op_operand(i).Set(value); }
  /// Operand slots, in order; `impl.value` may be null for an absent optional operand.
  std::span<detail::OpOperandImpl> operands() const { return {operand_impls(), num_operands_}; }

  // ---- results ----
  size_t num_results() const { return num_results_; }
  Value result(size_t i) const { return Value(ResultImpl(i)); }
  bool use_empty() const;
  void ReplaceAllUsesWith(std::span<const Value> values);

  // ---- attributes ----
  DictionaryAttribute attributes() const { return attributes_; }
  void set_attributes(DictionaryAttribute attributes) { attributes_ = attributes; }
  Attribute attribute(std::string_view name) const { return attributes_.Find(name); }
  /// Sets, or with a null value removes, one attribute. Rebuilds the dictionary.
  void SetAttribute(std::string_view name, Attribute value);

  // ---- regions and position ----
  size_t num_regions() const { return num_regions_; }
  Region& region(size_t i) const { return region_array()[i]; }
  std::span<Region> regions() const { return {region_array(), num_regions_}; }
  Block* block() const { return block_; }
  Operation* parent_op() const;
  Operation* prev() const { return prev_; }
  Operation* next() const { return next_; }
  /// Both in one block. Amortized O(1): the block renumbers itself when needed.
  bool IsBefore(const Operation* other) const;
  void MoveBefore(Operation* other);
  void MoveToEnd(Block* block);
  /// Takes the operation out of its block without freeing it.
  void RemoveFromBlock();

  // ---- traits, interfaces, views ----
  template <class Trait>
  bool HasTrait() const {
    return info_.HasTrait<Trait>();
  }
  template <class Interface>
  bool HasInterface() const {
    return info_.GetInterface<Interface>() != nullptr;
  }
  template <class OpT>
  bool isa() const {
    return OpT::ClassOf(this);
  }
  /// As op class `OpT` or interface `OpT`; null if it is not one.
  template <class OpT>
  OpT dyn_cast() {
    return OpT::DynCast(this);
  }
  template <class OpT>
  OpT cast() {
    OpT op = OpT::DynCast(this);
    if (!op) BadCast(OpT::kName);
    return op;
  }

  /// `nn.conv at 'layer1.conv2'`: for messages.
  std::string Describe() const;
  /// One line of text, regions elided.
  std::string ToString() const;

 private:
  friend class Block;
  friend class Value;
  friend class OpOperand;
  Operation() = default;
  ~Operation() = default;
  detail::OpOperandImpl* operand_impls() const {
    return reinterpret_cast<detail::OpOperandImpl*>(const_cast<Operation*>(this) + 1);
  }
  Region* region_array() const {
    return reinterpret_cast<Region*>(operand_impls() + num_operands_);
  }
  detail::ValueImpl* ResultImpl(size_t i) const;
  [[noreturn]] void BadCast(const char* wanted) const;

  Operation* prev_ = nullptr;
  Operation* next_ = nullptr;
  Block* block_ = nullptr;
  OpInfo info_;
  DictionaryAttribute attributes_;
  Location location_;
  uint32_t num_results_ = 0;
  uint32_t num_operands_ = 0;
  uint32_t num_regions_ = 0;
  uint32_t order_ = 0;
};
static_assert(sizeof(Operation) == 64);

/// A handle that frees its detached operation.
class OwningOp {
 public:
  OwningOp() = default;
  explicit OwningOp(Operation* op) : op_(op) {}
  OwningOp(OwningOp&& other) noexcept : op_(other.release()) {}
  OwningOp& operator=(OwningOp&& other) noexcept;
  ~OwningOp();
  Operation* get() const { return op_; }
  Operation* operator->() const { return op_; }
  explicit operator bool() const { return op_ != nullptr; }
  Operation* release() {
    Operation* op = op_;
    op_ = nullptr;
    return op;
  }

 private:
  Operation* op_ = nullptr;
};

}  // namespace lathe
