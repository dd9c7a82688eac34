#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace lathe {

// Appends the shortest decimal text that reads back as exactly `value`; always recognizable as a
// float ("1.0", "-0.0", "1e+30"); "inf", "-inf" and "nan" for the rest.
void AppendDouble(std::string& out, double value);
void AppendFloat(std::string& out, float value);
void AppendInt(std::string& out, int64_t value);
void AppendUint(std::string& out, uint64_t value);

// Whole-string readers: nothing before, nothing after, nullopt when malformed. An optional sign. An
// integer out of range is malformed, a float out of range becomes infinite or zero. ParseDouble
// rounds correctly and takes inf, infinity and nan in any case.
[[nodiscard]] std::optional<int64_t> ParseInt(std::string_view text);
[[nodiscard]] std::optional<uint64_t> ParseUint(std::string_view text);
[[nodiscard]] std::optional<double> ParseDouble(std::string_view text);

// `text` between double quotes. Escapes: \" \\ \n \t \r, and \XX (two hex digits) for other control
// bytes and for bytes that are not valid UTF-8, so any byte string survives the round trip.
void AppendQuoted(std::string& out, std::string_view text);
[[nodiscard]] std::string Quote(std::string_view text);

// The inverse of what stands between the quotes; nullopt on a malformed escape.
[[nodiscard]] std::optional<std::string> Unescape(std::string_view text);

[[nodiscard]] bool IsValidUtf8(std::string_view text);
// Length in bytes (1..4) of the valid UTF-8 sequence at the start of `text`, 0 if there is none.
[[nodiscard]] size_t Utf8SequenceLength(std::string_view text);
[[nodiscard]] uint32_t DecodeUtf8(std::string_view sequence);
void AppendUtf8(std::string& out, uint32_t code_point);

// True for [A-Za-z_][A-Za-z0-9_$.-]*, the names that the text form writes without quotes.
[[nodiscard]] bool IsBareIdentifier(std::string_view text);

// "1.5 GiB", "512 B".
[[nodiscard]] std::string HumanBytes(uint64_t bytes);

// One argument of StrCat: text, a character, an integer, a bool or a float, turned into text.
class StrPiece {
 public:
  StrPiece(std::string_view text) : text_(text) {}                           // NOLINT: implicit
  StrPiece(const std::string& text) : text_(text) {}                         // NOLINT
  StrPiece(const char* text) : text_(text) {}                                // NOLINT
  StrPiece(bool value) : text_(value ? "true" : "false") {}                  // NOLINT
  StrPiece(char c) : text_(buffer_, 1) { buffer_[0] = c; }                   // NOLINT
  StrPiece(int value) { Set(static_cast<int64_t>(value)); }                  // NOLINT
  StrPiece(unsigned value) { Set(static_cast<uint64_t>(value)); }            // NOLINT
  StrPiece(long value) { Set(static_cast<int64_t>(value)); }                 // NOLINT
  StrPiece(long long value) { Set(static_cast<int64_t>(value)); }            // NOLINT
  StrPiece(unsigned long value) { Set(static_cast<uint64_t>(value)); }       // NOLINT
  StrPiece(unsigned long long value) { Set(static_cast<uint64_t>(value)); }  // NOLINT
  StrPiece(double value) { Set(value); }                                     // NOLINT
  StrPiece(const StrPiece&) = delete;
  StrPiece& operator=(const StrPiece&) = delete;

  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  void Set(int64_t value);
  void Set(uint64_t value);
  void Set(double value);

  std::string_view text_;
  char buffer_[40];
};

[[nodiscard]] std::string Concatenate(std::initializer_list<std::string_view> pieces);

// Everything, one after the other.
template <class... Args>
[[nodiscard]] std::string StrCat(const Args&... args) {
  return Concatenate({StrPiece(args).text()...});
}

}  // namespace lathe
