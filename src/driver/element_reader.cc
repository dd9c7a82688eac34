#include "src/driver/element_reader.h"

#include <cmath>
#include <optional>

#include "lathe/support/error.h"

namespace lathe {
namespace {

Error ValueError(std::string message) {
  return {ErrorCode::kInvalidArgument, "run/input-value", std::move(message)};
}

bool IsUnsigned(ElementType type) { return Name(type).starts_with("u"); }

// Also of a number that is written as a float, "1e3" or "2.0".
std::optional<int64_t> WholeNumber(std::string_view text) {
  if (const auto integer = ParseInt(text)) return integer;
  constexpr double kExact = 9007199254740992;  // 2^53
  const auto number = ParseDouble(text);
  if (!number || std::trunc(*number) != *number || std::fabs(*number) > kExact) return {};
  return static_cast<int64_t>(*number);
}

// Of a type of fewer bits than 64.
bool Fits(int64_t value, ElementType type) {
  const int bits = BitWidth(type);
  if (IsUnsigned(type)) return value >= 0 && value >> bits == 0;
  const int64_t half = int64_t{1} << (bits - 1);
  return -half <= value && value < half;
}

}  // namespace

ElementReader::ElementReader(ElementType type) : type_(type) {
  if (IsComplex(type)) {
    throw ValueError(StrCat("text for elements of type ", Name(type), " is not read"))
        .Hint("give a .npy file");
  }
}

void ElementReader::Add(std::string_view text) {
  ++size_;
  if (type_ == ElementType::kString) {
    strings_.emplace_back(text);
  } else if (type_ == ElementType::kBool) {
    AddBool(text);
  } else if (IsInteger(type_)) {
    AddInteger(text);
  } else if (const auto number = ParseDouble(text)) {
    numbers_.push_back(*number);
  } else {
    throw ValueError(StrCat(Quote(text), " is not a number"));
  }
}

void ElementReader::AddInteger(std::string_view text) {
  const auto large = type_ == ElementType::kU64 ? ParseUint(text) : std::nullopt;
  const auto value = large ? std::optional(static_cast<int64_t>(*large)) : WholeNumber(text);
  if (!value) throw ValueError(StrCat(Quote(text), " is not an integer of 64 bits"));
  const bool fits =
      BitWidth(type_) < 64 ? Fits(*value, type_) : large || !IsUnsigned(type_) || *value >= 0;
  if (!fits) throw ValueError(StrCat(text, " does not fit ", Name(type_)));
  integers_.push_back(*value);
}

void ElementReader::AddBool(std::string_view text) {
  const bool is_true = text == "true" || text == "True" || text == "1";
  if (!is_true && text != "false" && text != "False" && text != "0") {
    throw ValueError(StrCat(Quote(text), " is not true or false"));
  }
  integers_.push_back(is_true ? 1 : 0);
}

Tensor ElementReader::Finish(Shape shape) && {
  if (type_ == ElementType::kString) return Tensor::Of<std::string>(std::move(shape), strings_);
  if (type_ == ElementType::kBool || IsInteger(type_)) {
    return Cast(Tensor::Of<int64_t>(std::move(shape), integers_), type_);
  }
  return Cast(Tensor::Of<double>(std::move(shape), numbers_), type_);
}

}  // namespace lathe
