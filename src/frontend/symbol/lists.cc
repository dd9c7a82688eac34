#include <algorithm>
#include <ostream>
#include <unordered_map>
#include <unordered_set>

#include "lathe/support/error.h"
#include "src/frontend/symbol/node.h"

namespace lathe {

using symbol::Entries;
using symbol::NodePtr;

namespace {

/// Shared handles of the nodes behind `outputs`, in post-order.
std::vector<NodePtr> NodesOf(const Entries& outputs) {
  std::unordered_map<const SymbolNode*, NodePtr> handles;  // look-up only
  for (const SymbolEntry& e : outputs) handles.emplace(e.node.get(), e.node);
  const std::vector<SymbolNode*> order = symbol::PostOrder(outputs);
  for (const SymbolNode* node : order) {
    for (const SymbolEntry& e : node->inputs) handles.emplace(e.node.get(), e.node);
    for (const NodePtr& d : node->control_deps) handles.emplace(d.get(), d);
  }
  std::vector<NodePtr> nodes;
  for (const SymbolNode* node : order) nodes.push_back(handles.at(node));
  return nodes;
}

std::string NameOf(const SymbolEntry& e) { return symbol::OutputName(*e.node, e.index); }

}  // namespace

Symbol Symbol::operator[](size_t index) const {
  if (index >= outputs_.size()) {
    throw Error(ErrorCode::kInvalidArgument, "symbol/output",
                StrCat("output ", index, " of a symbol with ", outputs_.size()));
  }
  return Symbol({outputs_[index]});
}

Symbol Symbol::operator[](std::string_view name) const {
  const std::vector<std::string> names = ListOutputNames();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) {
    Error error(ErrorCode::kNotFound, "symbol/output", StrCat("there is no output '", name, "'"));
    if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
    throw error;
  }
  return (*this)[static_cast<size_t>(at - names.begin())];
}

std::vector<Symbol> Symbol::ListInputs(ListInputOption option) const {
  const std::vector<NodePtr> nodes = NodesOf(outputs_);
  std::unordered_set<const SymbolNode*> states;  // asked only whether it holds a node
  if (option != kAll) {
    for (const NodePtr& node : nodes) {
      for (const symbol::Write& w : symbol::WritesOf(*node)) {
        if (w.operand < node->inputs.size()) states.insert(node->inputs[w.operand].node.get());
      }
    }
  }
  std::vector<Symbol> inputs;
  for (const NodePtr& node : nodes) {
    if (!node->is_variable()) continue;
    const bool is_state = states.count(node.get()) != 0;
    if (option == kAll || is_state == (option == kAuxiliaryStates)) {
      inputs.push_back(Symbol(symbol::VisibleOutputs(node)));
    }
  }
  return inputs;
}

std::vector<std::string> Symbol::ListInputNames(ListInputOption option) const {
  std::vector<std::string> names;
  for (const Symbol& input : ListInputs(option)) names.push_back(input.outputs_[0].node->name);
  return names;
}

std::vector<std::string> Symbol::ListOutputNames() const {
  std::vector<std::string> names;
  for (const SymbolEntry& e : outputs_) names.push_back(NameOf(e));
  return names;
}

Symbol Symbol::GetInternals() const {
  Entries internals;
  for (const NodePtr& node : NodesOf(outputs_)) {
    const Entries visible = symbol::VisibleOutputs(node);
    internals.insert(internals.end(), visible.begin(), visible.end());
  }
  return Symbol(std::move(internals));
}

Symbol Symbol::GetChildren() const {
  Entries children;
  std::unordered_set<const SymbolNode*> seen;  // asked only whether it holds a node
  for (const SymbolEntry& output : outputs_) {
    if (!seen.insert(output.node.get()).second) continue;
    for (const SymbolEntry& e : output.node->inputs) {
      if (e.node) children.push_back(e);
    }
  }
  return Symbol(std::move(children));
}

void Symbol::Print(std::ostream& os) const {
  for (size_t i = 0; i < outputs_.size(); ++i)
    os << "output " << i << ": " << NameOf(outputs_[i]) << '\n';
  for (const SymbolNode* node : symbol::PostOrder(outputs_)) {
    os << symbol::Describe(*node) << '\n';
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const SymbolEntry& e = node->inputs[i];
      os << "  argument " << i << ": " << (e.node ? NameOf(e) : "absent");
      if (e.version != 0) os << " version " << e.version;
      os << '\n';
    }
    for (const NodePtr& d : node->control_deps) os << "  after " << symbol::Describe(*d) << '\n';
    for (const auto& [key, text] : node->attrs) os << "  " << key << " = " << text << '\n';
  }
}

}  // namespace lathe
