#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/printable.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

/// Graph attribute of type std::vector<Node>: what to highlight. Consumed by the pass.
constexpr const char* kMarkedNodes = "__graphviz__marked_node__";
constexpr const char* kMarkedStyle = ", color=\"red\", penwidth=3";

/// `text` inside a double-quoted label of the dot language.
std::string Label(std::string_view text) {
  std::string out;
  for (const char c : Printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

bool IsParameter(const Operation* op) {
  return op != nullptr && op->name() == builtin::kGetParameter;
}

/// Writes the dot text of one block. Nodes are numbered in program order, so the text depends on
/// the program alone.
class DotWriter {
 public:
  DotWriter(const Graph& graph, const std::vector<Node>& marked) : graph_(graph) {
    for (const Node& node : marked) marked_.insert(Key(node));
  }
  std::string Write();

 private:
  static const void* Key(const Node& node) {
    return node.IsOp() ? static_cast<const void*>(node.op()) : node.value().impl();
  }
  bool IsMarked(const Node& node) const { return marked_.count(Key(node)) != 0; }
  void WriteOp(const Node& node);
  void WriteVariable(const Node& node);
  void WriteInputs(const Node& node);
  void WriteEdge(Value from, const std::string& to, const char* style);

  const Graph& graph_;
  std::unordered_set<const void*> marked_;                 // look-up only
  std::unordered_map<const Operation*, std::string> ops_;  // look-up only
  std::unordered_map<Value, std::string> variables_;
  std::string out_;
};

void DotWriter::WriteOp(const Node& node) {
  const std::string id = StrCat("op", ops_.size());
  ops_[node.op()] = id;
  std::string label = Label(node.Name());
  const Location location = node.op()->location();
  if (!location.is_unknown()) {
    label += "\\n" + Label(location.ToString(graph_.context()));
  }
  out_ += StrCat("  ", id, " [shape=box, style=\"filled\", fillcolor=\"#dce6f2\", label=\"", label,
                 "\"", IsMarked(node) ? kMarkedStyle : "", "];\n");
}

void DotWriter::WriteVariable(const Node& node) {
  const std::string id = StrCat("var", variables_.size());
  variables_[node.value()] = id;
  const Operation* maker = node.value().defining_op();
  const char* style = node.IsCtrlVar()     ? ", style=\"dashed\""
                      : IsParameter(maker) ? ", style=\"filled\", fillcolor=\"#f6d9a8\""
                                           : "";
  out_ += StrCat("  ", id, " [shape=ellipse, label=\"", Label(node.Name()), "\\n",
                 Label(node.value().type().ToString()), "\"", style,
                 IsMarked(node) ? kMarkedStyle : "", "];\n");
  if (maker != nullptr) {
    out_ += StrCat("  ", ops_.at(maker), " -> ", id, node.IsCtrlVar() ? " [style=\"dashed\"]" : "",
                   ";\n");
  }
}

void DotWriter::WriteEdge(Value from, const std::string& to, const char* style) {
  const auto at = variables_.find(from);
  if (at == variables_.end()) return;  // defined outside the block, or inside a region
  out_ += StrCat("  ", at->second, " -> ", to,
                 Node(from).IsCtrlVar() ? " [style=\"dashed\"]" : style, ";\n");
}

/// Operands, then what the regions of the op read from this block (dotted).
void DotWriter::WriteInputs(const Node& node) {
  const std::string& id = ops_.at(node.op());
  for (const Node& input : node.inputs()) WriteEdge(input.value(), id, "");
  std::unordered_set<Value> seen;  // asked only whether it holds a value
  for (OpWalker w(node.op()); const Operation* inner = w.Next();) {
    for (const detail::OpOperandImpl& o : inner->operands()) {
      const Value value(o.value);
      if (inner == node.op() || !value || !seen.insert(value).second) continue;
      WriteEdge(value, id, " [style=\"dotted\"]");
    }
  }
}

std::string DotWriter::Write() {
  out_ = "digraph G {\n  node [fontname=\"Helvetica\", fontsize=10];\n";
  for (const Node& node : graph_.Nodes()) {
    if (node.IsOp()) {
      WriteOp(node);
      WriteInputs(node);
    } else {
      WriteVariable(node);
    }
  }
  return out_ + "}\n";
}

/// A slip in the path must not cost a model.
void CheckMayReplace(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  const auto buffer = Buffer::MapFile(path);
  const std::string_view text(reinterpret_cast<const char*>(buffer->data()), buffer->size());
  if (text.empty() || text.starts_with("digraph ")) return;
  throw Error(ErrorCode::kInvalidArgument, "output/foreign",
              "there is a file of this name, which is not a Graphviz file that Lathe has written")
      .At(path)
      .Hint("give another name, or remove it");
}

}  // namespace

/// Draws; changes nothing.
class GraphVizPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Node> marked;
    if (graph.Has(kMarkedNodes)) marked = graph.MoveCopyAttr<std::vector<Node>>(kMarkedNodes);
    CheckMayReplace(option("path"));
    WriteFile(option("path"), DotWriter(graph, marked).Write());
  }
};

REGISTER_PASS(graph_viz, GraphVizPass)
    .Doc("writes the graph as a Graphviz file; changes nothing")
    .Details(
        "Ops are boxes, variables ellipses, parameters colored, control dependencies dashed; what "
        "a region reads from outside is dotted. Nodes in the graph attribute "
        "__graphviz__marked_node__ (std::vector<Node>) are highlighted; the attribute is consumed.")
    .Option("path", PassOption::Kind::kString, "graph.dot", "where to write; -: standard output");

}  // namespace lathe
