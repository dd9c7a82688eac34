#include "src/lower/compute/sort.h"

#include "lathe/dialect/nn/cast.h"

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

// ---- RadixSort ----

namespace {

constexpr int64_t kDigits = 256;
constexpr int64_t kKeys = int64_t{1} << 32;

}  // namespace

RadixSort::RadixSort(Elements& e, const Dim& lines, Dim room)
    : e_(e), s_(e), room_(std::move(room)) {
  items_ = e_.Scratch(ElementType::kI64, lines * room_ * 2);
  keys_ = e_.Scratch(ElementType::kI64, lines * room_);
  counts_ = e_.Scratch(ElementType::kI64, lines * kDigits);
}

bool RadixSort::Takes(ElementType element) {
  return BitWidth(element) >= 8 && BitWidth(element) <= 32;
}

// In [0, kKeys), in the order of the elements.
Value RadixSort::Key(Value x, bool descending) const {
  const ElementType element = TensorOf(x).element();
  const Value middle = e_.lb().Int(kKeys / 2), last = e_.lb().Int(kKeys - 1);
  Value key;
  if (IsFloat(element)) {
    const Value wide = s_.Cast(x, ElementType::kF32);
    // Minus zero becomes zero. Bits of negative numbers go backwards.
    const Value sum = s_.Add(wide, s_.Number(ElementType::kF32, 0.0));
    const Value cast = nn::BitCastOp::Create(e_.lb().b(), sum, {.to = ElementType::kI32}).output();
    const Value bits = s_.Cast(cast, ElementType::kI64);
    const Value is_negative = s_.Less(bits, e_.lb().Int(0));
    key = s_.Select(is_negative, s_.Sub(e_.lb().Int(-1), bits), s_.Add(bits, middle));
    key = s_.Select(s_.Equal(wide, wide), key, last);
  } else {
    key = s_.Cast(x, ElementType::kI64);
    if (IsSigned(element)) key = s_.Add(key, middle);
  }
  return descending ? s_.Sub(last, key) : key;
}

void RadixSort::Put(const Dim& at, const Dim& item, Value x, bool descending) {
  e_.Store(items_, line_ * 2 * room_ + at, e_.Int(item));
  e_.Store(keys_, line_ * room_ + item, Key(x, descending));
}

Dim RadixSort::ItemAt(int64_t half, const Dim& at) {
  return e_.Loaded(e_.LoadFrom(items_, (line_ * 2 + half) * room_ + at), room_);
}

Dim RadixSort::KeyOf(const Dim& item) {
  return e_.Loaded(e_.LoadFrom(keys_, line_ * room_ + item), kKeys);
}

Dim RadixSort::Digit(const Dim& item, int64_t shift) {
  return e_.Loaded(e_.Int(Mod(FloorDiv(KeyOf(item), shift), kDigits)), kDigits);
}

void RadixSort::Clear() {
  e_.For(kDigits, false,
         [&](const Dim& digit) { e_.Store(counts_, line_ * kDigits + digit, e_.lb().Int(0)); });
}

// Digit by digit, from the highest: the key of the last that is wanted, as far as it is known.
Dim RadixSort::Narrow(const Dim& count, const Dim& wanted) {
  Dim kept = count, last = 0;
  for (int64_t shift = kKeys / kDigits; shift >= 1; shift /= kDigits) {
    last = LastDigit(kept, wanted, shift, last);
    kept = Keep(kept, shift, last);
  }
  return kept;
}

// Of keys / `shift`, the least with which there are enough that are not above; `before`: the same
// without the last digit.
Dim RadixSort::LastDigit(const Dim& count, const Dim& wanted, int64_t shift, const Dim& before) {
  Clear();
  const Value zero = e_.lb().Int(0), start = e_.Int(before);
  const Value below = e_.For(count, {zero}, [&](const Dim& at, std::span<const Value> sum) {
    const Dim digits = e_.Loaded(e_.Int(FloorDiv(KeyOf(ItemAt(0, at)), shift)), kKeys);
    const Value high = e_.Int(FloorDiv(digits, kDigits));
    const Dim here = line_ * kDigits + e_.Loaded(e_.Int(Mod(digits, kDigits)), kDigits);
    const Dim counts = s_.AsIndex(s_.Equal(high, start));
    e_.Store(counts_, here, s_.Add(e_.LoadFrom(counts_, here), e_.Int(counts)));
    return std::vector<Value>{s_.Add(sum[0], e_.Int(s_.AsIndex(s_.Less(high, start))))};
  })[0];
  const Value digit =
      e_.For(kDigits, {below, zero}, [&](const Dim& d, std::span<const Value> so_far) {
        const Value sum = s_.Add(so_far[0], e_.LoadFrom(counts_, line_ * kDigits + d));
        const Value is_less = e_.Int(s_.AsIndex(s_.Less(sum, e_.Int(wanted))));
        return std::vector<Value>{sum, s_.Add(so_far[1], is_less)};
      })[1];
  return e_.Loaded(e_.Int(before * kDigits + e_.Loaded(digit, kDigits)), kKeys);
}

Dim RadixSort::Keep(const Dim& count, int64_t shift, const Dim& last) {
  const Value most = e_.Int(last);
  const Value kept =
      e_.For(count, {e_.lb().Int(0)}, [&](const Dim& at, std::span<const Value> before) {
        const Dim item = ItemAt(0, at);
        const Value digits = e_.Int(FloorDiv(KeyOf(item), shift));
        e_.Store(items_, line_ * 2 * room_ + e_.Loaded(before[0], room_), e_.Int(item));
        const Dim stays = s_.AsIndex(s_.AtMost(digits, most));
        return std::vector<Value>{s_.Add(before[0], e_.Int(stays))};
      })[0];
  return e_.Loaded(kept, room_ + 1);
}

void RadixSort::Sort(const Dim& count) {
  int64_t from = 0;
  for (int64_t shift = 1; shift < kKeys; shift *= kDigits, from = 1 - from) {
    Pass(count, from, shift);
  }
}

// Counts how many have each digit, then puts each behind those with lower ones.
void RadixSort::Pass(const Dim& count, int64_t from, int64_t shift) {
  const Value zero = e_.lb().Int(0), one = e_.lb().Int(1);
  const auto place = [&](const Dim& digit) { return line_ * kDigits + digit; };
  Clear();
  e_.For(count, false, [&](const Dim& at) {
    const Dim here = place(Digit(ItemAt(from, at), shift));
    e_.Store(counts_, here, s_.Add(e_.LoadFrom(counts_, here), one));
  });
  e_.For(kDigits, {zero}, [&](const Dim& digit, std::span<const Value> before) {
    const Value number = e_.LoadFrom(counts_, place(digit));
    e_.Store(counts_, place(digit), before[0]);
    return std::vector<Value>{s_.Add(before[0], number)};
  });
  e_.For(count, false, [&](const Dim& at) {
    const Dim item = ItemAt(from, at);
    const Dim here = place(Digit(item, shift));
    const Value to = e_.LoadFrom(counts_, here);
    e_.Store(items_, (line_ * 2 + (1 - from)) * room_ + e_.Loaded(to, room_), e_.Int(item));
    e_.Store(counts_, here, s_.Add(to, one));
  });
}

}  // namespace lathe::lower
