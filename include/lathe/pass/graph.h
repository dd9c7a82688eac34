#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/ir/builder.h"
#include "lathe/ir/program.h"
#include "lathe/pass/any_attrs.h"

namespace lathe {

/// One node of a graph: an operation, or a value (a variable). Two words, passed by value; always
/// in step with the program because it holds nothing else.
class Node {
 public:
  constexpr Node() = default;
  explicit constexpr Node(Operation* op) : op_(op) {}
  explicit Node(Value value) : value_(value) {}
  explicit operator bool() const { return op_ != nullptr || value_; }
  bool operator==(const Node&) const = default;

  bool IsOp() const { return op_ != nullptr; }
  bool IsVar() const { return static_cast<bool>(value_); }
  /// A variable of type `token`: a control dependency.
  bool IsCtrlVar() const;
  Operation* op() const { return op_; }
  Value value() const { return value_; }
  /// Op: its type name. Variable: parameter or feed name if it has one, else "op#result".
  std::string Name() const;
  /// Op: operands (absent ones left out) and results. Variable: its maker, and its users in program
  /// order, each once.
  std::vector<Node> inputs() const;
  std::vector<Node> outputs() const;

 private:
  Operation* op_ = nullptr;
  Value value_;
};

class IndexedGraph;

/// A light view of one block as a graph of op nodes and variable nodes, with attributes. Copies
/// nothing and is never out of step with the program.
class Graph : public AnyAttrs {
 public:
  Graph(Program& program, Block* block) : AnyAttrs("graph"), program_(program), block_(block) {}
  explicit Graph(Program& program) : Graph(program, program.block()) {}

  Program& program() const { return program_; }
  Block* block() const { return block_; }
  IrContext& context() const { return program_.context(); }

  /// All nodes in program order: an op before its results; block arguments first.
  std::vector<Node> Nodes() const;
  /// The block's operations, each after what it reads (by itself or in its regions), otherwise in
  /// program order. Throws graph/cycle if some read one another.
  std::vector<Operation*> TopologySortOperations() const;
  /// Puts the block into that order.
  void SortTopologically();
  /// Operations that read one another in a circle, in program order; empty if there is none. Only a
  /// program that does not verify has one.
  std::vector<Operation*> FindCircle() const;
  bool HasCircle() const { return !FindCircle().empty(); }
  /// How many parts the graph has that no value joins.
  size_t GraphNum() const;
  /// The numbering of the block as it is now. The reference holds until the block changes: ask
  /// again then, and get a new one. O(operations) to see that nothing has changed.
  const IndexedGraph& indexed_graph() const;

  /// A new operation at the end of the block, before its terminator.
  Node CreateOpNode(std::string_view op, std::span<const Value> operands,
                    std::span<const NamedAttribute> attributes = {},
                    std::span<const Type> result_types = {});
  /// A parameter of the program with that type and zeros, read by a new get_parameter.
  Node CreateVarNode(std::string_view name, Type type);
  /// Makes `after` wait for `before`: a token of the results of `before`, on which operand 0 of
  /// `after` depends. Both must be operations of this block, `before` first.
  Node CreateControlDepVar(Node before, Node after);
  /// An op of no meaning that holds a place.
  Node CreateEmptyNode(std::string_view name);
  /// Takes all operations out of the block and gives them to the caller, in order.
  std::vector<OwningOp> ReleaseNodes();
  /// Erases `nodes`; ops whose results are used outside `nodes` are an error.
  void RemoveNodes(std::span<const Node> nodes);

 private:
  Program& program_;
  Block* block_;
  mutable std::shared_ptr<const IndexedGraph> indexed_;
};

/// An immutable numbering of a snapshot of a block [NNVM]: nodes in deterministic post-order from
/// the outputs (then what no output needs, in program order), inputs and control dependencies in
/// CSR form. Graph::indexed_graph() never gives one that is older than the last change.
class IndexedGraph {
 public:
  struct Entry {
    uint32_t node;
    uint32_t index;  ///< result of that node
    bool operator==(const Entry&) const = default;
  };
  explicit IndexedGraph(const Graph& graph);

  /// The block holds the same operations with the same operands in the same order.
  bool is_current() const;
  size_t num_nodes() const { return nodes_.size(); }
  size_t num_entries() const { return entry_base_.back(); }
  /// The operation of node `i`, or the block argument's value when it has none.
  Node operator[](uint32_t i) const { return nodes_[i]; }
  /// Throws graph/no-node for what is not in the block.
  uint32_t node_id(Node node) const;
  uint32_t entry_id(uint32_t node, uint32_t index) const { return entry_base_[node] + index; }
  uint32_t entry_id(Entry e) const { return entry_id(e.node, e.index); }
  std::span<const Entry> inputs(uint32_t node) const;
  std::span<const uint32_t> control_deps(uint32_t node) const;
  /// Nodes without inputs: feeds, parameters, constants, block arguments; in order.
  const std::vector<uint32_t>& input_nodes() const { return input_nodes_; }
  /// Of these, parameters that an op writes.
  const std::vector<uint32_t>& mutable_input_nodes() const { return mutable_input_nodes_; }
  const std::vector<Entry>& outputs() const { return outputs_; }

 private:
  const Block* block_;
  uint64_t fingerprint_;
  std::unordered_map<const void*, uint32_t> ids_;  // look-up only
  std::vector<Node> nodes_;
  std::vector<uint32_t> entry_base_, input_base_, control_base_;
  std::vector<Entry> inputs_;
  std::vector<uint32_t> controls_, input_nodes_, mutable_input_nodes_;
  std::vector<Entry> outputs_;
};

}  // namespace lathe
