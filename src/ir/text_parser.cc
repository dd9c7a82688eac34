#include "src/ir/text_parser.h"

#include <array>
#include <bit>
#include <charconv>
#include <limits>

#include "lathe/ir/dialect.h"
#include "lathe/ir/value_names.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

std::vector<std::string> KnownTypeNames(IrContext& context) {
  std::vector<std::string> names = {"tensor", "v_tensor", "list",  "dict", "optional",
                                    "tuple",  "stack",    "token", "none"};
  for (const ElementType e : AllElementTypes()) names.emplace_back(Name(e));
  for (const Dialect* d : context.dialects()) names.push_back(StrCat(d->name(), "."));
  return names;
}

/// What ONNX, numpy and C call float32, int64, half and so on; empty if it is none of these.
std::string ElementOfOtherName(std::string_view word) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kNames = {
      {{"float", "f32"},
       {"double", "f64"},
       {"half", "f16"},
       {"int", "i32"},
       {"long", "i64"},
       {"char", "i8"},
       {"byte", "u8"},
       {"boolean", "bool"},
       {"str", "string"}}};
  for (const auto& [other, name] : kNames) {
    if (word == other) return std::string(name);
  }
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPrefixes = {
      {{"bfloat", "bf"}, {"float", "f"}, {"complex", "c"}, {"uint", "u"}, {"int", "i"}}};
  for (const auto& [prefix, letter] : kPrefixes) {
    if (!word.starts_with(prefix)) continue;
    std::string name = StrCat(letter, word.substr(prefix.size()));
    if (ParseElementType(name)) return name;
  }
  return "";
}

std::optional<ElementType> ElementNamed(std::string_view name) {
  if (name == Name(ElementType::kUndefined)) return ElementType::kUndefined;
  return ParseElementType(name);
}

}  // namespace

TextParser::Level::Level(TextParser& parser) : parser_(parser) {
  if (++parser_.depth_ <= parser_.max_depth_) return;
  --parser_.depth_;
  parser_.lexer_.SkipSpace();
  throw parser_.lexer_
      .ErrorAt(parser_.lexer_.at(), 1, "parse/nesting",
               StrCat("types and attributes nest deeper than ", parser_.max_depth_, " levels"))
      .Hint("raise ParseOptions::max_type_nesting if this is meant");
}

std::optional<std::string_view> TextParser::TryIdentifier() {
  const std::string_view word = lexer_.TryIdentifier();
  if (word.empty()) return std::nullopt;
  return word;
}

std::string_view TextParser::ParseIdentifier(std::string_view what) {
  const std::string_view word = lexer_.TryIdentifier();
  if (word.empty()) lexer_.Expected(what);
  return word;
}

void TextParser::Fail(std::string message, std::string hint) {
  lexer_.SkipSpace();
  Error error = lexer_.ErrorAt(lexer_.at(), 1, "parse/syntax", std::move(message));
  if (!hint.empty()) error.Hint(std::move(hint));
  throw error;
}

void TextParser::ExpectEnd() {
  if (lexer_.SkipSpace()) lexer_.Expected("the end of the text");
}

// ---- dims and types ----

Dim TextParser::ParseDim() {
  lexer_.SkipSpace();
  const char* start = lexer_.at();
  std::string_view rest = lexer_.rest();
  Dim dim = Placing(start, [&] { return Dim::ParsePrefix(rest); });
  lexer_.Seek(lexer_.end() - rest.size());
  return dim;
}

Type TextParser::ParseType() {
  const Level level(*this);
  const std::string_view word = lexer_.TryIdentifier();
  if (word.empty()) lexer_.Expected("a type");
  return TypeOf(word);
}

Type TextParser::TypeOf(std::string_view word) {
  if (word == "v_tensor") return TensorOf(/*value=*/true);
  if (word == "tensor") return TensorOf(/*value=*/false);
  if (const auto element = ElementNamed(word)) return ElemType::Get(context_, *element);
  if (word == "none") return NoneType::Get(context_);
  if (word == "token") return TokenType::Get(context_);
  if (word.find('.') != std::string_view::npos) return DialectTypeOf(word);
  return ContainerOf(word);
}

Type TextParser::TensorOf(bool value) {
  lexer_.Expect('<');
  const SymShape shape = ParseShape();
  lexer_.Expect(',');
  const ElementType element = ParseElement();
  lexer_.Expect('>');
  if (value) return VTensorType::Get(context_, shape, element);
  return TensorType::Get(context_, shape, element);
}

SymShape TextParser::ParseShape() {
  if (lexer_.TryConsume('*')) return SymShape::Unranked();
  if (lexer_.Peek() != '[') lexer_.Expected("a shape: '[' or '*'");
  std::vector<Dim> dims;
  ParseList('[', ']', [&] { dims.push_back(ParseDim()); });
  return SymShape(std::move(dims));
}

ElementType TextParser::ParseElement() {
  const std::string_view word = lexer_.TryIdentifier();
  if (word.empty()) lexer_.Expected("an element type such as f32");
  if (const auto element = ElementNamed(word)) return *element;
  UnknownType(word);
}

std::vector<Type> TextParser::ParseTypeList(char open, char close) {
  std::vector<Type> types;
  ParseList(open, close, [&] { types.push_back(ParseType()); });
  return types;
}

Type TextParser::ContainerOf(std::string_view word) {
  auto make = [&](auto get) {
    const std::vector<Type> elements = ParseTypeList('<', '>');
    return Placing(word.data(), [&]() -> Type { return get(context_, elements); });
  };
  if (word == "list") return make(ListType::Get);
  if (word == "dict") return make(DictType::Get);
  if (word == "optional") return make(OptionalType::Get);
  if (word == "tuple") return make(TupleType::Get);
  if (word == "stack") return make(StackType::Get);
  UnknownType(word);
}

Dialect* TextParser::DialectOf(std::string_view word, std::string_view& keyword) {
  const size_t dot = word.find('.');
  const std::string_view name = word.substr(0, dot);
  keyword = word.substr(dot + 1);
  if (Dialect* dialect = context_.FindDialect(name)) return dialect;
  std::vector<std::string_view> names;
  for (const Dialect* d : context_.dialects()) names.push_back(d->name());
  Error error = lexer_.ErrorAt(word.data(), name.size(), "parse/unknown-dialect",
                               StrCat("unknown dialect '", name, "'"));
  const std::string near = DidYouMean(name, names);
  throw error.Hint(near.empty() ? "load the dialect, or the plug-in that brings it" : near);
}

Type TextParser::DialectTypeOf(std::string_view word) {
  std::string_view keyword;
  Dialect* dialect = DialectOf(word, keyword);
  const Type type = Placing(word.data(), [&] { return dialect->ParseType(keyword, *this); });
  if (!type) UnknownType(word);
  return type;
}

void TextParser::UnknownType(std::string_view word) {
  Error error = lexer_.ErrorAt(word.data(), word.size(), "parse/unknown-type",
                               StrCat("unknown type '", word, "'"));
  const std::string element = ElementOfOtherName(word);
  throw error.Hint(element.empty() ? DidYouMean(word, KnownTypeNames(context_))
                                   : StrCat("did you mean '", element, "'?"));
}

// ---- attributes ----

Attribute TextParser::ParseAttribute() {
  const Level level(*this);
  switch (const char c = lexer_.Peek()) {
    case '"':
      return StrAttribute::Get(context_, lexer_.ParseString());
    case '[':
      return ArrayOf();
    case '{':
      return ParseDictionary();
    case '-':
      if (lexer_.TryConsume("-inf")) {
        return FloatAttribute::Get(context_, -std::numeric_limits<double>::infinity());
      }
      [[fallthrough]];
    default:
      if (c == '-' || IsDigit(c)) return NumberOf();
  }
  const std::string_view word = lexer_.TryIdentifier();
  if (word.empty()) lexer_.Expected("an attribute");
  return AttributeOf(word);
}

Attribute TextParser::NumberOf() {
  const char* start = lexer_.at();
  const std::string_view text = lexer_.TryNumber();
  if (text.find_first_of(".eE") == std::string_view::npos) {
    lexer_.Seek(start);
    return IntAttribute::Get(context_, lexer_.ParseInt());
  }
  lexer_.Seek(start);
  return FloatAttribute::Get(context_, ParseFinite());
}

Attribute TextParser::AttributeOf(std::string_view word) {
  if (word == "true") return BoolAttribute::Get(context_, true);
  if (word == "false") return BoolAttribute::Get(context_, false);
  if (word == "inf") {
    return FloatAttribute::Get(context_, std::numeric_limits<double>::infinity());
  }
  if (word == "nan") return NanOf();
  if (word == "dim") {
    lexer_.Expect('<');
    const Dim dim = ParseDim();
    lexer_.Expect('>');
    return DimAttribute::Get(context_, dim);
  }
  if (word == "loc") {
    lexer_.Expect('(');
    const Location location = ParseLocation();
    lexer_.Expect(')');
    return LocationAttribute::Get(context_, location);
  }
  if (word.find('.') != std::string_view::npos) return DialectAttributeOf(word);
  const Type type = TypeOf(word);
  const char c = lexer_.Peek();
  if (word == "tensor" && (c == '[' || lexer_.rest().starts_with("hex"))) {
    return TensorValue(type, word.data());
  }
  return TypeAttribute::Get(type);
}

Attribute TextParser::NanOf() {
  if (!lexer_.TryConsume('(')) {
    return FloatAttribute::Get(context_, std::bit_cast<double>(uint64_t{0x7ff8000000000000}));
  }
  const char* start = lexer_.at();
  lexer_.Expect("0x");
  uint64_t bits = 0;
  const char* from = lexer_.at();
  const auto [to, error] = std::from_chars(from, lexer_.end(), bits, 16);
  lexer_.Seek(to);
  const auto value = std::bit_cast<double>(bits);
  if (error != std::errc() || value == value) {
    throw lexer_.ErrorAt(start, static_cast<size_t>(to - start), "parse/number",
                         "expected the 64 bits of a NaN, such as nan(0x7ff8000000000001)");
  }
  lexer_.Expect(')');
  return FloatAttribute::Get(context_, value);
}

Attribute TextParser::ArrayOf() {
  std::vector<Attribute> values;
  ParseList('[', ']', [&] { values.push_back(ParseAttribute()); });
  return ArrayAttribute::Get(context_, values);
}

DictionaryAttribute TextParser::ParseDictionary() {
  lexer_.SkipSpace();
  const char* start = lexer_.at();
  std::vector<NamedAttribute> entries;
  ParseList('{', '}', [&] {
    StrAttribute name;
    if (lexer_.Peek() == '"') {
      name = StrAttribute::Get(context_, lexer_.ParseString());
    } else {
      name = StrAttribute::Get(context_, ParseIdentifier("an attribute name"));
    }
    lexer_.Expect('=');
    entries.push_back({name, ParseAttribute()});
  });
  return Placing(start, [&] { return DictionaryAttribute::Get(context_, entries); });
}

Attribute TextParser::DialectAttributeOf(std::string_view word) {
  std::string_view keyword;
  Dialect* dialect = DialectOf(word, keyword);
  const char* after = lexer_.at();
  const Attribute attribute =
      Placing(word.data(), [&] { return dialect->ParseAttribute(keyword, *this); });
  if (attribute) return attribute;
  lexer_.Seek(after);
  return TypeAttribute::Get(DialectTypeOf(word));
}

// ---- locations ----

std::optional<Location> TextParser::TryLocation() {
  if (lexer_.Peek() != 'l') return std::nullopt;
  const std::string_view word = lexer_.TryIdentifier();
  if (word != "loc") {
    lexer_.Seek(word.data());
    return std::nullopt;
  }
  lexer_.Expect('(');
  const Location location = ParseLocation();
  lexer_.Expect(')');
  return location;
}

Location TextParser::ParseLocation() {
  const Level level(*this);
  if (lexer_.Peek() == '"') return NamedOrFile();
  const std::string_view word = lexer_.TryIdentifier();
  if (word == "unknown") return Location();
  if (word == "fused") return Fusion();
  if (!word.empty()) lexer_.Seek(word.data());
  lexer_.Expected("a location: a name or file in quotes, 'fused' or 'unknown'");
}

Location TextParser::NamedOrFile() {
  const std::string text = lexer_.ParseString();
  if (lexer_.TryConsume("->")) return OfNode(text);
  if (!lexer_.TryConsume(':')) return Location::Name(context_, text);
  const char* start = lexer_.at();
  const int64_t line = lexer_.ParseInt();
  lexer_.Expect(':');
  const int64_t column = lexer_.ParseInt();
  constexpr int64_t kMax = std::numeric_limits<uint32_t>::max();
  if (line < 0 || line > kMax || column < 0 || column > kMax) {
    throw lexer_.ErrorAt(start, 1, "parse/number", "the line or column is out of range");
  }
  return Location::FileLineCol(context_, text, static_cast<uint32_t>(line),
                               static_cast<uint32_t>(column));
}

Location TextParser::OfNode(std::string_view node) {
  std::vector<std::string> results;
  ParseList('(', ')', [&] { results.push_back(lexer_.ParseString()); });
  return LocationOfNode(context_, node, results);
}

Location TextParser::Fusion() {
  std::vector<Location> parts;
  ParseList('[', ']', [&] { parts.push_back(ParseLocation()); });
  return Location::Fused(context_, parts);
}

}  // namespace lathe
