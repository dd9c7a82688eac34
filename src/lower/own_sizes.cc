#include "src/lower/own_sizes.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/block.h"
#include "lathe/support/error.h"
#include "src/lower/compute/compute.h"

namespace lathe::lower {
namespace {

using Names = std::vector<std::string>;

bool Has(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool IsOver(const Dim& dim, const Names& symbols) {
  Names used;
  dim.CollectSymbols(used);
  return !dim.is_unknown() &&
         std::ranges::all_of(used, [&](const std::string& name) { return Has(symbols, name); });
}

AnyTensorType RankedType(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  return type && type.has_rank() ? type : AnyTensorType();
}

// The new symbols of a function, and those that its arguments have already.
class Renaming {
 public:
  explicit Renaming(const Block& function) {
    Names used;
    for (size_t i = 0; i < function.num_arguments(); ++i) {
      for (const Dim& dim : DimsOf(function.argument(i))) {
        dim.CollectSymbols(used);
        if (dim.is_symbol()) given_.emplace_back(dim.symbol_name());
      }
    }
    for (const Operation& op : function) {
      for (size_t r = 0; r < op.num_results(); ++r) {
        for (const Dim& dim : DimsOf(op.result(r))) dim.CollectSymbols(used);
      }
    }
    for (size_t i = 0; i < function.num_arguments(); ++i) {
      for (const Dim& dim : DimsOf(function.argument(i))) Add(dim, used);
    }
    for (const auto& [name, dim] : symbols_) given_.push_back(name);
  }

  const std::vector<std::pair<std::string, Dim>>& symbols() const { return symbols_; }

  Dim Of(const Dim& dim) const {
    const auto found = std::ranges::find(symbols_, dim, &std::pair<std::string, Dim>::second);
    return found == symbols_.end() ? dim : Dim::Symbol(found->first);
  }
  Type OfArgument(AnyTensorType type) const {
    std::vector<Dim> dims;
    for (const Dim& dim : type.dims()) dims.push_back(Of(dim));
    return type.With(type.element(), SymShape(dims));
  }
  // What declaration and inference say together; nothing if they differ or do not suffice.
  std::optional<Dim> OfResult(const Dim& declared, const Dim& inferred) const {
    const Dim dim = Of(declared);
    if (!IsOver(dim, given_)) {
      if (IsOver(inferred, given_)) return inferred;
      // The elements of an operand may say it.
      const bool fits = inferred.is_unknown() || ProvablyEqual(dim, inferred);
      return fits ? std::optional(dim) : std::nullopt;
    }
    const bool fits =
        inferred.is_unknown() || ProvablyEqual(dim, inferred) || IsOneOf(dim, inferred);
    return fits ? std::optional(dim) : std::nullopt;
  }
  std::optional<Type> OfResult(AnyTensorType declared, AnyTensorType inferred) const {
    std::vector<Dim> dims;
    for (size_t a = 0; a < declared.rank(); ++a) {
      const std::optional<Dim> dim =
          OfResult(declared.dims()[a], inferred ? inferred.dims()[a] : Dim());
      if (!dim) return std::nullopt;
      dims.push_back(*dim);
    }
    return declared.With(declared.element(), SymShape(dims));
  }

 private:
  // Whether one of the extents that are broadcast is `dim`: the program knows that it decides, by
  // what the new symbols hide.
  static bool IsOneOf(const Dim& dim, const Dim& broadcast) {
    return !dim.is_constant() && ProvablyEqual(Broadcast(dim, broadcast), broadcast);
  }

  void Add(const Dim& dim, const Names& used) {
    if (dim.is_constant() || IsOver(dim, given_) || dim.is_unknown() || !(Of(dim) == dim)) return;
    std::string name = StrCat("e", symbols_.size());
    while (Has(used, name)) name += "_";
    symbols_.emplace_back(std::move(name), dim);
  }

  Names given_;
  std::vector<std::pair<std::string, Dim>> symbols_;  // each new one, and what it stands for
};

}  // namespace

namespace {

// Each value of a function whose type has dims.
template <class F>
void VisitRanked(Block& block, F&& visit) {
  const auto ranked = [&](Value v) {
    if (RankedType(v)) visit(v, RankedType(v));
  };
  for (size_t i = 0; i < block.num_arguments(); ++i) ranked(block.argument(i));
  for (Operation& op : block) {
    for (size_t r = 0; r < op.num_results(); ++r) ranked(op.result(r));
  }
}

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

}  // namespace

StandardSymbols::StandardSymbols(Operation* function, bool own) {
  std::vector<std::pair<std::string, Dim>> outside;
  if (own) outside = OwnSizes(function).symbols();
  has_own_ = !outside.empty();
  Block& block = *function->region(0).front();
  Names names;
  VisitRanked(block, [&](Value, AnyTensorType type) {
    for (const Dim& dim : type.dims()) {
      Names used;
      dim.CollectSymbols(used);
      for (std::string& name : used) {
        if (!Has(names, name)) names.push_back(std::move(name));
      }
    }
  });
  for (const std::string& name : names) {
    const auto known = std::ranges::find(outside, name, &std::pair<std::string, Dim>::first);
    symbols_.emplace_back(StrCat("s", symbols_.size()),
                          known == outside.end() ? Dim::Symbol(name) : known->second);
  }
  VisitRanked(block, [&](Value v, AnyTensorType type) {
    std::vector<Dim> dims(type.dims().begin(), type.dims().end());
    for (Dim& dim : dims) {
      dim = dim.Substitute([&](std::string_view name) -> std::optional<Dim> {
        const auto at = std::ranges::find(names, name);
        return Dim::Symbol(symbols_[static_cast<size_t>(at - names.begin())].first);
      });
    }
    v.set_type(type.With(type.element(), SymShape(std::move(dims))));
  });
}

Dim StandardSymbols::Outside(const Dim& dim) const {
  return dim.Substitute([&](std::string_view name) -> std::optional<Dim> {
    const auto known = std::ranges::find(symbols_, name, &std::pair<std::string, Dim>::first);
    return known == symbols_.end() ? std::nullopt : std::optional(known->second);
  });
}

std::string StandardSymbols::Outside(std::string_view text) const {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && IsWordCharacter(text[end])) ++end;
    const std::string_view word = text.substr(i, std::max<size_t>(end - i, 1));
    const auto known = std::ranges::find(symbols_, word, &std::pair<std::string, Dim>::first);
    result += known == symbols_.end() ? std::string(word) : known->second.ToString();
    i += word.size();
  }
  return result;
}

OwnSizes::OwnSizes(Operation* function) {
  try {
    if (!Rename(function)) Restore();
  } catch (const Error&) {  // the sizes contradict each other once nobody knows what they are
    Restore();
  }
}

void OwnSizes::Restore() {
  for (const auto& [value, type] : before_) value.set_type(type);
  before_.clear();
  symbols_.clear();
}

void OwnSizes::Set(Value v, Type type) {
  before_.emplace_back(v, v.type());
  v.set_type(type);
}

bool OwnSizes::Rename(Operation* function) {
  Block& block = *function->region(0).front();
  const Renaming renaming(block);
  symbols_ = renaming.symbols();
  if (symbols_.empty()) return true;
  for (size_t i = 0; i < block.num_arguments(); ++i) {
    const AnyTensorType type = RankedType(block.argument(i));
    if (type) Set(block.argument(i), renaming.OfArgument(type));
  }
  ShapeInferencer inferencer;
  for (Operation& op : block) {
    std::vector<AnyTensorType> declared;
    for (size_t r = 0; r < op.num_results(); ++r) {
      declared.push_back(RankedType(op.result(r)));
      before_.emplace_back(op.result(r), op.result(r).type());
    }
    inferencer.Visit(&op);
    for (size_t r = 0; r < op.num_results(); ++r) {
      if (!declared[r]) continue;
      const AnyTensorType inferred = RankedType(op.result(r));
      if (inferred && inferred.rank() != declared[r].rank()) return false;
      const std::optional<Type> type = renaming.OfResult(declared[r], inferred);
      if (!type) return false;
      op.result(r).set_type(*type);
    }
  }
  return true;
}

}  // namespace lathe::lower
