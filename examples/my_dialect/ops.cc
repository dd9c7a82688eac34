// What the ops of mine.yaml do: shapes, evaluation, gradient, decomposition.
#include <lathe/dialect/builtin/builtin.h>
#include <lathe/dialect/eval_util.h>
#include <lathe/dialect/mine/mine.h>
#include <lathe/dialect/nn/elementwise_binary.h>
#include <lathe/dialect/nn/elementwise_unary.h>
#include <lathe/dialect/nn/movement.h>
#include <lathe/dialect/nn/shape.h>
#include <lathe/ir/builder.h>
#include <lathe/ir/op_error.h>
#include <lathe/support/size_condition.h>

#include <cmath>

namespace lathe::mine {

namespace {

/// A scalar of the element type of `like`.
Value Number(Builder& b, double number, Value like) {
  const ElementType element = like.type().cast<AnyTensorType>().element();
  return builtin::ConstantOp::Create(b, {.value = Cast(Tensor::Scalar(number), element)}).result();
}

Value Numbers(Builder& b, std::initializer_list<int64_t> numbers) {
  const Shape shape = {static_cast<int64_t>(numbers.size())};
  return builtin::ConstantOp::Create(b, {.value = Tensor::Of<int64_t>(shape, numbers)}).result();
}

}  // namespace

// ---- soft_cap ----

void SoftCapOp::Verify(Operation* op) {
  const double limit = SoftCapOp(op).limit();
  if (limit > 0) return;
  throw ErrorAt(op, "verify/limit", StrCat("limit is ", limit, "; it must be above 0"));
}

/// The meaning: everything faster is compared with it.
void SoftCapOp::Eval(EvalContext& c) {
  const double limit = SoftCapOp(c.op()).limit();
  const auto capped = [limit](double x) { return limit * std::tanh(x / limit); };
  c.SetOutput(kY, eval::MapUnary<eval::Doubles>(c.input(kX), capped));  // rounded once
}

/// dx = dy (1 - (y / limit)^2)
std::vector<Value> SoftCapOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const SoftCapOp op(o);
  const Value share = nn::DivOp::Create(b, op.y(), Number(b, op.limit(), op.y())).c();
  const Value square = nn::MulOp::Create(b, share, share).c();
  const Value slope = nn::SubOp::Create(b, Number(b, 1, op.y()), square).c();
  return {nn::MulOp::Create(b, g[0], slope).c()};
}

/// What the compiler makes loops of.
std::vector<Value> SoftCapOp::Decompose(Operation* o, Builder& b) {
  const SoftCapOp op(o);
  const Value limit = Number(b, op.limit(), op.x());
  const Value share = nn::DivOp::Create(b, op.x(), limit).c();
  return {nn::MulOp::Create(b, nn::TanhOp::Create(b, share).y(), limit).c()};
}

// ---- patches ----

/// One rule for static and symbolic extents: what it takes for granted of symbols is checked by the
/// compiled program before it runs.
void PatchesOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kX);
  const Dim size = PatchesOp(c.op()).size();
  if (!in.ranked) return c.SetShape(kY, SymShape::OfRank(3));
  if (in.rank() != 4) {
    c.Fail("shape/patches", StrCat("pictures are [N, C, H, W]; the rank is ", in.rank()));
  }
  for (const size_t axis : {2, 3}) {
    Assume(SizeCondition::Divides(size, in.dims[axis]), "shape/patches", [&] {
      return StrCat("an extent of ", in.dims[axis].ToString(), " is not a multiple of ",
                    size.ToString());
    });
  }
  const Dim tiles = FloorDiv(in.dims[2], size) * FloorDiv(in.dims[3], size);
  c.SetShape(kY, SymShape({in.dims[0], tiles, size * size * in.dims[1]}));
}

void PatchesOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const int64_t size = PatchesOp(c.op()).size();
  if (x.rank() != 4 || x.dim(2) % size != 0 || x.dim(3) % size != 0) {
    c.Fail("shape/patches", StrCat(x.TypeString(), " has no patches of ", size, " by ", size));
  }
  const int64_t n = x.dim(0), channels = x.dim(1), height = x.dim(2), width = x.dim(3);
  const int64_t down = height / size, across = width / size;
  Tensor y(x.element_type(), {n, down * across, size * size * channels});
  const size_t bytes = y.num_elements() == 0 ? 0 : y.byte_size() / y.num_elements();
  std::byte* to = bytes == 0 ? nullptr : y.mutable_raw();
  for (int64_t i = 0; i < y.num_elements(); ++i) {
    int64_t rest = i;
    const auto next = [&rest](int64_t extent) {
      const int64_t index = rest % extent;
      rest /= extent;
      return index;
    };
    const int64_t channel = next(channels), column = next(size), row = next(size);
    const int64_t right = next(across), below = next(down);
    const int64_t line = (rest * channels + channel) * height + below * size + row;
    const std::byte* from = x.raw() + (line * width + right * size + column) * bytes;
    std::copy(from, from + bytes, to + i * bytes);
  }
  c.SetOutput(kY, std::move(y));
}

/// Nothing is written for its gradient: that of the decomposition is taken.
std::vector<Value> PatchesOp::Decompose(Operation* o, Builder& b) {
  const PatchesOp op(o);
  const Value tiles = nn::SpaceToDepthOp::Create(b, op.x(), {.blocksize = op.size()}).output();
  const Value rows = nn::ReshapeOp::Create(b, tiles, Numbers(b, {0, 0, -1})).reshaped();
  return {nn::TransposeOp::Create(b, rows, {.perm = std::vector<int64_t>{0, 2, 1}}).transposed()};
}

/// Elements only move: one factor for all of them, or one per picture, moves past.
bool PatchesOp::ScaleAxis(ScaleAxisContext& c) {
  if (!c.scale().is_scalar() && c.scale().axis != 0) return c.Refuse("tiles mix channels");
  return c.Pass(0, c.scale());
}

}  // namespace lathe::mine
