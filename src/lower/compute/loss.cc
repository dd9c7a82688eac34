#include "lathe/dialect/nn/loss.h"

#include <limits>

#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Losses of classes, summed one after the other in f64.
namespace lathe::lower {
namespace {

// [N, C, D...] and targets [N, D...].
class Losses {
 public:
  Losses(const WholeTensorEmitter& w, std::optional<int64_t> ignored, std::string_view reduction)
      : w_(w), e_(w.e), s_(w.e), ignored_(ignored), reduction_(reduction) {
    scores_ = w.Dims(0);
    targets_ = w.Dims(1);
    classes_ = scores_[1];
    positions_ = 1;
    for (const Dim& dim : targets_) positions_ *= dim;
  }

  // log(sum of exp) of the scores at each position.
  void Normalize() {
    logs_ = e_.Scratch(kWide, positions_);
    e_.For(positions_, WholeTensorEmitter::IsWorthParallelizing(positions_ * classes_),
           [&](const Dim& position) {
             const Place at = e_.space().Unflatten(position, targets_);
             const auto over = [&](Value initial,
                                   const std::function<Value(Value x, Value so_far)>& next) {
               return e_.Reduce({classes_}, initial, [&](const Place& k, Value so_far) {
                 return next(Raw(at, k[0]), so_far);
               });
             };
             const Value lowest = s_.Number(kWide, -std::numeric_limits<double>::infinity());
             const Value greatest =
                 over(lowest, [&](Value x, Value so_far) { return s_.Max(so_far, x); });
             const Value sum = over(s_.Number(kWide, 0.0), [&](Value x, Value so_far) {
               return s_.Add(so_far, s_.Exp(s_.Sub(x, greatest)));
             });
             e_.Store(logs_, position, s_.Add(greatest, s_.Log(sum)));
           });
  }

  void WriteScores(size_t result) {
    const std::vector<Dim> dims = scores_;
    const Value logs = logs_;
    w_.Fill(result, [&](Elements& e, const Place& at) {
      const Scalars s(e);
      Place position = at;
      position.erase(position.begin() + 1);
      const Value log = e.LoadFrom(logs, e.space().Flatten(position, targets_));
      return s.Cast(s.Sub(s.Cast(e.At(w_.op->operand(0), at), kWide), log), w_.Element(result));
    });
    e_.Reset();
  }

  void Write() {
    const bool each = reduction_ == "none";
    const Value zero = s_.Number(kWide, 0.0);
    const std::vector<Value> sums =
        e_.For(positions_, {zero, zero}, [&](const Dim& position, std::span<const Value> before) {
          const auto [loss, weight] = At(position);
          if (each) e_.Store(w_.memory[0], position, s_.Cast(loss, w_.Element(0)));
          return std::vector<Value>{s_.Add(before[0], loss), s_.Add(before[1], weight)};
        });
    if (each) return;
    const Value result = reduction_ == "sum" ? sums[0] : s_.Div(sums[0], sums[1]);
    e_.Store(w_.memory[0], 0, s_.Cast(result, w_.Element(0)));
  }

 private:
  Value Raw(const Place& at, const Dim& k) {
    Place place = at;
    place.insert(place.begin() + 1, k);
    return s_.Cast(w_.Operand(0, place), kWide);
  }

  std::pair<Value, Value> At(const Dim& position) {
    const Place at = e_.space().Unflatten(position, targets_);
    const Value target = ToInt64(e_, w_.Operand(1, at));
    const Dim k = s_.Inside(target, classes_);
    Value x = Raw(at, k);
    if (logs_) x = s_.Sub(x, e_.LoadFrom(logs_, position));
    Value weight = s_.Number(kWide, 1.0);
    if (w_.Has(2)) weight = s_.Cast(w_.Operand(2, {k}), kWide);
    Value loss = s_.Mul(s_.Sub(s_.Number(kWide, 0.0), x), weight);
    if (ignored_) {
      const Value none = s_.Number(kWide, 0.0);
      const Value is_ignored = s_.Equal(target, e_.lb().Int(*ignored_));
      loss = s_.Select(is_ignored, none, loss);
      weight = s_.Select(is_ignored, none, weight);
    }
    return {loss, weight};
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  std::optional<int64_t> ignored_;
  std::string_view reduction_;
  std::vector<Dim> scores_, targets_;
  Dim classes_, positions_;
  Value logs_;
};

void WriteLikelihood(const WholeTensorEmitter& w) {
  const nn::NegativeLogLikelihoodLossOp op(w.op);
  Losses(w, op.ignore_index(), op.reduction()).Write();
}

void WriteEntropy(const WholeTensorEmitter& w) {
  using Op = nn::SoftmaxCrossEntropyLossOp;
  const Op op(w.op);
  Losses losses(w, op.ignore_index(), op.reduction());
  losses.Normalize();
  if (w.memory.size() > Op::kLogProb) losses.WriteScores(Op::kLogProb);
  losses.Write();
}

// Targets are classes, counted from the front, or ignored.
template <class OpT>
std::vector<IndexUse> Targets(const ElementOf& c) {
  const std::optional<int64_t> ignored = OpT(c.op).ignore_index();
  const Dim extent = c.Dims(0)[1];
  const auto target = [ignored, extent](Elements& e, Value number) {
    const Scalars s(e);
    const Value negative = s.Less(number, e.lb().Int(0));
    const Value checked = s.Select(negative, s.Sub(number, e.Int(extent)), number);
    if (!ignored) return checked;
    return s.Select(s.Equal(number, e.lb().Int(*ignored)), e.Int(extent - 1), checked);
  };
  return {{1, 1, extent, {}, target}};
}

// Without classes there is nothing to read.
std::string RefuseNone(const Operation& op) {
  const auto low = DimsOf(op.operand(0))[1].LowerBound();
  if (!low || *low < 1) return "there may be no classes";
  Fits fits(op);
  std::vector<Dim> targets = fits.Dims(0);
  fits.Is(2, {targets[1]});
  targets.erase(targets.begin() + 1);
  fits.Is(1, targets);
  return fits.why().empty() ? NeedSizes(op) : fits.why();
}

constexpr Compute kLossComputes[] = {
    {nn::kNegativeLogLikelihoodLoss, nullptr, RefuseNone, Targets<nn::NegativeLogLikelihoodLossOp>,
     WriteLikelihood},
    {nn::kSoftmaxCrossEntropyLoss, nullptr, RefuseNone, Targets<nn::SoftmaxCrossEntropyLossOp>,
     WriteEntropy},
};

}  // namespace

std::span<const Compute> LossComputes() { return kLossComputes; }

}  // namespace lathe::lower
