#include <algorithm>
#include <numeric>

#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "test/differential/graph_grower.h"

// Ops whose samples are too few: what moves elements, and what strategies are written for.
namespace lathe::testing {

namespace {

bool IsFloatType(AnyTensorType type) {
  return IsFloat(type.element()) && BitWidth(type.element()) >= 16;
}

bool IsCommon(ElementType element) {
  return element == ElementType::kBool ||
         ((IsFloat(element) || IsInteger(element)) && BitWidth(element) >= 8 &&
          (IsInteger(element) || BitWidth(element) >= 16));
}

}  // namespace

std::vector<GraphGrower::Recipe> GraphGrower::Recipes() {
  return {&GraphGrower::Transpose, &GraphGrower::Transpose,   &GraphGrower::Reshape,
          &GraphGrower::Reshape,   &GraphGrower::ReshapeLike, &GraphGrower::Unsqueeze,
          &GraphGrower::Slice,     &GraphGrower::Slice,       &GraphGrower::Concat,
          &GraphGrower::Concat,    &GraphGrower::Split,       &GraphGrower::Pad,
          &GraphGrower::Expand,    &GraphGrower::Gather,      &GraphGrower::Reduce,
          &GraphGrower::Reduce,    &GraphGrower::AlongAxis,   &GraphGrower::Normalize,
          &GraphGrower::Cast,      &GraphGrower::Where,       &GraphGrower::Matmul,
          &GraphGrower::Matmul,    &GraphGrower::Gemm,        &GraphGrower::Conv,
          &GraphGrower::Conv,      &GraphGrower::Conv3x3,     &GraphGrower::Pool,
          &GraphGrower::Window};
}

// ---- movement ----

bool GraphGrower::Transpose(Value v) {
  std::vector<int64_t> perm(DataOf(v).shape().size());
  std::iota(perm.begin(), perm.end(), 0);
  for (size_t i = perm.size(); i > 1; --i) std::swap(perm[i - 1], perm[Pick(i)]);
  return Add("transpose", {v}, {List("perm", perm)});
}

std::vector<int64_t> GraphGrower::Factors(int64_t extent) {
  std::vector<int64_t> factors;
  for (int64_t f = 2; f < extent; ++f) {
    if (extent % f == 0) factors.push_back(f);
  }
  return factors;
}

/// Merges neighbors and splits axes; extents that are symbols are copied or left over.
bool GraphGrower::Reshape(Value v) {
  const std::vector<Dim> dims = DimsOf(v);
  if (OneIn(4))
    return Add("flatten", {v}, {Named("axis", Int(0, static_cast<int64_t>(dims.size())))});
  std::vector<int64_t> target;
  bool left_over = false;
  size_t at = 0;
  while (at < dims.size()) {
    const bool fixed = dims[at].is_constant();
    if (at + 1 < dims.size() && OneIn(3)) {
      const bool both = fixed && dims[at + 1].is_constant();
      if (!both && left_over) return false;
      target.push_back(both ? dims[at].value() * dims[at + 1].value() : -1);
      left_over = left_over || !both;
      at += 2;
      continue;
    }
    const std::vector<int64_t> factors = fixed ? Factors(dims[at].value()) : std::vector<int64_t>();
    if (!factors.empty() && OneIn(2)) {
      const int64_t first = factors[Pick(factors.size())];
      target.push_back(first);
      target.push_back(dims[at].value() / first);
    } else if (fixed) {
      target.push_back(dims[at].value());
    } else if (at == target.size()) {
      target.push_back(0);
    } else if (!left_over) {
      target.push_back(-1);
      left_over = true;
    } else {
      return false;
    }
    ++at;
  }
  if (!left_over && !target.empty() && OneIn(3)) target[Pick(target.size())] = -1;
  return Add("reshape", {v, Ints(target)});
}

/// To the shape of another value, or to what is computed from its own.
bool GraphGrower::ReshapeLike(Value v) {
  const Value w = AnyValue();
  if (v != w && DataOf(w).num_elements() == DataOf(v).num_elements()) {
    const Value shape = Op("shape", {w});
    return shape && Add("reshape", {v, shape});
  }
  if (DataOf(v).shape().empty()) return false;
  const Value first = Op("shape", {v}, {Named("start", int64_t{0}), Named("end", int64_t{1})});
  if (!first) return false;
  const Value shape = Op("concat", {first, Ints({-1})}, {Named("axis", int64_t{0})});
  return shape && Add("reshape", {v, shape});
}

bool GraphGrower::Unsqueeze(Value v) {
  const Shape& shape = DataOf(v).shape();
  if (shape.size() > 5) return false;
  const Value more = Op("unsqueeze", {v, Ints({Int(-1, static_cast<int64_t>(shape.size()))})});
  if (!more || OneIn(2)) return static_cast<bool>(more);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) return Add("squeeze", {v, Ints({static_cast<int64_t>(i)})});
  }
  return true;
}

bool GraphGrower::Slice(Value v) {
  const Shape& shape = DataOf(v).shape();
  if (shape.empty()) return false;
  std::vector<int64_t> starts, ends, axes, steps;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!axes.empty() && !OneIn(3)) continue;
    const int64_t extent = shape[i];
    const bool back = OneIn(5);
    axes.push_back(OneIn(3) ? static_cast<int64_t>(i) - static_cast<int64_t>(shape.size())
                            : static_cast<int64_t>(i));
    steps.push_back(back ? -Int(1, 3) : OneIn(3) ? Int(2, 3) : 1);
    int64_t low = Int(0, std::max<int64_t>(extent - 1, 0)), high = Int(low, extent);
    if (OneIn(3)) low = 0;
    if (OneIn(3)) high = OneIn(2) ? INT64_MAX : extent;
    if (OneIn(4)) low -= extent;
    starts.push_back(back ? (OneIn(2) ? -1 : high) : low);
    ends.push_back(back ? (OneIn(2) ? INT64_MIN : low) : high);
  }
  return Add("slice", {v, Ints(starts), Ints(ends), Ints(axes), Ints(steps)});
}

bool GraphGrower::Concat(Value v) {
  const Shape shape = DataOf(v).shape();
  if (shape.empty()) return false;
  const size_t axis = Pick(shape.size());
  std::vector<Value> parts = {v};
  for (size_t i = 0, more = 1 + Pick(4); i < more; ++i) {
    const Value w = AnyValue();
    const Shape& other = DataOf(w).shape();
    bool fits =
        w.type().cast<AnyTensorType>().element() == v.type().cast<AnyTensorType>().element();
    fits = fits && other.size() == shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) fits = d == axis || other[d] == shape[d];
    if (fits) {
      parts.push_back(w);
      continue;
    }
    std::vector<Dim> dims = DimsOf(v);
    dims[axis] = MaybeSymbol(Extent());
    const Value leaf = OneIn(4) ? v : Leaf(v.type().cast<AnyTensorType>().element(), dims);
    if (leaf) parts.insert(OneIn(2) ? parts.begin() : parts.end(), leaf);
  }
  const int64_t named =
      static_cast<int64_t>(axis) - (OneIn(2) ? 0 : static_cast<int64_t>(shape.size()));
  return Add("concat", parts, {Named("axis", named)});
}

bool GraphGrower::Split(Value v) {
  const Shape& shape = DataOf(v).shape();
  if (shape.empty()) return false;
  const size_t axis = Pick(shape.size());
  const int64_t extent = shape[axis];
  const NamedAttribute named = Named("axis", static_cast<int64_t>(axis));
  if (OneIn(2)) {
    const int64_t pieces = Int(1, 4);
    return Add("split", {v}, {named, Named("num_outputs", pieces)}, static_cast<size_t>(pieces));
  }
  const int64_t first = Int(0, extent), second = Int(0, extent - first);
  return Add("split", {v, Ints({first, second, extent - first - second})}, {named}, 3);
}

bool GraphGrower::Pad(Value v) {
  static constexpr std::string_view kModes[] = {"constant", "constant", "constant",
                                                "reflect",  "edge",     "wrap"};
  const Shape& shape = DataOf(v).shape();
  std::vector<int64_t> pads(2 * shape.size());
  for (int64_t& p : pads) p = OneIn(2) ? 0 : OneIn(5) ? -1 : Int(0, 3);
  std::vector<Value> operands = {v, Ints(pads)};
  const ElementType element = v.type().cast<AnyTensorType>().element();
  if (OneIn(2) && IsCommon(element)) operands.push_back(Scalar(element, 1));
  return Add("pad", operands, {Named("mode", kModes[Pick(std::size(kModes))])});
}

bool GraphGrower::Expand(Value v) {
  std::vector<int64_t> shape;
  for (const int64_t d : DataOf(v).shape()) shape.push_back(d == 1 && OneIn(2) ? Extent() : 1);
  if (OneIn(3)) {
    for (int64_t& d : shape) d = OneIn(2) ? 1 : Int(1, 3);
    return Add("tile", {v, Ints(shape)});
  }
  if (shape.size() < 5 && OneIn(3)) shape.insert(shape.begin(), Int(1, 4));
  return Add("expand", {v, Ints(shape)});
}

bool GraphGrower::Gather(Value v) {
  const Shape& shape = DataOf(v).shape();
  if (shape.empty()) return false;
  const size_t axis = Pick(shape.size());
  const int64_t extent = shape[axis];
  if (extent == 0) return false;
  Shape places(Pick(3));
  for (int64_t& d : places) d = Int(1, 6);
  std::vector<int64_t> indices(static_cast<size_t>(NumElements(places)));
  for (int64_t& i : indices) i = Int(OneIn(3) ? -extent : 0, extent - 1);
  const Tensor data = Tensor::Of<int64_t>(places, indices);
  const Value at = LeafOf(OneIn(2) ? data : lathe::Cast(data, ElementType::kI32),
                          std::vector<Dim>(places.begin(), places.end()),
                          OneIn(3) ? LeafKind::kConstant : LeafKind::kFeed);
  return Add("gather", {v, at}, {Named("axis", static_cast<int64_t>(axis))});
}

// ---- along axes ----

bool GraphGrower::Reduce(Value v) {
  static constexpr std::string_view kOps[] = {
      "reduce_sum",     "reduce_mean",        "reduce_max",       "reduce_min",
      "reduce_prod",    "reduce_sum",         "reduce_l1",        "reduce_l2",
      "reduce_log_sum", "reduce_log_sum_exp", "reduce_sum_square"};
  const int64_t rank = DataOf(v).rank();
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < rank; ++i) {
    if (OneIn(2)) axes.push_back(OneIn(3) ? i - rank : i);
  }
  std::vector<Value> operands = {v};
  if (!axes.empty() || OneIn(2)) operands.push_back(Ints(axes));
  return Add(kOps[Pick(std::size(kOps))], operands,
             {Named("keepdims", OneIn(2)), Named("noop_with_empty_axes", OneIn(6))});
}

bool GraphGrower::AlongAxis(Value v) {
  const int64_t rank = DataOf(v).rank();
  if (rank == 0) return false;
  const NamedAttribute axis = Named("axis", Int(-rank, rank - 1));
  switch (Pick(9)) {
    case 0:
    case 1:
      return Add("softmax", {v}, {axis});
    case 2:
      return Add("log_softmax", {v}, {axis});
    case 3:
      return Add("hardmax", {v}, {axis});
    case 4:
      return Add("arg_max", {v},
                 {axis, Named("keepdims", OneIn(2)), Named("select_last_index", OneIn(2))});
    case 5:
      return Add("arg_min", {v}, {axis, Named("keepdims", OneIn(2))});
    case 6:
      return Add("cum_sum", {v, Constant(Tensor::Scalar<int64_t>(Int(-rank, rank - 1)))},
                 {Named("exclusive", OneIn(2)), Named("reverse", OneIn(2))});
    case 7:
      return rank >= 2 && Add("trilu", {v, Constant(Tensor::Scalar<int64_t>(Int(-2, 2)))},
                              {Named("upper", OneIn(2))});
    default:
      return Add("top_k", {v, Ints({Int(1, 3)})},
                 {axis, Named("largest", OneIn(2)), Named("sorted", true)}, 2);
  }
}

bool GraphGrower::Normalize(Value v) {
  const std::vector<Dim> dims = DimsOf(v);
  const ElementType element = v.type().cast<AnyTensorType>().element();
  if (!IsFloatType(v.type().cast<AnyTensorType>()) || dims.empty()) return false;
  const auto channel = [&] { return Leaf(element, {dims.size() > 1 ? dims[1] : dims[0]}); };
  if (dims.size() > 1 && OneIn(2)) {
    const Value scale = channel(), bias = channel();
    if (!scale || !bias) return false;
    if (OneIn(2)) return Add("instance_normalization", {v, scale, bias});
    const Value mean = channel();
    const Value square = mean ? Op("mul", {mean, mean}) : Value();
    return square && Add("batch_normalization", {v, scale, bias, mean, square});
  }
  const size_t axis = Pick(dims.size());
  const std::vector<Dim> rest(dims.begin() + static_cast<int64_t>(axis), dims.end());
  const Value scale = Leaf(element, rest), bias = Leaf(element, rest);
  if (!scale || !bias) return false;
  const NamedAttribute named = Named("axis", static_cast<int64_t>(axis));
  if (OneIn(3)) return Add("rms_normalization", {v, scale}, {named});
  return Add("layer_normalization", OneIn(2) ? std::vector{v, scale, bias} : std::vector{v, scale},
             {named});
}

// ---- by element ----

bool GraphGrower::Cast(Value v) {
  const NamedAttribute to = b_->Named("to", TypeAttribute::Get(ElemType::Get(context_, Element())));
  return Add("cast", {v}, {to});
}

bool GraphGrower::Where(Value v) {
  static constexpr std::string_view kOps[] = {"less", "greater", "equal", "less_or_equal"};
  const ElementType element = v.type().cast<AnyTensorType>().element();
  const Value other = Partner(v, element);
  if (!other) return false;
  const Value condition = Op(kOps[Pick(std::size(kOps))], {v, other});
  if (!condition || OneIn(4)) return static_cast<bool>(condition);
  const Value third = Partner(v, element);
  return third && Add("where", {condition, OneIn(2) ? v : other, third});
}

// ---- products ----

bool GraphGrower::Matmul(Value v) {
  const ElementType element = v.type().cast<AnyTensorType>().element();
  std::vector<Dim> dims = DimsOf(v);
  if (dims.empty()) return false;
  const bool right = OneIn(4) && dims.size() > 1;  // v is the right operand
  const bool turn_v = dims.size() > 1 && OneIn(4), turn_w = OneIn(3);
  const size_t last = dims.size() - 1;
  const Dim inner = dims.size() == 1 ? dims[0] : right == turn_v ? dims[last] : dims[last - 1];
  std::vector<Dim> other;
  for (size_t i = 0; i + 2 < dims.size() && OneIn(2); ++i)
    other.push_back(OneIn(3) ? Dim(1) : dims[i]);
  if (other.size() + 2 < dims.size()) other.clear();
  const Dim outer = MaybeSymbol(Extent());
  const bool inner_first = right == turn_w;
  other.push_back(inner_first ? inner : outer);
  other.push_back(inner_first ? outer : inner);
  if (OneIn(12) && !turn_w) other = {inner};
  Value w = AnyValue();
  Shape shape;
  for (const Dim& d : other) shape.push_back(ExtentOf(d));
  if (w.type().cast<AnyTensorType>().element() != element || DataOf(w).shape() != shape) {
    w = Leaf(element, other);
  }
  if (!w) return false;
  const Value product = Op("matmul", right ? std::vector{w, v} : std::vector{v, w},
                           {Named("transpose_x", right ? turn_w && other.size() > 1 : turn_v),
                            Named("transpose_y", right ? turn_v : turn_w && other.size() > 1)});
  if (!product || !OneIn(3)) return static_cast<bool>(product);
  const Value bias = Partner(product, element);
  return bias && Add("add", {product, bias});
}

bool GraphGrower::Gemm(Value v) {
  const ElementType element = v.type().cast<AnyTensorType>().element();
  const std::vector<Dim> dims = DimsOf(v);
  if (dims.size() != 2) return false;
  const bool turn_a = OneIn(3), turn_b = OneIn(2);
  const Dim inner = dims[turn_a ? 0 : 1], rows = dims[turn_a ? 1 : 0];
  const Dim columns = MaybeSymbol(Extent());
  const Value b = Leaf(element, turn_b ? std::vector{columns, inner} : std::vector{inner, columns});
  if (!b) return false;
  std::vector<Value> operands = {v, b};
  if (OneIn(2)) {
    operands.push_back(Leaf(element, OneIn(2)   ? std::vector{columns}
                                     : OneIn(2) ? std::vector{rows, columns}
                                                : std::vector{rows, Dim(1)}));
    if (!operands.back()) return false;
  }
  Attributes attributes = {Named("transA", turn_a), Named("transB", turn_b)};
  if (OneIn(3)) attributes.push_back(Named("alpha", 0.5));
  if (OneIn(3)) attributes.push_back(Named("beta", OneIn(3) ? 0.0 : 2.0));
  return Add("gemm", operands, attributes);
}

// ---- windows ----

GraphGrower::Attributes GraphGrower::WindowAttributes(const Shape& spatial,
                                                      std::vector<int64_t>& kernel) {
  Attributes attributes;
  for (const int64_t d : spatial) kernel.push_back(Int(1, std::clamp<int64_t>(d, 1, 5)));
  const auto values = [&](size_t count, int64_t low, int64_t high) {
    std::vector<int64_t> result(count);
    for (int64_t& v : result) v = Int(low, high);
    return result;
  };
  if (OneIn(2)) attributes.push_back(List("strides", values(spatial.size(), 1, 3)));
  if (OneIn(4)) attributes.push_back(List("dilations", values(spatial.size(), 1, 2)));
  if (OneIn(4)) {
    static constexpr std::string_view kPads[] = {"SAME_UPPER", "SAME_LOWER", "VALID"};
    attributes.push_back(Named("auto_pad", kPads[Pick(std::size(kPads))]));
  } else if (OneIn(2)) {
    attributes.push_back(List("pads", values(2 * spatial.size(), 0, 2)));
  }
  return attributes;
}

bool GraphGrower::Conv(Value v) {
  std::vector<Dim> dims = DimsOf(v);
  const ElementType element = v.type().cast<AnyTensorType>().element();
  if (!IsFloat(element)) return false;
  if (dims.size() < 3 || dims.size() > 5) {  // most values have other ranks
    dims = {MaybeSymbol(Int(1, 3)), Dim(Extent()), MaybeSymbol(Extent()), MaybeSymbol(Extent())};
    v = Leaf(element, dims, LeafKind::kFeed);
    if (!v) return false;
  }
  const Shape& shape = DataOf(v).shape();
  const int64_t channels = shape[1];
  if (channels == 0) return false;
  std::vector<int64_t> groups = {1, 1, channels};
  for (const int64_t f : Factors(channels)) groups.push_back(f);
  const bool fixed = dims[1].is_constant();
  const int64_t group = fixed ? groups[Pick(groups.size())] : 1;
  const int64_t filters = group * Int(1, group == 1 ? 20 : 2);
  std::vector<int64_t> kernel;
  Attributes attributes = WindowAttributes(Shape(shape.begin() + 2, shape.end()), kernel);
  attributes.push_back(Named("group", group));
  std::vector<Dim> weights = {filters, fixed ? Dim(channels / group) : dims[1]};
  weights.insert(weights.end(), kernel.begin(), kernel.end());
  std::vector<Value> operands = {
      v, Leaf(element, weights, OneIn(4) ? LeafKind::kFeed : LeafKind::kWeights)};
  if (OneIn(2)) operands.push_back(Leaf(element, {filters}));
  return std::ranges::all_of(operands, [](Value x) { return static_cast<bool>(x); }) &&
         Add("conv", operands, attributes);
}

/// Of a picture of its own, with as many channels and positions as are worth fewer multiplications.
bool GraphGrower::Conv3x3(Value) {
  const int64_t channels = Int(8, 40), filters = Int(8, 40);
  const Value x = Leaf(ElementType::kF32,
                       {MaybeSymbol(Int(1, 2)), Dim(channels), Dim(Int(3, 24)), Dim(Int(3, 24))},
                       LeafKind::kFeed);
  const Value w = x ? Leaf(ElementType::kF32, {filters, channels, 3, 3}, LeafKind::kWeights) : x;
  return w && Add("conv", {x, w}, {List("pads", {Int(0, 2), Int(0, 2), Int(0, 2), Int(0, 2)})});
}

bool GraphGrower::Pool(Value v) {
  static constexpr std::string_view kOps[] = {"max_pool", "average_pool", "lp_pool"};
  const Shape& shape = DataOf(v).shape();
  if (shape.size() < 3 || shape.size() > 5) return false;
  std::vector<int64_t> kernel;
  Attributes attributes = WindowAttributes(Shape(shape.begin() + 2, shape.end()), kernel);
  attributes.push_back(List("kernel_shape", kernel));
  const std::string_view op = kOps[Pick(std::size(kOps))];
  if (OneIn(3)) attributes.push_back(Named("ceil_mode", true));
  if (op == "average_pool" && OneIn(2)) attributes.push_back(Named("count_include_pad", true));
  return Add(op, {v}, attributes, op == "max_pool" && OneIn(5) ? 2 : 1);
}

/// What computes on windows without weights, or on the channels of a picture.
bool GraphGrower::Window(Value v) {
  const Shape& shape = DataOf(v).shape();
  if (shape.size() < 3) return false;
  switch (Pick(5)) {
    case 0:
      return Add("global_average_pool", {v});
    case 1:
      return Add("global_max_pool", {v});
    case 2:
      return shape.size() == 4 && Add("depth_to_space", {v}, {Named("blocksize", int64_t{2})});
    case 3:
      return shape.size() == 4 && Add("space_to_depth", {v}, {Named("blocksize", int64_t{2})});
    default:
      return Add("lrn", {v}, {Named("size", Int(1, 5))});
  }
}

}  // namespace lathe::testing
