#include "lathe/driver/node_list.h"

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/walk.h"
#include "lathe/support/printable.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

bool IsNode(const Operation& op) {
  return op.name() != nn::kFeed && op.name() != nn::kFetch && op.name() != builtin::kGetParameter &&
         op.name() != cf::kYield;
}

int DepthOf(const Operation& op, const Program& program) {
  int depth = 0;
  for (const Operation* at = &op; at->block() != program.block(); at = at->parent_op()) ++depth;
  return depth;
}

}  // namespace

std::vector<NodeSummary> NodesOf(const Program& program) {
  const ValueNames names(program);
  std::vector<NodeSummary> nodes;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    if (!IsNode(*op)) continue;
    NodeSummary& node = nodes.emplace_back();
    node.op = op->name();
    if (op->location().is_name()) node.name = op->location().name();
    node.depth = DepthOf(*op, program);
    for (size_t i = 0; i < op->num_operands(); ++i) node.inputs.push_back(names.Of(op->operand(i)));
    for (size_t i = 0; i < op->num_results(); ++i) {
      node.outputs.push_back({names.Of(op->result(i)), op->result(i).type().ToString()});
    }
  }
  return nodes;
}

std::string RenderNodes(const std::vector<NodeSummary>& nodes) {
  std::string text = StrCat("nodes  ", nodes.size(), "\n");
  for (const NodeSummary& node : nodes) {
    std::string line(2 + 2 * static_cast<size_t>(node.depth), ' ');
    if (!node.name.empty()) line += PrintableLine(node.name) + "  ";
    line += node.op + "(";
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      line += StrCat(i == 0 ? "" : ", ", PrintableLine(node.inputs[i]));
    }
    line += ")";
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const SummaryPort& output = node.outputs[i];
      line += StrCat(i == 0 ? " -> " : ", ", PrintableLine(output.name), " ", output.type);
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace lathe
