#include "lathe/dialect/nn/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lathe/dialect/arithmetic.h"
#include "lathe/dialect/eval_util.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/layout.h"
#include "src/dialect/nn/window.h"

namespace lathe::nn {
namespace {

std::span<const int64_t> SpatialOf(const Tensor& x) { return std::span(x.shape()).subspan(2); }

// ---- shapes -------------------------------------------------------------------------------------

SymShape PooledShape(const WindowSpec& spec, const SymShape& x) {
  const size_t rank = spec.kernel_shape.value_or(std::vector<int64_t>{}).size();
  if (rank == 0) eval::FailShape("shape/window-rank", "kernel_shape is empty");
  const SymShape in = x.ranked ? x : SymShape::OfRank(rank + 2);
  if (in.rank() != rank + 2) {
    eval::FailShape(
        "shape/window-rank",
        StrCat("kernel_shape has ", rank, " entries for an input of shape ", in.ToString()),
        "give one entry for each dim behind N and C");
  }
  std::vector<Dim> dims{in.dims[0], in.dims[1]};
  const std::vector<Dim> kernel = KernelDims(spec, {}, rank);
  for (Dim& d : WindowCounts(spec, std::span(in.dims).subspan(2), kernel)) dims.push_back(d);
  return dims;
}

template <class OpT>
Layout LayoutOf(OpT op) {
  if constexpr (requires { op.layout(); }) return op.layout();
  return std::nullopt;
}

template <class OpT>
void InferPool(InferShapeContext& c) {
  const OpT op(c.op());
  const Layout layout = LayoutOf(op);
  const SymShape shape =
      FromChannelsFirst(PooledShape(WindowOf(op), ToChannelsFirst(c.shape(0), layout)), layout);
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, shape);
}

void InferGlobalPool(InferShapeContext& c, const Layout& layout = std::nullopt) {
  SymShape shape = ToChannelsFirst(ExpectMinRank(c, 0, 2, "the input"), layout);
  for (size_t d = 2; d < shape.rank(); ++d) shape.dims[d] = 1;
  c.SetShape(0, FromChannelsFirst(shape, layout));
}

// One operation for each element of each window.
template <class OpT>
Dim PoolFlops(Operation* o) {
  const OpT op(o);
  Dim flops = ElementsOf(op.y().type());
  for (int64_t k : op.kernel_shape()) flops *= k;
  return flops;
}

// ---- windows ------------------------------------------------------------------------------------

// The elements of one window inside a channel, as flat positions in row-major order, and how many
// lie inside the padded channel.
struct WindowElements {
  std::vector<int64_t> inside;
  int64_t padded = 0;
};

// The valid kernel positions along dim d of output o: input coordinates, and the count with pads.
struct Line {
  std::vector<int64_t> at;
  int64_t padded = 0;
};

Line LineOf(const Window& w, size_t d, int64_t o) {
  const int64_t start = o * w.strides[d] - w.begins[d];
  const int64_t step = w.dilations[d];
  const auto behind = [&](int64_t end) {
    return std::clamp<int64_t>(CeilDiv(end - start, step), 0, w.kernel[d]);
  };
  Line line;
  line.padded = behind(w.in[d] + w.ends[d]);
  for (int64_t k = behind(0); k < behind(w.in[d]); ++k) line.at.push_back(start + k * step);
  return line;
}

WindowElements ElementsOf(const Window& w, std::span<const int64_t> o) {
  WindowElements elements{{0}, 1};
  for (size_t d = 0; d < w.rank(); ++d) {
    const Line line = LineOf(w, d, o[d]);
    elements.padded *= line.padded;
    std::vector<int64_t> next;
    next.reserve(elements.inside.size() * line.at.size());
    for (int64_t outer : elements.inside) {
      for (int64_t at : line.at) next.push_back(outer * w.in[d] + at);
    }
    elements.inside = std::move(next);
  }
  return elements;
}

// An input seen as planes (one per image and channel) of doubles, and its windows.
struct Pool {
  Shape shape;  // of the output
  Window window;
  std::vector<double> x;
  int64_t planes, in_size, out_size;

  // Calls f(elements, plane, output position) for each window of each plane.
  template <class F>
  void ForEach(F&& f) const {
    if (planes == 0 || out_size == 0) return;
    std::vector<int64_t> o(window.rank(), 0);
    for (int64_t i = 0; i < out_size; ++i, static_cast<void>(eval::NextIndex(window.out, o))) {
      const WindowElements elements = ElementsOf(window, o);
      for (int64_t p = 0; p < planes; ++p) {
        f(elements, x.data() + p * in_size, p * out_size + i);
      }
    }
  }

  // Where f puts its results; `shape`, in f64.
  [[nodiscard]] Tensor Outputs() const { return Tensor(ElementType::kF64, shape); }
};

Pool PoolOf(const WindowSpec& spec, const Tensor& x) {
  Pool pool;
  const SymShape shape = PooledShape(spec, SymShape::FromConstants(x.shape()));
  const std::optional<Shape> constants = shape.Constants();
  if (!constants) eval::FailShape("shape/window", "the window extents are too large");
  pool.shape = *constants;
  pool.window = ResolveWindow(spec, SpatialOf(x), *spec.kernel_shape);
  pool.planes = x.dim(0) * x.dim(1);
  pool.in_size = NumElements(pool.window.in);
  pool.out_size = NumElements(pool.window.out);
  pool.x = eval::LoadAll<double>(x);
  return pool;
}

// The position among `elements` of the first greatest one, or of the first NaN; -1 if none.
int64_t ArgMax(std::span<const int64_t> elements, const double* plane) {
  int64_t best = -1;
  for (int64_t at : elements) {
    if (std::isnan(plane[at])) return at;
    if (best < 0 || plane[at] > plane[best]) best = at;
  }
  return best;
}

// The flat position of `at` with the spatial dims in reverse order.
int64_t ColumnMajor(int64_t at, std::span<const int64_t> in) {
  std::vector<int64_t> index(in.size());
  for (size_t d = in.size(); d-- > 0; at /= in[d]) index[d] = at % in[d];
  int64_t flat = 0;
  for (size_t d = in.size(); d-- > 0;) flat = flat * in[d] + index[d];
  return flat;
}

double Norm(double sum, int64_t p) { return std::pow(sum, 1.0 / static_cast<double>(p)); }

double Power(double x, int64_t p) { return std::pow(std::fabs(x), static_cast<double>(p)); }

// In the type of `like`; the lowest value of an integer type stands for -infinity.
Tensor Rounded(const Tensor& y, const Tensor& like) {
  return eval::FromDoubles(like.element_type(), y.shape(), y.data<double>());
}

// f(plane, size) for each image and channel.
template <class F>
void GlobalPool(EvalContext& c, const F& f, const Layout& layout = std::nullopt) {
  const Tensor x = ToChannelsFirst(c.input(0), layout);
  if (x.rank() < 2)
    c.Fail("shape/rank", StrCat("the input has rank ", x.rank(), ", not 2 or more"));
  Shape shape(static_cast<size_t>(x.rank()), 1);
  shape[0] = x.dim(0);
  shape[1] = x.dim(1);
  const int64_t size = NumElements(SpatialOf(x));
  const std::vector<double> values = eval::LoadAll<double>(x);
  std::vector<double> y(static_cast<size_t>(NumElements(shape)));
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = f(values.data() + static_cast<int64_t>(i) * size, size);
  c.SetOutput(0, FromChannelsFirst(eval::FromDoubles(x.element_type(), shape, y), layout));
}

}  // namespace

void MaxPoolOp::InferShape(InferShapeContext& c) { InferPool<MaxPoolOp>(c); }
Dim MaxPoolOp::Flops(Operation* o) { return PoolFlops<MaxPoolOp>(o); }

void MaxPoolOp::Eval(EvalContext& c) {
  const MaxPoolOp op(c.op());
  const Tensor x = ToChannelsFirst(c.input(kX), op.layout());
  if (ChannelsLast(op.layout()) && c.WantsOutput(kIndices)) {
    c.Fail("pool/layout", "indices are positions in NCHW", "use layout NCHW");
  }
  const Pool pool = PoolOf(WindowOf(op), x);
  if (op.storage_order() > 1) {
    c.Fail("shape/window", StrCat("storage_order is ", op.storage_order()), "use 0 or 1");
  }
  const bool columns_first = op.storage_order() == 1;
  Tensor result = pool.Outputs();
  double* y = result.mutable_data<double>().data();
  Tensor positions(ElementType::kI64, pool.shape);
  int64_t* indices = positions.mutable_data<int64_t>().data();
  pool.ForEach([&](const WindowElements& elements, const double* plane, int64_t to) {
    const int64_t best = ArgMax(elements.inside, plane);
    y[to] = best < 0 ? -std::numeric_limits<double>::infinity() : plane[best];
    if (best < 0) {
      indices[to] = -1;
    } else {
      const int64_t at = columns_first ? ColumnMajor(best, pool.window.in) : best;
      indices[to] = plane - pool.x.data() + at;
    }
  });
  c.SetOutput(kY, FromChannelsFirst(Rounded(result, x), op.layout()));
  c.SetOutput(kIndices, FromChannelsFirst(positions, op.layout()));
}

void AveragePoolOp::InferShape(InferShapeContext& c) { InferPool<AveragePoolOp>(c); }
Dim AveragePoolOp::Flops(Operation* o) { return PoolFlops<AveragePoolOp>(o); }

void AveragePoolOp::Eval(EvalContext& c) {
  const AveragePoolOp op(c.op());
  const Pool pool = PoolOf(WindowOf(op), ToChannelsFirst(c.input(kX), op.layout()));
  const bool with_pads = op.count_include_pad();
  Tensor result = pool.Outputs();
  double* y = result.mutable_data<double>().data();
  pool.ForEach([&](const WindowElements& elements, const double* plane, int64_t to) {
    double sum = 0;
    for (int64_t at : elements.inside) sum += plane[at];
    const auto inside = static_cast<double>(elements.inside.size());
    y[to] = sum / (with_pads ? static_cast<double>(elements.padded) : inside);
  });
  c.SetOutput(kY, FromChannelsFirst(Rounded(result, c.input(kX)), op.layout()));
}

void LpPoolOp::InferShape(InferShapeContext& c) { InferPool<LpPoolOp>(c); }
Dim LpPoolOp::Flops(Operation* o) { return PoolFlops<LpPoolOp>(o); }

void LpPoolOp::Eval(EvalContext& c) {
  const LpPoolOp op(c.op());
  const Pool pool = PoolOf(WindowOf(op), c.input(kX));
  const int64_t p = op.p();
  Tensor result = pool.Outputs();
  double* y = result.mutable_data<double>().data();
  pool.ForEach([&](const WindowElements& elements, const double* plane, int64_t to) {
    double sum = 0;
    for (int64_t at : elements.inside) sum += Power(plane[at], p);
    y[to] = Norm(sum, p);
  });
  c.SetOutput(kY, Rounded(result, c.input(kX)));
}

void GlobalMaxPoolOp::InferShape(InferShapeContext& c) {
  InferGlobalPool(c, GlobalMaxPoolOp(c.op()).layout());
}
Dim GlobalMaxPoolOp::Flops(Operation* op) { return ElementsOf(op->operand(kX).type()); }
void GlobalMaxPoolOp::Eval(EvalContext& c) {
  GlobalPool(
      c,
      [](const double* plane, int64_t size) {
        double best = -std::numeric_limits<double>::infinity();
        for (int64_t i = 0; i < size; ++i) best = eval::NanMax(best, plane[i]);
        return best;
      },
      GlobalMaxPoolOp(c.op()).layout());
}

void GlobalAveragePoolOp::InferShape(InferShapeContext& c) {
  InferGlobalPool(c, GlobalAveragePoolOp(c.op()).layout());
}
Dim GlobalAveragePoolOp::Flops(Operation* op) { return ElementsOf(op->operand(kX).type()); }
void GlobalAveragePoolOp::Eval(EvalContext& c) {
  GlobalPool(
      c,
      [](const double* plane, int64_t size) {
        double sum = 0;
        for (int64_t i = 0; i < size; ++i) sum += plane[i];
        return sum / static_cast<double>(size);
      },
      GlobalAveragePoolOp(c.op()).layout());
}

void GlobalLpPoolOp::InferShape(InferShapeContext& c) { InferGlobalPool(c); }
Dim GlobalLpPoolOp::Flops(Operation* op) { return 2 * ElementsOf(op->operand(kX).type()); }
void GlobalLpPoolOp::Eval(EvalContext& c) {
  const int64_t p = GlobalLpPoolOp(c.op()).p();
  GlobalPool(c, [p](const double* plane, int64_t size) {
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += Power(plane[i], p);
    return Norm(sum, p);
  });
}

}  // namespace lathe::nn
