#include "src/frontend/onnx/op_table.h"

#include "lathe/ir/op_def.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"

namespace lathe::onnx {

std::string Shown(std::string_view name) {
  constexpr size_t kLongest = 200;
  if (name.size() <= kLongest) return Quote(name);
  return StrCat(Quote(name.substr(0, kLongest)), " (", name.size(), " bytes)");
}

std::string QualifiedName(std::string_view domain, std::string_view op) {
  return domain.empty() ? std::string(op) : StrCat(domain, ".", op);
}

OpTable::OpTable(IrContext& context) {
  for (const OpInfo info : context.ops()) {
    const OpDef* def = info.def();
    if (def == nullptr || def->onnx_name == nullptr || info.HasTrait<Inplace>()) continue;
    const char* domain = def->onnx_domain == nullptr ? "" : def->onnx_domain;
    ops_.try_emplace({std::string(NormalDomain(domain)), def->onnx_name}, info);
  }
}

OpInfo OpTable::Find(std::string_view domain, std::string_view op) const {
  const auto found = ops_.find(std::pair(std::string(NormalDomain(domain)), std::string(op)));
  return found == ops_.end() ? OpInfo() : found->second;
}

std::string OpTable::Suggestion(std::string_view domain, std::string_view op) const {
  std::vector<std::string> candidates;
  for (const auto& [key, info] : ops_) candidates.push_back(QualifiedName(key.first, key.second));
  return DidYouMean(QualifiedName(NormalDomain(domain), op), candidates);
}

}  // namespace lathe::onnx
