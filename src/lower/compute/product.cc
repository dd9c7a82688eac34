#include <algorithm>

#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/features.h"
#include "lathe/dialect/nn/matmul.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Products of any shapes and element types, an element at a time, where no strategy takes them.
namespace lathe::lower {
namespace {

Value MatrixProduct(const ElementOf& c) {
  const Scalars s(c.e);
  const std::vector<Dim> a = c.Dims(0), b = c.Dims(1), y = c.ResultDims();
  const size_t matrix = (a.size() > 1 ? 1 : 0) + (b.size() > 1 ? 1 : 0);
  const auto batches = static_cast<std::ptrdiff_t>(y.size() - matrix);
  const std::vector<Dim> whole(y.begin(), y.begin() + batches);
  const Place batch(c.at.begin(), c.at.begin() + batches);
  const auto place = [&](const std::vector<Dim>& dims, const Dim& row, const Dim& column) {
    const std::vector<Dim> own(dims.begin(), dims.end() - 2);
    Place at = BroadcastPlace(batch, own, whole);
    at.push_back(row);
    at.push_back(column);
    return at;
  };
  const Dim row = a.size() > 1 ? c.at[static_cast<size_t>(batches)] : Dim(0);
  const ElementType type = SumType(c.Element());
  const Value sum = c.e.Reduce({a.back()}, s.Number(type, 0.0), [&](const Place& k, Value so_far) {
    const Place of_a = a.size() > 1 ? place(a, row, k[0]) : k;
    const Place of_b = b.size() > 1 ? place(b, k[0], c.at.back()) : k;
    const Value x = s.Cast(c.Operand(0, of_a), type), z = s.Cast(c.Operand(1, of_b), type);
    return s.Add(so_far, s.Mul(x, z));
  });
  return s.Cast(sum, c.Element());
}

Value Binarized(const ElementOf& c) {
  const Scalars s(c.e);
  const nn::BinarizerOp op(const_cast<Operation*>(c.op));
  const Value x = s.Cast(c.Operand(0, c.at), ElementType::kF64);
  const Value above = s.Less(s.Number(ElementType::kF64, op.threshold()), x);
  return s.Cast(above, c.Element());
}

Value Shrunk(const ElementOf& c) {
  const Scalars s(c.e);
  const nn::ShrinkOp op(const_cast<Operation*>(c.op));
  const auto wide = [&](double v) { return s.Number(ElementType::kF64, v); };
  const Value x = s.Cast(c.Operand(0, c.at), ElementType::kF64);
  const double limit = op.lambd();
  const Value above = s.Select(s.Less(wide(limit), x), s.Sub(x, wide(op.bias())), wide(0));
  const Value y = s.Select(s.Less(x, wide(-limit)), s.Add(x, wide(op.bias())), above);
  return s.Cast(y, c.Element());
}

std::string RefuseFloats(const Operation& op) {
  return IsFloat(TensorOf(op.result(0)).element()) ? "it has a simpler form" : "";
}

// The places are the same for all rows of x.
Value Extracted(const ElementOf& c) {
  using Op = nn::ArrayFeatureExtractorOp;
  const std::vector<Dim> x = c.Dims(Op::kX), y = c.Dims(Op::kY);
  const Place picked = c.e.space().Unflatten(c.at.back(), y);
  Place place(c.at.begin(), c.at.end() - 1);
  if (x.size() == 1) place.clear();
  place.push_back(IndexAt(c, Op::kY, picked, x.back()));
  return c.Operand(Op::kX, place);
}

std::vector<IndexUse> PlacesExtracted(const ElementOf& c) {
  using Op = nn::ArrayFeatureExtractorOp;
  const std::vector<Dim> x = c.Dims(Op::kX);
  const Dim extent = x.back();
  const auto from_front = [extent](Elements& e, Value number) {
    const Scalars s(e);
    return s.Select(s.Less(number, e.lb().Int(0)), s.Sub(number, e.Int(extent)), number);
  };
  return {{Op::kY, x.size() - 1, extent, {}, from_front}};
}

std::string RefuseProduct(const Operation& op) {
  Fits fits(op);
  const std::vector<Dim> a = fits.Dims(0), b = fits.Dims(1);
  return fits.Same(a.back(), b.size() > 1 ? b[b.size() - 2] : b[0]).why();
}

constexpr Compute kComputes[] = {
    {"nn.array_feature_extractor", Extracted, nullptr, PlacesExtracted},
    {"nn.binarizer", Binarized},
    {"nn.shrink", Shrunk, RefuseFloats},
    {"nn.matmul", MatrixProduct, RefuseProduct, nullptr, nullptr, true},
};

}  // namespace

std::span<const Compute> ProductComputes() { return kComputes; }

}  // namespace lathe::lower
