#include "lathe/support/text.h"
#include "src/ir/program_parser.h"

namespace lathe {

void ProgramParser::Report(Error error) {
  errors_.push_back(std::move(error));
  if (errors_.size() >= kMaxErrors) give_up_ = true;
}

// Goes on behind the faulty operation: at the end of its line, or of the regions that it opens.
void ProgramParser::Recover() {
  Poison(head_);
  const char* const end = lexer_.end();
  const char* p = statement_;
  int depth = 0;
  bool in_string = false;
  for (; p != end; ++p) {
    const char c = *p;
    if (c == '\n') {
      in_string = false;
      if (depth == 0) break;
    } else if (in_string) {
      if (c == '\\' && end - p > 1 && p[1] != '\n') ++p;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '/' && end - p > 1 && p[1] == '/') {
      while (end - p > 1 && p[1] != '\n') ++p;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth < 0) {
      break;
    }
  }
  lexer_.Seek(p == statement_ && p != end ? p + 1 : p);
}

// Later uses of the results are no further errors.
void ProgramParser::Poison(const Head& head) {
  for (const ValueName& name : head.results) {
    if (!scope_.Find(name)) scope_.Define(name, ValueScope::Poison());
  }
}

// The program owns them until it is dropped: their operations may use each other's values.
void ProgramParser::DiscardBlocks(Frame& frame) {
  Region& bin = program_.module()->region(0);
  for (Block* block : frame.blocks) {
    if (block->region() == nullptr) bin.PushBack(block);
  }
  frame.blocks.clear();
}

void ProgramParser::CheckFresh(const ValueName& name) {
  const Value earlier = scope_.Find(name);
  if (!earlier) return;
  Error error = lexer_.ErrorAt(name.text.data() - 1, name.text.size() + 1, "parse/redefined",
                               StrCat("value %", name.text, " is already defined"));
  if (earlier != ValueScope::Poison()) {
    const Operation* op = earlier.defining_op();
    if (op != nullptr && !op->location().is_unknown()) {
      error.Note(StrCat("first defined at ", op->location().ToString(context_)));
    }
  }
  throw error;
}

void ProgramParser::Undefined(const ValueName& name) {
  Error error = lexer_.ErrorAt(name.text.data() - 1, name.text.size() + 1, "parse/undefined",
                               StrCat("value %", name.text, " is not defined here"));
  if (const char* later = FindLaterDefinition(name.text)) {
    error.Note(StrCat("it is defined later, at ", lexer_.PlaceText(later)));
    throw error.Hint("a value is defined before its uses, in the same or an enclosing block");
  }
  const std::string near = DidYouMean(name.text, scope_.Names());
  if (!near.empty()) error.Hint(near);
  throw error;
}

namespace {

// Whether `%name` at `at` stands among the results of a line: only names and commas around it.
bool IsDefinition(std::string_view text, size_t at, size_t length) {
  auto is_list = [](char c) { return IsNameCharacter(c) || c == '%' || c == ',' || c == ' '; };
  size_t p = at;
  while (p > 0 && (is_list(text[p - 1]) || text[p - 1] == '\t')) --p;
  if (p > 0 && text[p - 1] != '\n') return false;
  p = at + length;
  if (p < text.size() && IsNameCharacter(text[p])) return false;
  while (p < text.size() && is_list(text[p])) ++p;
  return p < text.size() && text[p] == '=';
}

}  // namespace

const char* ProgramParser::FindLaterDefinition(std::string_view name) const {
  const std::string_view text = lexer_.rest();
  const std::string wanted = StrCat("%", name);
  for (size_t at = text.find(wanted); at != std::string_view::npos;
       at = text.find(wanted, at + 1)) {
    if (IsDefinition(text, at, wanted.size())) return text.data() + at;
  }
  return nullptr;
}

}  // namespace lathe
