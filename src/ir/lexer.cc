#include "src/ir/lexer.h"

#include <algorithm>
#include <cstring>

#include "lathe/support/text.h"

namespace lathe {

namespace {

// Longer lines are shown in part.
constexpr size_t kShownBefore = 100;
constexpr size_t kShownAfter = 60;

const char* FindNewline(const char* from, const char* to) {
  if (from == to) return nullptr;
  return static_cast<const char*>(std::memchr(from, '\n', static_cast<size_t>(to - from)));
}

// One column per byte, so that the caret stands where it should.
std::string Shown(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '\t') c = ' ';
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  }
  return out;
}

}  // namespace

void Lexer::SkipLine() {
  const char* newline = FindNewline(at_, end_);
  at_ = newline == nullptr ? end_ : newline;
}

bool Lexer::TryConsume(std::string_view token) {
  SkipSpace();
  if (!rest().starts_with(token)) return false;
  at_ += token.size();
  return true;
}

void Lexer::Expect(char c) {
  if (!TryConsume(c)) Expected(StrCat("'", c, "'"));
}

void Lexer::Expect(std::string_view token) {
  if (!TryConsume(token)) Expected(StrCat("'", token, "'"));
}

std::string_view Lexer::TryIdentifier() {
  const char c = Peek();
  const bool starts = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return starts ? NameHere() : std::string_view();
}

std::string_view Lexer::TryNumber() {
  SkipSpace();
  const char* p = at_;
  auto digits = [&] {
    const char* start = p;
    while (p != end_ && IsDigit(*p)) ++p;
    return p != start;
  };
  if (p != end_ && *p == '-') ++p;
  if (!digits()) return {};
  if (p != end_ && *p == '.') {
    ++p;
    digits();
  }
  if (p != end_ && (*p == 'e' || *p == 'E')) {
    const char* before = p++;
    if (p != end_ && (*p == '-' || *p == '+')) ++p;
    if (!digits()) p = before;
  }
  const std::string_view text(at_, static_cast<size_t>(p - at_));
  at_ = p;
  return text;
}

std::string Lexer::ParseString() {
  if (Peek() != '"') Expected("a string");
  const char* open = at_;
  const char* p = open + 1;
  bool escapes = false;
  while (p != end_ && *p != '"' && *p != '\n') {
    if (*p == '\\') {
      escapes = true;
      if (++p == end_) break;
    }
    ++p;
  }
  if (p == end_ || *p != '"') {
    throw ErrorAt(open, static_cast<size_t>(p - open), "parse/string",
                  "the string does not end on its line");
  }
  at_ = p + 1;
  const std::string_view inside(open + 1, static_cast<size_t>(p - open - 1));
  if (!escapes) return std::string(inside);
  if (auto text = Unescape(inside)) return std::move(*text);
  throw ErrorAt(open, inside.size() + 2, "parse/string", "malformed escape in a string")
      .Hint("escapes are \\\" \\\\ \\n \\t \\r and \\XX with two hexadecimal digits");
}

int64_t Lexer::ParseInt() {
  SkipSpace();
  const char* start = at_;
  const std::string_view text = TryNumber();
  if (text.empty()) Expected("an integer");
  if (auto value = lathe::ParseInt(text)) return *value;
  const bool is_int = text.find_first_of(".eE") == std::string_view::npos;
  throw ErrorAt(start, text.size(), "parse/number",
                is_int ? "the integer does not fit 64 bits" : "expected an integer");
}

Lexer::Position Lexer::PositionOf(const char* where) {
  if (where < counted_) {
    counted_ = line_start_ = begin_;
    line_ = 1;
  }
  while (const char* newline = FindNewline(counted_, where)) {
    ++line_;
    counted_ = line_start_ = newline + 1;
  }
  counted_ = where;
  return {line_, static_cast<uint32_t>(std::min<size_t>(where - line_start_ + 1, UINT32_MAX))};
}

const char* Lexer::LineEnd(const char* where) const {
  const char* newline = FindNewline(where, end_);
  return newline == nullptr ? end_ : newline;
}

std::string Lexer::Describe(const char* where) const {
  if (where == end_) return "the end of the text";
  const char* p = where;
  while (p != end_ && p - where < 40 && IsNameCharacter(*p)) ++p;
  if (p == where) ++p;
  if (*where == '%' || *where == '^') {
    while (p != end_ && p - where < 40 && IsNameCharacter(*p)) ++p;
  }
  if (*where == '\n') return "the end of the line";
  return Quote({where, static_cast<size_t>(p - where)});
}

std::string Lexer::PlaceText(const char* where) {
  const Position position = PositionOf(where);
  return StrCat(file_, ":", position.line, ":", position.column);
}

Error Lexer::Placed(Error error, const char* where, size_t length) {
  if (!error.where().empty()) return error;
  error.At(PlaceText(where));
  const Position position = PositionOf(where);
  const size_t before = std::min<size_t>(position.column - 1, kShownBefore);
  const auto after = std::min<size_t>(LineEnd(where) - where, std::max(length, kShownAfter));
  const std::string number = std::to_string(position.line);
  error.Note(StrCat(number, " | ", Shown({where - before, before + after})));
  const size_t marks = std::clamp<size_t>(length, 1, std::max<size_t>(after, 1));
  error.Note(StrCat(std::string(number.size(), ' '), " | ", std::string(before, ' '),
                    std::string(marks, '^')));
  return error;
}

Error Lexer::ErrorAt(const char* where, size_t length, std::string id, std::string message) {
  return Placed(Error(ErrorCode::kParse, std::move(id), std::move(message)), where, length);
}

void Lexer::Expected(std::string_view what) {
  SkipSpace();
  throw ErrorAt(at_, 1, "parse/syntax", StrCat("expected ", what, ", found ", Describe(at_)));
}

}  // namespace lathe
