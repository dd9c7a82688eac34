#include "src/transform/unique_values.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/order.h"
#include "lathe/ir/tensor_of.h"

namespace lathe {

namespace {

// Each element of a slice is sorted by on its own.
constexpr int64_t kMostKeys = 16;

// What is compared: an i64 or float for each element.
std::optional<ElementType> KeyElement(ElementType element) {
  if (element == ElementType::kBool) return ElementType::kI32;
  const bool orders = IsInteger(element) || IsFloat(element);
  if (!orders || BitWidth(element) < 8) return std::nullopt;
  return BitWidth(element) == 8 && IsFloat(element) ? ElementType::kF32 : element;
}

class UniqueValues {
 public:
  UniqueValues(nn::UniqueOp op, ElementType element, SizeBuilder& b)
      : b_(b), sorted_(op.sorted()), axis_(op.axis()), x_(op.x()), element_(element) {
    if (!axis_) x_ = b_.Reshape(x_, {-1});
  }

  // False if there are too many elements in a slice.
  bool MakeKeys() {
    const AnyTensorType type = TensorOrNull(x_);
    const auto rank = static_cast<int64_t>(type.rank());
    if (rank == 0) return false;
    if (axis_ && *axis_ < 0) *axis_ += rank;
    const auto axis = static_cast<size_t>(axis_.value_or(0));
    Dim width = 1;
    for (size_t i = 0; i < type.rank(); ++i) {
      if (i != axis) width = width * type.dims()[i];
    }
    if (!width.is_constant() || width.value() > kMostKeys) return false;
    count_ = b_.Extent(x_, axis);
    const Value keys = b_.Cast(x_, element_);
    for (int64_t k = 0; k < width.value(); ++k) keys_.push_back(Column(keys, rank, k));
    return true;
  }

  std::vector<Value> Results() {
    const Value group = Sort();
    const Value starts = Positions(is_new_, b_, "unique");
    const Value found = b_.Extent(starts, 0);
    Value firsts = b_.Create(nn::kGather, {order_, starts});
    Value inverse = Placed(count_, order_, group);
    Value counts = Distances(starts, found);
    if (!sorted_) {
      const Operation* by_place = Sorted(firsts, found);
      const Value from = by_place->result(1);
      firsts = by_place->result(0);
      counts = b_.Create(nn::kGather, {counts, from});
      inverse = b_.Create(nn::kGather, {Placed(found, from, b_.Iota(found)), inverse});
    }
    const Value y = b_.Create(nn::kGather, {x_, firsts}, {b_.Attr("axis", axis_.value_or(0))});
    return {y, firsts, inverse, counts};
  }

 private:
  // Number k of the elements of each slice.
  Value Column(Value keys, int64_t rank, int64_t k) {
    if (rank == 1) return keys;
    std::vector<int64_t> order{*axis_};
    for (int64_t i = 0; i < rank; ++i) {
      if (i != *axis_) order.push_back(i);
    }
    const auto perm = ArrayAttribute::Get(b_.rewriter().context(), std::span<const int64_t>(order));
    const Value rows = b_.Create(nn::kTranspose, {keys}, {b_.rewriter().Named("perm", perm)});
    const Value count = b_.Reshape(count_, {1});
    const Value shape = b_.Create(nn::kConcat, {count, b_.Vector(std::vector<int64_t>{-1})},
                                  {b_.Attr("axis", int64_t{0})});
    const Value flat = b_.Create(nn::kReshape, {rows, shape});
    return b_.Create(nn::kGather, {flat, b_.Scalar(k)}, {b_.Attr("axis", int64_t{1})});
  }

  const Operation* Sorted(Value keys, Value count) {
    const Value top = b_.Create(nn::kTopK, {keys, b_.Reshape(count, {1})},
                                {b_.Attr("axis", int64_t{0}), b_.Attr("largest", false)});
    return top.defining_op();
  }

  // Sorts by the last element, then, keeping the order of equals, by those before it. Gives the
  // number of its group for each slice in that order.
  Value Sort() {
    order_ = b_.Iota(count_);
    for (size_t k = keys_.size(); k-- > 0;) {
      const bool is_first = k + 1 == keys_.size();
      const Value keys = is_first ? keys_[k] : b_.Create(nn::kGather, {keys_[k], order_});
      const Value from = Sorted(keys, count_)->result(1);
      order_ = is_first ? from : b_.Create(nn::kGather, {order_, from});
    }
    const Value all = b_.Iota(count_), zero = b_.Scalar(0);
    is_new_ = b_.Create(nn::kEqual, {all, zero});
    const Value before = b_.Create(nn::kMax, {b_.Create(nn::kSub, {all, b_.Scalar(1)}), zero});
    for (const Value keys : keys_) {
      const Value sorted = b_.Create(nn::kGather, {keys, order_});
      const Value differs = Differ(b_.Create(nn::kGather, {sorted, before}), sorted);
      is_new_ = b_.Create(nn::kOr, {is_new_, differs});
    }
    const Value number = b_.Create(nn::kCumSum, {b_.Cast(is_new_, ElementType::kI64), zero});
    return b_.Create(nn::kSub, {number, b_.Scalar(1)});
  }

  // NaN is like NaN, as in the order of a sort.
  Value Differ(Value a, Value b) {
    const Value differ = b_.Create(nn::kNot, {b_.Create(nn::kEqual, {a, b})});
    if (!IsFloat(element_)) return differ;
    const Value none =
        b_.Create(nn::kAnd, {b_.Create(nn::kIsNan, {a}), b_.Create(nn::kIsNan, {b})});
    return b_.Create(nn::kAnd, {differ, b_.Create(nn::kNot, {none})});
  }

  // `values` at `places` of a vector of `count`.
  Value Placed(Value count, Value places, Value values) {
    const Value room = b_.Create(nn::kExpand, {b_.Scalar(0), b_.Reshape(count, {1})});
    return b_.Create(nn::kScatterElements, {room, places, values});
  }

  // From each of the `found` starts to the next, from the last to the end.
  Value Distances(Value starts, Value found) {
    const Value ends =
        b_.Create(nn::kConcat, {starts, b_.Reshape(count_, {1})}, {b_.Attr("axis", int64_t{0})});
    const Value next = b_.Create(nn::kAdd, {b_.Iota(found), b_.Scalar(1)});
    return b_.Create(nn::kSub, {b_.Create(nn::kGather, {ends, next}), starts});
  }

  SizeBuilder& b_;
  bool sorted_;
  std::optional<int64_t> axis_;
  Value x_;
  ElementType element_;
  Value count_;              // of slices, i64 []
  std::vector<Value> keys_;  // of each slice, one for each of its elements
  Value order_, is_new_;     // slices in their order; which of them begin a group there
};

}  // namespace

std::vector<Value> ComputeUnique(Operation* op, SizeBuilder& build) {
  const auto element = KeyElement(TensorOrNull(op->operand(nn::UniqueOp::kX)).element());
  if (!element) return {};
  UniqueValues unique(nn::UniqueOp(op), *element, build);
  if (!unique.MakeKeys()) return {};
  std::vector<Value> results = unique.Results();
  results.resize(op->num_results());
  return results;
}

}  // namespace lathe
