#include "src/lower/index_math.h"

#include <charconv>

#include "lathe/dialect/loop/loop.h"
#include "lathe/support/error.h"

namespace lathe::lower {

Dim IndexMath::Of(Value v) {
  if (Operation* op = v.defining_op(); op != nullptr && op->isa<loop::IndexOp>()) {
    const Dim& expr = op->attribute("expr").cast<DimAttribute>().value();
    if (expr.is_constant()) return expr;
  }
  const auto [at, is_new] = position_.emplace(v, values_.size());
  if (is_new) values_.push_back(v);
  return Dim::Symbol(StrCat("v", at->second));
}

Dim IndexMath::NumThreads() { return Of(loop::NumThreadsOp::Create(lb_.b()).value()); }

Value IndexMath::At(const Dim& expr) {
  LATHE_CHECK(!expr.is_unknown(), "an index expression is too large");
  std::vector<std::string> names;
  expr.CollectSymbols(names);
  std::vector<Value> symbols;
  for (const std::string& name : names) {
    size_t number = 0;
    std::from_chars(name.data() + 1, name.data() + name.size(), number);
    symbols.push_back(values_.at(number));
  }
  const Dim numbered = expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return Dim::Symbol(StrCat("d", i));
    }
    return std::nullopt;
  });
  return lb_.Index(numbered, symbols);
}

std::vector<Value> IndexMath::At(std::initializer_list<Dim> exprs) {
  std::vector<Value> values;
  for (const Dim& expr : exprs) values.push_back(At(expr));
  return values;
}

void IndexMath::For(const Dim& extent, bool parallel,
                    const std::function<void(const Dim& i)>& body) {
  lb_.For(At(extent), parallel, [&](Value i) { body(Of(i)); });
}

}  // namespace lathe::lower
