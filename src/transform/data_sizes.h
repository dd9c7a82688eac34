#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

/// Of all dims of a program.
std::set<std::string> SymbolNames(const Program& program);

/// Builds what computes a size from elements of tensors, before the operation that it is for; what
/// it makes is inferred with all that is known of the program.
class SizeBuilder {
 public:
  /// `names`: of the symbols that the program has; new ones are added.
  SizeBuilder(Rewriter& rewriter, ShapeInferencer& facts, std::set<std::string>& names)
      : rewriter_(rewriter), facts_(facts), names_(names) {}

  Rewriter& rewriter() { return rewriter_; }
  ShapeInferencer& facts() { return facts_; }

  Value Create(std::string_view op, std::initializer_list<Value> operands,
               std::initializer_list<NamedAttribute> attributes = {});
  /// The operation with other operands.
  Value Again(Operation* op, std::span<const Value> operands);
  NamedAttribute Attr(std::string_view name, int64_t value);
  NamedAttribute Attr(std::string_view name, bool value);

  Value Scalar(int64_t value) { return Constant(Tensor::Scalar<int64_t>(value)); }
  Value Vector(std::span<const int64_t> values);
  /// f64, as i64 otherwise.
  Value Real(double value) { return Constant(Tensor::Scalar<double>(value)); }
  Value Cast(Value v, ElementType element);
  /// One element as [].
  Value AsScalar(Value v) { return Reshape(v, {}); }
  Value Reshape(Value v, std::initializer_list<int64_t> shape);
  /// An extent of `v` as i64 [].
  Value Extent(Value v, size_t axis);
  /// The numbers from 0 to `count`, an i64 [].
  Value Iota(Value count) { return Create(nn::kRange, {Scalar(0), count, Scalar(1)}); }

  /// The first `count`, an i64 [], along axis 0.
  Value Front(Value v, Value count);

  /// The same integers with those that nobody knows as new symbols, named for `what`; null if there
  /// are none, too many, or their number is not known.
  Value Bind(Value numbers, std::string_view what);
  /// The same numbers where there are none.
  Value BindIfOpen(Value numbers, std::string_view what) {
    const Value bound = Bind(numbers, what);
    return bound ? bound : numbers;
  }
  /// The same with these names, one for each, empty where a number is known.
  Value BindAs(Value numbers, const std::vector<std::string>& names);
  std::string FreshName(std::string_view what);
  /// Whether it is the name of a symbol that was bound here.
  bool IsComputed(const std::string& name) const { return computed_.contains(name); }

 private:
  Value Constant(const Tensor& tensor);

  Rewriter& rewriter_;
  ShapeInferencer& facts_;
  std::set<std::string>& names_;
  std::set<std::string> computed_;
};

/// Whether the sizes of a result are not known, although its rank is.
bool HasOpenSizes(const Operation* op);

/// Whether all integers that inference does not know are extents or made of extents: not negative.
bool AreExtents(Value numbers, SizeBuilder& build);

/// The row-major positions of what is not zero in `x`, whose extents are known: i64 [count]. The
/// count is bound to a new symbol, named for `what`.
Value Positions(Value x, SizeBuilder& build, std::string_view what);

/// The extents that a reshape of known rank gives, i64 [rank], from those of its data and the new
/// shape, with what 0 and -1 mean.
Value MeantEntries(nn::ReshapeOp op, SizeBuilder& build);

/// Computes an operation whose sizes depend on the elements of its operands from others, all but
/// one of whose sizes are known, and binds that one: `non_zero` from a sum of what is not zero.
/// False if nothing is known of how to; nothing is changed then.
bool ComputeSizes(Operation* op, SizeBuilder& build);

}  // namespace lathe
