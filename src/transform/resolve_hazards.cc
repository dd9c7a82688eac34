#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin_ops.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/transform/multi_devices.h"

namespace lathe {

namespace {

/// Operations of `block` that `op` waits for, by what it and those before it read.
std::unordered_set<const Operation*> Ancestors(const Operation* op) {
  std::unordered_set<const Operation*> found;  // asked only whether it holds an op
  std::vector<const Operation*> open{op};
  while (!open.empty()) {
    const Operation* at = open.back();
    open.pop_back();
    for (size_t i = 0; i < at->num_operands(); ++i) {
      const Operation* maker = at->operand(i) ? at->operand(i).defining_op() : nullptr;
      if (maker != nullptr && maker->block() == op->block() && found.insert(maker).second) {
        open.push_back(maker);
      }
    }
  }
  return found;
}

/// The op of `block` that reads, by itself or in a region.
Operation* ReaderIn(const Block* block, Operation* op) {
  while (op != nullptr && op->block() != block) op = op->parent_op();
  return op;
}

class HazardResolver {
 public:
  explicit HazardResolver(Graph& graph) : graph_(graph) {}

  int64_t Run() {
    std::vector<Operation*> writers;
    for (Operation& op : *graph_.block()) {
      const void* name = nullptr;
      if (op.isa<builtin::GetParameterOp>() || op.isa<builtin::SetParameterOp>()) {
        name = op.attribute("name").storage();
      }
      if (op.isa<builtin::GetParameterOp>()) reads_[name].push_back(op.result(0));
      if (op.isa<builtin::SetParameterOp>()) writers.push_back(&op);
    }
    int64_t waiting = 0;
    for (Operation* writer : writers) waiting += Resolve(writer) ? 1 : 0;
    return waiting;
  }

 private:
  bool Resolve(Operation* writer) {
    const std::unordered_set<const Operation*> before = Ancestors(writer);
    std::vector<Operation*> readers;
    for (const Value old : reads_[writer->attribute("name").storage()]) {
      if (!old.defining_op()->IsBefore(writer)) continue;
      for (const OpOperand use : old.uses()) {
        Operation* reader = ReaderIn(graph_.block(), use.owner());
        if (reader == writer || !reader->IsBefore(writer) || before.count(reader) != 0) continue;
        // What has no result has effects, and those keep their order.
        if (reader->num_results() > 0) readers.push_back(reader);
      }
    }
    std::sort(readers.begin(), readers.end(),
              [](const Operation* a, const Operation* b) { return a->IsBefore(b); });
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    if (readers.empty()) return false;
    Wait(writer, readers);
    return true;
  }

  void Wait(Operation* writer, const std::vector<Operation*>& readers) {
    std::vector<Value> results;
    for (const Operation* reader : readers) {
      for (size_t i = 0; i < reader->num_results(); ++i) results.push_back(reader->result(i));
    }
    Builder b = Builder::Before(writer);
    const Type token_type = TokenType::Get(graph_.context());
    const Value token = b.Create(builtin::kTokenOf, results, {}, {&token_type, 1})->result(0);
    const Value value = writer->operand(0);
    const Type type = value.type();
    Operation* depend =
        b.Create(builtin::kDepend, std::vector<Value>{value, token}, {}, {&type, 1});
    if (const Attribute place = writer->attribute(kPlaceAttr)) {
      token.defining_op()->SetAttribute(kPlaceAttr, place);
      depend->SetAttribute(kPlaceAttr, place);
    }
    writer->set_operand(0, depend->result(0));
  }

  Graph& graph_;
  std::unordered_map<const void*, std::vector<Value>> reads_;  // by name; look-up only
};

}  // namespace

int64_t ResolveHazards(Graph& graph) { return HazardResolver(graph).Run(); }

class ResolveHazardsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const int64_t count = ResolveHazards(graph);
    Count("writes that wait", count);
    if (count > 0) MarkChanged();
  }
};

REGISTER_PASS(resolve_hazards, ResolveHazardsPass)
    .Doc("makes each write of a parameter wait for the readers of its old value, through tokens")
    .Details(
        "Program order says that already; the tokens say it to what runs operations as they become "
        "ready. Two writes of one parameter keep their order as all side effects do.");

}  // namespace lathe
