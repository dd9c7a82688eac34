#include "lathe/ir/functions.h"

#include <algorithm>
#include <unordered_set>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "src/ir/verifier.h"

namespace lathe {

std::string_view CompilerOf(const Operation* function) {
  const auto compiler = function->attribute(kCompilerAttr).dyn_cast<StrAttribute>();
  return compiler ? compiler.value() : std::string_view();
}

FunctionTable::FunctionTable(Operation* module)
    : module_(module),
      func_(module->context()->FindOp(kFuncOp)),
      call_(module->context()->FindOp(kCallOp)),
      return_(module->context()->FindOp(kReturnOp)) {
  if (!func_ || module->num_regions() == 0 || module->region(0).empty()) return;
  for (Operation& op : *module->region(0).front()) {
    if (op.info() != func_) continue;
    functions_.push_back(&op);
    if (const auto name = op.attribute("name").dyn_cast<StrAttribute>()) {
      by_name_.emplace(name.storage(), &op);
    }
  }
}

Operation* FunctionTable::Callee(const Operation* call) const {
  const auto name = call->attribute("callee").dyn_cast<StrAttribute>();
  const auto at = name ? by_name_.find(name.storage()) : by_name_.end();
  return at == by_name_.end() ? nullptr : at->second;
}

std::vector<Operation*> FunctionTable::CallsIn(Operation* function) const {
  std::vector<Operation*> calls;
  Block* block = function == nullptr ? module_->region(0).front() : Body(function);
  if (block == nullptr) return calls;
  for (OpWalker w(block); Operation* op = w.Next();) {
    if (IsCall(op)) calls.push_back(op);
    if (IsFunction(op)) w.SkipRegions();
  }
  return calls;
}

namespace {

[[noreturn]] void Recursive(const std::vector<Operation*>& path, const Operation* again) {
  const auto from = std::find(path.begin(), path.end(), again);
  std::string cycle;
  for (auto at = from; at != path.end(); ++at) cycle += StrCat(FunctionTable::NameOf(*at), " -> ");
  cycle += FunctionTable::NameOf(again);
  throw Error(ErrorCode::kVerify, "verify/recursion",
              StrCat("builtin.func: a function calls itself: ", cycle))
      .At(again->location().ToString(*again->context()))
      .Hint("write a loop with cf.while");
}

}  // namespace

std::vector<Operation*> FunctionTable::CalleesFirst() const {
  enum class State : uint8_t { kOpen, kDone };
  struct Frame {
    std::vector<Operation*> calls;
    size_t next = 0;
  };
  std::vector<Operation*> order, path;
  std::vector<Frame> frames;
  std::unordered_map<const Operation*, State> states;  // looked up, never iterated
  for (Operation* root : functions_) {
    if (!states.emplace(root, State::kOpen).second) continue;
    path.push_back(root);
    frames.push_back({CallsIn(root)});
    while (!frames.empty()) {
      Frame& top = frames.back();
      if (top.next == top.calls.size()) {
        states[path.back()] = State::kDone;
        order.push_back(path.back());
        path.pop_back();
        frames.pop_back();
        continue;
      }
      Operation* callee = Callee(top.calls[top.next++]);
      if (callee == nullptr) continue;
      const auto [at, is_new] = states.emplace(callee, State::kOpen);
      if (!is_new && at->second == State::kOpen) Recursive(path, callee);
      if (!is_new) continue;
      path.push_back(callee);
      frames.push_back({CallsIn(callee)});
    }
  }
  return order;
}

std::vector<Operation*> FunctionTable::Reachable() const {
  std::unordered_set<const Operation*> reached;  // membership only
  std::vector<Operation*> open{nullptr};
  while (!open.empty()) {
    Operation* from = open.back();
    open.pop_back();
    for (const Operation* call : CallsIn(from)) {
      Operation* callee = Callee(call);
      if (callee != nullptr && reached.insert(callee).second) open.push_back(callee);
    }
  }
  std::vector<Operation*> in_order;
  for (Operation* function : functions_) {
    if (reached.count(function) != 0) in_order.push_back(function);
  }
  return in_order;
}

std::string FunctionTable::NameOf(const Operation* function) {
  const auto name = function->attribute("name").dyn_cast<StrAttribute>();
  return name ? std::string(name.value()) : std::string();
}

Block* FunctionTable::Body(const Operation* function) {
  return function->num_regions() == 1 ? function->region(0).front() : nullptr;
}

Operation* FunctionTable::Return(const Operation* function) {
  const Block* body = Body(function);
  return body == nullptr ? nullptr : body->terminator();
}

}  // namespace lathe
