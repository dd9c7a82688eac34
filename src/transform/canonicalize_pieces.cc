#include <algorithm>
#include <map>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/support/divide.h"
#include "src/dialect/nn/window.h"
#include "src/transform/canonicalize.h"

namespace lathe {

namespace {

/// The extent along an axis, if it is a known number.
std::optional<int64_t> ExtentOf(Value value, int64_t axis) {
  const AnyTensorType type = TensorOrNull(value);
  if (!type || !type.has_rank()) return std::nullopt;
  const Dim d = type.dims()[static_cast<size_t>(axis)];
  return d.is_constant() ? std::optional(d.value()) : std::nullopt;
}

std::optional<int64_t> AxisAttr(const Operation* op) {
  const auto axis = op->attribute("axis").dyn_cast<IntAttribute>();
  return axis ? AxisOf(axis.value(), op->operand(0)) : std::nullopt;
}

bool OnlyReader(const Operation* inner, const Operation* reader) {
  if (inner->num_results() != 1) return false;
  for (const OpOperand use : inner->result(0).uses()) {
    if (use.owner() != reader) return false;
  }
  return true;
}

// ---- concat and split ----

bool ReplaceConcat(const Site& s, Operation* inner, const std::vector<Value>& operands) {
  return s.ReplaceByNew(inner, nn::kConcat, operands,
                        {s.rewriter.Named("axis", s.op->attribute("axis"))});
}

/// A concat of concats along one axis is one.
bool ConcatOfConcat(const Site& s) {
  const auto axis = AxisAttr(s.op);
  if (!axis) return false;
  for (size_t i = 0; i < s.op->num_operands(); ++i) {
    Operation* inner = s.Maker(i);
    if (!IsA(inner, nn::kConcat) || !OnlyReader(inner, s.op) || AxisAttr(inner) != axis) continue;
    std::vector<Value> operands;
    for (size_t k = 0; k < s.op->num_operands(); ++k) {
      if (s.op->operand(k) != inner->result(0)) {
        operands.push_back(s.op->operand(k));
        continue;
      }
      for (size_t j = 0; j < inner->num_operands(); ++j) operands.push_back(inner->operand(j));
    }
    constexpr size_t kMostOperands = 256;  // x + x, again and again, doubles them
    return operands.size() <= kMostOperands && ReplaceConcat(s, inner, operands);
  }
  return false;
}

// Whether all extents but that along the axis are known to be those of the result.
bool FitsBeside(Value part, Value whole, int64_t axis) {
  const auto p = part.type().dyn_cast<AnyTensorType>(), w = whole.type().dyn_cast<AnyTensorType>();
  if (!p || !w || !p.has_rank() || !w.has_rank() || p.rank() != w.rank()) return false;
  for (size_t a = 0; a < p.rank(); ++a) {
    const auto rank = static_cast<int64_t>(p.rank());
    const bool joined = static_cast<int64_t>(a) == (axis < 0 ? axis + rank : axis);
    if (!joined && !ProvablyEqual(p.dims()[a], w.dims()[a])) return false;
  }
  return true;
}

/// Operands without elements along the axis go where nothing is left to check of them; the first
/// one stays if all are so.
bool ConcatOfEmpty(const Site& s) {
  const auto axis = AxisAttr(s.op);
  if (!axis) return false;
  std::vector<Value> operands;
  for (size_t i = 0; i < s.op->num_operands(); ++i) {
    const Value part = s.op->operand(i);
    const bool goes = ExtentOf(part, *axis) == 0 && FitsBeside(part, s.op->result(0), *axis);
    if (!goes) operands.push_back(part);
  }
  if (operands.empty()) operands.push_back(s.op->operand(0));
  return operands.size() < s.op->num_operands() && ReplaceConcat(s, s.op, operands);
}

/// All pieces of a split in their order.
bool ConcatOfSplit(const Site& s) {
  const Operation* split = s.Maker(0);
  if (!IsA(split, nn::kSplit) || split->num_results() != s.op->num_operands()) return false;
  for (size_t i = 0; i < s.op->num_operands(); ++i) {
    if (s.op->operand(i) != split->result(i)) return false;
  }
  return AxisAttr(split) && AxisAttr(split) == AxisAttr(s.op) && s.ReplaceBy(split->operand(0));
}

/// Cut where it was joined.
bool SplitOfConcat(const Site& s) {
  const Operation* concat = s.Maker(0);
  if (!IsA(concat, nn::kConcat) || concat->num_operands() != s.op->num_results()) return false;
  const auto axis = AxisAttr(s.op);
  if (!axis || AxisAttr(concat) != axis) return false;
  for (size_t i = 0; i < s.op->num_results(); ++i) {
    const Value piece = concat->operand(i);
    if (piece.type() != s.op->result(i).type() || !ExtentOf(piece, *axis)) return false;
  }
  std::vector<Value> pieces;
  for (size_t i = 0; i < s.op->num_results(); ++i) pieces.push_back(concat->operand(i));
  for (size_t i = 0; i < pieces.size(); ++i) s.rewriter.ReplaceAllUses(s.op->result(i), pieces[i]);
  s.rewriter.EraseDead(s.op);
  return true;
}

// ---- slices ----

/// Elements begin, begin + step, ... (`count` of them) of an axis.
struct Cut {
  int64_t begin, count, step;
};

/// What a slice with constant numbers takes along each axis that it names; none if a step is
/// negative or an extent is not known.
std::optional<std::map<int64_t, Cut>> CutsOf(const Site& s) {
  const auto starts = s.Ints(1), ends = s.Ints(2);
  if (!IsA(s.op, nn::kSlice) || !starts || !ends || starts->size() != ends->size()) {
    return std::nullopt;
  }
  const auto axes = s.Ints(3), steps = s.Ints(4);
  if ((s.HasOperand(3) && !axes) || (s.HasOperand(4) && !steps)) return std::nullopt;
  std::map<int64_t, Cut> cuts;
  for (size_t i = 0; i < starts->size(); ++i) {
    const auto axis = AxisOf(axes ? (*axes)[i] : static_cast<int64_t>(i), s.op->operand(0));
    const auto extent = axis ? ExtentOf(s.op->operand(0), *axis) : std::nullopt;
    const int64_t step = steps ? (*steps)[i] : 1;
    if (!extent || step < 1) return std::nullopt;
    const auto clamp = [n = *extent](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? std::max(at, -n) + n : at, 0, n);
    };
    const int64_t begin = clamp((*starts)[i]), end = std::max(begin, clamp((*ends)[i]));
    cuts[*axis] = {begin, CeilDiv(end - begin, step), step};
  }
  return cuts;
}

bool ReplaceSlice(const Site& s, Operation* inner, Value data, const std::map<int64_t, Cut>& cuts) {
  std::vector<int64_t> starts, ends, axes, steps;
  for (const auto& [axis, cut] : cuts) {
    axes.push_back(axis);
    starts.push_back(cut.begin);
    ends.push_back(cut.count == 0 ? cut.begin : cut.begin + (cut.count - 1) * cut.step + 1);
    steps.push_back(cut.step);
  }
  std::vector<Value> operands{data, s.Constant(starts), s.Constant(ends), s.Constant(axes)};
  const bool plain = std::all_of(steps.begin(), steps.end(), [](int64_t v) { return v == 1; });
  if (!plain) operands.push_back(s.Constant(steps));
  return s.ReplaceByNew(inner, nn::kSlice, operands, {});
}

bool SliceOfSlice(const Site& s) {
  Operation* inner = s.Maker(0);
  if (!IsA(inner, nn::kSlice)) return false;
  const auto outer = CutsOf(s), first = CutsOf({inner, s.rewriter});
  if (!outer || !first) return false;
  std::map<int64_t, Cut> both = *first;
  for (const auto& [axis, cut] : *outer) {
    const auto at = both.find(axis);
    if (at == both.end()) {
      both[axis] = cut;
    } else {
      const Cut& base = at->second;
      at->second = {base.begin + cut.begin * base.step, cut.count, base.step * cut.step};
    }
  }
  return ReplaceSlice(s, inner, inner->operand(0), both);
}

/// A slice along the axis of a concat that lies within one operand is one of that operand.
bool SliceOfConcat(const Site& s) {
  Operation* concat = s.Maker(0);
  if (!IsA(concat, nn::kConcat)) return false;
  auto cuts = CutsOf(s);
  const auto axis = AxisAttr(concat);
  if (!cuts || !axis || cuts->count(*axis) == 0) return false;
  Cut& cut = cuts->at(*axis);
  if (cut.count == 0) return false;
  for (size_t i = 0; i < concat->num_operands(); ++i) {
    const auto extent = ExtentOf(concat->operand(i), *axis);
    if (!extent) return false;
    if (cut.begin >= *extent) {
      cut.begin -= *extent;
      continue;
    }
    const bool within = cut.begin + (cut.count - 1) * cut.step < *extent;
    return within && ReplaceSlice(s, concat, concat->operand(i), *cuts);
  }
  return false;
}

// ---- gather ----

/// One index along an axis that is put back, or consecutive ones: a slice. What picks extents of a
/// shape stays as exporters write it: passes that follow sizes look for it.
bool UnsqueezeOfGather(const Site& s) {
  Operation* gather = s.Maker(0);
  const auto axes = s.Ints(1);
  if (!IsA(gather, nn::kGather) || !axes || axes->size() != 1) return false;
  if (IsA(gather->operand(0).defining_op(), nn::kShape)) return false;
  const auto axis = AxisAttr(gather);
  const auto index = Site{gather, s.rewriter}.Ints(1);
  const AnyTensorType indices = TensorOrNull(gather->operand(1));
  if (!axis || !index || index->size() != 1 || !indices || indices.rank() != 0) return false;
  const auto extent = ExtentOf(gather->operand(0), *axis);
  if (AxisOf((*axes)[0], s.op->result(0)) != axis || !extent) return false;
  const int64_t at = (*index)[0] < 0 ? (*index)[0] + *extent : (*index)[0];
  if (at < 0 || at >= *extent) return false;
  return ReplaceSlice(s, gather, gather->operand(0), {{*axis, {at, 1, 1}}});
}

bool GatherOfConsecutive(const Site& s) {
  const auto axis = AxisAttr(s.op);
  const Tensor* constant = s.Constant(1);
  if (!axis || constant == nullptr || constant->rank() != 1 || constant->num_elements() < 2) {
    return false;
  }
  const std::vector<int64_t> indices = ToInt64s(*constant);
  const auto extent = ExtentOf(s.op->operand(0), *axis);
  if (!extent || indices.front() < 0 || indices.back() >= *extent) return false;
  for (size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] != indices[i - 1] + 1) return false;
  }
  const auto count = static_cast<int64_t>(indices.size());
  return ReplaceSlice(s, s.op, s.op->operand(0), {{*axis, {indices.front(), count, 1}}});
}

// ---- pads ----

/// Amounts at the begin and the end of every axis, none negative, of a pad with a constant.
std::optional<std::vector<int64_t>> PadsOf(const Site& s) {
  const auto mode = s.op->attribute("mode").dyn_cast<StrAttribute>();
  const AnyTensorType type = TensorOrNull(s.op->operand(0));
  const auto pads = s.Ints(1);
  if (!IsA(s.op, nn::kPad) || !mode || mode.value() != "constant" || !pads || !type ||
      !type.has_rank() || s.HasOperand(3) || pads->size() != 2 * type.rank()) {
    return std::nullopt;
  }
  const bool cuts = std::any_of(pads->begin(), pads->end(), [](int64_t p) { return p < 0; });
  return cuts ? std::nullopt : pads;
}

Value FillOf(const Operation* pad) { return pad->num_operands() > 2 ? pad->operand(2) : Value(); }

bool PadOfPad(const Site& s) {
  Operation* inner = s.Maker(0);
  if (!IsA(inner, nn::kPad) || FillOf(inner) != FillOf(s.op)) return false;
  auto pads = PadsOf(s), first = PadsOf({inner, s.rewriter});
  if (!pads || !first) return false;
  for (size_t i = 0; i < pads->size(); ++i) (*pads)[i] += (*first)[i];
  std::vector<Value> operands{inner->operand(0), s.Constant(*pads)};
  if (const Value fill = FillOf(s.op)) operands.push_back(fill);
  return s.ReplaceByNew(inner, nn::kPad, operands,
                        {s.rewriter.Named("mode", s.op->attribute("mode"))});
}

/// Zeros around the image are what a convolution pads with.
bool ConvOfPad(const Site& s) {
  Operation* pad = s.Maker(0);
  const auto auto_pad = s.op->attribute("auto_pad").dyn_cast<StrAttribute>();
  if (!IsA(pad, nn::kPad) || !auto_pad || auto_pad.value() != "NOTSET") return false;
  if (s.op->attribute("layout")) return false;
  const Site inner{pad, s.rewriter};
  const auto amounts = PadsOf(inner);
  if (!amounts || amounts->size() < 6) return false;
  if (FillOf(pad)) {
    const Tensor* fill = inner.Constant(2);
    if (fill == nullptr || fill->num_elements() != 1 || ToDoubles(*fill)[0] != 0) return false;
  }
  const size_t rank = amounts->size() / 2, spatial = rank - 2;
  if ((*amounts)[0] + (*amounts)[1] + (*amounts)[rank] + (*amounts)[rank + 1] != 0) return false;
  std::vector<int64_t> pads(2 * spatial);
  if (const auto own = s.op->attribute("pads").dyn_cast<ArrayAttribute>()) pads = *own.AsInts();
  for (size_t d = 0; d < spatial; ++d) {
    pads[d] += (*amounts)[2 + d];
    pads[spatial + d] += (*amounts)[rank + 2 + d];
  }
  std::vector<Value> operands{pad->operand(0)};
  for (size_t i = 1; i < s.op->num_operands(); ++i) operands.push_back(s.op->operand(i));
  std::vector<NamedAttribute> attributes{s.Attr("pads", pads)};
  for (const NamedAttribute& a : s.op->attributes().entries()) {
    if (a.name.value() != "pads") attributes.push_back(a);
  }
  return s.ReplaceByNew(pad, nn::kConv, operands, attributes);
}

// ---- kernels ----

/// The extents of the spatial dims, if all are known numbers.
std::optional<std::vector<int64_t>> SpatialExtents(Value value) {
  const AnyTensorType type = TensorOrNull(value);
  if (!type || !type.has_rank() || type.rank() < 3) return std::nullopt;
  std::vector<int64_t> extents;
  for (const Dim& d : type.dims().subspan(2)) {
    if (!d.is_constant()) return std::nullopt;
    extents.push_back(d.value());
  }
  return extents;
}

/// The only place of a kernel along an axis at which a window sees the input, if padding stands for
/// the others.
std::optional<int64_t> OnlySeenPlace(const nn::Window& window, size_t axis) {
  const int64_t apart = window.dilations[axis], places = window.kernel[axis];
  const int64_t last = (window.out[axis] - 1) * window.strides[axis];
  const int64_t first = CeilDiv(std::max<int64_t>(window.begins[axis] - last, 0), apart);
  const int64_t after = std::min(places, CeilDiv(window.begins[axis] + window.in[axis], apart));
  const bool stands =
      first * apart <= window.begins[axis] && (places - after) * apart <= window.ends[axis];
  return stands && after - first == 1 ? std::optional(first) : std::nullopt;
}

/// A kernel whose other places see nothing but padding, as large dilations have them, has one.
bool ConvOfOnePlace(const Site& s) {
  const nn::ConvOp conv(s.op);
  const auto in = SpatialExtents(conv.x()), kernel = SpatialExtents(conv.w());
  if (!in || !kernel || in->size() != kernel->size() || s.op->attribute("layout")) return false;
  const nn::Window window = nn::ResolveWindow(nn::WindowOf(conv), *in, *kernel);
  const size_t rank = window.rank();
  std::vector<int64_t> pads(2 * rank), starts, ends, axes;
  for (size_t a = 0; a < rank; ++a) {
    const auto place = OnlySeenPlace(window, a);
    if (!place) return false;
    pads[a] = window.begins[a] - *place * window.dilations[a];
    pads[rank + a] = window.ends[a] - (window.kernel[a] - 1 - *place) * window.dilations[a];
    axes.push_back(static_cast<int64_t>(a) + 2);
    starts.push_back(*place);
    ends.push_back(*place + 1);
  }
  if (std::ranges::all_of(window.kernel, [](int64_t places) { return places == 1; })) return false;
  const Rewriter::Replacing scope(s.rewriter, {&s.op, 1});
  const Value cut[] = {conv.w(), s.Constant(starts), s.Constant(ends), s.Constant(axes)};
  std::vector<Value> operands{conv.x(), s.rewriter.Create(nn::kSlice, cut)->result(0)};
  if (s.HasOperand(2)) operands.push_back(s.op->operand(2));
  std::vector<NamedAttribute> attributes{s.Attr("pads", pads)};
  for (const NamedAttribute& a : s.op->attributes().entries()) {
    const std::string_view name = a.name.value();
    if (name != "pads" && name != "auto_pad" && name != "kernel_shape") attributes.push_back(a);
  }
  return s.ReplaceByNew(s.op, nn::kConv, operands, attributes);
}

// ---- reductions ----

/// A reduced axis that is put back was never gone.
bool UnsqueezeOfReduce(const Site& s) {
  Operation* reduce = s.Maker(0);
  if (reduce == nullptr || !reduce->name().starts_with("nn.reduce_") || !OnlyReader(reduce, s.op)) {
    return false;
  }
  const auto keeps = reduce->attribute("keepdims").dyn_cast<BoolAttribute>();
  const auto added = s.Ints(1), reduced = Site{reduce, s.rewriter}.Ints(1);
  if (!keeps || keeps.value() || !added || !reduced || reduced->empty()) return false;
  std::vector<int64_t> before, after;
  for (const int64_t a : *reduced) {
    const auto axis = AxisOf(a, reduce->operand(0));
    if (!axis) return false;
    before.push_back(*axis);
  }
  for (const int64_t a : *added) {
    const auto axis = AxisOf(a, s.op->result(0));
    if (!axis) return false;
    after.push_back(*axis);
  }
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  if (before != after) return false;
  std::vector<NamedAttribute> attributes{s.rewriter.Named("keepdims", s.rewriter.Attr(true))};
  for (const NamedAttribute& a : reduce->attributes().entries()) {
    if (a.name.value() != "keepdims") attributes.push_back(a);
  }
  const std::string name(reduce->name());
  return s.ReplaceByNew(reduce, name.c_str(), {reduce->operand(0), reduce->operand(1)}, attributes);
}

constexpr CanonicalRow kRules[] = {
    {"concat-of-split", nn::kConcat, ConcatOfSplit},
    {"concat-of-empty", nn::kConcat, ConcatOfEmpty},
    {"concat-of-concat", nn::kConcat, ConcatOfConcat},
    {"split-of-concat", nn::kSplit, SplitOfConcat},
    {"slice-of-slice", nn::kSlice, SliceOfSlice},
    {"slice-of-concat", nn::kSlice, SliceOfConcat},
    {"gather-of-consecutive", nn::kGather, GatherOfConsecutive},
    {"unsqueeze-of-gather", nn::kUnsqueeze, UnsqueezeOfGather},
    {"unsqueeze-of-reduce", nn::kUnsqueeze, UnsqueezeOfReduce},
    {"pad-of-pad", nn::kPad, PadOfPad},
    {"conv-of-pad", nn::kConv, ConvOfPad},
    {"conv-of-one-place", nn::kConv, ConvOfOnePlace},
};

}  // namespace

std::span<const CanonicalRow> PieceRules() { return kRules; }

}  // namespace lathe
