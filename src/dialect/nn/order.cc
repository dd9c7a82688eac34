#include "lathe/dialect/nn/order.h"

#include <algorithm>
#include <complex>
#include <numeric>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/contents.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/move.h"
#include "src/dialect/wide.h"

namespace lathe::nn {

using eval::FailShape;
using eval::Lines;

// ---- arg_max, arg_min ----

namespace {

struct ArgOptions {
  int64_t axis;
  bool keepdims, last, largest;

  template <class OpT>
  static ArgOptions Of(OpT op, bool largest) {
    return {op.axis(), op.keepdims(), op.select_last_index(), largest};
  }
};

SymShape ArgRule(const SymShape& in, const ArgOptions& options) {
  if (!in.ranked) return {};
  const int64_t axis = eval::NormalizeAxis(options.axis, static_cast<int64_t>(in.rank()));
  SymShape out = in;
  if (options.keepdims) {
    out.dims[static_cast<size_t>(axis)] = 1;
  } else {
    out.dims.erase(out.dims.begin() + axis);
  }
  const Dim& extent = in.dims[static_cast<size_t>(axis)];
  Assume(SizeCondition::AtLeast(extent, Min(out.NumElements(), 1)), "shape/empty-axis",
         [&] { return StrCat("axis ", axis, " is empty and has no best element"); });
  return out;
}

// Whether `a` is better than `b`; NaN is better than any number, whichever is looked for.
template <class C>
bool Better(C a, C b, bool largest) {
  if (largest || a != a || b != b) return eval::Below(b, a);
  return a < b;
}

template <class C>
int64_t Best(const std::vector<C>& values, int64_t begin, const Lines& lines,
             const ArgOptions& options) {
  const auto at = [&](int64_t k) { return values[static_cast<size_t>(begin + k * lines.inner)]; };
  int64_t best = 0;
  for (int64_t k = 1; k < lines.extent; ++k) {
    const bool better = options.last ? !Better(at(best), at(k), options.largest)
                                     : Better(at(k), at(best), options.largest);
    if (better) best = k;
  }
  return best;
}

void EvalArg(EvalContext& c, const ArgOptions& options) {
  const Tensor& x = c.input(0);
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(options.axis, x.rank()));
  Tensor out(ElementType::kI64,
             eval::Concrete(ArgRule(SymShape::FromConstants(x.shape()), options)));
  if (out.num_elements() == 0) return c.SetOutput(0, std::move(out));
  const Lines lines(x.shape(), axis);
  int64_t* next = out.mutable_data<int64_t>().data();
  eval::VisitWide(x.element_type(), [&]<class C>(std::type_identity<C>) {
    const auto values = eval::LoadAll<C>(x);
    lines.ForEach([&](int64_t begin) { *next++ = Best<C>(values, begin, lines, options); });
  });
  c.SetOutput(0, std::move(out));
}

}  // namespace

void ArgMaxOp::InferShape(InferShapeContext& c) {
  c.SetShape(kReduced, ArgRule(c.shape(kData), ArgOptions::Of(ArgMaxOp(c.op()), true)));
}
void ArgMaxOp::Eval(EvalContext& c) { EvalArg(c, ArgOptions::Of(ArgMaxOp(c.op()), true)); }

void ArgMinOp::InferShape(InferShapeContext& c) {
  c.SetShape(kReduced, ArgRule(c.shape(kData), ArgOptions::Of(ArgMinOp(c.op()), false)));
}
void ArgMinOp::Eval(EvalContext& c) { EvalArg(c, ArgOptions::Of(ArgMinOp(c.op()), false)); }

// ---- cum_sum, cum_prod ----

namespace {

struct ScanOptions {
  bool exclusive, reverse, product;

  template <class OpT>
  static ScanOptions Of(OpT op, bool product) {
    return {op.exclusive(), op.reverse(), product};
  }
};

template <class C>
void ScanLine(std::vector<C>& values, int64_t begin, const Lines& lines,
              const ScanOptions& options) {
  C total = options.product ? C{1} : C{0};
  for (int64_t i = 0; i < lines.extent; ++i) {
    const int64_t k = options.reverse ? lines.extent - 1 - i : i;
    C& value = values[static_cast<size_t>(begin + k * lines.inner)];
    const C before = total;
    total = options.product ? eval::WrapMul(total, value) : eval::WrapAdd(total, value);
    value = options.exclusive ? before : total;
  }
}

void EvalScan(EvalContext& c, const ScanOptions& options) {
  const Tensor& x = c.input(0);
  const int64_t given = eval::ScalarInt(c.input(1), "axis");
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(given, x.rank()));
  if (x.num_elements() == 0) return c.SetOutput(0, x);
  const Lines lines(x.shape(), axis);
  c.SetOutput(0, eval::VisitWide(x.element_type(), [&]<class C>(std::type_identity<C>) {
                auto values = eval::LoadAll<C>(x);
                lines.ForEach([&](int64_t begin) { ScanLine<C>(values, begin, lines, options); });
                return eval::MakeTensor<C>(x.element_type(), x.shape(), values);
              }));
}

void InferScan(InferShapeContext& c) {
  const SymShape in = c.shape(0);
  ExpectScalar(c, 1, "axis");
  const auto axis = c.ConstantInts(1);
  if (in.ranked && axis && axis->size() == 1) {
    (void)eval::NormalizeAxis(axis->front(), static_cast<int64_t>(in.rank()));
  }
  c.SetShape(0, in);
}

}  // namespace

void CumSumOp::InferShape(InferShapeContext& c) { InferScan(c); }
void CumSumOp::Eval(EvalContext& c) { EvalScan(c, ScanOptions::Of(CumSumOp(c.op()), false)); }
void CumProdOp::InferShape(InferShapeContext& c) { InferScan(c); }
void CumProdOp::Eval(EvalContext& c) { EvalScan(c, ScanOptions::Of(CumProdOp(c.op()), true)); }

// ---- top_k ----

namespace {

void CheckK(const Dim& k, const Dim& extent) {
  const auto message = [&] {
    return StrCat("k is ", k.ToString(), ", but the axis has extent ", extent.ToString());
  };
  Assume(SizeCondition::AtLeast(k, 0), "shape/top-k", message);
  Assume(SizeCondition::AtLeast(extent, k), "shape/top-k", message);
}

template <class C>
void TopOfLine(const std::vector<C>& values, int64_t begin, const Lines& lines, bool largest,
               std::vector<int64_t>& order) {
  const auto at = [&](int64_t k) { return values[static_cast<size_t>(begin + k * lines.inner)]; };
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return largest ? eval::Below(at(b), at(a)) : eval::Below(at(a), at(b));
  });
}

// Copies the first elements of each line, in order, with their positions.
template <class C>
void TopK(const Tensor& x, const Lines& lines, bool largest, Tensor& values, Tensor& indices,
          int64_t k) {
  const auto wide = eval::LoadAll<C>(x);
  std::vector<int64_t> order(static_cast<size_t>(lines.extent));
  const eval::ElementMover mover(x, values);
  auto positions = indices.mutable_data<int64_t>();
  for (int64_t line = 0; line < lines.outer * lines.inner; ++line) {
    const int64_t o = line / lines.inner;
    const int64_t i = line % lines.inner;
    const int64_t begin = o * lines.extent * lines.inner + i;
    TopOfLine<C>(wide, begin, lines, largest, order);
    for (int64_t rank = 0; rank < k; ++rank) {
      const int64_t to = (o * k + rank) * lines.inner + i;
      const int64_t position = order[static_cast<size_t>(rank)];
      mover.Copy(to, begin + position * lines.inner);
      positions[static_cast<size_t>(to)] = position;
    }
  }
}

}  // namespace

void TopKOp::InferShape(InferShapeContext& c) {
  SymShape out = c.shape(kX);
  if (out.ranked) {
    const int64_t axis =
        eval::NormalizeAxis(TopKOp(c.op()).axis(), static_cast<int64_t>(out.rank()));
    Dim& extent = out.dims[static_cast<size_t>(axis)];
    const auto k = c.Contents(kK);
    const Dim wanted = k && k->size() == 1 ? k->front() : Dim();
    CheckK(wanted, extent);
    extent = wanted;
  }
  c.SetShape(kValues, out);
  c.SetShape(kIndices, out);
}

void TopKOp::Eval(EvalContext& c) {
  const TopKOp op(c.op());
  const Tensor& x = c.input(kX);
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(op.axis(), x.rank()));
  const int64_t k = eval::ScalarInt(c.input(kK), "k");
  Shape shape = x.shape();
  CheckK(k, shape[axis]);
  shape[axis] = k;
  Tensor values(x.element_type(), shape);
  Tensor indices(ElementType::kI64, shape);
  if (values.num_elements() != 0) {
    const Lines lines(x.shape(), axis);
    eval::VisitWide(x.element_type(), [&]<class C>(std::type_identity<C>) {
      TopK<C>(x, lines, op.largest(), values, indices, k);
    });
  }
  c.SetOutput(kValues, std::move(values));
  c.SetOutput(kIndices, std::move(indices));
}

// ---- unique ----

namespace {

// A number per element so that they compare as the elements do.
template <class T, class Less>
std::vector<int64_t> Ranks(const std::vector<T>& values, const Less& less) {
  std::vector<T> sorted = values;
  std::sort(sorted.begin(), sorted.end(), less);
  std::vector<int64_t> ranks;
  for (const T& value : values) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), value, less);
    ranks.push_back(at - sorted.begin());
  }
  return ranks;
}

template <class T>
std::vector<int64_t> ComplexRanks(std::span<const std::complex<T>> values) {
  const std::vector<std::complex<T>> copy(values.begin(), values.end());
  return Ranks(copy, [](const auto& a, const auto& b) {
    if (eval::Below(a.real(), b.real()) || eval::Below(b.real(), a.real())) {
      return eval::Below(a.real(), b.real());
    }
    return eval::Below(a.imag(), b.imag());
  });
}

std::vector<int64_t> ElementRanks(const Tensor& x) {
  switch (x.element_type()) {
    case ElementType::kString: {
      const auto data = x.data<std::string>();
      return Ranks(std::vector<std::string>(data.begin(), data.end()), std::less<>());
    }
    case ElementType::kC64:
      return ComplexRanks(x.data<std::complex<float>>());
    case ElementType::kC128:
      return ComplexRanks(x.data<std::complex<double>>());
    default:
      if (IsSubByte(x.element_type())) return Ranks(ToDoubles(x), eval::Below<double>);
      return eval::VisitWide(x.element_type(), [&]<class C>(std::type_identity<C>) {
        return Ranks(eval::LoadAll<C>(x), eval::Below<C>);
      });
  }
}

// Slices along an axis, compared element by element.
class Slices {
 public:
  Slices(const Tensor& x, size_t axis) : lines_(x.shape(), axis), ranks_(ElementRanks(x)) {}

  int64_t count() const { return lines_.extent; }
  bool Less(int64_t a, int64_t b) const { return Compare(a, b) < 0; }
  bool Equal(int64_t a, int64_t b) const { return Compare(a, b) == 0; }

 private:
  int Compare(int64_t a, int64_t b) const {
    if (ranks_.empty()) return 0;
    for (int64_t o = 0; o < lines_.outer; ++o) {
      for (int64_t i = 0; i < lines_.inner; ++i) {
        const int64_t at_a = ranks_[Place(o, a, i)];
        const int64_t at_b = ranks_[Place(o, b, i)];
        if (at_a != at_b) return at_a < at_b ? -1 : 1;
      }
    }
    return 0;
  }
  size_t Place(int64_t o, int64_t k, int64_t i) const {
    return static_cast<size_t>((o * lines_.extent + k) * lines_.inner + i);
  }

  Lines lines_;
  std::vector<int64_t> ranks_;
};

struct Groups {
  std::vector<int64_t> firsts, inverse, counts;
};

// Slices in ascending order, equals by position.
std::vector<int64_t> SortedSlices(const Slices& slices) {
  std::vector<int64_t> order(static_cast<size_t>(slices.count()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return slices.Less(a, b); });
  return order;
}

Groups GroupSlices(const Slices& slices) {
  Groups groups;
  groups.inverse.resize(static_cast<size_t>(slices.count()));
  for (const int64_t slice : SortedSlices(slices)) {
    if (groups.firsts.empty() || !slices.Equal(groups.firsts.back(), slice)) {
      groups.firsts.push_back(slice);
      groups.counts.push_back(0);
    }
    ++groups.counts.back();
    groups.inverse[static_cast<size_t>(slice)] = static_cast<int64_t>(groups.firsts.size()) - 1;
  }
  return groups;
}

// The same groups in the order of their first slices.
Groups ByOccurrence(const Groups& groups) {
  std::vector<size_t> order(groups.firsts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return groups.firsts[a] < groups.firsts[b]; });
  Groups result;
  std::vector<int64_t> new_index(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    new_index[order[i]] = static_cast<int64_t>(i);
    result.firsts.push_back(groups.firsts[order[i]]);
    result.counts.push_back(groups.counts[order[i]]);
  }
  for (const int64_t old : groups.inverse) {
    result.inverse.push_back(new_index[static_cast<size_t>(old)]);
  }
  return result;
}

Tensor Vector(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values);
}

}  // namespace

void UniqueOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kX);
  const auto attribute = UniqueOp(c.op()).axis();
  SymShape y = attribute ? in : SymShape::OfRank(1);
  Dim total = in.NumElements();
  if (attribute && in.ranked) {
    const int64_t axis = eval::NormalizeAxis(*attribute, static_cast<int64_t>(in.rank()));
    total = in.dims[static_cast<size_t>(axis)];
    y.dims[static_cast<size_t>(axis)] = Dim();
  }
  c.SetShape(kY, y);
  c.SetShape(kIndices, SymShape::OfRank(1));
  c.SetShape(kInverseIndices, {total});
  c.SetShape(kCounts, SymShape::OfRank(1));
}

void UniqueOp::Eval(EvalContext& c) {
  const UniqueOp op(c.op());
  const Tensor& given = c.input(kX);
  const Tensor x = op.axis() ? given : given.Reshaped({given.num_elements()});
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(op.axis().value_or(0), x.rank()));
  eval::CheckSize(ElementType::kI64, {x.shape()[axis]});  // as many inverse indices
  Groups groups = GroupSlices(Slices(x, axis));
  if (!op.sorted()) groups = ByOccurrence(groups);
  c.SetOutput(kY, eval::Take(x, axis, groups.firsts));
  c.SetOutput(kIndices, Vector(groups.firsts));
  c.SetOutput(kInverseIndices, Vector(groups.inverse));
  c.SetOutput(kCounts, Vector(groups.counts));
}

}  // namespace lathe::nn
