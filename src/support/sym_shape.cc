#include <algorithm>

#include "lathe/support/dim.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"

namespace lathe {
namespace {

// Of two descriptions of the same extent, the one that says more.
const Dim& Sharper(const Dim& a, const Dim& b) {
  if (a.is_unknown() || (b.is_constant() && !a.is_constant())) return b;
  return a;
}

}  // namespace

SymShape SymShape::FromConstants(std::span<const int64_t> extents) {
  return SymShape(std::vector<Dim>(extents.begin(), extents.end()));
}

bool SymShape::IsConstant() const {
  return ranked &&
         std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.is_constant(); });
}

std::optional<std::vector<int64_t>> SymShape::Constants() const {
  if (!IsConstant()) return std::nullopt;
  std::vector<int64_t> extents;
  for (const Dim& dim : dims) extents.push_back(dim.value());
  return extents;
}

Dim SymShape::NumElements() const {
  if (!ranked) return Dim::Unknown();
  Dim product = 1;
  for (const Dim& dim : dims) product *= dim;
  return product;
}

std::string SymShape::ToString() const {
  if (!ranked) return "[*]";
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ',';
    dims[i].AppendTo(out);
  }
  return out + "]";
}

SymShape Broadcast(const SymShape& a, const SymShape& b) {
  if (!a.ranked || !b.ranked) return SymShape::Unranked();
  const SymShape& longer = a.rank() >= b.rank() ? a : b;
  const SymShape& shorter = a.rank() >= b.rank() ? b : a;
  SymShape result = longer;
  const size_t lead = longer.rank() - shorter.rank();
  for (size_t i = 0; i < shorter.rank(); ++i) {
    Dim& extent = result.dims[lead + i];
    Assume(SizeCondition::Broadcast(extent, shorter.dims[i]), "shape/broadcast", [&] {
      return StrCat("the shapes ", a.ToString(), " and ", b.ToString(),
                    " do not broadcast: ", extent.ToString(), " and ", shorter.dims[i].ToString(),
                    " differ and neither is 1");
    });
    extent = Broadcast(extent, shorter.dims[i]);
  }
  return result;
}

SymShape Meet(const SymShape& a, const SymShape& b) {
  if (!a.ranked) return b;
  if (!b.ranked) return a;
  const auto contradiction = [&] {
    return StrCat("the shapes ", a.ToString(), " and ", b.ToString(),
                  " of one value contradict each other");
  };
  if (a.rank() != b.rank()) throw Error(ErrorCode::kShape, "shape/contradiction", contradiction());
  SymShape result = a;
  for (size_t i = 0; i < a.rank(); ++i) {
    Assume(SizeCondition::Equal(a.dims[i], b.dims[i]), "shape/contradiction", contradiction);
    result.dims[i] = Sharper(a.dims[i], b.dims[i]);
  }
  return result;
}

}  // namespace lathe
