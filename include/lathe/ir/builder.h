#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lathe/ir/interfaces.h"
#include "lathe/ir/operation.h"

namespace lathe {

/// Creates operations at an insertion point with a current location. Shapes of results are
/// inferred unless result types are given.
class Builder {
 public:
  explicit Builder(IrContext& context) : context_(context) {}
  static Builder AtEnd(Block* block);
  static Builder Before(Operation* op);
  static Builder After(Operation* op);

  IrContext& context() const { return context_; }
  Block* block() const { return block_; }
  Operation* insertion_point() const { return before_; }  ///< null: the end of the block
  void SetInsertionPointToEnd(Block* block);
  void SetInsertionPoint(Operation* before);
  Location location() const { return location_; }
  void set_location(Location location) { location_ = location; }
  /// Where inference finds constants and contents; null: nowhere.
  void set_facts(ValueFacts* facts) { facts_ = facts; }

  /// A new op inserted here. With empty `result_types` and `num_results > 0` (or the number that
  /// the declaration states) the types are inferred; an op without InferShape then is an error.
  Operation* Create(OpInfo info, std::span<const Value> operands,
                    std::span<const NamedAttribute> attributes, std::span<const Type> result_types,
                    size_t num_regions = 0);
  Operation* CreateInferred(OpInfo info, std::span<const Value> operands,
                            std::span<const NamedAttribute> attributes, size_t num_results,
                            size_t num_regions = 0);
  /// By name; an unknown one is an error with the nearest names.
  Operation* Create(std::string_view name, std::span<const Value> operands,
                    std::span<const NamedAttribute> attributes = {},
                    std::span<const Type> result_types = {}, size_t num_regions = 0);
  Operation* Insert(Operation* op);

  // ---- attribute shorthands ----
  NamedAttribute Named(std::string_view name, Attribute value);
  Attribute Attr(bool value);
  Attribute Attr(int64_t value);
  Attribute Attr(double value);
  Attribute Attr(std::string_view value);
  Attribute Attr(const char* value) { return Attr(std::string_view(value)); }  // else a bool
  Attribute Attr(std::span<const int64_t> values);
  Attribute Attr(const Tensor& value);

 private:
  IrContext& context_;
  Block* block_ = nullptr;
  Operation* before_ = nullptr;
  Location location_;
  ValueFacts* facts_ = nullptr;
};

/// The result types that the op's declaration and InferShape give. Throws Error where the op can
/// not be right; a result about which nothing is known keeps a null type.
std::vector<Type> InferResultTypes(Operation* op, ValueFacts& facts);
/// Runs inference on `op` and sets the types of its results.
void InferAndSetTypes(Operation* op, ValueFacts& facts);
/// The same through a fresh context of the caller, who may then ask it for contents.
void InferAndSetTypes(Operation* op, InferShapeContext& c);

}  // namespace lathe
