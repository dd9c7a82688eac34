#include "src/frontend/symbol/node.h"

#include <unordered_set>

#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"

namespace lathe {

// A chain of a million nodes is freed without recursion: what only this node held is taken apart
// from a list.
SymbolNode::~SymbolNode() {
  std::vector<symbol::NodePtr> open;
  const auto take = [&open](SymbolNode& node) {
    for (SymbolEntry& e : node.inputs) {
      if (e.node && e.node.use_count() == 1) open.push_back(std::move(e.node));
    }
    for (symbol::NodePtr& d : node.control_deps) {
      if (d.use_count() == 1) open.push_back(std::move(d));
    }
  };
  take(*this);
  while (!open.empty()) {
    const symbol::NodePtr node = std::move(open.back());
    open.pop_back();
    take(*node);
  }
}

namespace symbol {

std::vector<SymbolNode*> PostOrder(const Entries& outputs) {
  std::vector<SymbolNode*> order;
  std::unordered_set<const SymbolNode*> seen;  // asked only whether it holds a node
  struct Frame {
    SymbolNode* node;
    size_t next;
  };
  std::vector<Frame> stack;
  for (const SymbolEntry& output : outputs) {
    if (!seen.insert(output.node.get()).second) continue;
    stack.push_back({output.node.get(), 0});
    while (!stack.empty()) {
      Frame& top = stack.back();
      const size_t inputs = top.node->inputs.size();
      if (top.next == inputs + top.node->control_deps.size()) {
        order.push_back(top.node);
        stack.pop_back();
        continue;
      }
      const size_t i = top.next++;
      SymbolNode* from =
          i < inputs ? top.node->inputs[i].node.get() : top.node->control_deps[i - inputs].get();
      if (from != nullptr && seen.insert(from).second) stack.push_back({from, 0});
    }
  }
  return order;
}

std::string Describe(const SymbolNode& node) {
  const std::string kind = node.is_variable() ? "variable" : std::string(node.op.name());
  return node.name.empty() ? kind : StrCat(kind, " '", node.name, "'");
}

size_t NumVisible(const SymbolNode& node) {
  if (node.is_variable()) return 1;
  if (const auto at = node.attrs.find(std::string(kNumResults)); at != node.attrs.end()) {
    return static_cast<size_t>(*ParseInt(at->second));
  }
  size_t count = 0;
  for (const ValueDef& r : node.op.def()->results) {
    count += r.variadic ? r.min_count : r.optional ? 0 : 1;
  }
  return count == 0 && !node.op.def()->results.empty() ? 1 : count;
}

std::string OutputName(const SymbolNode& node, size_t index) {
  if (node.is_variable()) return node.name;
  const std::span<const ValueDef> results = node.op.def()->results;
  const size_t at = std::min(index, results.size() - 1);
  std::string name = results[at].name;
  if (results[at].variadic) name += StrCat(index - at);
  return node.name.empty() ? name : StrCat(node.name, "_", name);
}

Entries VisibleOutputs(const NodePtr& node) {
  Entries entries;
  for (uint32_t i = 0; i < NumVisible(*node); ++i) {
    entries.push_back({node, i, node->is_variable() ? node->version : 0});
  }
  return entries;
}

std::unique_ptr<LearnedContext> LearnedOf(const SymbolNode& node) {
  const auto* table = node.is_variable() ? nullptr : node.op.GetInterface<LearnedInterface>();
  if (table == nullptr) return nullptr;
  auto learned = std::make_unique<LearnedContext>(
      node.op, DictionaryAttribute::Get(*node.context, TypedAttrs(node)));
  table->learned(*learned);
  return learned;
}

bool WantsOptional(const SymbolNode& node, const LearnedContext* learned, size_t i) {
  const auto at = node.attrs.find(StrCat(kUsePrefix, node.op.def()->operands[i].name));
  if (at != node.attrs.end()) return at->second == "true";
  return learned != nullptr && learned->IsWeight(i);
}

std::vector<Write> WritesOf(const SymbolNode& node) {
  std::vector<Write> writes;
  if (node.is_variable()) return writes;
  if (node.op.HasTrait<Inplace>()) writes.push_back({0, 0, true});
  if (const auto learned = LearnedOf(node)) {
    for (const LearnedContext::Held& h : learned->states()) {
      writes.push_back({h.operand, h.result, h.changes});
    }
  }
  return writes;
}

void UpdateVersions(SymbolNode& node) {
  for (SymbolEntry& e : node.inputs) {
    if (e.node && e.node->is_variable()) e.version = e.node->version;
  }
  for (const Write& w : WritesOf(node)) {
    if (w.operand >= node.inputs.size()) continue;
    SymbolEntry& e = node.inputs[w.operand];
    if (!w.changes) continue;
    if (!e.node->is_variable()) {
      throw Error(
          ErrorCode::kInvalidArgument, "symbol/write",
          StrCat(Describe(node), " writes its argument '", node.op.def()->operands[w.operand].name,
                 "', which is ", Describe(*e.node), " and no variable"));
    }
    e.version = ++e.node->version;
  }
}

bool IsScalar(const SymbolNode& node) {
  if (node.is_variable() || !node.op.HasTrait<ConstantLike>() || !node.inputs.empty()) return false;
  const auto at = node.attrs.find("value");
  return at != node.attrs.end() && ParseDouble(at->second).has_value();
}

}  // namespace symbol
}  // namespace lathe
