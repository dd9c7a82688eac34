#pragma once

#include <string_view>

#include "lathe/ir/context.h"

namespace lathe {

class AsmParser;

/// A named group of types, attributes and ops. Its constructor registers them with the context.
class Dialect {
 public:
  Dialect(IrContext& context, std::string_view name) : context_(context), name_(name) {}
  virtual ~Dialect() = default;
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;

  IrContext& context() const { return context_; }
  std::string_view name() const { return name_; }

  /// Parses what follows `name.keyword` where a type or attribute of this dialect is written.
  /// Returns null if the keyword is not one of its own. Printing is `AbstractKind::print`.
  virtual Type ParseType(std::string_view keyword, AsmParser& parser);
  virtual Attribute ParseAttribute(std::string_view keyword, AsmParser& parser);

 protected:
  template <class... Ops>
  void RegisterOps() {
    (context_.RegisterOp<Ops>(*this), ...);
  }

 private:
  IrContext& context_;
  std::string name_;
};

}  // namespace lathe
