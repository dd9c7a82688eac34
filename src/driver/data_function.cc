#include "src/driver/data_function.h"

#include <algorithm>
#include <unordered_map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/storage_traits.h"
#include "lathe/ir/block.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/traits.h"
#include "lathe/support/tensor.h"

namespace lathe {
namespace {

using Part = DataFunction::Part;
using Parts = std::vector<Part>;

// The integers of a constant operand; nothing if it is none.
std::optional<std::vector<int64_t>> Constants(const Operation* op, size_t operand) {
  const Value v = operand < op->num_operands() ? op->operand(operand) : Value();
  Operation* maker = v ? v.defining_op() : nullptr;
  if (maker == nullptr || !maker->isa<builtin::ConstantOp>()) return std::nullopt;
  const auto value = maker->attribute("value").dyn_cast<TensorAttribute>();
  if (!value) return std::nullopt;
  return ToInt64s(value.value());
}

bool IsOutermost(std::span<const Dim> dims, size_t axis) {
  return std::all_of(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(axis),
                     [](const Dim& d) { return d.IsConstant(1); });
}

size_t AxisOf(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

// Follows which bytes of the arguments each value of a function is.
class Tracer {
 public:
  explicit Tracer(const Block& block) {
    for (size_t i = 0; i < block.num_arguments(); ++i) {
      const Value v = block.argument(i);
      if (TensorOrNull(v)) parts_[v] = {{i, 0, BytesOf(TensorOrNull(v))}};
    }
  }

  // False if some result is no such bytes.
  bool Visit(Operation* op) {
    if (op->HasTrait<ConstantLike>()) return true;
    for (size_t i = 0; i < op->num_results(); ++i) {
      std::optional<Parts> parts = PartsOf(op, i);
      if (!parts) return false;
      parts_[op->result(i)] = std::move(*parts);
    }
    return true;
  }

  const Parts* Find(Value v) const {
    const auto found = parts_.find(v);
    return found == parts_.end() ? nullptr : &found->second;
  }

 private:
  std::optional<Parts> PartsOf(Operation* op, size_t result) {
    if (op->num_operands() == 0 || !TensorOrNull(op->result(result)).has_rank())
      return std::nullopt;
    if (op->isa<nn::ConcatOp>()) return Joined(op);
    const Parts* from = op->operand(0) ? Find(op->operand(0)) : nullptr;
    if (from == nullptr) return std::nullopt;
    if (op->HasTrait<KeepsBytes>()) return *from;
    if (op->isa<nn::TransposeOp>() && KeepsOrder(op)) return *from;
    if (!TensorOrNull(op->operand(0)).is_static()) return std::nullopt;
    if (op->isa<nn::SplitOp>()) return Split(op, result, *from);
    if (op->isa<nn::SliceOp>()) return Slice(op, *from);
    return std::nullopt;
  }

  std::optional<Parts> Joined(Operation* op) const {
    const auto type = TensorOrNull(op->result(0));
    const size_t axis = AxisOf(op->cast<nn::ConcatOp>().axis(), type.rank());
    if (axis >= type.rank() || !IsOutermost(type.dims(), axis)) return std::nullopt;
    if (BitWidth(type.element()) < 8) return std::nullopt;
    Parts all;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Parts* parts = Find(op->operand(i));
      if (parts == nullptr) return std::nullopt;
      if (!all.empty() && !all.back().bytes.is_constant()) return std::nullopt;
      all.insert(all.end(), parts->begin(), parts->end());
    }
    return all;
  }

  static bool KeepsOrder(Operation* op) {
    if (!TensorOrNull(op->operand(0)).has_rank()) return false;
    const auto dims = TensorOrNull(op->operand(0)).dims();
    std::vector<int64_t> moved, reversed(dims.size());
    for (size_t i = 0; i < dims.size(); ++i)
      reversed[i] = static_cast<int64_t>(dims.size() - 1 - i);
    for (const int64_t axis : op->cast<nn::TransposeOp>().perm().value_or(reversed)) {
      const size_t at = AxisOf(axis, dims.size());
      if (at >= dims.size()) return false;
      if (!dims[at].IsConstant(1)) moved.push_back(static_cast<int64_t>(at));
    }
    return std::ranges::is_sorted(moved);
  }

  // `length` entries from `start` on along axis `axis` of operand 0.
  static std::optional<Parts> Cut(Operation* op, const Parts& from, size_t axis, int64_t start,
                                  int64_t length) {
    const auto type = TensorOrNull(op->operand(0));
    if (axis >= type.rank() || !IsOutermost(type.dims(), axis)) return std::nullopt;
    const int64_t extent = type.dims()[axis].value();
    const Dim bytes = BytesOf(type);
    if (extent == 0 || BitWidth(type.element()) < 8 || start < 0) return std::nullopt;
    // A reshape of known extents may have one of symbols as its operand.
    const auto is_known = [](const Part& p) { return p.bytes.is_constant(); };
    if (!std::ranges::all_of(from, is_known)) return std::nullopt;
    const int64_t row = bytes.value() / extent;
    Parts parts;
    int64_t skip = start * row, left = length * row;
    for (const Part& p : from) {
      const int64_t take = std::clamp<int64_t>(p.bytes.value() - skip, 0, left);
      if (take > 0) parts.push_back({p.argument, p.offset + static_cast<uint64_t>(skip), take});
      skip = std::max<int64_t>(skip - p.bytes.value(), 0);
      left -= take;
    }
    if (parts.empty()) parts.push_back({from[0].argument, 0, 0});
    return parts;
  }

  static std::optional<Parts> Split(Operation* op, size_t result, const Parts& from) {
    const size_t axis = AxisOf(op->cast<nn::SplitOp>().axis(), TensorOrNull(op->operand(0)).rank());
    if (axis >= TensorOrNull(op->operand(0)).rank()) return std::nullopt;
    int64_t start = 0;
    for (size_t i = 0; i < result; ++i) {
      if (!TensorOrNull(op->result(i)).is_static()) return std::nullopt;
      start += TensorOrNull(op->result(i)).dims()[axis].value();
    }
    if (!TensorOrNull(op->result(result)).is_static()) return std::nullopt;
    return Cut(op, from, axis, start, TensorOrNull(op->result(result)).dims()[axis].value());
  }

  // A slice that shortens at most one axis, in steps of one.
  static std::optional<Parts> Slice(Operation* op, const Parts& from) {
    const auto in = TensorOrNull(op->operand(0)), out = TensorOrNull(op->result(0));
    const auto starts = Constants(op, nn::SliceOp::kStarts);
    if (!out.is_static() || !starts) return std::nullopt;
    std::vector<int64_t> axes, steps;
    if (!ReadOptional(op, nn::SliceOp::kAxes, axes) ||
        !ReadOptional(op, nn::SliceOp::kSteps, steps)) {
      return std::nullopt;
    }
    size_t cut_axis = 0;
    int64_t cut_start = 0, cuts = 0;
    for (size_t i = 0; i < starts->size(); ++i) {
      const size_t axis = i >= axes.size() ? i : AxisOf(axes[i], in.rank());
      if (axis >= in.rank() || in.rank() != out.rank()) return std::nullopt;
      const int64_t extent = in.dims()[axis].value();
      if (i < steps.size() && steps[i] != 1) return std::nullopt;
      if (out.dims()[axis].value() == extent) continue;
      const int64_t start = (*starts)[i] < 0 ? (*starts)[i] + extent : (*starts)[i];
      cut_axis = axis;
      cut_start = std::clamp<int64_t>(start, 0, extent);
      ++cuts;
    }
    if (cuts > 1) return std::nullopt;
    if (cuts == 0) return from;
    return Cut(op, from, cut_axis, cut_start, out.dims()[cut_axis].value());
  }

  static bool ReadOptional(const Operation* op, size_t operand, std::vector<int64_t>& values) {
    if (operand >= op->num_operands() || !op->operand(operand)) return true;
    auto constants = Constants(op, operand);
    if (!constants) return false;
    values = std::move(*constants);
    return true;
  }

  std::unordered_map<Value, Parts> parts_;  // looked up, never iterated
};

}  // namespace

Dim BytesOf(AnyTensorType type) {
  if (!type.has_rank()) return Dim::Unknown();
  const int bits = BitWidth(type.element());
  const Dim count = type.shape().NumElements();
  return bits % 8 == 0 ? count * (bits / 8) : CeilDiv(count * bits, 8);
}

std::optional<DataFunction> AsDataFunction(const Operation* function) {
  const Block& block = *function->region(0).front();
  Tracer tracer(block);
  for (Operation* op = block.front(); op != nullptr; op = op->next()) {
    if (op->HasTrait<Terminator>()) break;
    if (!tracer.Visit(op)) return std::nullopt;
  }
  DataFunction data;
  for (size_t i = 0; i < block.back()->num_operands(); ++i) {
    const Parts* parts = tracer.Find(block.back()->operand(i));
    if (parts == nullptr) return std::nullopt;
    data.results.push_back(*parts);
  }
  return data;
}

}  // namespace lathe
