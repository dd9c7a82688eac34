#include "src/dialect/nn/regex_parse.h"

#include <algorithm>
#include <optional>
#include <string>

#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe::nn {

bool IsWordCharacter(uint32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

uint32_t NextCodePoint(std::string_view& text) {
  const size_t length = Utf8SequenceLength(text);
  const uint32_t result = length == 0 ? kMaxCodePoint + 1 + static_cast<unsigned char>(text[0])
                                      : DecodeUtf8(text.substr(0, length));
  text.remove_prefix(std::max<size_t>(length, 1));
  return result;
}

namespace {

using Ranges = Regex::Ranges;

constexpr int kMaxNesting = 200;
constexpr int kMaxRepeat = 1000;

Ranges Normalized(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges result;
  for (const auto& [first, last] : ranges) {
    if (!result.empty() && first <= result.back().second + 1) {
      result.back().second = std::max(result.back().second, last);
    } else {
      result.emplace_back(first, last);
    }
  }
  return result;
}

Ranges Complement(const Ranges& ranges) {
  Ranges result;
  uint32_t next = 0;
  for (const auto& [first, last] : Normalized(ranges)) {
    if (first > next) result.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kMaxCodePoint) result.emplace_back(next, kMaxCodePoint);
  return result;
}

// Adds the other case of the ASCII letters.
Ranges FoldCase(Ranges ranges) {
  const size_t count = ranges.size();
  for (size_t i = 0; i < count; ++i) {
    const auto [first, last] = ranges[i];
    for (const auto& [low, high, shift] :
         {std::tuple<uint32_t, uint32_t, int>{'a', 'z', -32}, {'A', 'Z', 32}}) {
      const uint32_t from = std::max(first, low);
      const uint32_t to = std::min(last, high);
      if (from <= to)
        ranges.emplace_back(from + static_cast<uint32_t>(shift), to + static_cast<uint32_t>(shift));
    }
  }
  return Normalized(std::move(ranges));
}

Ranges ClassOf(char escape) {
  switch (escape | 0x20) {
    case 'd':
      return {{'0', '9'}};
    case 'w':
      return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    default:
      return {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
  }
}

struct NamedClass {
  std::string_view name;
  Ranges ranges;
};

const std::vector<NamedClass>& NamedClasses() {
  static const std::vector<NamedClass> classes = {
      {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
      {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
      {"ascii", {{0, 0x7F}}},
      {"blank", {{'\t', '\t'}, {' ', ' '}}},
      {"cntrl", {{0, 0x1F}, {0x7F, 0x7F}}},
      {"digit", {{'0', '9'}}},
      {"graph", {{'!', '~'}}},
      {"lower", {{'a', 'z'}}},
      {"print", {{' ', '~'}}},
      {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {"space", {{'\t', '\r'}, {' ', ' '}}},
      {"upper", {{'A', 'Z'}}},
      {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
      {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
  };
  return classes;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern), rest_(pattern) {}

  RegexNode Parse() {
    RegexNode node = Choice();
    if (!rest_.empty()) Fail("unmatched ')'");
    return node;
  }

 private:
  struct Flags {
    bool ignore_case = false, dot_all = false, multi_line = false;
  };

  [[noreturn]] void Fail(std::string_view message) const {
    throw Error(ErrorCode::kInvalidArgument, "run/regex",
                StrCat("pattern ", Quote(pattern_), ": ", message, " at byte ",
                       pattern_.size() - rest_.size()))
        .Hint("patterns follow https://github.com/google/re2/wiki/Syntax");
  }

  bool Accept(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  char Next() {
    if (rest_.empty()) Fail("the pattern ends too early");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  uint32_t NextPoint() {
    if (rest_.empty()) Fail("the pattern ends too early");
    return NextCodePoint(rest_);
  }

  RegexNode SetNode(Ranges ranges) const {
    RegexNode node;
    node.kind = RegexNode::Kind::kSet;
    node.ranges = flags_.ignore_case ? FoldCase(std::move(ranges)) : Normalized(std::move(ranges));
    return node;
  }
  static RegexNode AssertNode(uint32_t assertion) {
    RegexNode node;
    node.kind = RegexNode::Kind::kAssert;
    node.assertion = assertion;
    return node;
  }

  RegexNode Choice() {
    RegexNode choice;
    choice.kind = RegexNode::Kind::kChoice;
    do {
      choice.parts.push_back(Sequence());
    } while (Accept("|"));
    return choice;
  }

  RegexNode Sequence() {
    RegexNode sequence;
    sequence.kind = RegexNode::Kind::kSequence;
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      if (Accept("\\Q")) {
        Quoted(sequence);
        continue;
      }
      RegexNode atom = Atom();
      while (Repetition(atom)) {
      }
      sequence.parts.push_back(std::move(atom));
    }
    return sequence;
  }

  void Quoted(RegexNode& sequence) {
    while (!rest_.empty() && !Accept("\\E")) {
      const uint32_t c = NextPoint();
      sequence.parts.push_back(SetNode({{c, c}}));
    }
  }

  // Wraps `atom` if a repetition follows it.
  bool Repetition(RegexNode& atom) {
    int min = 0;
    int max = -1;
    if (Accept("+")) {
      min = 1;
    } else if (Accept("?")) {
      max = 1;
    } else if (!Accept("*") && !Counts(min, max)) {
      return false;
    }
    Accept("?");  // lazy: the same whole texts
    RegexNode repeat;
    repeat.kind = RegexNode::Kind::kRepeat;
    repeat.min = min;
    repeat.max = max;
    if (++repeats_ > kMaxRepeat) Fail("too many repetitions");
    if (++stacked_ > kMaxNesting) Fail("repetitions are stacked too deep");
    repeat.parts.push_back(std::move(atom));
    atom = std::move(repeat);
    return true;
  }

  std::optional<int> Number() {
    int value = 0;
    size_t digits = 0;
    while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') {
      value = std::min(value * 10 + (rest_[digits++] - '0'), kMaxRepeat + 1);
    }
    rest_.remove_prefix(digits);
    return digits == 0 ? std::nullopt : std::optional<int>(value);
  }

  // {n}, {n,} or {n,m}; anything else behind '{' stands for itself.
  bool Counts(int& min, int& max) {
    const std::string_view before = rest_;
    if (!Accept("{")) return false;
    const auto low = Number();
    std::optional<int> high = low;
    if (low && Accept(",")) high = Number().value_or(-1);
    if (!low || !Accept("}")) {
      rest_ = before;
      return false;
    }
    if (*low > kMaxRepeat || *high > kMaxRepeat || (*high >= 0 && *high < *low)) {
      Fail("a repetition count is out of range");
    }
    min = *low;
    max = *high;
    return true;
  }

  RegexNode Atom() {
    stacked_ = 0;
    if (Accept("(")) return Group();
    if (Accept("[")) return SetNode(Class());
    if (Accept("\\")) return Escape();
    if (Accept("^")) return AssertNode(flags_.multi_line ? Regex::kLineBegin : Regex::kTextBegin);
    if (Accept("$")) return AssertNode(flags_.multi_line ? Regex::kLineEnd : Regex::kTextEnd);
    if (Accept(".")) {
      return SetNode(flags_.dot_all ? Ranges{{0, kMaxCodePoint}} : Complement({{'\n', '\n'}}));
    }
    if (rest_.front() == '*' || rest_.front() == '+' || rest_.front() == '?') {
      Fail("nothing to repeat");
    }
    const uint32_t c = NextPoint();
    return SetNode({{c, c}});
  }

  RegexNode Group() {
    if (++nesting_ > kMaxNesting) Fail("groups are nested too deep");
    const Flags outer = flags_;
    if (Accept("?P<") || Accept("?<")) {
      while (Next() != '>') {
      }
    } else if (Accept("?") && !FlagGroup()) {
      --nesting_;
      return {};  // (?flags) holds until the enclosing group ends
    }
    RegexNode node = Choice();
    if (!Accept(")")) Fail("missing ')'");
    flags_ = outer;
    --nesting_;
    return node;
  }

  // Behind "(?": flags up to ':' (true) or ')' (false).
  bool FlagGroup() {
    bool value = true;
    for (;;) {
      const char c = Next();
      if (c == ':') return true;
      if (c == ')') return false;
      if (c == '-') {
        value = false;
      } else if (c == 'i') {
        flags_.ignore_case = value;
      } else if (c == 's') {
        flags_.dot_all = value;
      } else if (c == 'm') {
        flags_.multi_line = value;
      } else if (c != 'U') {  // swaps greedy and lazy: the same whole texts
        Fail("unknown group or flag");
      }
    }
  }

  RegexNode Escape() {
    const char c = rest_.empty() ? Next() : rest_.front();
    switch (c) {
      case 'A':
        Next();
        return AssertNode(Regex::kTextBegin);
      case 'z':
        Next();
        return AssertNode(Regex::kTextEnd);
      case 'b':
        Next();
        return AssertNode(Regex::kWord);
      case 'B':
        Next();
        return AssertNode(Regex::kNotWord);
      default:
        return SetNode(EscapedSet());
    }
  }

  // A class or a single character behind a backslash.
  Ranges EscapedSet() {
    if (std::string_view("dwsDWS").find(rest_.empty() ? '?' : rest_.front()) !=
        std::string_view::npos) {
      const char c = Next();
      return c >= 'a' ? ClassOf(c) : Complement(ClassOf(c));
    }
    const uint32_t c = EscapedCharacter();
    return {{c, c}};
  }

  uint32_t EscapedCharacter() {
    static constexpr std::string_view kLetters = "afnrtv";
    static constexpr std::string_view kMeanings = "\a\f\n\r\t\v";
    const char c = rest_.empty() ? Next() : rest_.front();
    if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
      Next();
      return static_cast<unsigned char>(kMeanings[at]);
    }
    if (c == 'x') return Hexadecimal();
    if (c == '0') return Octal();
    const auto point = static_cast<unsigned char>(c);
    if (IsWordCharacter(point)) Fail("this escape is not supported");
    return NextPoint();
  }

  uint32_t Hexadecimal() {
    Next();
    uint32_t value = 0;
    if (!Accept("{")) {
      for (int i = 0; i < 2; ++i) value = value * 16 + HexValue();
      return value;
    }
    do {
      value = value * 16 + HexValue();
      if (value > kMaxCodePoint) Fail("a code point is too large");
    } while (!Accept("}"));
    return value;
  }
  uint32_t HexValue() {
    const int digit = HexDigit(Next());
    if (digit < 0) Fail("expected a hexadecimal digit");
    return static_cast<uint32_t>(digit);
  }
  uint32_t Octal() {
    uint32_t value = 0;
    for (int i = 0; i < 3 && !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '7'; ++i) {
      value = value * 8 + static_cast<uint32_t>(Next() - '0');
    }
    return value;
  }

  // Behind '[', up to and with ']'.
  Ranges Class() {
    const bool negated = Accept("^");
    Ranges ranges;
    bool first = true;
    while (first || !Accept("]")) {
      first = false;
      ClassItem(ranges);
    }
    if (!negated) return ranges;
    return Complement(flags_.ignore_case ? FoldCase(std::move(ranges)) : std::move(ranges));
  }

  void ClassItem(Ranges& ranges) {
    if (rest_.starts_with("[:") && PosixClass(ranges)) return;
    Ranges item = ClassMember();
    const bool single = item.size() == 1 && item[0].first == item[0].second;
    if (single && rest_.size() > 1 && rest_.front() == '-' && rest_[1] != ']') {
      Next();
      const Ranges end = ClassMember();
      if (end.size() != 1 || end[0].first != end[0].second || end[0].first < item[0].first) {
        Fail("a range of characters is backwards");
      }
      item[0].second = end[0].first;
    }
    ranges.insert(ranges.end(), item.begin(), item.end());
  }

  Ranges ClassMember() {
    if (Accept("\\")) return EscapedSet();
    const uint32_t c = NextPoint();
    return {{c, c}};
  }

  bool PosixClass(Ranges& ranges) {
    const size_t end = rest_.find(":]");
    if (end == std::string_view::npos) return false;
    std::string_view name = rest_.substr(2, end - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    for (const NamedClass& named : NamedClasses()) {
      if (named.name != name) continue;
      const Ranges members = negated ? Complement(named.ranges) : named.ranges;
      ranges.insert(ranges.end(), members.begin(), members.end());
      rest_.remove_prefix(end + 2);
      return true;
    }
    Fail("unknown class name");
  }

  std::string_view pattern_;
  std::string_view rest_;
  Flags flags_;
  int nesting_ = 0;
  int repeats_ = 0;
  int stacked_ = 0;
};

}  // namespace

RegexNode ParseRegex(std::string_view pattern) { return Parser(pattern).Parse(); }

}  // namespace lathe::nn
