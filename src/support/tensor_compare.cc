#include <cmath>
#include <limits>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/rt_value.h"
#include "lathe/support/tensor.h"

namespace lathe {
namespace {

std::string IndexText(const Shape& shape, int64_t flat) {
  Shape index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return ShapeToString(index);
}

std::string ElementText(const Tensor& tensor, int64_t flat) {
  const Tensor text = Cast(tensor, ElementType::kString);
  const std::string& value = text.data<std::string>()[static_cast<size_t>(flat)];
  return tensor.element_type() == ElementType::kString ? Quote(value) : value;
}

// |a - b|, 0 for equal values (infinities and NaNs too), infinite when only one is finite.
double Distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double distance = std::fabs(a - b);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

// The largest excess over the tolerance so far.
class Worst {
 public:
  Worst(double rtol, double atol) : rtol_(rtol), atol_(atol) {}

  void Add(Closeness& result, int64_t index, double distance, double magnitude) {
    if (distance == 0) return;
    const double allowed = std::isfinite(magnitude) ? atol_ + rtol_ * magnitude : atol_;
    const double relative =
        magnitude > 0 ? distance / magnitude : std::numeric_limits<double>::infinity();
    result.max_abs_error = std::max(result.max_abs_error, distance);
    if (magnitude > 0) result.max_rel_error = std::max(result.max_rel_error, relative);
    if (distance <= allowed) return;
    ++result.mismatches;
    const double excess = distance - allowed;
    if (index_ < 0 || excess > excess_) {
      index_ = index;
      excess_ = excess;
    }
  }
  [[nodiscard]] int64_t index() const { return index_; }

 private:
  double rtol_;
  double atol_;
  double excess_ = 0;
  int64_t index_ = -1;
};

template <class T>
void CompareElements(const Tensor& a, const Tensor& b, Worst& worst, Closeness& result) {
  const Elements<T> left(a);
  const Elements<T> right(b);
  for (int64_t i = 0; i < left.size(); ++i) {
    if constexpr (std::is_same_v<T, std::string>) {
      const double distance = left[i] == right[i] ? 0 : std::numeric_limits<double>::infinity();
      worst.Add(result, i, distance, 0);
    } else if constexpr (std::is_same_v<T, std::complex<float>> ||
                         std::is_same_v<T, std::complex<double>>) {
      const double real = Distance(left[i].real(), right[i].real());
      const double imaginary = Distance(left[i].imag(), right[i].imag());
      worst.Add(result, i, std::hypot(real, imaginary), std::abs(right[i]));
    } else if constexpr (std::is_same_v<T, bool>) {
      const double distance = left[i] == right[i] ? 0 : std::numeric_limits<double>::infinity();
      worst.Add(result, i, distance, 0);
    } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
      // Neighboring large integers are the same double.
      const auto larger = std::max(left[i], right[i]);
      const auto smaller = std::min(left[i], right[i]);
      const uint64_t distance = static_cast<uint64_t>(larger) - static_cast<uint64_t>(smaller);
      worst.Add(result, i, static_cast<double>(distance), std::fabs(static_cast<double>(right[i])));
    } else {
      const auto x = static_cast<double>(left[i]);
      const auto y = static_cast<double>(right[i]);
      worst.Add(result, i, Distance(x, y), std::fabs(y));
    }
  }
}

Closeness Differ(std::string description) {
  Closeness result;
  result.close = false;
  result.description = std::move(description);
  return result;
}

Closeness Prefixed(Closeness result, std::string_view prefix) {
  if (!result.close) result.description = StrCat(prefix, ": ", result.description);
  return result;
}

}  // namespace

Closeness AllClose(const Tensor& a, const Tensor& b, double rtol, double atol) {
  if (a.element_type() != b.element_type() || a.shape() != b.shape()) {
    return Differ(StrCat("the types differ: ", a.TypeString(), " and ", b.TypeString()));
  }
  Closeness result;
  if (!a.is_defined()) return result;
  Worst worst(rtol, atol);
  VisitElementType(a.element_type(), [&]<class T>(std::type_identity<T>) {
    CompareElements<T>(a, b, worst, result);
  });
  if (result.mismatches == 0) return result;
  result.close = false;
  const int64_t at = worst.index();
  result.description =
      StrCat(result.mismatches, " of ", a.num_elements(), " differ; worst at ",
             IndexText(a.shape(), at), ": ", ElementText(a, at), " and ", ElementText(b, at));
  if (std::isfinite(result.max_abs_error)) {
    result.description += StrCat("; largest absolute error ", result.max_abs_error, ", relative ",
                                 result.max_rel_error);
  }
  return result;
}

namespace {

Closeness CompareLists(const RtValue::List& a, const RtValue::List& b, double rtol, double atol) {
  if (a.size() != b.size()) {
    return Differ(StrCat("lists of ", a.size(), " and ", b.size(), " values"));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    Closeness result = AllClose(a[i], b[i], rtol, atol);
    if (!result.close) return Prefixed(std::move(result), StrCat("element ", i));
  }
  return {};
}

Closeness CompareDicts(const RtValue::Dict& a, const RtValue::Dict& b, double rtol, double atol) {
  if (a.size() != b.size()) {
    return Differ(StrCat("dicts of ", a.size(), " and ", b.size(), " entries"));
  }
  for (auto i = a.begin(), j = b.begin(); i != a.end(); ++i, ++j) {
    const auto* text = std::get_if<std::string>(&i->first);
    const std::string key = text != nullptr ? Quote(*text) : StrCat(std::get<int64_t>(i->first));
    if (i->first != j->first) return Differ(StrCat("only one has the key ", key));
    Closeness result = AllClose(i->second, j->second, rtol, atol);
    if (!result.close) return Prefixed(std::move(result), StrCat("key ", key));
  }
  return {};
}

}  // namespace

Closeness AllClose(const RtValue& a, const RtValue& b, double rtol, double atol) {
  if (std::string_view(a.KindName()) != b.KindName()) {
    return Differ(StrCat("one is ", a.KindName(), ", the other is ", b.KindName()));
  }
  if (a.is_tensor()) return AllClose(a.tensor(), b.tensor(), rtol, atol);
  if (a.is_list()) return CompareLists(a.list(), b.list(), rtol, atol);
  if (a.is_dict()) return CompareDicts(a.dict(), b.dict(), rtol, atol);
  return {};
}

}  // namespace lathe
