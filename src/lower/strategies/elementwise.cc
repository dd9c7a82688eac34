#include "src/lower/pointwise.h"
#include "src/lower/strategies/list.h"

// Elementwise operations around one another: a nest of loops over the results, a vector along the
// last axis at a time.
namespace lathe::lower {
namespace {

constexpr int64_t kPiece = 1 << 14;  // elements of a flat loop that one thread takes at a time

class Nest {
 public:
  Nest(Pointwise& body, LoopBuilder& lb) : body_(body), lb_(lb), lanes_(body.lanes()) {
    Dim elements = 1;
    for (const Dim& extent : body.extents()) elements *= extent;
    parallel_ = !elements.is_constant() || elements.value() > 2 * kPiece;
  }

  // As deep as the results have axes.
  void Axis(size_t axis) {
    if (axis + 1 == body_.extents().size()) return LastAxis();
    lb_.For(body_.extents()[axis], parallel_ && axis == 0, [&](Value i) {
      at_.push_back(i);
      Axis(axis + 1);
      at_.pop_back();
    });
  }

 private:
  void LastAxis() {
    const Dim& length = body_.extents().back();
    if (!parallel_ || body_.extents().size() > 1) return Vectors({}, length);
    const Dim pieces = FloorDiv(length, kPiece);
    lb_.For(pieces, true,
            [&](Value p) { Vectors(lb_.Index(LoopBuilder::D0() * kPiece, p), kPiece); });
    Vectors(lb_.Index(LoopBuilder::D0() * kPiece, lb_.Extent(pieces)), Mod(length, kPiece));
  }

  // `count` elements of the last axis from `base` (null: 0) on.
  void Vectors(Value base, const Dim& count) {
    const Dim full = FloorDiv(count, lanes_), rest = Mod(count, lanes_);
    lb_.For(full, false, [&](Value i) { Vector(base, i, {}); });
    if (rest.IsConstant(0)) return;
    lb_.For(Min(rest, 1), false, [&](Value) { Vector(base, lb_.Extent(full), lb_.Extent(rest)); });
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
  Nest(pointwise, lb).Axis(0);
  pointwise.Close(lb);
  return true;
}

}  // namespace lathe::lower
