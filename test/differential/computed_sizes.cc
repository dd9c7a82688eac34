#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "test/differential/graph_grower.h"

// Ops whose results are as large as numbers say that are known when the program runs.
namespace lathe::testing {

std::vector<GraphGrower::Recipe> GraphGrower::ComputedRecipes() {
  return {&GraphGrower::Positions,
          &GraphGrower::Kept,
          &GraphGrower::Kept,
          &GraphGrower::Counted,
          &GraphGrower::ComputedSlice,
          &GraphGrower::ComputedSlice,
          &GraphGrower::ComputedTopK,
          &GraphGrower::ComputedPad,
          &GraphGrower::ComputedExpand,
          &GraphGrower::ComputedReshape,
          &GraphGrower::ComputedReshape,
          &GraphGrower::ComputedFill,
          &GraphGrower::ComputedResize,
          &GraphGrower::ComputedSplit,
          &GraphGrower::Different,
          &GraphGrower::Boxes};
}

/// Numbers (i64) that no pass can know: given, or computed of what is given.
Value GraphGrower::Computed(const Tensor& data) {
  const std::vector<Dim> dims(data.shape().begin(), data.shape().end());
  const auto fed = [&](const Tensor& t) {
    const Value v = LeafOf(t, dims, LeafKind::kFeed);
    feeds_.back().decides = true;
    return v;
  };
  const auto plus = [&](int64_t by) {
    std::vector<double> numbers = ToDoubles(data);
    for (double& x : numbers) x += static_cast<double>(by);
    return lathe::Cast(Tensor::Of<double>(data.shape(), numbers), ElementType::kI64);
  };
  const auto to_i64 = [&] {
    return b_->Named("to", TypeAttribute::Get(ElemType::Get(context_, ElementType::kI64)));
  };
  switch (Pick(5)) {
    case 0:
      return Op("cast", {fed(lathe::Cast(data, ElementType::kI32))}, {to_i64()});
    case 1:
      return Op("cast", {fed(lathe::Cast(data, ElementType::kF32))}, {to_i64()});
    case 2:
      return Op("sub", {fed(plus(1)), Scalar(ElementType::kI64, 1)});
    default:
      return fed(data);
  }
}

/// The same as a list, parts of which may be constant.
Value GraphGrower::ComputedInts(const std::vector<int64_t>& values) {
  const auto list = [](const std::vector<int64_t>& v) {
    return Tensor::Of<int64_t>({static_cast<int64_t>(v.size())}, v);
  };
  if (values.size() < 2 || OneIn(2)) return Computed(list(values));
  std::vector<Value> parts;
  for (const int64_t x : values) {
    parts.push_back(OneIn(2) ? Ints({x}) : Computed(list({x})));
    if (!parts.back()) return {};
  }
  return Op("concat", parts, {Named("axis", int64_t{0})});
}

// ---- results that are counted ----

bool GraphGrower::Positions(Value v) {
  const Value found = Op("non_zero", {v});
  if (!found || OneIn(2)) return static_cast<bool>(found);
  const Value rows = Op("transpose", {found}, {List("perm", {1, 0})});
  return rows && (OneIn(3) || Add("gather_nd", {v, rows}));
}

bool GraphGrower::Kept(Value v) {
  const int64_t rank = DataOf(v).rank();
  const bool flat = rank == 0 || OneIn(4);
  const size_t axis = flat ? 0 : Pick(static_cast<size_t>(rank));
  const Dim extent = flat ? Dim(DataOf(v).num_elements()) : DimsOf(v)[axis];
  Tensor keep = RandomData(ElementType::kBool, {ExtentOf(extent)}, style_, random_);
  if (OneIn(4)) {
    const bool all = OneIn(2);
    for (bool& k : keep.mutable_data<bool>()) k = all;
  }
  if (ExtentOf(extent) > 1000) return false;
  const Value kept = LeafOf(keep, {extent}, LeafKind::kFeed);
  feeds_.back().decides = true;
  if (flat) return Add("compress", {v, kept});
  return Add("compress", {v, kept}, {Named("axis", static_cast<int64_t>(axis))});
}

bool GraphGrower::Counted(Value) {
  const auto number = [&](int64_t low, int64_t high) {
    const Tensor data = Tensor::Scalar<int64_t>(Int(low, high));
    return OneIn(3) ? Constant(data) : Computed(data);
  };
  const Value start = number(-2, 4), end = number(0, 12);
  const Value step = Constant(Tensor::Scalar<int64_t>(OneIn(5) ? -1 : Int(1, 3)));
  if (!start || !end) return false;
  if (OneIn(2)) return Add("range", {start, end, step});
  const ElementType element = OneIn(2) ? ElementType::kF32 : ElementType::kI32;
  const Attributes to = {b_->Named("to", TypeAttribute::Get(ElemType::Get(context_, element)))};
  const Value a = Op("cast", {start}, to), b = Op("cast", {end}, to), c = Op("cast", {step}, to);
  return a && b && c && Add("range", {a, b, c});
}

bool GraphGrower::Different(Value v) {
  const int64_t rank = DataOf(v).rank();
  Attributes attributes = {Named("sorted", OneIn(2))};
  if (rank > 0 && OneIn(2)) attributes.push_back(Named("axis", Int(-rank, rank - 1)));
  return Add("unique", {v}, attributes, OneIn(2) ? 1 : 4);
}

bool GraphGrower::Boxes(Value) {
  const Dim images = Int(1, 2), classes = Int(1, 2), count = MaybeSymbol(Int(0, 8));
  const Value boxes = Leaf(ElementType::kF32, {images, count, Dim(4)}, LeafKind::kFeed);
  const Value scores = Leaf(ElementType::kF32, {images, classes, count}, LeafKind::kFeed);
  const Value most = OneIn(2) ? Computed(Tensor::Scalar<int64_t>(Int(0, 5)))
                              : Constant(Tensor::Scalar<int64_t>(Int(0, 5)));
  if (!boxes || !scores || !most) return false;
  std::vector<Value> operands = {boxes, scores, most, Scalar(ElementType::kF32, 0.5)};
  if (OneIn(2)) operands.push_back(Scalar(ElementType::kF32, static_cast<double>(Int(-4, 4)) / 4));
  return Add("non_max_suppression", operands, {Named("center_point_box", OneIn(3))});
}

// ---- results that are told ----

bool GraphGrower::ComputedSlice(Value v) {
  const Shape& shape = DataOf(v).shape();
  if (shape.empty()) return false;
  std::vector<int64_t> starts, ends, axes, steps;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!axes.empty() && !OneIn(3)) continue;
    const bool back = OneIn(5);
    const int64_t low = Int(0, shape[i]), high = OneIn(4) ? shape[i] + 3 : Int(0, shape[i]);
    axes.push_back(static_cast<int64_t>(i) - (OneIn(3) ? DataOf(v).rank() : 0));
    starts.push_back((back ? high : low) - (OneIn(4) ? shape[i] : 0));
    ends.push_back(back ? (OneIn(2) ? INT64_MIN : low) : OneIn(3) ? high - shape[i] : high);
    steps.push_back(back ? -Int(1, 2) : OneIn(4) ? 2 : 1);
  }
  const Value start = OneIn(2) ? Ints(starts) : ComputedInts(starts);
  const Value end = start && OneIn(4) ? Ints(ends) : ComputedInts(ends);
  return start && end && Add("slice", {v, start, end, Ints(axes), Ints(steps)});
}

bool GraphGrower::ComputedTopK(Value v) {
  const int64_t rank = DataOf(v).rank();
  if (rank == 0) return false;
  const int64_t axis = Int(-rank, rank - 1);
  const int64_t extent = DataOf(v).shape()[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
  const Value count = ComputedInts({Int(0, extent)});
  return count && Add("top_k", {v, count}, {Named("axis", axis), Named("largest", OneIn(2))}, 2);
}

bool GraphGrower::ComputedPad(Value v) {
  static constexpr std::string_view kModes[] = {"constant", "constant", "reflect", "edge", "wrap"};
  std::vector<int64_t> pads(2 * DataOf(v).shape().size());
  for (int64_t& p : pads) p = OneIn(2) ? 0 : OneIn(5) ? -1 : Int(0, 3);
  const Value amounts = pads.empty() ? Value() : ComputedInts(pads);
  return amounts && Add("pad", {v, amounts}, {Named("mode", kModes[Pick(std::size(kModes))])});
}

bool GraphGrower::ComputedExpand(Value v) {
  std::vector<int64_t> shape;
  const bool tile = OneIn(2);
  for (const int64_t d : DataOf(v).shape()) {
    shape.push_back(tile ? Int(OneIn(10) ? 0 : 1, 3) : d == 1 ? Extent() : OneIn(2) ? d : 1);
  }
  if (!tile && shape.size() < 5 && OneIn(3)) shape.insert(shape.begin(), Int(1, 4));
  const Value told = shape.empty() ? Value() : ComputedInts(shape);
  return told && Add(tile ? "tile" : "expand", {v, told});
}

/// To two or three extents, one of which may be -1 or 0.
bool GraphGrower::ComputedReshape(Value v) {
  const Shape& shape = DataOf(v).shape();
  std::vector<int64_t> target;
  for (int64_t left = DataOf(v).num_elements(); target.size() < 2;) {
    const std::vector<int64_t> factors = Factors(left);
    target.push_back(factors.empty() || OneIn(4) ? 1 : factors[Pick(factors.size())]);
    left = target.back() == 0 ? 0 : left / target.back();
    if (target.size() == 2) target.push_back(left);
  }
  if (OneIn(3)) target = shape;
  const size_t at = target.empty() ? 0 : Pick(target.size());
  if (!target.empty() && OneIn(3)) target[at] = -1;
  if (at < target.size() && at < shape.size() && target[at] == shape[at] && OneIn(3))
    target[at] = 0;
  const Value told = target.empty() ? Value() : ComputedInts(target);
  return told && Add("reshape", {v, told}, {Named("allowzero", OneIn(4))});
}

bool GraphGrower::ComputedFill(Value) {
  std::vector<int64_t> shape(Pick(4));
  for (int64_t& d : shape) d = OneIn(8) ? 0 : Int(1, 5);
  const Value told = ComputedInts(shape);
  if (!told || OneIn(3)) return told && Add("constant_of_shape", {told});
  const Tensor one = lathe::Cast(Tensor::Of<double>({1}, {1.0}), usual_);
  return Add("constant_of_shape", {told}, {Named("value", one)});
}

bool GraphGrower::ComputedResize(Value v) {
  static constexpr std::string_view kModes[] = {"nearest", "linear", "cubic"};
  const Shape& shape = DataOf(v).shape();
  if (shape.empty() || shape.size() > 4) return false;
  const NamedAttribute mode = Named("mode", kModes[Pick(std::size(kModes))]);
  if (OneIn(2)) {
    std::vector<int64_t> sizes;
    for (const int64_t d : shape) sizes.push_back(OneIn(2) ? d : Int(1, 9));
    const Value told = ComputedInts(sizes);
    return told && Add("resize", {v, {}, {}, told}, {mode});
  }
  std::vector<float> scales;
  for (size_t i = 0; i < shape.size(); ++i)
    scales.push_back(OneIn(2) ? 1.0f : static_cast<float>(Int(2, 9)) / 4);
  const Value told = LeafOf(Tensor::Of<float>({DataOf(v).rank()}, scales), {Dim(DataOf(v).rank())},
                            LeafKind::kFeed);
  return Add("resize", {v, {}, told}, {mode});
}

bool GraphGrower::ComputedSplit(Value v) {
  const Shape& shape = DataOf(v).shape();
  if (shape.empty()) return false;
  const size_t axis = Pick(shape.size());
  const int64_t first = Int(0, shape[axis]);
  const Value told = ComputedInts({first, shape[axis] - first});
  return told && Add("split", {v, told}, {Named("axis", static_cast<int64_t>(axis))}, 2);
}

// ---- lists ----

Value GraphGrower::ListOp(std::string_view name, const std::vector<Value>& operands,
                          const Attributes& attributes) {
  return Add(name, operands, attributes) ? last_->result(0) : Value();
}

/// Makes a list, changes it, and takes a tensor, a length or all of it.
bool GraphGrower::Lists(Value v) {
  const auto place = [&](int64_t most) {
    const Tensor at = Tensor::Scalar<int64_t>(Int(-1, most));
    return OneIn(2) ? Constant(at) : Computed(at);
  };
  const auto pick = [&](std::string_view name, Value list, Value at) {
    return at ? ListOp(name, {list, at}) : at;
  };
  const bool cut = DataOf(v).rank() > 0 && OneIn(3);
  const Value other = Like(v, OneIn(2));
  if (!other) return false;
  Value list = cut ? ListOp("split_to_sequence", {v, Constant(Tensor::Scalar<int64_t>(Int(1, 3)))})
                   : ListOp("sequence_construct", {v, other});
  if (list && OneIn(2)) {
    const Value more = Like(v, OneIn(2)), at = OneIn(2) ? place(1) : Value();
    if (!more) return false;
    list = ListOp("sequence_insert", at ? std::vector{list, more, at} : std::vector{list, more});
  }
  if (list && OneIn(5)) list = pick("sequence_erase", list, place(0));
  if (!list) return false;
  const size_t kind = Pick(4);
  if (kind == 0) return Add("sequence_length", {list});
  if (kind == 1) return static_cast<bool>(pick("sequence_at", list, place(0)));
  return Add("concat_from_sequence", {list},
             {Named("axis", int64_t{0}), Named("new_axis", OneIn(3))});
}

}  // namespace lathe::testing
