#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

int64_t CountOps(Block* body) {
  int64_t count = -1;  // not the return
  for (OpWalker w(body); w.Next() != nullptr;) ++count;
  return count;
}

}  // namespace

/// Functions that are called once are moved to their call; the others, callees first, are cloned
/// where they are small enough. So every operation is moved at most once, and nothing is cloned
/// that still holds a call which can be replaced.
class InlinePass : public Pass {
  static constexpr int64_t kMostOfCaller = 10000;

 protected:
  void ApplyImpl(Graph& graph) override;

 private:
  void DropUnreachable();
  void CountUses();
  void InlineInto(Operation* caller);
  bool IsExternal(Operation* call, const Operation* callee);
  bool ShouldClone(Operation* call, Operation* callee);
  void Replace(Operation* call, Block* body, std::vector<Operation*>& calls);
  void CloneInto(Operation* call, Operation* callee, std::vector<Operation*>& calls);
  void Locate(Operation* op, Location call);

  std::optional<FunctionTable> functions_;
  std::optional<Rewriter> rewriter_;
  std::unordered_map<const Operation*, int64_t> uses_;  // calls left, by function; looked up only
  std::unordered_map<const Operation*, int64_t> sizes_;
};

void InlinePass::ApplyImpl(Graph& graph) {
  Program& program = graph.program();
  functions_.emplace(program);
  if (functions_->empty() || graph.block() != program.block()) return;
  rewriter_.emplace(program, this);
  DropUnreachable();
  CountUses();
  const std::vector<Operation*> order = functions_->CalleesFirst();
  for (Operation* function : order) {
    if (uses_[function] > 1 || !CompilerOf(function).empty()) InlineInto(function);
  }
  InlineInto(nullptr);
  for (Operation* function : functions_->functions()) {
    if (uses_[function] == 0) rewriter_->Erase(function);
  }
}

void InlinePass::DropUnreachable() {
  const std::vector<Operation*> reachable = functions_->Reachable();
  if (reachable.size() == functions_->functions().size()) return;
  size_t next = 0;
  for (Operation* function : functions_->functions()) {
    if (next < reachable.size() && reachable[next] == function) {
      ++next;
    } else {
      rewriter_->Erase(function);
      Count("dropped");
    }
  }
  functions_.emplace(rewriter_->program());
}

void InlinePass::CountUses() {
  uses_.clear();
  sizes_.clear();
  const auto count = [&](Operation* caller) {
    for (const Operation* call : functions_->CallsIn(caller)) ++uses_[functions_->Callee(call)];
  };
  count(nullptr);
  for (Operation* function : functions_->functions()) count(function);
}

/// Calls that come with a body follow at once, so that they stand in program order.
void InlinePass::InlineInto(Operation* caller) {
  std::vector<Operation*> calls = functions_->CallsIn(caller);
  std::reverse(calls.begin(), calls.end());
  while (!calls.empty()) {
    Operation* call = calls.back();
    calls.pop_back();
    Operation* callee = functions_->Callee(call);
    if (callee == nullptr || IsExternal(call, callee)) continue;
    int64_t& uses = uses_[callee];
    if (uses == 1) {
      Count("moved");
      Replace(call, FunctionTable::Body(callee), calls);
      uses = 0;
    } else if (ShouldClone(call, callee)) {
      Count("cloned");
      CloneInto(call, callee, calls);
      --uses;
    }
  }
}

/// Inlined, it would be compiled by another compiler than the one it is for.
bool InlinePass::IsExternal(Operation* call, const Operation* callee) {
  const std::string_view compiler = CompilerOf(callee);
  if (compiler.empty()) return false;
  Missed(call, StrCat("function '", FunctionTable::NameOf(callee),
                      "' is for the external compiler '", compiler, "'"));
  return true;
}

bool InlinePass::ShouldClone(Operation* call, Operation* callee) {
  auto at = sizes_.find(callee);
  if (at == sizes_.end()) {
    at = sizes_.emplace(callee, CountOps(FunctionTable::Body(callee))).first;
  }
  // One that calls others, after its own calls were replaced, is no kernel by itself.
  const bool calls = !functions_->CallsIn(callee).empty();
  const int64_t most = option_int("max_ops");
  const int64_t limit = calls ? std::max(kMostOfCaller, most) : most;
  if (most < 0 || at->second <= limit) return true;
  Missed(call, StrCat("function '", FunctionTable::NameOf(callee), "' has ", at->second,
                      " operations and ", uses_[callee], " calls; the limit is ", limit));
  return false;
}

/// An operation comes from its place in the function and from the call.
void InlinePass::Locate(Operation* op, Location call) {
  const Location both[] = {op->location(), call};
  op->set_location(Location::Fused(rewriter_->context(), both));
}

/// Moves the operations of `body`, which belongs to this call alone, before the call.
void InlinePass::Replace(Operation* call, Block* body, std::vector<Operation*>& calls) {
  for (size_t i = 0; i < body->num_arguments(); ++i) {
    rewriter_->ReplaceAllUses(body->argument(i), call->operand(i));
  }
  Operation* last = body->terminator();
  const size_t first_call = calls.size();
  for (Operation* op = body->front(); op != last;) {
    Operation* next = op->next();
    rewriter_->MoveBefore(op, call);
    for (OpWalker w(op); Operation* inner = w.Next();) {
      Locate(inner, call->location());
      if (functions_->IsCall(inner)) calls.push_back(inner);
    }
    op = next;
  }
  std::reverse(calls.begin() + static_cast<std::ptrdiff_t>(first_call), calls.end());
  for (size_t i = 0; i < call->num_results(); ++i) {
    rewriter_->ReplaceAllUses(call->result(i), last->operand(i));
  }
  rewriter_->Erase(last);  // or what it returns would be read once more by every level of calls
  rewriter_->Erase(call);
}

void InlinePass::CloneInto(Operation* call, Operation* callee, std::vector<Operation*>& calls) {
  IrMapping mapping;
  const OwningOp copy(Clone(callee, mapping));
  Block* body = FunctionTable::Body(copy.get());
  for (OpWalker w(body); const Operation* op = w.Next();) {
    if (functions_->IsCall(op)) ++uses_[functions_->Callee(op)];
  }
  Replace(call, body, calls);
}

REGISTER_PASS(inline, InlinePass)
    .Doc("puts the bodies of functions in the places of their calls")
    .Details(
        "A function with one call is moved there; one with several is cloned if it has at most "
        "`max_ops` operations, or 10,000 if it calls others. Functions without calls are "
        "removed, those for an external compiler stay. An operation keeps its place in the "
        "function beside that of the call.")
    .Option("max_ops", PassOption::Kind::kInt, "100",
            "largest function, in operations, that is cloned; -1: any")
    .AtLeast(-1);

}  // namespace lathe
