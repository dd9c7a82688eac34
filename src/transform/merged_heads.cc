#include "src/transform/merged_heads.h"

#include <algorithm>

#include "lathe/dialect/nn/op_names.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

Pat MergedHeads(const std::string& name) {
  return pat::Call(nn::kReshape, {pat::Var(name), pat::Var(name + "_shape")})
      .AnyAttributes()
      .As(name + "_merged")
      .Shared();
}

bool HasDims(Value value, std::initializer_list<Dim> dims) {
  return RankOf(value) == static_cast<int64_t>(dims.size()) &&
         std::equal(dims.begin(), dims.end(), DimsOf(value).begin(), ProvablyEqual);
}

bool OperandsMergeHeads(const RuleMatch& m) {
  for (const std::string name : {"q", "k", "v"}) {
    if (RankOf(m[name]) != 4) return false;
    const auto dims = DimsOf(m[name]);
    if (!ProvablyEqual(dims[0], DimsOf(m["q"])[0]) || !ProvablyEqual(dims[1], DimsOf(m["q"])[1]) ||
        !HasDims(m[name + "_merged"], {dims[0] * dims[1], dims[2], dims[3]})) {
      return false;
    }
  }
  return true;
}

}  // namespace lathe
