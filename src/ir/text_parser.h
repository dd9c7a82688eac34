#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/asm_parser.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "src/ir/lexer.h"

namespace lathe {

/// Reads types, attributes, dims and locations. Recursion is bounded by `max_type_nesting`.
class TextParser final : public AsmParser {
 public:
  TextParser(IrContext& context, std::string_view text, const ParseOptions& options)
      : context_(context),
        lexer_(text, options.file_name),
        max_depth_(std::min(options.max_type_nesting, kMaxDepth)) {}

  Lexer& lexer() { return lexer_; }

  IrContext& context() const override { return context_; }
  bool TryConsume(std::string_view token) override { return lexer_.TryConsume(token); }
  void Expect(std::string_view token) override { lexer_.Expect(token); }
  std::optional<std::string_view> TryIdentifier() override;
  std::string_view ParseIdentifier(std::string_view what) override;
  int64_t ParseInt() override { return lexer_.ParseInt(); }
  double ParseFloat() override;
  std::string ParseString() override { return lexer_.ParseString(); }
  Dim ParseDim() override;
  Type ParseType() override;
  Attribute ParseAttribute() override;
  [[noreturn]] void Fail(std::string message, std::string hint = "") override;

  DictionaryAttribute ParseDictionary();
  /// `loc(...)`, if it comes next.
  std::optional<Location> TryLocation();
  /// What stands inside `loc(...)`.
  Location ParseLocation();
  /// Nothing but white space may follow.
  void ExpectEnd();

 private:
  static constexpr uint32_t kMaxDepth = 2000;

  // Counts one level of nesting while it lives.
  class Level {
   public:
    explicit Level(TextParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TextParser& parser_;
  };
  // `fn()`, whose errors get the place of `where`.
  template <class Fn>
  auto Placing(const char* where, Fn&& fn) -> decltype(fn()) {
    try {
      return fn();
    } catch (Error& error) {
      throw lexer_.Placed(std::move(error), where, static_cast<size_t>(lexer_.at() - where));
    }
  }
  template <class Fn>
  void ParseList(char open, char close, Fn&& item) {
    lexer_.Expect(open);
    if (lexer_.TryConsume(close)) return;
    do {
      item();
    } while (lexer_.TryConsume(','));
    if (!lexer_.TryConsume(close)) lexer_.Expected(StrCat("',' or '", close, "'"));
  }

  // A word is a piece of the text being read, so its address is its place.
  Type TypeOf(std::string_view word);
  Type TensorOf(bool value);
  Type ContainerOf(std::string_view word);
  Type DialectTypeOf(std::string_view word);
  std::vector<Type> ParseTypeList(char open, char close);
  SymShape ParseShape();
  ElementType ParseElement();
  [[noreturn]] void UnknownType(std::string_view word);
  Dialect* DialectOf(std::string_view word, std::string_view& keyword);

  Attribute AttributeOf(std::string_view word);
  Attribute NumberOf();
  Attribute ArrayOf();
  Attribute NanOf();
  Attribute DialectAttributeOf(std::string_view word);
  Attribute TensorValue(Type type, const char* at);
  Tensor ListedTensor(ElementType element, Shape shape, const char* at);
  Tensor HexTensor(ElementType element, Shape shape, const char* at);
  double ParseFinite();
  float ParseFloat32();
  Location NamedOrFile();
  Location Fusion();
  Location OfNode(std::string_view node);

  IrContext& context_;
  Lexer lexer_;
  uint32_t depth_ = 0;
  uint32_t max_depth_;
};

}  // namespace lathe
