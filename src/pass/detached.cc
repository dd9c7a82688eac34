#include "src/pass/detached.h"

#include <unordered_map>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"

namespace lathe {

namespace {

/// Calls fn(op, name) for each operation within `root` that reads or sets a parameter.
template <class Fn>
void ForEachParameter(Operation* root, const Fn& fn) {
  const OpInfo get = root->context()->FindOp(kGetParameterOp);
  const OpInfo set = root->context()->FindOp(kSetParameterOp);
  for (OpWalker w(root); Operation* op = w.Next();) {
    if (op->info() != get && op->info() != set) continue;
    if (const auto name = op->attribute("name").dyn_cast<StrAttribute>()) fn(op, name);
  }
}

/// `w.3` is the third of the name `w`.
std::string_view BaseOf(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789");
  const bool numbered =
      digits != std::string_view::npos && digits + 1 < name.size() && name[digits] == '.';
  return numbered ? name.substr(0, digits) : name;
}

}  // namespace

void Detached::TakeOut() {
  home_ = op_->block();
  next_ = op_->next();
  op_->RemoveFromBlock();
  part_.block()->PushBack(op_);
  part_.parameters() = ParameterMap();
  borrowed_.clear();
  ForEachParameter(op_, [&](const Operation*, StrAttribute name) {
    const Variable* variable = whole_.parameters().Find(name);
    if (variable != nullptr && borrowed_.insert(name.storage()).second) {
      part_.parameters().Insert(name, *variable);
    }
  });
}

void Detached::PutBack() {
  op_->RemoveFromBlock();
  home_->InsertBefore(next_, op_);
}

void Detached::MergeParameters() {
  std::unordered_map<const void*, StrAttribute> renamed;  // looked up, never iterated
  for (ParameterMap::Entry& entry : part_.parameters()) {
    if (borrowed_.count(entry.name.storage()) != 0) continue;
    StrAttribute name = entry.name;
    if (whole_.parameters().Find(name) != nullptr) {
      name = whole_.parameters().FreshName(whole_.context(), BaseOf(name.value()));
      renamed.emplace(entry.name.storage(), name);
    }
    whole_.parameters().Insert(name, entry.variable);
  }
  part_.parameters() = ParameterMap();
  if (renamed.empty()) return;
  ForEachParameter(op_, [&](Operation* op, StrAttribute name) {
    const auto at = renamed.find(name.storage());
    if (at != renamed.end()) op->SetAttribute("name", at->second);
  });
}

}  // namespace lathe
