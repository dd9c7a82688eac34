#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/pass/graph.h"
#include "lathe/pass/rule.h"

/// Sub-graph patterns as graphs of nodes (S2). For rewrites of one value `rule.h` is shorter.
namespace lathe {

class PDPattern;

namespace detail {
class DetectorRun;
class GroupRun;
}  // namespace detail

/// One node of a pattern: what a graph node must be to stand there. All assertions must hold.
/// Names of arguments are those of the op declaration ("x", "w"), counted from 0 when variadic.
class PDNode {
 public:
  using Teller = std::function<bool(const Node&)>;
  enum class Role : uint8_t { kUnknown, kInput, kOutput, kIntermediate };
  enum class Kind : uint8_t { kAny, kOp, kVar };

  const std::string& name() const { return name_; }
  Role role() const { return role_; }
  Kind kind() const { return kind_; }
  bool is_op() const { return kind_ == Kind::kOp; }
  /// So that calls chain with either `.` or `->` behind LinksFrom and LinksTo.
  PDNode* operator->() { return this; }

  // ---- links; an op and a variable alternate ----
  /// `a.LinksFrom({b, c})`: edges b -> a and c -> a.
  PDNode& LinksFrom(const std::vector<PDNode*>& from);
  PDNode& LinksTo(const std::vector<PDNode*>& to);

  // ---- roles ----
  /// Input and output nodes may stand in several matches; so may variables without a role.
  PDNode* AsInput();
  PDNode* AsOutput();
  /// Belongs to one match only and has no consumer outside it; gone after the rewrite. Of an op,
  /// that goes for results that the pattern does not name; those of an op without outgoing links
  /// are outputs of the match and may be read.
  PDNode* AsIntermediate();

  // ---- assertions ----
  PDNode* assert_is_op();
  PDNode* assert_is_op(const std::string& type);
  PDNode* assert_is_ops(const std::vector<std::string>& types);
  PDNode* assert_is_not_op_type(const std::string& type);
  PDNode* assert_is_var();
  PDNode* assert_var_dtype(ElementType type);
  PDNode* assert_is_not_ctrl_var();
  PDNode* assert_var_not_persistable();
  PDNode* assert_is_persistable_var();  ///< an immutable or mutable parameter
  PDNode* assert_is_constant_var();     ///< known at compile time
  /// A variable that an op of this type reads (as `arg`). When the pattern links the variable to
  /// such ops, it is one of these that reads it so.
  PDNode* assert_is_op_input(const std::string& type, const std::string& arg = "");
  PDNode* assert_is_op_output(const std::string& type, const std::string& arg = "");
  PDNode* assert_is_ops_input(const std::vector<std::string>& types, const std::string& arg = "");
  PDNode* assert_is_ops_output(const std::vector<std::string>& types, const std::string& arg = "");
  /// The `nth` value of the variadic `arg`.
  PDNode* assert_is_op_nth_input(const std::string& type, const std::string& arg, int nth);
  PDNode* assert_is_op_nth_output(const std::string& type, const std::string& arg, int nth);
  PDNode* assert_is_ops_nth_input(const std::vector<std::string>& types, const std::string& arg,
                                  int nth);
  PDNode* assert_is_ops_nth_output(const std::vector<std::string>& types, const std::string& arg,
                                   int nth);
  PDNode* assert_is_only_input_of_op(const std::string& type);
  PDNode* assert_is_only_output_of_op(const std::string& type);
  PDNode* assert_is_only_input_of_ops(const std::vector<std::string>& types);
  PDNode* assert_is_only_output_of_ops(const std::vector<std::string>& types);
  /// An op that lacks the optional operand `arg`.
  PDNode* assert_is_not_op_input(const std::string& arg);
  PDNode* assert_op_has_n_inputs(const std::string& type, size_t n);
  PDNode* assert_op_has_n_outputs(const std::string& type, size_t n);
  /// Op: operands that are there; variable: 1 if an op makes it.
  PDNode* assert_has_n_inputs(size_t n);
  /// Op: results; variable: ops that read it.
  PDNode* assert_has_n_outputs(size_t n);
  template <class T>
  PDNode* assert_op_attr(const std::string& name, const T& value) {
    return AssertAttr(name, Literal(value));
  }
  PDNode* assert_op_attr(const std::string& name, std::function<bool(Attribute)> holds,
                         std::string what);
  /// All attributes but `mentioned` have their default values.
  PDNode* assert_op_attrs_default(std::vector<std::string> mentioned = {});
  PDNode* assert_more(Teller teller, std::string what = "more");

 private:
  friend class PDPattern;
  friend class detail::DetectorRun;
  using Test = std::function<bool(const Node&, const Program&)>;
  struct Assertion {
    std::string what;  ///< for explanations: "is op nn.add"
    Test holds;
  };
  /// That some op reads the variable in a certain way; tested on linked ops first.
  struct UseAssertion {
    std::string what;
    std::vector<std::string> types;
    std::function<bool(const OpOperand&)> holds;
  };
  /// A name that the pattern takes from op declarations, to be looked up in a context.
  struct Mention {
    enum class What : uint8_t { kType, kOperand, kResult, kAttribute };
    What what;
    std::vector<std::string> types;  ///< of kAttribute: those of the node
    std::string name;
  };
  PDNode(PDPattern* pattern, std::string name) : pattern_(pattern), name_(std::move(name)) {}
  PDNode* Assert(std::string what, Test holds);
  PDNode* AssertKind(Kind kind);
  PDNode* AssertUse(std::string what, const std::vector<std::string>& types,
                    std::function<bool(const OpOperand&)> holds);
  PDNode* AssertAttr(const std::string& name, AttrLiteral value);
  void MentionOps(const std::vector<std::string>& types, Mention::What what = Mention::What::kType,
                  const std::string& name = "");
  void CheckMention(const Mention& mention, IrContext& context) const;
  static AttrLiteral Literal(bool v) { return v; }
  static AttrLiteral Literal(int v) { return static_cast<int64_t>(v); }
  static AttrLiteral Literal(int64_t v) { return v; }
  static AttrLiteral Literal(float v) { return static_cast<double>(v); }
  static AttrLiteral Literal(double v) { return v; }
  static AttrLiteral Literal(std::string v) { return v; }
  static AttrLiteral Literal(const char* v) { return std::string(v); }
  static AttrLiteral Literal(std::vector<int64_t> v) { return v; }

  PDPattern* pattern_;
  std::string name_;
  size_t index_ = 0;
  Role role_ = Role::kUnknown;
  Kind kind_ = Kind::kAny;
  std::vector<std::string> op_types_;  ///< allowed op types, for the index by root op; empty: any
  std::vector<Assertion> assertions_;
  std::vector<UseAssertion> uses_;
  std::vector<Mention> mentions_;
};

/// A sub-graph to look for: nodes and edges. Two nodes of a pattern never stand for one graph node.
class PDPattern {
 public:
  PDPattern() = default;
  PDPattern(const PDPattern&) = delete;
  PDPattern& operator=(const PDPattern&) = delete;
  /// A repeated name is an error (pattern/duplicate-node); an empty one is made up.
  PDNode* NewNode(const std::string& name = "");
  PDNode* NewNode(PDNode::Teller teller, const std::string& name = "");
  /// Null if there is none of that name.
  PDNode* RetrieveNode(std::string_view name) const;
  /// An edge from a node to itself, between two ops or between two variables is an error
  /// (pattern/edge).
  void AddEdge(PDNode* from, PDNode* to);
  const std::vector<std::unique_ptr<PDNode>>& nodes() const { return nodes_; }
  const std::vector<std::pair<PDNode*, PDNode*>>& edges() const { return edges_; }
  /// Graphviz text of the pattern with roles and assertions; the same for the same pattern.
  std::string DotString() const;
  /// That the ops, arguments and attributes it names are declared, else that of
  /// IrContext::GetOrMakeOp, pattern/argument or pattern/attribute. The detector asks.
  void CheckNames(IrContext& context) const;

 private:
  std::vector<std::unique_ptr<PDNode>> nodes_;
  std::vector<std::pair<PDNode*, PDNode*>> edges_;
};

/// Finds the matches of one pattern and hands them out, in program order of their roots. The root
/// is the op node of the pattern with the fewest candidates in the graph.
class GraphPatternDetector {
 public:
  using subgraph_t = std::map<PDNode*, Node>;  // keyed by pattern node; look-up only
  using handle_t = std::function<void(const subgraph_t&, Graph*)>;

  PDPattern* mutable_pattern() { return &pattern_; }
  const PDPattern& pattern() const { return pattern_; }
  /// Calls `handler` for each match. Roots are the ops that stand in the block at the start; each
  /// match is looked for in the graph as the handlers before have left it, so all its nodes are
  /// there. Of overlapping matches the first in program order wins; a root that may stand in
  /// several is handed out with each of them. Near linear in the graph.
  /// Returns the number of matches handed out.
  int operator()(Graph* graph, const handle_t& handler);
  /// Why near matches failed, one line each, newest run: for --explain.
  const std::vector<std::string>& explanations() const { return explanations_; }
  void set_explain(bool explain) { explain_ = explain; }

 private:
  PDPattern pattern_;
  bool explain_ = false;
  std::vector<std::string> explanations_;
};

/// Patterns that are looked for together. Of overlapping matches that wins which begins first in
/// program order (its first op counts), then that of the greater benefit, then that of the pattern
/// added first. All else is as for one pattern.
class PatternGroup {
 public:
  /// A pattern, to be filled, and what its matches are given to.
  PDPattern* Add(std::string name, GraphPatternDetector::handle_t handler, int benefit = 1);
  /// Returns the number of matches handed out.
  int operator()(Graph* graph);
  /// Why near matches failed, each begins with the name of its pattern.
  const std::vector<std::string>& explanations() const { return explanations_; }
  void set_explain(bool explain) { explain_ = explain; }

 private:
  friend class detail::GroupRun;
  struct Entry {
    std::string name;
    PDPattern pattern;
    GraphPatternDetector::handle_t handler;
    int benefit = 1;
  };
  std::vector<std::unique_ptr<Entry>> entries_;
  bool explain_ = false;
  std::vector<std::string> explanations_;
};

}  // namespace lathe
