#include <algorithm>
#include <queue>

#include "lathe/support/error.h"
#include "src/frontend/onnx/importer.h"

namespace lathe::onnx {

namespace {

void CollectReads(const NodeMsg& node, std::vector<Text>& reads);

void AddMade(const GraphMsg& graph, std::unordered_set<Text>& made) {
  for (const ValueInfoMsg& input : graph.inputs) made.insert(input.name);
  for (const TensorMsg& initializer : graph.initializers) made.insert(initializer.name);
  for (const NodeMsg& node : graph.nodes) made.insert(node.outputs.begin(), node.outputs.end());
}

// What a subgraph reads from the graphs around it. Graphs nest no deeper than the reader allows.
void CollectReads(const GraphMsg& graph, std::vector<Text>& reads) {
  std::vector<Text> inside;
  for (const NodeMsg& node : graph.nodes) CollectReads(node, inside);
  for (const ValueInfoMsg& output : graph.outputs) inside.push_back(output.name);
  std::unordered_set<Text> made;
  AddMade(graph, made);
  for (const Text name : inside) {
    if (made.count(name) == 0) reads.push_back(name);
  }
}

void CollectReads(const NodeMsg& node, std::vector<Text>& reads) {
  reads.insert(reads.end(), node.inputs.begin(), node.inputs.end());
  for (const AttributeMsg& a : node.attributes) {
    for (const auto& graph : a.graphs) CollectReads(*graph, reads);
  }
}

using Makers = std::unordered_map<Text, size_t>;

Makers IndexOutputs(const std::vector<NodeMsg>& nodes) {
  Makers makers;
  makers.reserve(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Text output : nodes[i].outputs) {
      if (!output.empty()) makers.try_emplace(output, i);
    }
  }
  return makers;
}

// For each node the nodes that it must follow.
std::vector<std::vector<size_t>> Dependencies(const std::vector<NodeMsg>& nodes, bool& in_order) {
  const Makers makers = IndexOutputs(nodes);
  std::vector<std::vector<size_t>> result(nodes.size());
  std::vector<Text> reads;
  in_order = true;
  for (size_t i = 0; i < nodes.size(); ++i) {
    reads.clear();
    CollectReads(nodes[i], reads);
    for (const Text name : reads) {
      const auto maker = makers.find(name);
      if (maker == makers.end()) continue;
      result[i].push_back(maker->second);
      in_order &= maker->second < i;
    }
  }
  return result;
}

[[noreturn]] void FailCycle(const std::vector<NodeMsg>& nodes, const std::vector<size_t>& waiting) {
  Error error(ErrorCode::kInvalidArgument, "onnx/cycle", "the nodes of the graph form a cycle");
  size_t shown = 0;
  for (size_t i = 0; i < nodes.size() && shown < 5; ++i) {
    if (waiting[i] == 0) continue;
    const Text name = !nodes[i].name.empty()      ? nodes[i].name
                      : !nodes[i].outputs.empty() ? nodes[i].outputs[0]
                                                  : Text("?");
    error.Note(
        StrCat(Shown(nodes[i].op_type), " ", Shown(name), " is part of it or depends on it"));
    ++shown;
  }
  throw std::move(error).Hint("an ONNX graph must be acyclic; loops are Loop or Scan nodes");
}

}  // namespace

std::vector<const NodeMsg*> InDependencyOrder(const std::vector<NodeMsg>& nodes) {
  bool in_order = true;
  const auto dependencies = Dependencies(nodes, in_order);
  std::vector<const NodeMsg*> order;
  order.reserve(nodes.size());
  if (in_order) {
    for (const NodeMsg& node : nodes) order.push_back(&node);
    return order;
  }
  std::vector<std::vector<size_t>> users(nodes.size());
  std::vector<size_t> waiting(nodes.size());
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    waiting[i] = dependencies[i].size();
    for (const size_t maker : dependencies[i]) users[maker].push_back(i);
    if (waiting[i] == 0) ready.push(i);
  }
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    order.push_back(&nodes[i]);
    for (const size_t user : users[i]) {
      if (--waiting[user] == 0) ready.push(user);
    }
  }
  if (order.size() < nodes.size()) FailCycle(nodes, waiting);
  return order;
}

}  // namespace lathe::onnx
