#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lathe/support/error.h"

namespace lathe {

/// Characters of bare identifiers and value names: [A-Za-z0-9_$.-].
constexpr std::array<bool, 256> MakeNameCharacters() {
  std::array<bool, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[c] = table[c - 'a' + 'A'] = true;
  for (int c = '0'; c <= '9'; ++c) table[c] = true;
  for (const char c : {'_', '$', '.', '-'}) table[static_cast<unsigned char>(c)] = true;
  return table;
}
inline constexpr std::array<bool, 256> kNameCharacters = MakeNameCharacters();
inline bool IsNameCharacter(char c) { return kNameCharacters[static_cast<unsigned char>(c)]; }
inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// A position in a text, and errors that show it. Holds a view of the text.
class Lexer {
 public:
  Lexer(std::string_view text, std::string file)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), file_(std::move(file)) {
    counted_ = line_start_ = begin_;
  }

  const char* at() const { return at_; }
  const char* end() const { return end_; }
  std::string_view rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }
  const std::string& file() const { return file_; }
  void Seek(const char* at) { at_ = at; }

  /// Skips white space and `//` comments; false at the end of the text.
  bool SkipSpace() {
    while (at_ != end_) {
      const char c = *at_;
      if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '/' && end_ - at_ > 1 && at_[1] == '/') {
        SkipLine();
      } else {
        return true;
      }
    }
    return false;
  }
  void SkipLine();
  /// The character after white space, or NUL at the end (see SkipSpace for telling it from a NUL).
  char Peek() { return SkipSpace() ? *at_ : '\0'; }
  bool TryConsume(char c) {
    if (Peek() != c || at_ == end_) return false;
    ++at_;
    return true;
  }
  bool TryConsume(std::string_view token);
  void Expect(char c);
  void Expect(std::string_view token);
  /// A bare identifier, or an empty view.
  std::string_view TryIdentifier();
  /// A run of name characters right here; a final `-` before `>` is not one.
  std::string_view NameHere() {
    const char* start = at_;
    while (at_ != end_ && IsNameCharacter(*at_)) {
      if (*at_ == '-' && end_ - at_ > 1 && at_[1] == '>') break;
      ++at_;
    }
    return {start, static_cast<size_t>(at_ - start)};
  }
  /// The text of a number: digits with an optional sign, fraction and exponent. Empty if none.
  std::string_view TryNumber();
  /// A string in quotes, unescaped.
  std::string ParseString();
  int64_t ParseInt();

  /// Line and column of `where`, from 1. Amortized O(1) for increasing positions.
  struct Position {
    uint32_t line;
    uint32_t column;
  };
  Position PositionOf(const char* where);

  // ---- errors ----
  /// What stands at `where`, for "found ...".
  std::string Describe(const char* where) const;
  /// An error at `where` that shows its line with `length` characters marked.
  Error ErrorAt(const char* where, size_t length, std::string id, std::string message);
  [[noreturn]] void Expected(std::string_view what);
  /// Adds the place to an error that has none.
  Error Placed(Error error, const char* where, size_t length);
  /// `file:line:column`.
  std::string PlaceText(const char* where);

 private:
  const char* LineEnd(const char* where) const;

  const char* begin_;
  const char* at_;
  const char* end_;
  std::string file_;
  const char* counted_;     // lines are counted up to here
  const char* line_start_;  // of the line that holds `counted_`
  uint32_t line_ = 1;
};

}  // namespace lathe
