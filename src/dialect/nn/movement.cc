#include "lathe/dialect/nn/movement.h"

#include <algorithm>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/contents.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/concat.h"

namespace lathe::nn {

using eval::Concrete;
using eval::FailShape;

// ---- concat ----

namespace {

void CheckConcatRank(const SymShape& first, const SymShape& next, size_t i) {
  if (first.rank() == next.rank()) return;
  FailShape("shape/concat",
            StrCat("input ", i, " has rank ", next.rank(), ", input 0 has rank ", first.rank()));
}

void MeetConcat(SymShape& out, const SymShape& next, size_t axis, size_t i) {
  CheckConcatRank(out, next, i);
  for (size_t k = 0; k < out.rank(); ++k) {
    Dim& dim = out.dims[k];
    if (k == axis) {
      dim += next.dims[k];
      continue;
    }
    Assume(SizeCondition::Equal(dim, next.dims[k]), "shape/concat", [&] {
      return StrCat("input ", i, " of shape ", next.ToString(), " does not fit the others at axis ",
                    k, ": ", dim.ToString(), " is expected");
    });
    if (dim.is_unknown() || next.dims[k].is_constant()) dim = next.dims[k];
  }
}

}  // namespace

SymShape ConcatRule(std::span<const SymShape> inputs, int64_t axis_attribute) {
  SymShape out;
  bool all_ranked = true;
  size_t axis = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    all_ranked = all_ranked && inputs[i].ranked;
    if (!inputs[i].ranked) continue;
    if (out.ranked) {
      MeetConcat(out, inputs[i], axis, i);
    } else {
      out = inputs[i];
      axis = static_cast<size_t>(
          eval::NormalizeAxis(axis_attribute, static_cast<int64_t>(out.rank())));
    }
  }
  if (out.ranked && !all_ranked) out.dims[axis] = Dim();
  return out;
}

namespace {

void PublishConcat(InferShapeContext& c) {
  std::vector<Dim> all;
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    const auto contents = SmallContents(c, i);
    if (!contents) return;
    all.insert(all.end(), contents->begin(), contents->end());
  }
  if (all.size() <= kMaxContents) c.SetContents(ConcatOp::kConcatResult, std::move(all));
}

}  // namespace

void ConcatOp::InferShape(InferShapeContext& c) {
  std::vector<SymShape> shapes;
  for (size_t i = 0; i < c.num_inputs(); ++i) shapes.push_back(c.shape(i));
  const SymShape out = ConcatRule(shapes, ConcatOp(c.op()).axis());
  c.SetShape(kConcatResult, out);
  if (out.ranked && out.rank() == 1) PublishConcat(c);
}

void ConcatOp::Eval(EvalContext& c) {
  std::vector<SymShape> shapes;
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    tensors.push_back(c.input(i));
    shapes.push_back(SymShape::FromConstants(c.input(i).shape()));
  }
  const int64_t axis = ConcatOp(c.op()).axis();
  ConcatRule(shapes, axis);
  const int64_t normal = eval::NormalizeAxis(axis, tensors[0].rank());
  c.SetOutput(kConcatResult, eval::Concatenate(tensors, static_cast<size_t>(normal)));
}

// ---- split ----

namespace {

// Extents of `pieces` pieces of (almost) the same extent.
std::vector<Dim> EvenPieces(const Dim& extent, int64_t pieces) {
  const Dim chunk = CeilDiv(extent, pieces);
  std::vector<Dim> result(static_cast<size_t>(pieces), chunk);
  if (ProvablyEqual(Mod(extent, pieces), 0)) return result;
  for (int64_t i = 0; i < pieces; ++i) {
    result[static_cast<size_t>(i)] = Max(Min(chunk, extent - chunk * i), 0);
  }
  return result;
}

std::vector<Dim> GivenPieces(const Dim& extent, std::vector<Dim> pieces, size_t results) {
  if (pieces.size() != results) {
    FailShape("shape/split",
              StrCat("split has ", pieces.size(), " entries for ", results, " results"));
  }
  Dim total = 0;
  for (const Dim& piece : pieces) {
    total += piece;
    Assume(SizeCondition::AtLeast(piece, 0), "shape/split",
           [&] { return StrCat("a piece would have extent ", piece.ToString()); });
  }
  const auto message = [&] {
    return StrCat("the pieces add up to ", total.ToString(), ", but the axis has extent ",
                  extent.ToString());
  };
  const bool overflows = total.is_unknown() && SymShape(pieces).IsConstant();
  if (overflows) FailShape("shape/split", message());
  Assume(SizeCondition::Equal(total, extent), "shape/split", message);
  return pieces;
}

void CheckPieceCount(SplitOp op, size_t results) {
  const auto wanted = op.num_outputs();
  if (!wanted || *wanted == static_cast<int64_t>(results)) return;
  FailShape("shape/split",
            StrCat("num_outputs is ", *wanted, ", but the op has ", results, " results"));
}

void PublishPieces(InferShapeContext& c, std::span<const Dim> pieces) {
  const auto contents = SmallContents(c, SplitOp::kInput);
  size_t at = 0;
  for (size_t i = 0; contents && i < pieces.size(); ++i) {
    if (!pieces[i].is_constant()) return;
    const auto count = static_cast<size_t>(pieces[i].value());
    if (at + count > contents->size()) return;
    const auto begin = contents->begin() + static_cast<ptrdiff_t>(at);
    c.SetContents(i, {begin, begin + static_cast<ptrdiff_t>(count)});
    at += count;
  }
}

}  // namespace

void SplitOp::InferShape(InferShapeContext& c) {
  const SplitOp op(c.op());
  CheckPieceCount(op, c.num_outputs());
  const SymShape in = c.shape(kInput);
  if (!in.ranked) {
    for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, {});
    return;
  }
  const int64_t axis = eval::NormalizeAxis(op.axis(), static_cast<int64_t>(in.rank()));
  const Dim extent = in.dims[static_cast<size_t>(axis)];
  std::vector<Dim> pieces(c.num_outputs());
  if (!c.HasInput(kSplit)) {
    pieces = EvenPieces(extent, static_cast<int64_t>(c.num_outputs()));
  } else if (auto given = c.Contents(kSplit)) {
    pieces = GivenPieces(extent, std::move(*given), c.num_outputs());
  }
  SymShape out = in;
  for (size_t i = 0; i < pieces.size(); ++i) {
    out.dims[static_cast<size_t>(axis)] = pieces[i];
    c.SetShape(i, out);
  }
  PublishPieces(c, pieces);
}

void SplitOp::Eval(EvalContext& c) {
  const SplitOp op(c.op());
  CheckPieceCount(op, c.num_outputs());
  const Tensor& x = c.input(kInput);
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(op.axis(), x.rank()));
  const int64_t extent = x.shape()[axis];
  const auto pieces = c.HasInput(kSplit)
                          ? GivenPieces(extent, ToDims(ToInt64s(c.input(kSplit))), c.num_outputs())
                          : EvenPieces(extent, static_cast<int64_t>(c.num_outputs()));
  int64_t begin = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    c.SetOutput(i, eval::Narrow(x, axis, begin, pieces[i].value()));
    begin += pieces[i].value();
  }
}

// ---- tile ----

namespace {

SymShape TileRule(const SymShape& in, const std::vector<Dim>& repeats) {
  for (const Dim& repeat : repeats) {
    Assume(SizeCondition::AtLeast(repeat, 0), "shape/tile",
           [&] { return StrCat("a repeat count is ", repeat.ToString()); });
  }
  if (!in.ranked) return SymShape::OfRank(repeats.size());
  if (in.rank() != repeats.size()) {
    FailShape("shape/tile",
              StrCat("repeats has ", repeats.size(), " entries for a tensor of rank ", in.rank()));
  }
  std::vector<Dim> dims;
  for (size_t i = 0; i < repeats.size(); ++i) dims.push_back(in.dims[i] * repeats[i]);
  return dims;
}

}  // namespace

void TileOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kInput);
  const auto repeats = c.Contents(kRepeats);
  const SymShape unknown = in.ranked ? SymShape::OfRank(in.rank()) : SymShape();
  c.SetShape(kOutput, repeats ? TileRule(in, *repeats) : unknown);
  const auto contents = SmallContents(c, kInput);
  if (!contents || !repeats || repeats->size() != 1 || !(*repeats)[0].is_constant()) return;
  const int64_t count = (*repeats)[0].value();
  if (count > static_cast<int64_t>(kMaxContents) ||
      contents->size() * static_cast<size_t>(count) > kMaxContents) {
    return;
  }
  std::vector<Dim> all;
  for (int64_t i = 0; i < count; ++i) all.insert(all.end(), contents->begin(), contents->end());
  c.SetContents(kOutput, std::move(all));
}

void TileOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kInput);
  const auto repeats = ToInt64s(c.input(kRepeats));
  const Shape shape = Concrete(TileRule(SymShape::FromConstants(x.shape()), ToDims(repeats)));
  // Every axis becomes two, the outer one with stride 0.
  const auto strides = eval::RowMajorStrides(x.shape());
  eval::View from;
  Shape doubled;
  for (size_t i = 0; i < repeats.size(); ++i) {
    from.strides.insert(from.strides.end(), {0, strides[i]});
    doubled.insert(doubled.end(), {repeats[i], x.shape()[i]});
  }
  c.SetOutput(kOutput, eval::Materialize(x, from, std::move(doubled)).Reshaped(shape));
}

// ---- where ----

namespace {

void PublishWhere(InferShapeContext& c) {
  const auto condition = SmallContents(c, WhereOp::kCondition);
  const auto x = SmallContents(c, WhereOp::kX);
  const auto y = SmallContents(c, WhereOp::kY);
  if (!condition || !x || !y) return;
  size_t count = 1;
  for (const auto* part : {&*condition, &*x, &*y}) {
    if (part->size() != 1) count = part->size();
  }
  const auto at = [](const std::vector<Dim>& part, size_t i) {
    return part[part.size() == 1 ? 0 : i];
  };
  std::vector<Dim> result(count);
  for (size_t i = 0; i < count; ++i) {
    const Dim test = at(*condition, i);
    if (test.is_constant()) {
      result[i] = test.value() != 0 ? at(*x, i) : at(*y, i);
    } else if (ProvablyEqual(at(*x, i), at(*y, i))) {
      result[i] = at(*x, i);
    }
  }
  c.SetContents(WhereOp::kOutput, std::move(result));
}

}  // namespace

void WhereOp::InferShape(InferShapeContext& c) {
  const SymShape values = Broadcast(c.shape(kX), c.shape(kY));
  const SymShape out = Broadcast(c.shape(kCondition), values);
  c.SetShape(kOutput, out);
  if (out.ranked && out.rank() <= 1) PublishWhere(c);
}

void WhereOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const Tensor& y = c.input(kY);
  const auto condition = c.input(kCondition).data<bool>();
  const Shape shapes[] = {c.input(kCondition).shape(), x.shape(), y.shape()};
  Tensor out(x.element_type(), eval::BroadcastShapes(shapes));
  const eval::Broadcaster rows(shapes, out.shape());
  const eval::ElementMover from_x(x, out);
  const eval::ElementMover from_y(y, out);
  rows.ForEachRow([&](int64_t to, std::span<const int64_t> from) {
    for (int64_t i = 0; i < rows.row_length(); ++i) {
      if (condition[static_cast<size_t>(from[0] + i * rows.stride(0))]) {
        from_x.Copy(to + i, from[1] + i * rows.stride(1));
      } else {
        from_y.Copy(to + i, from[2] + i * rows.stride(2));
      }
    }
  });
  c.SetOutput(kOutput, std::move(out));
}

// ---- compress ----

void CompressOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kInput);
  const auto axis = CompressOp(c.op()).axis();
  if (!axis) return c.SetShape(kOutput, SymShape::OfRank(1));
  if (!in.ranked) return c.SetShape(kOutput, {});
  SymShape out = in;
  const int64_t normal = eval::NormalizeAxis(*axis, static_cast<int64_t>(in.rank()));
  out.dims[static_cast<size_t>(normal)] = Dim();
  c.SetShape(kOutput, out);
}

void CompressOp::Eval(EvalContext& c) {
  const auto attribute = CompressOp(c.op()).axis();
  const Tensor x =
      attribute ? c.input(kInput) : c.input(kInput).Reshaped({c.input(kInput).num_elements()});
  const auto axis = attribute ? static_cast<size_t>(eval::NormalizeAxis(*attribute, x.rank())) : 0;
  const auto condition = c.input(kCondition).data<bool>();
  std::vector<int64_t> kept;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (!condition[i]) continue;
    kept.push_back(eval::CheckIndex(static_cast<int64_t>(i), x.shape()[axis], "condition"));
  }
  c.SetOutput(kOutput, eval::Take(x, axis, kept));
}

// ---- depth_to_space, space_to_depth ----

namespace {

Dim Divided(const Dim& extent, const Dim& by, const char* axis) {
  Assume(SizeCondition::Divides(by, extent), "shape/blocksize", [&] {
    return StrCat("extent ", extent.ToString(), " of the ", axis,
                  " axis does not divide into blocks of ", by.ToString());
  });
  return FloorDiv(extent, by);
}

const SymShape& CheckImage(const SymShape& in, const Dim& block) {
  if (block.is_constant() && block.value() < 1) {
    FailShape("shape/blocksize", StrCat("the block size is ", block.value(), "; at least 1"));
  }
  if (in.rank() != 4) {
    FailShape("shape/blocksize", StrCat("the input must be [N, C, H, W], not of rank ", in.rank()));
  }
  return in;
}

SymShape DepthToSpaceRule(const SymShape& in, const Dim& block) {
  if (!in.ranked) return SymShape::OfRank(4);
  const auto& d = CheckImage(in, block).dims;
  return {d[0], Divided(d[1], block * block, "channel"), d[2] * block, d[3] * block};
}

SymShape SpaceToDepthRule(const SymShape& in, const Dim& block) {
  if (!in.ranked) return SymShape::OfRank(4);
  const auto& d = CheckImage(in, block).dims;
  return {d[0], d[1] * block * block, Divided(d[2], block, "height"),
          Divided(d[3], block, "width")};
}

}  // namespace

void DepthToSpaceOp::InferShape(InferShapeContext& c) {
  c.SetShape(kOutput, DepthToSpaceRule(c.shape(kInput), DepthToSpaceOp(c.op()).blocksize()));
}

void DepthToSpaceOp::Eval(EvalContext& c) {
  const DepthToSpaceOp op(c.op());
  const Tensor& x = c.input(kInput);
  const int64_t b = op.blocksize();
  const Shape out = Concrete(DepthToSpaceRule(SymShape::FromConstants(x.shape()), b));
  const Shape& in = x.shape();
  if (op.mode() == "DCR") {
    const size_t perm[] = {0, 3, 4, 1, 5, 2};
    const Tensor blocks = x.Reshaped({in[0], b, b, out[1], in[2], in[3]});
    return c.SetOutput(kOutput, eval::Permute(blocks, perm).Reshaped(out));
  }
  const size_t perm[] = {0, 1, 4, 2, 5, 3};
  const Tensor blocks = x.Reshaped({in[0], out[1], b, b, in[2], in[3]});
  c.SetOutput(kOutput, eval::Permute(blocks, perm).Reshaped(out));
}

void SpaceToDepthOp::InferShape(InferShapeContext& c) {
  c.SetShape(kOutput, SpaceToDepthRule(c.shape(kInput), SpaceToDepthOp(c.op()).blocksize()));
}

void SpaceToDepthOp::Eval(EvalContext& c) {
  const SpaceToDepthOp op(c.op());
  const Tensor& x = c.input(kInput);
  const int64_t b = op.blocksize();
  const Shape out = Concrete(SpaceToDepthRule(SymShape::FromConstants(x.shape()), b));
  const Tensor blocks = x.Reshaped({x.shape()[0], x.shape()[1], out[2], b, out[3], b});
  const size_t depth_first[] = {0, 3, 5, 1, 2, 4};
  const size_t column_first[] = {0, 1, 3, 5, 2, 4};
  const bool dcr = op.mode() == "DCR";
  c.SetOutput(kOutput, eval::Permute(blocks, dcr ? depth_first : column_first).Reshaped(out));
}

}  // namespace lathe::nn
