#include <cctype>

#include "lathe/pass/pass_manager.h"

namespace lathe {

namespace {

/// Recursive descent over `item (, item)*`, where
///   item := name [ '{' option (, option)* '}' ] [ '(' items ')' ]      option := name '=' value
class PipelineParser {
 public:
  explicit PipelineParser(std::string_view text) : text_(text) {}

  std::vector<PipelineItem> Parse() {
    std::vector<PipelineItem> items = Items(0);
    if (at_ != text_.size()) Fail("',' or the end");
    return items;
  }

 private:
  static constexpr int kMaxNesting = 50;

  [[noreturn]] void Fail(std::string_view expected) const {
    throw Error(
        ErrorCode::kParse, "pipeline/syntax",
        StrCat("expected ", expected, at_ < text_.size() ? StrCat(", not '", text_[at_], "'") : ""))
        .At(StrCat("pipeline, column ", at_ + 1))
        .Note(std::string(text_))
        .Note(std::string(at_, ' ') + "^")
        .Hint("a pipeline looks like  cse,fuse{level=2},cf.if(dead_code)");
  }

  bool Take(char c) {
    Skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void Skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  std::string Name() {
    Skip();
    const size_t begin = at_;
    const auto in_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
    };
    while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    if (at_ == begin) Fail("a name");
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// Up to ',' or '}' outside brackets and quotes.
  std::string OptionValue() {
    Skip();
    const size_t begin = at_;
    int depth = 0;
    bool quoted = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') quoted = !quoted;
      if (quoted) continue;
      if (c == '[' || c == '{' || c == '(') ++depth;
      if (depth == 0 && (c == ',' || c == '}')) break;
      if (c == ']' || c == '}' || c == ')') --depth;
    }
    std::string_view value = text_.substr(begin, at_ - begin);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    return std::string(value);
  }

  PipelineItem Item(int depth) {
    PipelineItem item{Name(), {}, {}};
    if (Take('{') && !Take('}')) {
      do {
        std::string name = Name();
        if (!Take('=')) Fail("'='");
        item.options.emplace_back(std::move(name), OptionValue());
      } while (Take(','));
      if (!Take('}')) Fail("',' or '}'");
    }
    if (Take('(')) {
      item.nested = Items(depth + 1);
      if (item.nested.empty()) Fail("a pass");
      if (!Take(')')) Fail("',' or ')'");
    }
    return item;
  }

  std::vector<PipelineItem> Items(int depth) {
    if (depth > kMaxNesting) Fail("less nesting");
    std::vector<PipelineItem> items;
    Skip();
    if (at_ == text_.size()) return items;
    do {
      items.push_back(Item(depth));
    } while (Take(','));
    return items;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<PipelineItem> ParsePipeline(std::string_view text) {
  return PipelineParser(text).Parse();
}

std::string PipelineToText(const std::vector<PipelineItem>& items) {
  std::string text;
  for (const PipelineItem& item : items) {
    text += StrCat(text.empty() ? "" : ",", item.name);
    for (size_t i = 0; i < item.options.size(); ++i) {
      text += StrCat(i == 0 ? "{" : ",", item.options[i].first, "=", item.options[i].second);
    }
    if (!item.options.empty()) text += '}';
    if (!item.nested.empty()) text += StrCat("(", PipelineToText(item.nested), ")");
  }
  return text;
}

}  // namespace lathe
