#include "src/lower/compute/taps.h"

namespace lathe::lower {
namespace {

class Sum {
 public:
  Sum(const Scalars& s, std::span<const std::vector<Tap>> axes, Place place,
      const std::function<Value(const Place& at)>& element)
      : s_(s), axes_(axes), place_(std::move(place)), element_(element) {}

  // As deep as there are axes.
  Value From(size_t axis, Value there, Value share) {
    if (axis == axes_.size()) {
      const Value part = s_.Mul(share, s_.Cast(element_(place_), kWide));
      return there ? s_.Select(there, part, s_.Number(kWide, 0.0)) : part;
    }
    Value sum;
    for (const Tap& tap : axes_[axis]) {
      place_.push_back(tap.at);
      const Value both = there && tap.there ? s_.And(there, tap.there) : there ? there : tap.there;
      const Value part = From(axis + 1, both, s_.Mul(share, tap.share));
      place_.pop_back();
      sum = sum ? s_.Add(sum, part) : part;
    }
    return sum;
  }

 private:
  const Scalars& s_;
  std::span<const std::vector<Tap>> axes_;
  Place place_;
  const std::function<Value(const Place& at)>& element_;
};

}  // namespace

Value SumOfTaps(const Scalars& s, std::span<const std::vector<Tap>> axes, Place place,
                const std::function<Value(const Place& at)>& element) {
  return Sum(s, axes, std::move(place), element).From(0, Value(), s.Number(kWide, 1.0));
}

Value CubicShare(const Scalars& s, Value distance, double coefficient) {
  const double a = coefficient;
  const Value x = distance;
  const auto number = [&](double v) { return s.Number(kWide, v); };
  const Value outer = s.Mul(s.Sub(s.Mul(number(a + 2), x), number(a + 3)), x);
  const Value near = s.Add(s.Mul(outer, x), number(1));
  Value far = s.Sub(s.Mul(number(a), x), number(5 * a));
  far = s.Add(s.Mul(far, x), number(8 * a));
  far = s.Sub(s.Mul(far, x), number(4 * a));
  return s.Select(s.AtMost(x, number(1)), near, s.Select(s.Less(x, number(2)), far, number(0)));
}

}  // namespace lathe::lower
