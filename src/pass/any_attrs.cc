#include "lathe/pass/any_attrs.h"

namespace lathe {

void AnyAttrs::Put(std::string_view name, Slot slot) {
  auto [at, inserted] = slots_.try_emplace(std::string(name), slot);
  if (inserted) return;
  if (!at->second.is_default) {
    throw Error(ErrorCode::kInvalidArgument, "attr/duplicate",
                StrCat("attribute '", name, "' is set already"))
        .At(owner_)
        .Hint("erase it first");
  }
  at->second = std::move(slot);
}

const AnyAttrs::Slot& AnyAttrs::Find(std::string_view name, TypeId type,
                                     std::string_view type_name) const {
  auto at = slots_.find(name);
  if (at == slots_.end()) {
    Error error(ErrorCode::kNotFound, "attr/missing", StrCat("attribute '", name, "' is not set"));
    error.At(owner_);
    if (const std::string near = DidYouMean(name, Names()); !near.empty()) error.Hint(near);
    throw error;
  }
  if (at->second.type != type) {
    throw Error(ErrorCode::kType, "attr/type",
                StrCat("attribute '", name, "' is a ", at->second.type_name, ", not a ", type_name))
        .At(owner_);
  }
  return at->second;
}

void AnyAttrs::Erase(std::string_view name) {
  auto at = slots_.find(name);
  if (at == slots_.end()) {
    throw Error(ErrorCode::kNotFound, "attr/missing", StrCat("attribute '", name, "' is not set"))
        .At(owner_);
  }
  slots_.erase(at);
}

std::vector<std::string> AnyAttrs::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, slot] : slots_) names.push_back(name);
  return names;
}

}  // namespace lathe
