#include <cmath>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/sampling.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/scalars.h"
#include "src/lower/compute/sort.h"

// Boxes that are taken one after another.
namespace lathe::lower {
namespace {

constexpr int64_t kBlock = 256;  // boxes that are looked at before more are

// Per image and class: what scores enough is sorted, and taken block by block until there is
// enough. Each that is taken drops those behind it that overlap it too much, in vectors.
class Suppression {
 public:
  explicit Suppression(const WholeTensorEmitter& w) : w_(w), e_(w.e), s_(w.e) {
    const std::vector<Dim> scores = w.Dims(Op::kScores);
    images_ = scores[0], classes_ = scores[1], boxes_ = scores[2];
    centered_ = Op(w.op).center_point_box();
  }

  void Write() {
    w_.Fill(Op::kSelectedIndices, [](Elements& e, const Place&) { return e.lb().Int(0); });
    if (boxes_.IsConstant(0)) return e_.Store(w_.memory[Op::kCount], 0, e_.lb().Int(0));
    sort_.emplace(e_, 1, boxes_);
    taken_ = e_.Scratch(ElementType::kI64, boxes_);
    for (Value& side : sides_) side = e_.Scratch(kWide, boxes_);
    areas_ = e_.Scratch(kWide, boxes_);
    alive_ = e_.Scratch(kWide, boxes_);
    overlap_ = Limit(Op::kIouThreshold, 0);
    least_ = Limit(Op::kScoreThreshold, -INFINITY);
    most_ = Most();
    const std::vector<Value> total = e_.For(
        images_ * classes_, {e_.lb().Int(0)}, [&](const Dim& line, std::span<const Value> n) {
          std::tie(image_, class_) = e_.space().Divide(line, classes_);
          return std::vector<Value>{TakeFrom(n[0])};
        });
    e_.Store(w_.memory[Op::kCount], 0, total[0]);
  }

 private:
  using Op = nn::NonMaxSuppressionPaddedOp;

  Value Wide(Value x) const { return s_.Cast(x, kWide); }
  Value Limit(size_t operand, double absent) const {
    if (!w_.Has(operand)) return s_.Number(kWide, absent);
    return Wide(w_.Operand(operand, Place(w_.Dims(operand).size(), 0)));
  }
  // How many of each class at most.
  Value Most() const {
    if (!w_.Has(Op::kMaxOutputBoxesPerClass)) return e_.lb().Int(0);
    constexpr size_t kOperand = Op::kMaxOutputBoxesPerClass;
    const Value most = w_.Operand(kOperand, Place(w_.Dims(kOperand).size(), 0));
    const auto room = Op(w_.op).room();
    return room ? s_.Min(most, e_.lb().Int(*room)) : most;
  }
  Value Score(const Dim& box) const { return w_.Operand(Op::kScores, {image_, class_, box}); }
  Value Side(size_t side, const Dim& at) { return e_.LoadFrom(sides_[side], at); }

  // Takes boxes of one class; `total` have been taken before. Gives how many there are then.
  Value TakeFrom(Value total) {
    const Value one = e_.lb().Int(1), none = e_.lb().Int(0);
    const std::vector<Value> found =
        e_.For(boxes_, {none}, [&](const Dim& box, std::span<const Value> n) {
          const Value score = Score(box), enough = s_.Less(least_, Wide(score));
          If(enough, [&] { sort_->Put(e_.Loaded(n[0], boxes_), box, score, true); });
          return std::vector<Value>{s_.Select(enough, s_.Add(n[0], one), n[0])};
        });
    const Dim count = e_.Loaded(found[0], boxes_ + 1);
    sort_->Sort(count);
    const Dim blocks = e_.Loaded(e_.Int(CeilDiv(count, kBlock)), boxes_ + 1);
    const std::vector<Value> taken =
        e_.For(blocks, {none}, [&](const Dim& block, std::span<const Value> n) {
          return std::vector<Value>{TakeBlock(block, count, n[0], total)};
        });
    return s_.Add(total, taken[0]);
  }

  void If(Value condition, const std::function<void()>& body) {
    const Dim once = e_.Loaded(e_.Int(s_.AsIndex(condition)), 2);
    e_.For(once, false, [&](const Dim&) { body(); });
  }

  // Those of a block that overlap no box taken before it, then no other of the block; nothing if
  // there are as many as wanted. Gives how many of the class are taken then.
  Value TakeBlock(const Dim& block, const Dim& count, Value before, Value total) {
    const Value one = e_.lb().Int(1);
    const Dim begin = e_.Loaded(e_.Int(block * kBlock), boxes_);
    const Dim wanted = e_.Loaded(e_.Int(s_.AsIndex(s_.Less(before, most_))), 2);
    const Dim members = e_.Loaded(e_.Int(Min(count - begin, kBlock) * wanted), boxes_ + 1);
    e_.For(members, false, [&](const Dim& i) { Measure(begin + i, sort_->At(begin + i)); });
    const Dim earlier = e_.Loaded(e_.Int(e_.Loaded(before, boxes_ + 1) * wanted), boxes_ + 1);
    e_.For(earlier, false,
           [&](const Dim& i) { Drop(e_.Loaded(e_.LoadFrom(taken_, i), boxes_), begin, members); });
    const std::vector<Value> taken =
        e_.For(members, {before}, [&](const Dim& i, std::span<const Value> n) {
          const Dim at = begin + i;
          const Value is_alive = s_.Less(s_.Number(kWide, 0.0), e_.LoadFrom(alive_, at));
          const Value takes = s_.And(is_alive, s_.Less(n[0], most_));
          If(takes, [&] {
            PutRow(s_.Add(total, n[0]), sort_->At(at));
            e_.Store(taken_, e_.Loaded(n[0], boxes_), e_.Int(at));
          });
          const Dim rest = (members - i - 1) * e_.Loaded(e_.Int(s_.AsIndex(takes)), 2);
          Drop(at, at + 1, e_.Loaded(e_.Int(rest), boxes_));
          return std::vector<Value>{s_.Select(takes, s_.Add(n[0], one), n[0])};
        });
    return taken[0];
  }

  void PutRow(Value row, const Dim& box) {
    const std::vector<Dim> dims = w_.ResultDims(Op::kSelectedIndices);
    const Dim at = e_.Loaded(row, dims[0]);
    const Value memory = w_.memory[Op::kSelectedIndices];
    const Dim entries[] = {image_, class_, box};
    for (int64_t i = 0; i < 3; ++i) e_.Store(memory, at * 3 + i, e_.Int(entries[i]));
  }

  // The sides and the area of a box, at its place in the order.
  void Measure(const Dim& at, const Dim& box) {
    const auto part = [&](int64_t i) { return w_.Operand(Op::kBoxes, {image_, box, Dim(i)}); };
    Value low[2], high[2];  // of y and x
    for (const int64_t axis : {0, 1}) {
      if (centered_) {
        const Value half = s_.Mul(Wide(part(3 - axis)), s_.Number(kWide, 0.5));
        const Value middle = Wide(part(1 - axis));
        low[axis] = s_.Sub(middle, half), high[axis] = s_.Add(middle, half);
      } else {
        const Value a = part(axis), b = part(axis + 2);
        low[axis] = Wide(s_.Select(s_.Less(b, a), b, a));
        high[axis] = Wide(s_.Select(s_.Less(a, b), b, a));
      }
      e_.Store(sides_[static_cast<size_t>(axis)], at, low[axis]);
      e_.Store(sides_[static_cast<size_t>(axis) + 2], at, high[axis]);
    }
    e_.Store(areas_, at, s_.Mul(s_.Sub(high[0], low[0]), s_.Sub(high[1], low[1])));
    e_.Store(alive_, at, s_.Number(kWide, 1.0));
  }

  // Drops those of `count` from `first` on that overlap the one at `at`.
  void Drop(const Dim& at, const Dim& first, const Dim& count) {
    Value own[4];
    for (size_t i = 0; i < 4; ++i) own[i] = Side(i, at);
    const Value area = e_.LoadFrom(areas_, at), zero = s_.Number(kWide, 0.0);
    w_.ForLanes(count, [&](const Dim& i) {
      const Dim other = first + i;
      Value length[2];
      for (const size_t axis : {0, 1}) {
        const Value low = Side(axis, other), high = Side(axis + 2, other);
        const Value top = s_.Select(s_.Less(own[axis], low), low, own[axis]);
        const Value end = s_.Select(s_.Less(high, own[axis + 2]), high, own[axis + 2]);
        length[axis] = s_.Sub(end, top);
      }
      const Value common = s_.Mul(length[0], length[1]);
      const Value all = s_.Sub(s_.Add(e_.LoadFrom(areas_, other), area), common);
      const Value meets = s_.And(s_.Less(zero, length[0]), s_.Less(zero, length[1]));
      const Value share = s_.Select(s_.And(meets, s_.Less(zero, all)), s_.Div(common, all), zero);
      const Value stays = e_.LoadFrom(alive_, other);
      e_.Store(alive_, other, s_.Select(s_.Less(overlap_, share), zero, stays));
    });
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Dim images_, classes_, boxes_, image_, class_;
  bool centered_ = false;
  std::optional<RadixSort> sort_;
  Value taken_, sides_[4], areas_, alive_, overlap_, least_, most_;
};

void Suppress(const WholeTensorEmitter& w) { Suppression(w).Write(); }

constexpr Compute kBoxComputes[] = {
    {nn::kNonMaxSuppressionPadded, nullptr, NeedSizes, nullptr, Suppress},
};

}  // namespace

std::span<const Compute> BoxComputes() { return kBoxComputes; }

}  // namespace lathe::lower
