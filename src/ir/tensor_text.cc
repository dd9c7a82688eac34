#include <charconv>
#include <cmath>
#include <limits>

#include "lathe/support/text.h"
#include "src/ir/text_parser.h"

namespace lathe {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

struct IntRange {
  int64_t min;
  int64_t max;
};

IntRange RangeOf(ElementType element) {
  const int bits = BitWidth(element);
  if (!IsSigned(element)) return {0, (int64_t{1} << bits) - 1};
  const int64_t half = bits == 64 ? 0 : int64_t{1} << (bits - 1);
  if (bits == 64) return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  return {-half, half - 1};
}

// Bytes that a tensor of this type cannot hold: a bool that is not 0 or 1, or set padding bits.
bool BadBytes(ElementType element, int64_t count, const std::vector<std::byte>& bytes) {
  if (element == ElementType::kBool) {
    for (const std::byte b : bytes) {
      if (static_cast<uint8_t>(b) > 1) return true;
    }
  }
  if (!IsSubByte(element) || bytes.empty()) return false;
  const int used = static_cast<int>(static_cast<uint64_t>(count) * BitWidth(element) % 8);
  return used != 0 && (static_cast<uint8_t>(bytes.back()) >> used) != 0;
}

}  // namespace

Attribute TextParser::TensorValue(Type type, const char* at) {
  const auto tensor = type.cast<AnyTensorType>();
  const auto extents = tensor.shape().Constants();
  auto fail = [&](std::string message) {
    return lexer_.ErrorAt(at, static_cast<size_t>(lexer_.at() - at), "parse/tensor",
                          std::move(message));
  };
  if (!extents) throw fail("a dense tensor needs a known shape");
  if (tensor.element() == ElementType::kUndefined) throw fail("a dense tensor needs a known type");
  for (const int64_t extent : *extents) {
    if (extent < 0) throw fail("a dense tensor has no negative extents");
  }
  const bool listed = lexer_.Peek() == '[';
  const Tensor value = Placing(at, [&] {
    return listed ? ListedTensor(tensor.element(), *extents, at)
                  : HexTensor(tensor.element(), *extents, at);
  });
  return TensorAttribute::Get(context_, value);
}

double TextParser::ParseFloat() {
  if (lexer_.TryConsume("-inf")) return -std::numeric_limits<double>::infinity();
  if (lexer_.TryConsume("inf")) return std::numeric_limits<double>::infinity();
  if (lexer_.TryConsume("nan")) return NanOf().cast<FloatAttribute>().value();
  return ParseFinite();
}

double TextParser::ParseFinite() {
  lexer_.SkipSpace();
  const char* start = lexer_.at();
  const std::string_view text = lexer_.TryNumber();
  if (text.empty()) lexer_.Expected("a number");
  if (const auto value = ParseDouble(text); value && std::isfinite(*value)) return *value;
  throw lexer_.ErrorAt(start, text.size(), "parse/number", "the number does not fit a double");
}

float TextParser::ParseFloat32() {
  lexer_.SkipSpace();
  const std::string_view text = lexer_.TryNumber();
  if (text.empty()) lexer_.Expected("a number");
  float value = 0;
  const auto [to, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && to == text.data() + text.size()) return value;
  throw lexer_.ErrorAt(text.data(), text.size(), "parse/number", "the number does not fit a float");
}

namespace {

void CheckCount(Lexer& lexer, const char* at, const Shape& shape, size_t found) {
  const int64_t wanted = NumElements(shape);
  if (static_cast<uint64_t>(wanted) == found) return;
  throw lexer.ErrorAt(at, static_cast<size_t>(lexer.at() - at), "parse/tensor",
                      StrCat("a tensor of shape ", ShapeToString(shape), " has ", wanted,
                             " elements, ", found, " are listed"));
}

}  // namespace

Tensor TextParser::ListedTensor(ElementType element, Shape shape, const char* at) {
  auto listed = [&]<class T>(std::vector<T>& values, auto&& read) {
    ParseList('[', ']', [&] { values.push_back(read()); });
    CheckCount(lexer_, at, shape, values.size());
    return Tensor::Of<T>(shape, values);
  };
  if (element == ElementType::kString) {
    std::vector<std::string> values;
    return listed(values, [&] { return lexer_.ParseString(); });
  }
  if (element == ElementType::kBool) {
    std::vector<bool> values;
    return listed(values, [&] {
      const bool value = lexer_.TryConsume("true");
      if (!value && !lexer_.TryConsume("false")) lexer_.Expected("true or false");
      return value;
    });
  }
  if (element == ElementType::kU64) {
    std::vector<uint64_t> values;
    return listed(values, [&] {
      lexer_.SkipSpace();
      const std::string_view text = lexer_.TryNumber();
      const auto value = ParseUint(text);
      if (!value) lexer_.Expected("an integer from 0 to 18446744073709551615 before this");
      return *value;
    });
  }
  if (IsInteger(element)) {
    const IntRange range = RangeOf(element);
    std::vector<int64_t> values;
    const Tensor wide = listed(values, [&] {
      const int64_t value = lexer_.ParseInt();
      if (value >= range.min && value <= range.max) return value;
      throw lexer_.ErrorAt(lexer_.at() - 1, 1, "parse/number",
                           StrCat(value, " does not fit ", Name(element)));
    });
    if (element == ElementType::kIndex) return wide.Reinterpreted(element);
    return Cast(wide, element);
  }
  if (element == ElementType::kF64) {
    std::vector<double> values;
    return listed(values, [&] { return ParseFinite(); });
  }
  if (IsFloat(element)) {
    std::vector<float> values;
    return Cast(listed(values, [&] { return ParseFloat32(); }), element);
  }
  lexer_.Expected(StrCat("hex \"...\": elements of type ", Name(element), " are given as bytes"));
}

Tensor TextParser::HexTensor(ElementType element, Shape shape, const char* at) {
  lexer_.Expect("hex");
  const std::string text = lexer_.ParseString();
  auto fail = [&](std::string message) {
    return lexer_.ErrorAt(at, static_cast<size_t>(lexer_.at() - at), "parse/tensor",
                          std::move(message));
  };
  std::vector<std::byte> bytes(text.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) throw fail("the bytes are not hexadecimal digits");
    bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  if (element == ElementType::kString) throw fail("strings are listed, not given as bytes");
  const int64_t count = NumElements(shape);
  constexpr int64_t kMaxCount = int64_t{1} << 48;
  if (count > kMaxCount || text.size() % 2 != 0 ||
      bytes.size() != StorageBytes(element, static_cast<size_t>(count))) {
    throw fail(StrCat("a ", Name(element), " tensor of shape ", ShapeToString(shape),
                      " does not have ", bytes.size(), " bytes"));
  }
  if (BadBytes(element, count, bytes)) throw fail(StrCat("these bytes hold no ", Name(element)));
  return Tensor::FromBytes(element, std::move(shape), bytes);
}

}  // namespace lathe
