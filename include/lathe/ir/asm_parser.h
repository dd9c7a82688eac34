#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lathe/ir/attribute.h"
#include "lathe/ir/type.h"
#include "lathe/support/dim.h"

namespace lathe {

/// What a dialect reads the text of its own types and attributes with. White space and comments
/// before a token are skipped. Every function that does not find what it wants throws Error with
/// the line, the column and what was expected.
///
/// A dialect type prints as `<kind name>` followed by what `AbstractKind::print` appends, and reads
/// back through `Dialect::ParseType(keyword, parser)`, called behind the keyword:
///
///   void Print(const void* s, PrinterBase& out) { out << "<"; out.PrintInt(...); out << ">"; }
///   Type Parse(std::string_view keyword, AsmParser& p) {
///     if (keyword != "vec") return {};
///     p.Expect("<"); auto n = p.ParseInt(); p.Expect(">");
///     return p.context().Get<VecType>(n);
///   }
class AsmParser {
 public:
  virtual ~AsmParser() = default;
  virtual IrContext& context() const = 0;

  /// Consumes `punctuation` (such as "<", "->" or ",") if it comes next.
  virtual bool TryConsume(std::string_view punctuation) = 0;
  virtual void Expect(std::string_view punctuation) = 0;
  /// A bare identifier; valid as long as the text being read.
  virtual std::optional<std::string_view> TryIdentifier() = 0;
  /// The same, else an error "expected `what`".
  virtual std::string_view ParseIdentifier(std::string_view what) = 0;
  virtual int64_t ParseInt() = 0;
  /// Also takes an integer.
  virtual double ParseFloat() = 0;
  virtual std::string ParseString() = 0;
  virtual Dim ParseDim() = 0;
  virtual Type ParseType() = 0;
  virtual Attribute ParseAttribute() = 0;

  /// Throws parse/syntax at the next token.
  [[noreturn]] virtual void Fail(std::string message, std::string hint = "") = 0;
};

}  // namespace lathe
