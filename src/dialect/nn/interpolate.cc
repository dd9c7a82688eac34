#include "src/dialect/nn/interpolate.h"

#include <optional>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

// An element along a dim, as a whole number, and its share; 0 where there is none.
struct Tap {
  Term at, share;
};

// Of an element at a distance from 0 to 1, and from 1 to 2.
Term Near(const Term& x) {
  constexpr double kA = -0.75;
  return (x * (kA + 2) - (kA + 3)) * x * x + 1;
}
Term Far(const Term& x) {
  constexpr double kA = -0.75;
  return ((x * kA - 5 * kA) * x + 8 * kA) * x - 4 * kA;
}

Tap At(const Line& line, const Term& at, const Term& share) {
  const auto last = static_cast<double>(line.extent - 1);
  if (line.padding != "zeros") {
    const Term outside =
        AsNumbers(Less(at, at.Number(0)), at) + AsNumbers(Less(at.Number(last), at), at);
    const Term moved = line.padding == "reflection" ? line.Reflected(at) : at;
    const Term chosen = Select(Less(outside.Number(0), outside), moved, at);
    return {Least(Greatest(chosen, 0), last), share};
  }
  const Term zero = share.Number(0);
  const Term inside =
      Select(Less(at, at.Number(0)), zero, Select(Less(at.Number(last), at), zero, share));
  return {Least(Greatest(at, 0), last), inside};
}

std::vector<Tap> TapsAlong(const Line& line, const Term& x) {
  if (line.mode == "nearest") return {At(line, x, x.Number(1))};
  const Term low = x.Call(nn::kFloor);
  const Term past = x - low;  // from 0 to 1
  if (line.mode == "linear") {
    return {At(line, low, 1 - past), At(line, low + 1, past)};
  }
  return {At(line, low - 1, Far(past + 1)), At(line, low, Near(past)),
          At(line, low + 1, Near(1 - past)), At(line, low + 2, Far(2 - past))};
}

Term Whole(const Term& x) {
  return {x.builder(), CastOp::Create(x.builder(), x, {.to = ElementType::kI64}).output()};
}

}  // namespace

Term Line::Reflected(const Term& x) const {
  const double range = high() - low();
  if (!(range > 0)) return x * 0;
  const Term from = x - low();
  Builder& b = x.builder();
  const Term beyond(b, ModOp::Create(b, from, x.Number(2 * range)).c());
  const Term folded = Select(Less(beyond.Number(range), beyond), 2 * range - beyond, beyond);
  return folded + low();
}

Term Line::Inside(const Term& x) const {
  if (padding == "zeros") return x;
  const Term moved =
      padding == "border" ? Least(Greatest(x, 0), static_cast<double>(extent - 1)) : Reflected(x);
  return Select(Less(x, x.Number(low())), moved, Select(Less(x.Number(high()), x), moved, x));
}

Term Interpolated(const Term& image, const std::vector<Line>& lines,
                  const std::vector<Term>& places) {
  Builder& b = image.builder();
  const std::vector<int64_t> swap{0, 2, 1};
  const Value rows = TransposeOp::Create(b, image, {.perm = swap}).transposed();
  std::vector<Tap> taps;
  for (size_t d = 0; d < lines.size(); ++d) {
    std::vector<Tap> next;
    for (const Tap& along : TapsAlong(lines[d], places[d])) {
      if (d == 0) next.push_back(along);
      for (const Tap& outer : taps) {
        const auto extent = static_cast<double>(lines[d].extent);
        next.push_back({outer.at * extent + along.at, outer.share * along.share});
      }
    }
    taps = std::move(next);
  }
  const int64_t last[] = {2};
  const Value axes = IntsConstant(b, last);
  std::optional<Term> sum;
  for (const Tap& tap : taps) {
    const Value at = UnsqueezeOp::Create(b, Whole(tap.at), axes).expanded();
    const Term read(b, GatherNdOp::Create(b, rows, at, {.batch_dims = 1}).output());
    const bool one = tap.share.value().type().cast<AnyTensorType>().rank() == 0;
    const Term share =
        one ? tap.share : Term(b, UnsqueezeOp::Create(b, tap.share, axes).expanded());
    sum = sum ? *sum + read * share : read * share;
  }
  return {b, TransposeOp::Create(b, *sum, {.perm = swap}).transposed()};
}

}  // namespace lathe::nn
