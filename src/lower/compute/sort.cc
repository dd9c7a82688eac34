#include "src/lower/compute/sort.h"

namespace lathe::lower {

void MergeSort::Sort(const Dim& count) {
  const Value one = e_.lb().Int(1), size = e_.Int(count);
  int64_t passes = 62;
  if (count.is_constant()) {
    for (passes = 0; (int64_t{1} << passes) < count.value();) ++passes;
  }
  const std::vector<Value> last =
      e_.For(Dim(passes), {one, e_.lb().Int(0)}, [&](const Dim&, std::span<const Value> now) {
        const Value goes_on = s_.Less(now[0], size);
        const Dim width = e_.Loaded(now[0], room_ + 1), from = e_.Loaded(now[1], 2);
        Pass(count, width, from, s_.AsIndex(goes_on));
        return std::vector<Value>{s_.Select(goes_on, s_.Add(now[0], now[0]), now[0]),
                                  s_.Select(goes_on, s_.Sub(one, now[1]), now[1])};
      });
  sorted_ = e_.Loaded(last[1], 2);
}

void MergeSort::Pass(const Dim& count, const Dim& width, const Dim& from, const Dim& goes_on) {
  const Dim pairs = e_.Loaded(e_.Int(CeilDiv(count, width * 2) * goes_on), room_ + 1);
  e_.For(pairs, false, [&](const Dim& pair) {
    const Dim begin = e_.Loaded(e_.Int(pair * width * 2), room_);
    const Dim middle = e_.Loaded(e_.Int(Min(begin + width, count)), room_ + 1);
    const Dim end = e_.Loaded(e_.Int(Min(middle + width, count)), room_ + 1);
    const Dim merged = e_.Loaded(e_.Int(end - begin), room_ + 1);
    e_.For(merged, {e_.Int(begin), e_.Int(middle)}, [&](const Dim& t, std::span<const Value> at) {
      const Value left = Candidate(from, at[0], count), right = Candidate(from, at[1], count);
      const Value later = before_(e_.Loaded(right, range_), e_.Loaded(left, range_));
      const Value none_right = s_.Not(s_.Less(at[1], e_.Int(end)));
      const Value some_left = s_.Less(at[0], e_.Int(middle));
      const Value takes_left = s_.Or(none_right, s_.And(some_left, s_.Not(later)));
      e_.Store(memory_, Position(1 - from, begin + t), s_.Select(takes_left, left, right));
      const Value one = e_.lb().Int(1);
      return std::vector<Value>{s_.Select(takes_left, s_.Add(at[0], one), at[0]),
                                s_.Select(takes_left, at[1], s_.Add(at[1], one))};
    });
  });
}

}  // namespace lathe::lower
