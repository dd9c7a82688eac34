#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lathe/ir/tensor_of.h"
#include "lathe/pass/rewriter.h"

/// What the rules of `canonicalize` are written with: small functions in tables, one table for each
/// idea. What is a property of a single op is that op's Fold instead.
namespace lathe {

/// What a rule sees of the op at hand.
struct Site {
  Operation* op;
  Rewriter& rewriter;

  Operation* Maker(size_t i) const;
  Type type() const { return op->result(0).type(); }
  bool HasOperand(size_t i) const { return i < op->num_operands() && op->operand(i); }
  /// Operand `i` as a constant, or null.
  const Tensor* Constant(size_t i) const;
  /// Elements of integer operand `i` if it is a constant.
  std::optional<std::vector<int64_t>> Ints(size_t i) const;
  std::optional<int64_t> IntAttr(const char* name) const;
  Value Constant(const std::vector<int64_t>& values) const;
  NamedAttribute Attr(const char* name, const std::vector<int64_t>& values) const;

  /// The op is `value` itself. Not when it would lose what the result's type says.
  bool ReplaceBy(Value value) const;
  /// A new op in place of this one and of `inner`, which goes if nobody else reads it.
  bool ReplaceByNew(Operation* inner, const char* name, std::vector<Value> operands,
                    std::vector<NamedAttribute> attributes) const;
};

/// Each returns whether it fired.
using CanonicalRule = bool (*)(const Site&);
struct CanonicalRow {
  const char* name;
  const char* root;
  CanonicalRule fn;
};

bool IsA(const Operation* op, const char* name);
/// `axis` from the front for a value of known rank.
std::optional<int64_t> AxisOf(int64_t axis, Value value);
/// The `shape` operand of a reshape from one type to the other, if there is one.
std::optional<std::vector<int64_t>> ReshapeTarget(AnyTensorType from, AnyTensorType to, bool fits);

/// Adds a row as a pattern for the greedy driver.
void AddCanonicalRow(const CanonicalRow& row, PatternSet& patterns);
std::span<const CanonicalRow> OrderRules();      ///< transposes, reshapes and their like, casts
std::span<const CanonicalRow> PieceRules();      ///< concat, split, slice, pad, gather
std::span<const CanonicalRow> BroadcastRules();  ///< values repeated only to be broadcast again

}  // namespace lathe
