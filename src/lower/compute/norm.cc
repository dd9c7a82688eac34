#include "lathe/dialect/nn/norm.h"

#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Normalization of channels by their own moments, and where element types differ; other ones have
// simpler forms. In f64.
namespace lathe::lower {
namespace {

using BatchNorm = nn::BatchNormalizationOp;

constexpr int64_t kSums = 64;  // that are added to in turn

// A vector has one channel and no axis of them.
std::optional<size_t> ChannelAxis(const Operation& op, size_t rank) {
  if (rank < 2) return std::nullopt;
  const auto layout = op.attribute("layout").dyn_cast<StrAttribute>();
  return layout && layout.value() == "NHWC" ? rank - 1 : 1;
}

class Channels {
 public:
  explicit Channels(const WholeTensorEmitter& w)
      : w_(w),
        e_(w.e),
        s_(w.e),
        op_(w.op),
        dims_(w.Dims(BatchNorm::kX)),
        axis_(ChannelAxis(*w.op, dims_.size())) {
    MergeSpatial();
    others_ = dims_;
    if (axis_) others_[*axis_] = 1;
  }

  void Write() {
    const Dim channels = axis_ ? dims_[*axis_] : Dim(1);
    Dim elements = 1;
    for (const Dim& dim : dims_) elements *= dim;
    e_.For(channels, WholeTensorEmitter::IsWorthParallelizing(elements), [&](const Dim& channel) {
      channel_ = channel;
      Value mean = Of(BatchNorm::kMean), variance = Of(BatchNorm::kVar);
      const Value old_mean = mean, old_variance = variance;
      if (op_.training_mode()) {
        mean = Mean([](Value x) { return x; });
        variance = Mean([&](Value x) {
          const Value apart = s_.Sub(x, mean);
          return s_.Mul(apart, apart);
        });
      }
      const Value deviation = s_.Power(s_.Add(variance, s_.Number(kWide, op_.epsilon())), 0.5);
      const Value factor = s_.Mul(s_.Div(s_.Number(kWide, 1.0), deviation), Of(BatchNorm::kScale));
      const Value bias = Of(BatchNorm::kB);
      Place at;
      Normalize(at, [&](Value x) { return s_.Add(s_.Mul(s_.Sub(x, mean), factor), bias); });
      Keep(BatchNorm::kRunningMean, old_mean, mean);
      Keep(BatchNorm::kRunningVar, old_variance, variance);
    });
  }

 private:
  // [N, C, D1, ..., Dk] of known D as [N, C, D1 * ... * Dk]: longer rows.
  void MergeSpatial() {
    const Value x = w_.op->operand(BatchNorm::kX);
    if (axis_ != 1 || dims_.size() < 4 || !x.is_block_argument()) return;
    Dim plane = 1;
    for (size_t a = 2; a < dims_.size(); ++a) plane *= dims_[a];
    if (!plane.is_constant()) return;
    flat_ = e_.lb().Flat(w_.body.argument(x.index()));
    dims_ = {dims_[0], dims_[1], plane};
  }

  Value Of(size_t operand) const { return s_.Cast(w_.Operand(operand, {channel_}), kWide); }
  Value X(Place at) const {
    if (axis_) at[*axis_] = channel_;
    const Value x =
        flat_ ? e_.LoadFrom(flat_, e_.space().Flatten(at, dims_)) : w_.Operand(BatchNorm::kX, at);
    return s_.Cast(x, kWide);
  }

  Value Mean(const std::function<Value(Value x)>& f) {
    const Dim count = ProductOf(others_);
    const bool has_rows =
        dims_.size() > 2 && *axis_ + 1 < dims_.size() && dims_.back().is_constant();
    return s_.Div(has_rows ? SumOfRows(f) : Sum(f), s_.Number(kWide, count));
  }

  Value Sum(const std::function<Value(Value x)>& f) {
    return e_.Reduce(others_, s_.Number(kWide, 0.0),
                     [&](const Place& at, Value so_far) { return s_.Add(so_far, f(X(at))); });
  }

  // Elements a multiple of kSums apart along the last axis are summed together, so that vectors
  // of them are.
  Value SumOfRows(const std::function<Value(Value x)>& f) {
    const Value sums = e_.Scratch(kWide, kSums);
    w_.ForLanes(kSums, [&](const Dim& i) { e_.Store(sums, i, s_.Number(kWide, 0.0)); });
    Place at;
    AddRows(at, sums, f);
    return e_.Reduce({Dim(kSums)}, s_.Number(kWide, 0.0), [&](const Place& i, Value so_far) {
      return s_.Add(so_far, e_.LoadFrom(sums, i[0]));
    });
  }

  // As deep as there are axes.
  void AddRows(Place& at, Value sums, const std::function<Value(Value x)>& f) {
    const auto inside = [&](const Dim& i, const std::function<void()>& body) {
      at.push_back(i);
      body();
      at.pop_back();
    };
    const Dim& extent = others_[at.size()];
    if (at.size() + 1 < dims_.size()) {
      return e_.For(extent, false, [&](const Dim& i) { inside(i, [&] { AddRows(at, sums, f); }); });
    }
    const auto add = [&](const Dim& first, const Dim& count) {
      w_.ForLanes(count, [&](const Dim& i) {
        inside(first + i, [&] { e_.Store(sums, i, s_.Add(e_.LoadFrom(sums, i), f(X(at)))); });
      });
    };
    const int64_t rest = extent.value() % kSums;
    e_.For(extent.value() / kSums, false, [&](const Dim& i) { add(i * kSums, kSums); });
    add(extent.value() - rest, rest);
  }

  // As deep as there are axes.
  void Normalize(Place& at, const std::function<Value(Value x)>& f) {
    if (at.size() == dims_.size()) {
      Place to = at;
      if (axis_) to[*axis_] = channel_;
      const Dim flat = e_.space().Flatten(to, dims_);
      return e_.Store(w_.memory[BatchNorm::kY], flat, s_.Cast(f(X(at)), w_.Element(BatchNorm::kY)));
    }
    const auto inside = [&](const Dim& i) {
      at.push_back(i);
      Normalize(at, f);
      at.pop_back();
    };
    const bool is_last = at.size() + 1 == dims_.size();
    if (is_last) return w_.ForLanes(others_[at.size()], inside);
    e_.For(others_[at.size()], false, inside);
  }

  void Keep(size_t result, Value old, Value now) {
    if (result >= w_.memory.size()) return;
    Value kept = old;
    if (op_.training_mode()) {
      const double share = op_.momentum();
      kept = s_.Add(s_.Mul(old, s_.Number(kWide, share)), s_.Mul(now, s_.Number(kWide, 1 - share)));
    }
    e_.Store(w_.memory[result], channel_, s_.Cast(kept, w_.Element(result)));
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  BatchNorm op_;
  Value flat_;  // x with one axis; null: it is read as it is
  std::vector<Dim> dims_, others_;
  std::optional<size_t> axis_;
  Dim channel_;
};

void WriteChannels(const WholeTensorEmitter& w) { Channels(w).Write(); }

std::string Refuse(const Operation& op) {
  Fits fits(op);
  const std::vector<Dim> x = fits.Dims(BatchNorm::kX);
  const auto element = [&](size_t i) { return TensorOf(op.operand(i)).element(); };
  const bool same = element(BatchNorm::kX) == element(BatchNorm::kScale) &&
                    element(BatchNorm::kX) == element(BatchNorm::kMean);
  const BatchNorm norm(&op);
  if (!norm.training_mode() && !norm.layout() && same && x.size() > 1) {
    return "it has a simpler form";
  }
  const auto axis = ChannelAxis(op, x.size());
  for (const size_t i : {BatchNorm::kScale, BatchNorm::kB, BatchNorm::kMean, BatchNorm::kVar}) {
    fits.Is(i, {axis ? x[*axis] : Dim(1)});
  }
  return fits.why();
}

constexpr Compute kNormComputes[] = {
    {nn::kBatchNormalization, nullptr, Refuse, nullptr, WriteChannels, true},
};

}  // namespace

std::span<const Compute> NormComputes() { return kNormComputes; }

}  // namespace lathe::lower
