#include <algorithm>
#include <unordered_map>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/traits.h"
#include "lathe/pass/graph.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

/// What a program is run for: fetches, returns, yields, and what writes. Inputs are none.
bool IsOutput(const Operation& op) {
  return (op.num_results() == 0 || op.num_operands() > 0 || op.num_regions() > 0) &&
         !IsRemovableWhenUnused(&op);
}

/// Operations of the block in post-order from its outputs, each after what it reads; then what no
/// output needs. Keeps its own stack.
std::vector<Operation*> PostOrder(const Graph& graph) {
  std::vector<Operation*> order;
  std::unordered_map<const Operation*, bool> seen;  // look-up only
  struct Frame {
    Operation* op;
    size_t next_operand;
  };
  std::vector<Frame> stack;
  const auto visit = [&](Operation* root) {
    if (!seen.emplace(root, true).second) return;
    stack.push_back({root, 0});
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next_operand == top.op->num_operands()) {
        order.push_back(top.op);
        stack.pop_back();
        continue;
      }
      const Value v = top.op->operand(top.next_operand++);
      Operation* maker = v ? v.defining_op() : nullptr;
      if (maker != nullptr && maker->block() == graph.block() && seen.emplace(maker, true).second) {
        stack.push_back({maker, 0});
      }
    }
  };
  for (Operation& op : *graph.block()) {
    if (IsOutput(op)) visit(&op);
  }
  for (Operation& op : *graph.block()) visit(&op);
  return order;
}

/// Of the structure by addresses: only ever compared with another of the same block.
uint64_t Fingerprint(const Block* block) {
  uint64_t hash = block->num_arguments();
  const auto add = [&hash](const void* p) {
    hash = (hash ^ reinterpret_cast<uintptr_t>(p)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  };
  for (const Operation& op : *block) {
    add(&op);
    add(op.info().impl());
    for (size_t i = 0; i < op.num_operands(); ++i) add(op.operand(i).impl());
  }
  return hash;
}

bool IsWrittenParameter(const Graph& graph, const Operation* op) {
  const auto name = op->attribute("name").dyn_cast<StrAttribute>();
  if (op->name() != kGetParameterOp || !name) return false;
  const Variable* v = graph.program().parameters().Find(name.value());
  return v != nullptr && v->is_mutable;
}

}  // namespace

IndexedGraph::IndexedGraph(const Graph& graph)
    : block_(graph.block()), fingerprint_(Fingerprint(graph.block())) {
  entry_base_.push_back(0);
  const auto add = [&](Node node, const void* key, size_t results) {
    ids_.emplace(key, static_cast<uint32_t>(nodes_.size()));
    nodes_.push_back(node);
    entry_base_.push_back(entry_base_.back() + static_cast<uint32_t>(results));
  };
  for (size_t i = 0; i < graph.block()->num_arguments(); ++i) {
    const Value argument = graph.block()->argument(i);
    add(Node(argument), argument.impl(), 1);
  }
  for (Operation* op : PostOrder(graph)) add(Node(op), op, op->num_results());

  input_base_.push_back(0);
  control_base_.push_back(0);
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    const Node node = nodes_[id];
    for (const Node& in : node.IsOp() ? node.inputs() : std::vector<Node>()) {
      const Operation* maker = in.value().defining_op();
      const auto at =
          ids_.find(maker != nullptr ? static_cast<const void*>(maker) : in.value().impl());
      if (at == ids_.end()) continue;  // a value of an enclosing block
      if (in.IsCtrlVar()) {
        controls_.push_back(at->second);
      } else {
        const size_t index = maker != nullptr ? in.value().index() : 0;
        inputs_.push_back({at->second, static_cast<uint32_t>(index)});
      }
    }
    input_base_.push_back(static_cast<uint32_t>(inputs_.size()));
    control_base_.push_back(static_cast<uint32_t>(controls_.size()));
    if (input_base_[id] == input_base_[id + 1] && control_base_[id] == control_base_[id + 1]) {
      input_nodes_.push_back(id);
      if (node.IsOp() && IsWrittenParameter(graph, node.op())) mutable_input_nodes_.push_back(id);
    }
    if (node.IsOp() && node.op()->HasTrait<ProgramOutput>()) outputs_.push_back(inputs_.back());
  }
}

bool IndexedGraph::is_current() const { return Fingerprint(block_) == fingerprint_; }

const IndexedGraph& Graph::indexed_graph() const {
  if (indexed_ == nullptr || !indexed_->is_current()) {
    indexed_ = std::make_shared<const IndexedGraph>(*this);
  }
  return *indexed_;
}

uint32_t IndexedGraph::node_id(Node node) const {
  const Operation* maker = node.IsOp() ? node.op() : node.value().defining_op();
  const void* key = maker != nullptr ? static_cast<const void*>(maker) : node.value().impl();
  const auto at = ids_.find(key);
  if (at == ids_.end()) {
    throw Error(ErrorCode::kNotFound, "graph/no-node",
                StrCat("the graph has no node '", node.Name(), "'"));
  }
  return at->second;
}

std::span<const IndexedGraph::Entry> IndexedGraph::inputs(uint32_t node) const {
  return {inputs_.data() + input_base_[node], inputs_.data() + input_base_[node + 1]};
}

std::span<const uint32_t> IndexedGraph::control_deps(uint32_t node) const {
  return {controls_.data() + control_base_[node], controls_.data() + control_base_[node + 1]};
}

}  // namespace lathe
