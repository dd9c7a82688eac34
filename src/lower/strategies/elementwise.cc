#include "src/lower/pointwise.h"
#include "src/lower/strategies/list.h"

// Elementwise operations around one another: a nest of loops over the results, a vector along the
// last axis at a time.
namespace lathe::lower {
namespace {

constexpr int64_t kPiece = 14;  // elements of a flat loop that one thread takes at a time, as 2^n

class Nest {
 public:
  Nest(Pointwise& body, LoopBuilder& lb, Knobs& knobs)
      : body_(body),
        lb_(lb),
        lanes_(body.lanes()),
        vectors_(knobs.Choose("vectors", {1, 2, 4})),
        piece_(int64_t{1} << knobs.Choose("piece", {kPiece, kPiece - 2, kPiece + 2})) {
    Dim elements = 1;
    for (const Dim& extent : body.extents()) elements *= extent;
    parallel_ = !elements.is_constant() || elements.value() > 2 * piece_;
  }

  void Write() {
    const auto& extents = body_.extents();
    if (extents.size() < 3 || extents[0].is_constant()) return Axis(0);
    // A batch, of which a run may have one: threads share the next axis, too.
    const Value inner = lb_.Extent(extents[1]);
    lb_.For(extents[0] * extents[1], true, [&](Value both) {
      const Value values[] = {both, inner};
      at_ = {lb_.Index(FloorDiv(LoopBuilder::D0(), LoopBuilder::D1()), values),
             lb_.Index(Mod(LoopBuilder::D0(), LoopBuilder::D1()), values)};
      Axis(2);
    });
    at_.clear();
  }

 private:
  // As deep as the results have axes.
  void Axis(size_t axis) {
    if (axis + 1 == body_.extents().size()) return LastAxis();
    lb_.For(body_.extents()[axis], parallel_ && axis == 0, [&](Value i) {
      at_.push_back(i);
      Axis(axis + 1);
      at_.pop_back();
    });
  }

  void LastAxis() {
    const Dim& length = body_.extents().back();
    if (!parallel_ || body_.extents().size() > 1) return Vectors({}, length);
    const Dim pieces = FloorDiv(length, piece_);
    lb_.For(pieces, true,
            [&](Value p) { Vectors(lb_.Index(LoopBuilder::D0() * piece_, p), piece_); });
    Vectors(lb_.Index(LoopBuilder::D0() * piece_, lb_.Extent(pieces)), Mod(length, piece_));
  }

  // `count` elements of the last axis from `base` (null: 0) on.
  void Vectors(Value base, const Dim& count) {
    const Dim full = FloorDiv(count, lanes_), rest = Mod(count, lanes_);
    if (vectors_ == 1) {
      lb_.For(full, false, [&](Value i) { Vector(base, i, {}); });
    } else {
      SideBySide(base, full);
    }
    if (rest.IsConstant(0)) return;
    lb_.For(Min(rest, 1), false, [&](Value) { Vector(base, lb_.Extent(full), lb_.Extent(rest)); });
  }

  // Some vectors in each iteration, then those that are left.
  void SideBySide(Value base, const Dim& full) {
    lb_.For(FloorDiv(full, vectors_), false, [&](Value i) {
      for (int64_t v = 0; v < vectors_; ++v) {
        Vector(base, lb_.Index(LoopBuilder::D0() * vectors_ + v, i), {});
      }
    });
    const Value most = lb_.Extent(FloorDiv(full, vectors_) * vectors_);
    lb_.For(Mod(full, vectors_), false, [&](Value i) {
      const Value both[] = {most, i};
      Vector(base, lb_.Index(LoopBuilder::D0() + LoopBuilder::D1(), both), {});
    });
  }

  // Vector number `i` after `base`.
  void Vector(Value base, Value i, Value live) {
    const Dim offset = LoopBuilder::D0() * lanes_;
    const Value both[] = {i, base};
    at_.push_back(base ? lb_.Index(offset + LoopBuilder::D1(), both) : lb_.Index(offset, i));
    body_.Store(lb_, at_, lanes_, live);
    at_.pop_back();
  }

  Pointwise& body_;
  LoopBuilder& lb_;
  int64_t lanes_;
  int64_t vectors_;  // in an iteration
  int64_t piece_;    // elements
  bool parallel_;
  std::vector<Value> at_;
};

}  // namespace

bool LowerElementwise(Lowering& l) {
  Pointwise pointwise(l.function, nullptr, l.machine);
  l.why = pointwise.Refusal();
  if (!l.why.empty()) return false;
  pointwise.GroupAxes();
  LoopBuilder lb(l.body);
  pointwise.Open(lb, *l.body);
  Nest(pointwise, lb, l.knobs).Write();
  pointwise.Close(lb);
  return true;
}

}  // namespace lathe::lower
