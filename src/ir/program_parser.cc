#include "src/ir/program_parser.h"

#include <algorithm>

namespace lathe {

ProgramParser::ProgramParser(IrContext& context, std::string_view text, const ParseOptions& options)
    : context_(context),
      options_(options),
      parser_(context, text, options),
      lexer_(parser_.lexer()),
      program_(context),
      // A text holds at most this many definitions; larger numbers are treated as names.
      max_number_(static_cast<uint32_t>(std::min<size_t>(text.size() / 4, 1u << 31))) {
  if (options.file_locations) file_id_ = Location::FileId(context, options.file_name);
}

Program ProgramParser::Run() {
  ReadAll();
  if (errors_.empty()) return std::move(program_);
  for (Frame& frame : frames_) DiscardBlocks(frame);
  Error first = std::move(errors_.front());
  first.others.assign(std::make_move_iterator(errors_.begin() + 1),
                      std::make_move_iterator(errors_.end()));
  throw first;
}

void ProgramParser::ReadAll() {
  try {
    ParseHeader();
  } catch (Error& error) {
    Report(std::move(error));
    return;
  }
  while (!give_up_) {
    try {
      while (Step()) {
      }
      return;
    } catch (Error& error) {
      Report(std::move(error));
      Recover();
    }
  }
}

// `program {`, `program {name = 1} {`
void ProgramParser::ParseHeader() {
  const std::string_view word = parser_.ParseIdentifier("'program'");
  if (word != "program") {
    lexer_.Seek(word.data());
    lexer_.Expected("'program'");
  }
  if (lexer_.Peek() != '{') lexer_.Expected("'{'");
  if (StartsAttributes()) program_.module()->set_attributes(parser_.ParseDictionary());
  lexer_.Expect('{');
  block_ = program_.block();
  if (lexer_.Peek() == '^') ParseBlockHeader();
}

// Whether the next `{` opens the attributes rather than the body.
bool ProgramParser::StartsAttributes() {
  const char* open = lexer_.at();
  lexer_.Expect('{');
  bool attributes = false;
  if (lexer_.TryConsume('}')) {
    attributes = lexer_.Peek() == '{';
  } else if (lexer_.Peek() == '"') {
    lexer_.ParseString();
    attributes = lexer_.Peek() == '=';
  } else if (!lexer_.TryIdentifier().empty()) {
    attributes = lexer_.Peek() == '=';
  }
  lexer_.Seek(open);
  return attributes;
}

bool ProgramParser::Step() {
  const bool more = lexer_.SkipSpace();
  statement_ = lexer_.at();
  if (!more) {
    give_up_ = true;
    if (errors_.empty()) lexer_.Expected("an operation or '}'");
    return false;
  }
  const char c = *statement_;
  head_.results.clear();
  if (c == '}') {
    lexer_.Seek(++statement_);
    if (frames_.empty()) {
      FinishProgram();
      return false;
    }
    CloseRegion();
  } else if (c == '^') {
    if (frames_.empty()) lexer_.Expected("an operation: the program has one block");
    ParseBlockHeader();
  } else {
    ParseOp();
  }
  return true;
}

void ProgramParser::FinishProgram() {
  give_up_ = true;
  program_.module()->set_location(parser_.TryLocation().value_or(Location()));
  parser_.ExpectEnd();
}

// ---- blocks and regions ----

void ProgramParser::NewBlock() {
  Frame& frame = frames_.back();
  CloseBlockScope();
  scope_.Open();
  frame.in_region = true;
  frame.blocks.push_back(new Block());
  block_ = frame.blocks.back();
}

void ProgramParser::CloseBlockScope() {
  Frame& frame = frames_.back();
  if (frame.in_region) scope_.Close();
  frame.in_region = false;
}

// `^(%0: f32, %1: i64):`
void ProgramParser::ParseBlockHeader() {
  if (!frames_.empty()) NewBlock();
  lexer_.Expect('^');
  lexer_.Expect('(');
  if (!lexer_.TryConsume(')')) {
    do {
      lexer_.SkipSpace();
      const ValueName name = ParseValueName();
      CheckFresh(name);
      lexer_.Expect(':');
      scope_.Define(name, block_->AddArgument(parser_.ParseType()));
    } while (lexer_.TryConsume(','));
    lexer_.Expect(')');
  }
  lexer_.Expect(':');
}

void ProgramParser::BeginRegions() {
  if (frames_.size() >= options_.max_nesting) {
    give_up_ = true;
    throw lexer_
        .ErrorAt(lexer_.at(), 1, "parse/nesting",
                 StrCat("regions nest deeper than ", options_.max_nesting, " levels"))
        .Hint("raise ParseOptions::max_nesting if this is meant");
  }
  lexer_.Expect('(');
  if (lexer_.Peek() != '{') lexer_.Expected("':' before the types, or '{' of a region");
  frames_.emplace_back();
  frames_.back().outer = block_;
  std::swap(frames_.back().head, head_);
  OpenRegion();
}

void ProgramParser::OpenRegion() {
  lexer_.Expect('{');
  block_ = nullptr;
}

Block* ProgramParser::TargetBlock() {
  if (block_ == nullptr) NewBlock();
  return block_;
}

void ProgramParser::CloseRegion() {
  Frame& frame = frames_.back();
  CloseBlockScope();
  frame.region_ends.push_back(frame.blocks.size());
  block_ = nullptr;
  if (lexer_.TryConsume(',')) {
    OpenRegion();
    return;
  }
  block_ = frame.outer;
  Frame done = std::move(frame);
  frames_.pop_back();
  try {
    lexer_.Expect(')');
    FinishOp(done.head, &done);
  } catch (Error&) {
    DiscardBlocks(done);
    Poison(done.head);
    throw;
  }
}

// ---- operations ----

void ProgramParser::ParseOp() {
  if (options_.file_locations) head_.position = lexer_.PositionOf(statement_);
  head_.operands.clear();
  head_.operand_places.clear();
  head_.attributes = {};
  head_.poisoned = false;
  TargetBlock();
  if (*statement_ == '%') ParseResultNames();
  ParseOpName();
  ParseOperands();
  if (lexer_.Peek() == '{') head_.attributes = ParseAttributes();
  if (lexer_.Peek() == '(') {
    BeginRegions();
  } else {
    FinishOp(head_, nullptr);
  }
}

ValueName ProgramParser::ParseValueName() {
  const char* at = lexer_.at();
  if (at == lexer_.end() || *at != '%') lexer_.Expected("a value such as %0");
  lexer_.Seek(at + 1);
  ValueName name{lexer_.NameHere()};
  if (name.text.empty()) {
    throw lexer_.ErrorAt(at, 1, "parse/syntax", "expected a name after '%'");
  }
  if (name.text.size() > 9 || (name.text[0] == '0' && name.text.size() > 1)) return name;
  uint32_t number = 0;
  for (const char c : name.text) {
    if (!IsDigit(c)) return name;
    number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  if (number < max_number_) name.number = number;
  return name;
}

void ProgramParser::ParseResultNames() {
  do {
    lexer_.SkipSpace();
    head_.results.push_back(ParseValueName());
    CheckFresh(head_.results.back());
  } while (lexer_.TryConsume(','));
  if (!lexer_.TryConsume('=')) lexer_.Expected("',' or '='");
}

void ProgramParser::ParseOpName() {
  if (lexer_.Peek() == '"') {
    const char* at = lexer_.at();
    const std::string name = lexer_.ParseString();
    head_.name = {at, static_cast<size_t>(lexer_.at() - at)};
    try {
      head_.info = context_.GetOrMakeOp(name);
    } catch (Error& error) {
      throw lexer_.Placed(std::move(error), at, head_.name.size());
    }
    return;
  }
  const std::string_view name = lexer_.TryIdentifier();
  if (name.empty()) lexer_.Expected("an operation such as nn.add");
  head_.name = name;
  auto& slot = op_memo_.At(name);
  if (slot.text != name) {
    try {
      slot.value = context_.GetOrMakeOp(name);
    } catch (Error& error) {
      throw lexer_.Placed(std::move(error), name.data(), name.size());
    }
    slot.text = name;
  }
  head_.info = slot.value;
}

void ProgramParser::ParseOperands() {
  lexer_.Expect('(');
  if (lexer_.TryConsume(')')) return;
  do {
    ParseOperand();
  } while (lexer_.TryConsume(','));
  if (!lexer_.TryConsume(')')) lexer_.Expected("',' or ')'");
}

void ProgramParser::ParseOperand() {
  lexer_.SkipSpace();
  const char* at = lexer_.at();
  head_.operand_places.push_back(at);
  if (at != lexer_.end() && *at == 'n' && lexer_.TryIdentifier() == "none") {
    head_.operands.emplace_back();
    return;
  }
  const ValueName name = ParseValueName();
  const Value value = scope_.Find(name);
  if (!value) Undefined(name);
  if (value == ValueScope::Poison()) head_.poisoned = true;
  head_.operands.push_back(value);
}

namespace {

// The text of a dictionary on one line, from its `{`; empty if it is longer or has comments.
std::string_view SimpleDictionary(std::string_view text) {
  constexpr size_t kMaxLength = 400;
  const size_t end = std::min(text.size(), kMaxLength);
  int depth = 0;
  for (size_t i = 0; i < end; ++i) {
    switch (text[i]) {
      case '{':
        ++depth;
        break;
      case '}':
        if (--depth == 0) return text.substr(0, i + 1);
        break;
      case '"':
        for (++i; i < end && text[i] != '"'; ++i) {
          if (text[i] == '\\') ++i;
        }
        break;
      case '\n':
      case '/':
        return {};
      default:
        break;
    }
  }
  return {};
}

std::string_view WithoutTrailingSpace(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The rest of the line up to ` loc(` or the next value; empty if it may hold anything but types.
std::string_view SimpleSignature(std::string_view text) {
  constexpr size_t kMaxLength = 1000;
  const size_t end = std::min(text.size(), kMaxLength);
  for (size_t i = 0; i < end; ++i) {
    const char c = text[i];
    if (c == '\n' || c == '%') return WithoutTrailingSpace(text.substr(0, i));
    if (c == ' ' && text.compare(i + 1, 4, "loc(") == 0) return text.substr(0, i);
    if (c == '"' || c == '/' || c == '{' || c == '}') return {};
  }
  return {};
}

}  // namespace

DictionaryAttribute ProgramParser::ParseAttributes() {
  const std::string_view text = SimpleDictionary(lexer_.rest());
  if (text.empty()) return parser_.ParseDictionary();
  auto& slot = dictionary_memo_.At(text);
  if (slot.text == text) {
    lexer_.Seek(text.data() + text.size());
    return slot.value;
  }
  const DictionaryAttribute value = parser_.ParseDictionary();
  if (lexer_.at() == text.data() + text.size()) slot = {text, value};
  return value;
}

void ProgramParser::FinishOp(Head& head, Frame* frame) {
  const Signature& signature = ParseSignature(head);
  const Location location = ParseOpLocation(head);
  if (head.poisoned) {
    if (frame != nullptr) DiscardBlocks(*frame);
    Poison(head);
    return;
  }
  const size_t num_regions = frame == nullptr ? 0 : frame->region_ends.size();
  Operation* op = CreateOp(head, signature, num_regions, location);
  size_t next = 0;
  for (size_t i = 0; i < num_regions; ++i) {
    while (next < frame->region_ends[i]) op->region(i).PushBack(frame->blocks[next++]);
  }
  block_->PushBack(op);
  DefineResults(head, op);
}

const ProgramParser::Signature& ProgramParser::ParseSignature(const Head& head) {
  if (!lexer_.TryConsume(':')) return OmittedSignature(head);
  lexer_.SkipSpace();
  const char* at = lexer_.at();
  const std::string_view text = SimpleSignature(lexer_.rest());
  auto& slot = signature_memo_.At(text);
  if (!text.empty() && slot.text == text) {
    lexer_.Seek(at + text.size());
    CheckSignature(head, slot.value, at);
    return slot.value;
  }
  ReadSignature(scratch_);
  CheckSignature(head, scratch_, at);
  if (text.empty() || lexer_.at() != at + text.size()) return scratch_;
  slot = {text, scratch_};
  return slot.value;
}

void ProgramParser::ReadSignature(Signature& signature) {
  auto read_types = [&](std::vector<Type>& types) {
    types.clear();
    lexer_.Expect('(');
    if (lexer_.TryConsume(')')) return;
    do {
      types.push_back(parser_.ParseType());
    } while (lexer_.TryConsume(','));
    if (!lexer_.TryConsume(')')) lexer_.Expected("',' or ')'");
  };
  read_types(signature.operands);
  lexer_.Expect("->");
  if (lexer_.Peek() == '(') {
    read_types(signature.results);
  } else {
    signature.results.assign(1, parser_.ParseType());
  }
}

const ProgramParser::Signature& ProgramParser::OmittedSignature(const Head& head) {
  if (!head.results.empty()) lexer_.Expected("':' and the types of an operation with results");
  scratch_.operands.clear();
  scratch_.results.clear();
  for (const Value v : head.operands) {
    const bool typed = v && v != ValueScope::Poison();
    scratch_.operands.push_back(typed ? v.type() : NoneType::Get(context_));
  }
  return scratch_;
}

void ProgramParser::CheckSignature(const Head& head, const Signature& signature, const char* at) {
  const auto length = static_cast<size_t>(lexer_.at() - at);
  if (signature.operands.size() != head.operands.size()) {
    throw lexer_.ErrorAt(at, length, "parse/signature",
                         StrCat("the operation has ", head.operands.size(),
                                " operands, but its signature has ", signature.operands.size()));
  }
  if (signature.results.size() != head.results.size()) {
    throw lexer_.ErrorAt(at, length, "parse/signature",
                         StrCat("the operation names ", head.results.size(),
                                " results, but its signature has ", signature.results.size()));
  }
  for (size_t i = 0; i < head.operands.size(); ++i) {
    const Value v = head.operands[i];
    const Type written = signature.operands[i];
    if (v == ValueScope::Poison()) continue;
    if (v ? v.type() == written : written.isa<NoneType>()) continue;
    const char* place = head.operand_places[i];
    throw lexer_.ErrorAt(
        place, 1, "parse/signature",
        StrCat("operand ", i, " has type ", v ? v.type().ToString() : std::string("none"),
               ", but the signature says ", written.ToString()));
  }
}

Location ProgramParser::ParseOpLocation(const Head& head) {
  if (const auto location = parser_.TryLocation()) return *location;
  if (!options_.file_locations) return {};
  return Location::FileLineCol(context_, file_id_, head.position.line, head.position.column);
}

Operation* ProgramParser::CreateOp(const Head& head, const Signature& signature, size_t num_regions,
                                   Location location) {
  try {
    return Operation::Create(
        {head.info, head.operands, signature.results, head.attributes, num_regions, location});
  } catch (Error& error) {
    throw lexer_.Placed(std::move(error), head.name.data(), head.name.size());
  }
}

void ProgramParser::DefineResults(const Head& head, Operation* op) {
  for (size_t i = 0; i < head.results.size(); ++i) {
    if (i > 0) CheckFresh(head.results[i]);
    scope_.Define(head.results[i], op->result(i));
  }
}

}  // namespace lathe
