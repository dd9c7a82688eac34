#include <array>
#include <limits>
#include <utility>

#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/support/dim_node.h"

namespace lathe {

using internal::DimKind;
using internal::DimNode;
using internal::DimPoly;
using internal::DimTerm;

namespace {

constexpr int kMaxNesting = 64;

struct Function {
  std::string_view name;
  DimKind kind;
  bool two_operands;
};
constexpr std::array<Function, 6> kFunctions = {{{"floordiv", DimKind::kFloorDiv, true},
                                                 {"ceildiv", DimKind::kCeilDiv, true},
                                                 {"mod", DimKind::kMod, true},
                                                 {"min", DimKind::kMin, false},
                                                 {"max", DimKind::kMax, false},
                                                 {"broadcast", DimKind::kBroadcast, false}}};

const Function* FindFunction(std::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameCharacter(char c) { return IsLetter(c) || IsDigit(c) || c == '.' || c == '$'; }

bool IsBareSymbol(std::string_view name) {
  if (name.empty() || !IsLetter(name[0]) || FindFunction(name) != nullptr) return false;
  for (const char c : name) {
    if (!IsNameCharacter(c)) return false;
  }
  return true;
}

void AppendTerm(std::string& out, const DimTerm& term, int64_t coefficient) {
  if (coefficient == -1) {
    out += '-';
  } else if (coefficient != 1) {
    AppendInt(out, coefficient);
    out += '*';
  }
  for (size_t i = 0; i < term.factors.size(); ++i) {
    if (i > 0) out += '*';
    term.factors[i].AppendTo(out);
  }
}

// " + " or " - " and the absolute value; the smallest integer has none and keeps its sign.
int64_t AppendSign(std::string& out, int64_t value) {
  const bool negate = value < 0 && value != std::numeric_limits<int64_t>::min();
  out += negate ? " - " : " + ";
  return negate ? -value : value;
}

void AppendSum(std::string& out, const DimPoly& sum) {
  bool first = true;
  for (const DimTerm& term : sum.terms) {
    AppendTerm(out, term, first ? term.coefficient : AppendSign(out, term.coefficient));
    first = false;
  }
  if (sum.constant != 0) AppendInt(out, AppendSign(out, sum.constant));
}

// Recursive descent; nesting is bounded.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Dim Sum() {
    if (++nesting_ > kMaxNesting) Fail("the expression is nested too deeply");
    Dim result = Product();
    while (true) {
      const char sign = PeekOperator();
      if (sign != '+' && sign != '-') break;
      Take();
      const Dim operand = Product();
      result = sign == '+' ? result + operand : result - operand;
    }
    --nesting_;
    return result;
  }

  [[nodiscard]] size_t offset() const { return at_; }

  void ExpectEnd() {
    SkipBlank();
    if (at_ != text_.size()) Fail("text after the expression");
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    throw Error(ErrorCode::kParse, "parse/dim",
                StrCat("dimension expression: ", what, " at offset ", at_))
        .Note(StrCat("in ", Quote(text_.substr(0, 200))));
  }

  void SkipBlank() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  [[nodiscard]] char At(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  // The next operator without taking it or the blanks before it; "->" is none.
  [[nodiscard]] char PeekOperator() const {
    size_t i = at_;
    while (At(i) == ' ' || At(i) == '\t' || At(i) == '\n') ++i;
    const char c = At(i);
    if (c == '-' && At(i + 1) == '>') return '\0';
    return c == '+' || c == '-' || c == '*' ? c : '\0';
  }

  char Take() {
    SkipBlank();
    return At(at_) == '\0' && at_ >= text_.size() ? '\0' : text_[at_++];
  }

  void Expect(char wanted) {
    SkipBlank();
    if (At(at_) != wanted || at_ >= text_.size()) Fail(StrCat("'", wanted, "' is missing"));
    ++at_;
  }

  Dim Product() {
    Dim result = Factor();
    while (PeekOperator() == '*') {
      Take();
      result = result * Factor();
    }
    return result;
  }

  Dim Factor() {
    bool negative = false;
    SkipBlank();
    while (At(at_) == '-' && !IsDigit(At(at_ + 1))) {
      ++at_;
      negative = !negative;
      SkipBlank();
    }
    const Dim value = Atom();
    return negative ? Dim(0) - value : value;
  }

  Dim Atom() {
    const char c = At(at_);
    if (c == '?') {
      ++at_;
      return Dim::Unknown();
    }
    if (c == '(') {
      ++at_;
      Dim inner = Sum();
      Expect(')');
      return inner;
    }
    if (c == '"') return QuotedSymbol();
    if (IsDigit(c) || c == '-') return Integer();
    if (IsLetter(c)) return Named();
    Fail("a number, a symbol or '(' is missing");
  }

  Dim Integer() {
    const size_t start = at_++;
    while (IsDigit(At(at_))) ++at_;
    const auto value = ParseInt(text_.substr(start, at_ - start));
    if (!value) {
      at_ = start;
      Fail("the number does not fit into 64 bits");
    }
    return *value;
  }

  Dim QuotedSymbol() {
    const size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) Fail("the closing quote is missing");
    const auto name = Unescape(text_.substr(start, at_ - start));
    if (!name || name->empty()) Fail("the quoted symbol is malformed");
    ++at_;
    return Dim::Symbol(*name);
  }

  Dim Named() {
    const size_t start = at_;
    while (IsNameCharacter(At(at_))) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    const Function* function = FindFunction(name);
    if (function == nullptr) return Dim::Symbol(name);
    Expect('(');
    std::vector<Dim> operands = {Sum()};
    do {
      Expect(',');
      operands.push_back(Sum());
      SkipBlank();
    } while (At(at_) == ',' && !function->two_operands);
    Expect(')');
    return internal::ApplyFunction(function->kind, operands);
  }

  std::string_view text_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

const char* internal::FunctionName(DimKind kind) {
  for (const Function& function : kFunctions) {
    if (function.kind == kind) return function.name.data();
  }
  return "";
}

void Dim::AppendTo(std::string& out) const {
  if (is_unknown()) {
    out += '?';
    return;
  }
  if (is_constant()) return AppendInt(out, value());
  const DimNode* node = DimNode::Of(*this);
  if (node->kind == DimKind::kSum) return AppendSum(out, node->sum);
  if (node->kind == DimKind::kSymbol) {
    if (IsBareSymbol(node->name)) {
      out += node->name;
    } else {
      AppendQuoted(out, node->name);
    }
    return;
  }
  out += internal::FunctionName(node->kind);
  for (size_t i = 0; i < node->operands.size(); ++i) {
    out += i == 0 ? "(" : ", ";
    node->operands[i].AppendTo(out);
  }
  out += ')';
}

std::string Dim::ToString() const {
  std::string out;
  AppendTo(out);
  return out;
}

Dim Dim::Parse(std::string_view text) {
  Parser parser(text);
  Dim result = parser.Sum();
  parser.ExpectEnd();
  return result;
}

Dim Dim::ParsePrefix(std::string_view& text) {
  Parser parser(text);
  Dim result = parser.Sum();
  text.remove_prefix(parser.offset());
  return result;
}

}  // namespace lathe
