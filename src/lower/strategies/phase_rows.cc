#include "src/lower/strategies/phase_rows.h"

#include <vector>

namespace lathe::lower {
namespace {

constexpr int64_t kMostTurns = 4;  // of lanes; more are stored apart

}  // namespace

int64_t PhaseRows::Bytes(const Sizes& sizes) {
  return sizes.rows * (sizes.phases * sizes.positions + sizes.lanes) * BitWidth(sizes.element) / 8;
}

PhaseRows::PhaseRows(LoopBuilder& lb, const Sizes& sizes) : lb_(lb), sizes_(sizes) {
  if (sizes.phases <= kMostTurns) turns_ = sizes.phases;
  const SymShape shape({Dim(sizes.rows), Dim(sizes.phases * sizes.positions + sizes.lanes)});
  memory_ = lb.Alloc(VTensorType::Get(lb.context(), shape, sizes.element));
}

void PhaseRows::Store(Value row, Value phase, Value position, Value vector) {
  const Dim d0 = LoopBuilder::D0(), d1 = LoopBuilder::D1();
  const Value both[] = {position, phase};
  if (turns_ == sizes_.phases) {
    const Value at[] = {row, lb_.Index(d0 + d1 * sizes_.positions, both)};
    return lb_.Store(memory_, vector, at);
  }
  const Value at[] = {row, lb_.Index(d0 * sizes_.phases + d1, both)};
  lb_.StoreApart(memory_, vector, at, -1, sizes_.phases);
}

Value PhaseRows::Load(Value row, Value position, Value piece) {
  const Dim begin = LoopBuilder::D0() * (sizes_.phases / turns_);
  const Value both[] = {position, piece};
  std::vector<Value> parts;
  for (int64_t phase = 0; phase < turns_; ++phase) {
    const Dim first = begin + LoopBuilder::D1() * sizes_.lanes + phase * sizes_.positions;
    const Value at[] = {row, lb_.Index(first, both)};
    parts.push_back(lb_.Load(memory_, at, sizes_.lanes));
  }
  return lb_.Interleave(parts);
}

}  // namespace lathe::lower
