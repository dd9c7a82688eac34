#include "lathe/support/text.h"

#include <locale.h>
#include <stdlib.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "lathe/support/printable.h"

namespace lathe {
namespace {

template <class T>
void AppendShortest(std::string& out, T value) {
  std::array<char, 64> buffer;
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  const std::string_view digits(buffer.data(), static_cast<size_t>(end - buffer.data()));
  out += digits;
  if (digits.find_first_of(".en") == std::string_view::npos) out += ".0";
}

template <class T>
void AppendDigits(std::string& out, T value) {
  std::array<char, 24> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  out.append(buffer.data(), end);
}

template <class T>
std::optional<T> ParseWhole(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// from_chars does not say whether a number out of range is huge or tiny.
double ParseOutOfRange(const std::string& text) {
  locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  const double value = strtod_l(text.c_str(), nullptr, c_locale);
  freelocale(c_locale);
  return value;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

char SimpleEscape(char c) {
  switch (c) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\n':
      return 'n';
    case '\t':
      return 't';
    case '\r':
      return 'r';
    default:
      return 0;
  }
}

char SimpleUnescape(char c) {
  switch (c) {
    case '"':
    case '\\':
      return c;
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    default:
      return 0;
  }
}

void AppendHexEscape(std::string& out, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  out += '\\';
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15];
}

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

void AppendDouble(std::string& out, double value) { AppendShortest(out, value); }
void AppendFloat(std::string& out, float value) { AppendShortest(out, value); }
void AppendInt(std::string& out, int64_t value) { AppendDigits(out, value); }
void AppendUint(std::string& out, uint64_t value) { AppendDigits(out, value); }

std::optional<int64_t> ParseInt(std::string_view text) { return ParseWhole<int64_t>(text); }
std::optional<uint64_t> ParseUint(std::string_view text) { return ParseWhole<uint64_t>(text); }

std::optional<double> ParseDouble(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  if (text.find('(') != std::string_view::npos) return std::nullopt;  // nan(payload)
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return ParseOutOfRange(std::string(text));
  if (error != std::errc{}) return std::nullopt;
  return value;
}

void AppendQuoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    size_t length = 1;
    if (const char escape = SimpleEscape(text[0]); escape != 0) {
      out += '\\';
      out += escape;
    } else if (byte < 0x20 || byte == 0x7F) {
      AppendHexEscape(out, byte);
    } else if (length = Utf8SequenceLength(text); length == 0) {
      AppendHexEscape(out, byte);
      length = 1;
    } else if (length > 1 && IsControl(DecodeUtf8(text))) {
      for (const char c : text.substr(0, length)) {
        AppendHexEscape(out, static_cast<unsigned char>(c));
      }
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  out += '"';
}

std::string Quote(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  AppendQuoted(out, text);
  return out;
}

std::optional<std::string> Unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (i + 1 >= text.size()) return std::nullopt;
    if (const char plain = SimpleUnescape(text[i + 1]); plain != 0) {
      out += plain;
      i += 1;
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

size_t Utf8SequenceLength(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF5 ? 0 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(text[i])) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool too_large = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

uint32_t DecodeUtf8(std::string_view sequence) {
  const size_t length = Utf8SequenceLength(sequence);
  if (length == 0) return 0xFFFD;
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (length == 1) return first;
  uint32_t code = first & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    code = (code << 6) | (static_cast<unsigned char>(sequence[i]) & 0x3F);
  }
  return code;
}

void AppendUtf8(std::string& out, uint32_t code_point) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) code_point = 0xFFFD;
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
    return;
  }
  const int extra = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  const uint32_t lead = (0xFF00U >> (extra + 1)) & 0xFF;
  out += static_cast<char>(lead | (code_point >> (6 * extra)));
  for (int i = extra - 1; i >= 0; --i) {
    out += static_cast<char>(0x80 | ((code_point >> (6 * i)) & 0x3F));
  }
}

bool IsBareIdentifier(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (text.empty() || !is_letter(text[0])) return false;
  for (const char c : text) {
    const bool other = (c >= '0' && c <= '9') || c == '$' || c == '.' || c == '-';
    if (!is_letter(c) && !other) return false;
  }
  return true;
}

std::string HumanBytes(uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> buffer;
  const int precision = unit == 0 || value >= 100 ? 0 : 1;
  std::snprintf(buffer.data(), buffer.size(), "%.*f %s", precision, value, kUnits[unit]);
  return buffer.data();
}

void StrPiece::Set(int64_t value) {
  const auto result = std::to_chars(buffer_, buffer_ + sizeof(buffer_), value);
  text_ = std::string_view(buffer_, static_cast<size_t>(result.ptr - buffer_));
}

void StrPiece::Set(uint64_t value) {
  const auto result = std::to_chars(buffer_, buffer_ + sizeof(buffer_), value);
  text_ = std::string_view(buffer_, static_cast<size_t>(result.ptr - buffer_));
}

void StrPiece::Set(double value) {
  std::string text;
  AppendDouble(text, value);
  text.copy(buffer_, sizeof(buffer_));
  text_ = std::string_view(buffer_, text.size());
}

std::string Concatenate(std::initializer_list<std::string_view> pieces) {
  size_t size = 0;
  for (const auto& piece : pieces) size += piece.size();
  std::string out;
  out.reserve(size);
  for (const auto& piece : pieces) out += piece;
  return out;
}

}  // namespace lathe
