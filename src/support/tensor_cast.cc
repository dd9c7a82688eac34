// Cast between any two element types, and reading any tensor as int64 or double.

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/tensor.h"

namespace lathe {
namespace {

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

template <class T>
inline constexpr bool kIsInteger =
    (std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, Int4> ||
    std::is_same_v<T, UInt4> || std::is_same_v<T, Int2> || std::is_same_v<T, UInt2>;

template <class T>
inline constexpr bool kIsString = std::is_same_v<T, std::string>;

template <class T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;

template <class T>
inline constexpr bool kIsReal = !kIsComplex<T> && !kIsInteger<T> && !kIsString<T> && !kIsBool<T>;

// Types whose values all fit in float convert through double without loss.
template <class T>
double RealValue(T value) {
  if constexpr (kIsBool<T>) {
    return value ? 1.0 : 0.0;
  } else {
    return static_cast<double>(value);
  }
}

// What cvttsd2si gives: the smallest integer for whatever does not fit.
template <class Int>
Int TruncateOrMin(double value) {
  constexpr double kLimit = -static_cast<double>(std::numeric_limits<Int>::min());
  if (!(value > -kLimit - 1 && value < kLimit)) return std::numeric_limits<Int>::min();
  return static_cast<Int>(value);
}
template <>
int64_t TruncateOrMin<int64_t>(double value) {
  if (!(value >= -0x1p63 && value < 0x1p63)) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

uint64_t TruncateToU64(double value) {
  if (value >= 0x1p63) return value < 0x1p64 ? static_cast<uint64_t>(value) : 0;
  return static_cast<uint64_t>(TruncateOrMin<int64_t>(value));
}

template <class To>
To IntegerFromReal(double value) {
  if constexpr (std::is_same_v<To, uint64_t>) {
    return TruncateToU64(value);
  } else if constexpr (std::is_same_v<To, int64_t> || std::is_same_v<To, uint32_t>) {
    return static_cast<To>(TruncateOrMin<int64_t>(value));
  } else {
    return static_cast<To>(int64_t{TruncateOrMin<int32_t>(value)});
  }
}

// One rounding from an integer that a double may not hold.
template <class To, class From>
To RealFromInteger(From value) {
  if constexpr (std::is_same_v<To, float> || std::is_same_v<To, double>) {
    return static_cast<To>(value);
  } else {
    // Narrow floats: round to odd first, so that the second rounding decides as if on the original.
    const auto wide = static_cast<double>(value);
    const auto exact = static_cast<long double>(value);
    static_assert(std::numeric_limits<long double>::digits >= 64);
    if (static_cast<long double>(wide) == exact) return To(wide);
    const bool above = static_cast<long double>(wide) > exact;
    const double low = above ? std::nextafter(wide, -0x1p65) : wide;
    const bool odd = (std::bit_cast<uint64_t>(low) & 1) != 0;
    return To(odd ? low : std::nextafter(low, 0x1p65));
  }
}

// Shortest digits that read back as the same T, laid out as numpy does.
template <class T>
std::string RealText(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 400> buffer;
  const auto magnitude = std::fabs(static_cast<double>(value));
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format);
  std::string text(buffer.data(), result.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// numpy prints the parts of a complex number without a trailing ".0".
template <class T>
std::string PartText(T value) {
  std::string text = RealText(value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

template <class From>
std::string ToText(const From& value) {
  if constexpr (kIsComplex<From>) {
    const std::string imaginary = PartText(value.imag());
    return StrCat("(", PartText(value.real()), imaginary[0] == '-' ? "" : "+", imaginary, "j)");
  } else if constexpr (kIsBool<From>) {
    return value ? "True" : "False";
  } else if constexpr (std::is_same_v<From, uint64_t>) {
    return StrCat(value);
  } else if constexpr (kIsInteger<From>) {
    return StrCat(static_cast<int64_t>(value));
  } else if constexpr (std::is_same_v<From, double>) {
    return RealText(value);
  } else {
    return RealText(static_cast<float>(value));
  }
}

[[noreturn]] void BadNumber(std::string_view text, ElementType type) {
  throw Error(ErrorCode::kParse, "parse/number",
              StrCat("the string ", Quote(text.substr(0, 80)), " cannot be cast to ", Name(type)));
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

double RealFromText(std::string_view text, ElementType type) {
  const std::string_view trimmed = Trim(text);
  if (trimmed == "True" || trimmed == "true") return 1;
  if (trimmed == "False" || trimmed == "false") return 0;
  const std::optional<double> value = ParseDouble(trimmed);
  if (!value) BadNumber(text, type);
  return *value;
}

template <class To>
To FromText(const std::string& text, const CastOptions& options);

template <class Real>
std::complex<Real> ComplexFromText(std::string_view text, ElementType type) {
  std::string_view body = Trim(text);
  if (body.size() > 2 && body.front() == '(' && body.back() == ')') {
    body = body.substr(1, body.size() - 2);
  }
  const bool imaginary = !body.empty() && (body.back() == 'j' || body.back() == 'J');
  if (!imaginary) return {static_cast<Real>(RealFromText(body, type)), 0};
  body.remove_suffix(1);
  // The sign between the parts: the last one that does not belong to an exponent.
  size_t cut = body.size();
  while (cut > 1) {
    --cut;
    const bool sign = body[cut] == '+' || body[cut] == '-';
    if (sign && body[cut - 1] != 'e' && body[cut - 1] != 'E') break;
    if (cut == 1) cut = 0;
  }
  const double real = cut == 0 ? 0.0 : RealFromText(body.substr(0, cut), type);
  return {static_cast<Real>(real), static_cast<Real>(RealFromText(body.substr(cut), type))};
}

template <class To>
To NarrowReal(double value, const CastOptions& options) {
  if constexpr (std::is_same_v<To, F8E8M0>) {
    return To::FromBits(internal::EncodePower(value, options.saturate, options.f8e8m0_rounding));
  } else if constexpr (requires { To::Saturated(value); }) {
    return options.saturate ? To::Saturated(value) : To(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
To Convert(const From& value, const CastOptions& options) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsString<To>) {
    return ToText(value);
  } else if constexpr (kIsString<From>) {
    return FromText<To>(value, options);
  } else if constexpr (kIsComplex<From>) {
    if constexpr (kIsComplex<To>) {
      return To(value);
    } else if constexpr (kIsBool<To>) {
      return value != From(0);
    } else {
      return Convert<To>(value.real(), options);
    }
  } else if constexpr (kIsComplex<To>) {
    using Part = typename To::value_type;
    return To(Convert<Part>(value, options), Part(0));
  } else if constexpr (kIsBool<To>) {
    return RealValue(value) != 0;
  } else if constexpr (kIsBool<From>) {
    return Convert<To>(int32_t{value}, options);
  } else if constexpr (kIsInteger<From> && kIsPacked<From>) {
    return Convert<To>(static_cast<int64_t>(value), options);
  } else if constexpr (kIsInteger<From> && kIsInteger<To>) {
    return static_cast<To>(static_cast<int64_t>(value));
  } else if constexpr (std::is_same_v<From, float> &&
                       (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>)) {
    return To(value);
  } else if constexpr (kIsInteger<To>) {
    return IntegerFromReal<To>(RealValue(value));
  } else if constexpr (kIsInteger<From>) {
    if constexpr (requires { To::Saturated(0.0); }) {
      return NarrowReal<To>(static_cast<double>(value), options);
    } else {
      return RealFromInteger<To>(value);
    }
  } else {
    return NarrowReal<To>(RealValue(value), options);
  }
}

template <class To>
To FromText(const std::string& text, const CastOptions& options) {
  constexpr ElementType kType = ElementTypeOf<To>;
  if constexpr (kIsComplex<To>) {
    return ComplexFromText<typename To::value_type>(text, kType);
  } else if constexpr (kIsInteger<To>) {
    const std::string_view trimmed = Trim(text);
    if (const auto value = ParseInt(trimmed)) return static_cast<To>(*value);
    if (const auto value = ParseUint(trimmed)) return static_cast<To>(*value);
    return IntegerFromReal<To>(RealFromText(text, kType));
  } else if constexpr (std::is_same_v<To, float>) {
    // Straight from the digits: by way of double it would round twice.
    const std::string_view trimmed = Trim(text);
    float value = 0;
    const auto [end, error] =
        std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
    const bool whole = end == trimmed.data() + trimmed.size() && error == std::errc{};
    return whole ? value : static_cast<float>(RealFromText(text, kType));
  } else {
    return Convert<To>(RealFromText(text, kType), options);
  }
}

template <class To, class From>
Tensor CastAs(const Tensor& tensor, const CastOptions& options) {
  const Elements<From> in(tensor);
  const int64_t count = in.size();
  if constexpr (kIsPacked<To>) {
    const auto out = std::make_unique<To[]>(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) out[i] = Convert<To>(in[i], options);
    return Pack<To>(tensor.shape(), {out.get(), static_cast<size_t>(count)});
  } else {
    Tensor result(ElementTypeOf<To>, tensor.shape());
    To* out = result.mutable_data<To>().data();
    for (int64_t i = 0; i < count; ++i) out[i] = Convert<To>(in[i], options);
    return result;
  }
}

// Types of fewer than 16 bits that no arithmetic is done in. Each pair of types is a loop of its
// own; of these only those that others can pass through without another rounding.
template <class T>
inline constexpr bool kIsNarrow =
    (kIsInteger<T> && kIsPacked<T>) || (kIsReal<T> && requires { T::Saturated(0.0); });

// What holds all values of a narrow type.
template <class T>
using WideOf = std::conditional_t<kIsInteger<T>, int8_t, float>;

// What is converted to a narrow type in place of another one.
template <class To, class From>
using BeforeNarrow = std::conditional_t<
    kIsString<From>, From,
    std::conditional_t<kIsInteger<To> && (kIsInteger<From> || kIsBool<From>), int64_t, double>>;

template <class To>
Tensor CastTo(const Tensor& tensor, const CastOptions& options) {
  return VisitElementType(tensor.element_type(), [&]<class From>(std::type_identity<From>) {
    if constexpr (std::is_same_v<From, To>) {
      return CastAs<To, From>(tensor, options);  // index and i64
    } else if constexpr (kIsNarrow<From> && !std::is_same_v<To, WideOf<From>>) {
      return Cast(CastAs<WideOf<From>, From>(tensor, options), ElementTypeOf<To>, options);
    } else if constexpr (kIsNarrow<To> && !std::is_same_v<From, BeforeNarrow<To, From>> &&
                         !std::is_same_v<From, WideOf<To>>) {
      using Between = BeforeNarrow<To, From>;
      return Cast(CastAs<Between, From>(tensor, options), ElementTypeOf<To>, options);
    } else {
      return CastAs<To, From>(tensor, options);
    }
  });
}

template <class To>
std::vector<To> ReadAs(const Tensor& tensor, const char* expected) {
  std::vector<To> out;
  out.reserve(static_cast<size_t>(tensor.num_elements()));
  VisitElementType(tensor.element_type(), [&]<class From>(std::type_identity<From>) {
    if constexpr (kIsString<From> || kIsComplex<From>) {
      internal::BadElementType(tensor.element_type(), expected);
    } else {
      for (const From& value : Elements<From>(tensor)) out.push_back(Convert<To>(value, {}));
    }
  });
  return out;
}

}  // namespace

Tensor Cast(const Tensor& tensor, ElementType type, const CastOptions& options) {
  if (tensor.element_type() == type) return tensor;
  Tensor result = VisitElementType(
      type, [&]<class To>(std::type_identity<To>) { return CastTo<To>(tensor, options); });
  return type == ElementType::kIndex ? result.Reinterpreted(type) : result;
}

std::vector<int64_t> ToInt64s(const Tensor& tensor) {
  return ReadAs<int64_t>(tensor, "a real number");
}

std::vector<double> ToDoubles(const Tensor& tensor) {
  return ReadAs<double>(tensor, "a real number");
}

}  // namespace lathe
