#include "src/dialect/stated_sizes.h"

#include <algorithm>
#include <optional>

#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/walk.h"

namespace lathe {
namespace {

bool StatesAny(const Program& program) {
  for (OpWalker w(program.module()); const Operation* op = w.Next();) {
    if (op->attribute(kReliesOnAttr)) return true;
  }
  return false;
}

std::vector<std::string> NamesIn(const SizeCondition& condition) {
  std::vector<std::string> names;
  condition.a.CollectSymbols(names);
  condition.b.CollectSymbols(names);
  return names;
}

}  // namespace

StatedSizes::StatedSizes(const Program& program) : has_any_(StatesAny(program)) {
  if (has_any_) constraints_ = StatedConstraints(*program.block());
}

void StatedSizes::Begin(std::span<Operation* const> feeds, const NamedValues& inputs) {
  if (!has_any_) return;
  sizes_.clear();
  for (Operation* feed : feeds) {
    const auto type = feed->result(0).type().dyn_cast<AnyTensorType>();
    const RtValue* value = Find(inputs, feed->cast<nn::FeedOp>().name());
    if (!type || !type.has_rank() || value == nullptr || !value->is_tensor()) continue;
    const Shape& shape = value->tensor().shape();
    for (size_t axis = 0; axis < std::min(type.rank(), shape.size()); ++axis) {
      const Dim& dim = type.dims()[axis];
      if (dim.is_symbol()) sizes_.emplace(dim.symbol_name(), shape[axis]);
    }
  }
  Check(constraints_);
}

void StatedSizes::AfterOp(const Operation* op, std::span<const RtValue> results) {
  if (!has_any_ || !op->isa<nn::BindSizesOp>()) return;
  const std::vector<std::string> names = nn::BindSizesOp(const_cast<Operation*>(op)).names();
  const std::span<const int64_t> values = results[0].tensor().data<int64_t>();
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) sizes_[names[i]] = values[i];
  }
  Check(constraints_);
}

void StatedSizes::AtEnd(const Operation* terminator) const {
  if (has_any_ && terminator->attribute(kReliesOnAttr)) {
    Check(StatedConstraints(*terminator->block()));
  }
}

void StatedSizes::Check(std::span<const SizeConstraint> constraints) const {
  const auto size_of = [&](std::string_view name) -> std::optional<int64_t> {
    const auto at = sizes_.find(name);
    return at == sizes_.end() ? std::nullopt : std::optional(at->second);
  };
  const auto is_bound = [&](const std::string& name) { return sizes_.contains(name); };
  for (const SizeConstraint& c : constraints) {
    const std::vector<std::string> names = NamesIn(c.condition);
    if (c.condition.Holds(size_of) || !std::ranges::all_of(names, is_bound)) continue;
    Error error = c.error;
    error.Note(StrCat("it relies on ", c.condition.ToString()));
    for (const std::string& name : names) error.Note(StrCat(name, " = ", *size_of(name)));
    throw std::move(error);
  }
}

}  // namespace lathe
