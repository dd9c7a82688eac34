#include <algorithm>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pattern_detector.h"

namespace lathe {

namespace {

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : " or ") + n;
  return text;
}

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether value `position` of the op is `arg` (its `nth` value if not negative).
bool IsArgument(std::span<const ValueDef> declared, const std::string& arg, int nth,
                size_t position) {
  for (size_t i = 0; i < declared.size(); ++i) {
    if (arg != declared[i].name) continue;
    if (!declared[i].variadic) return position == i && nth <= 0;
    return nth < 0 ? position >= i : position == i + static_cast<size_t>(nth);
  }
  return false;
}

bool ReadsAs(const OpOperand& use, const std::string& arg, int nth) {
  if (arg.empty()) return true;
  const OpDef* def = use.owner()->info().def();
  return def != nullptr && IsArgument(def->operands, arg, nth, use.index());
}

bool MadeAs(Value value, const std::string& arg, int nth) {
  if (arg.empty()) return true;
  const OpDef* def = value.defining_op()->info().def();
  return def != nullptr && IsArgument(def->results, arg, nth, value.index());
}

size_t NumPresentOperands(const Operation* op) {
  size_t n = 0;
  for (size_t i = 0; i < op->num_operands(); ++i) n += op->operand(i) ? 1 : 0;
  return n;
}

const Operation* MakerOf(const Node& node) {
  return node.IsVar() ? node.value().defining_op() : nullptr;
}

bool IsParameter(const Node& node) {
  const Operation* maker = MakerOf(node);
  return maker != nullptr && maker->name() == kGetParameterOp;
}

std::string ArgText(const std::string& arg, int nth) {
  if (arg.empty()) return "";
  return nth < 0 ? StrCat(" as ", arg) : StrCat(" as ", arg, " ", nth);
}

}  // namespace

// ---- links and roles ----

PDNode& PDNode::LinksFrom(const std::vector<PDNode*>& from) {
  for (PDNode* node : from) pattern_->AddEdge(node, this);
  return *this;
}
PDNode& PDNode::LinksTo(const std::vector<PDNode*>& to) {
  for (PDNode* node : to) pattern_->AddEdge(this, node);
  return *this;
}

PDNode* PDNode::AsInput() {
  role_ = Role::kInput;
  return this;
}
PDNode* PDNode::AsOutput() {
  role_ = Role::kOutput;
  return this;
}
PDNode* PDNode::AsIntermediate() {
  role_ = Role::kIntermediate;
  return this;
}

// ---- assertions ----

PDNode* PDNode::Assert(std::string what, Test holds) {
  assertions_.push_back({std::move(what), std::move(holds)});
  return this;
}

PDNode* PDNode::AssertKind(Kind kind) {
  if (kind_ != Kind::kAny && kind_ != kind) {
    throw Error(ErrorCode::kInvalidArgument, "pattern/kind",
                StrCat("pattern node '", name_, "' is asserted to be an op and a variable"));
  }
  if (kind_ == Kind::kAny) {
    const bool op = kind == Kind::kOp;
    Assert(op ? "is an op" : "is a variable",
           [op](const Node& n, const Program&) { return op ? n.IsOp() : n.IsVar(); });
  }
  kind_ = kind;
  return this;
}

PDNode* PDNode::AssertUse(std::string what, const std::vector<std::string>& types,
                          std::function<bool(const OpOperand&)> holds) {
  AssertKind(Kind::kVar);
  uses_.push_back({std::move(what), types, std::move(holds)});
  return this;
}

void PDNode::MentionOps(const std::vector<std::string>& types, Mention::What what,
                        const std::string& name) {
  mentions_.push_back({what, types, name});
}

PDNode* PDNode::assert_is_op() { return AssertKind(Kind::kOp); }
PDNode* PDNode::assert_is_op(const std::string& type) { return assert_is_ops({type}); }
PDNode* PDNode::assert_is_ops(const std::vector<std::string>& types) {
  AssertKind(Kind::kOp);
  op_types_ = types;
  MentionOps(types);
  return Assert("is op " + Listed(types),
                [types](const Node& n, const Program&) { return Contains(types, n.op()->name()); });
}
PDNode* PDNode::assert_is_not_op_type(const std::string& type) {
  AssertKind(Kind::kOp);
  MentionOps({type});
  return Assert("is not op " + type,
                [type](const Node& n, const Program&) { return n.op()->name() != type; });
}
PDNode* PDNode::assert_is_var() { return AssertKind(Kind::kVar); }
PDNode* PDNode::assert_var_dtype(ElementType type) {
  AssertKind(Kind::kVar);
  return Assert(StrCat("has elements of type ", Name(type)), [type](const Node& n, const Program&) {
    const auto tensor = n.value().type().dyn_cast<AnyTensorType>();
    return tensor && tensor.element() == type;
  });
}
PDNode* PDNode::assert_is_not_ctrl_var() {
  AssertKind(Kind::kVar);
  return Assert("is not a control dependency",
                [](const Node& n, const Program&) { return !n.IsCtrlVar(); });
}
PDNode* PDNode::assert_var_not_persistable() {
  AssertKind(Kind::kVar);
  return Assert("is not a parameter",
                [](const Node& n, const Program&) { return !IsParameter(n); });
}
PDNode* PDNode::assert_is_persistable_var() {
  AssertKind(Kind::kVar);
  return Assert("is a parameter", [](const Node& n, const Program&) { return IsParameter(n); });
}
PDNode* PDNode::assert_is_constant_var() {
  AssertKind(Kind::kVar);
  return Assert("is known at compile time", [](const Node& n, const Program& program) {
    return ConstantValue(program, n.value()) != nullptr;
  });
}

PDNode* PDNode::assert_is_op_input(const std::string& type, const std::string& arg) {
  return assert_is_ops_nth_input({type}, arg, -1);
}
PDNode* PDNode::assert_is_ops_input(const std::vector<std::string>& types, const std::string& arg) {
  return assert_is_ops_nth_input(types, arg, -1);
}
PDNode* PDNode::assert_is_op_nth_input(const std::string& type, const std::string& arg, int nth) {
  return assert_is_ops_nth_input({type}, arg, nth);
}
PDNode* PDNode::assert_is_ops_nth_input(const std::vector<std::string>& types,
                                        const std::string& arg, int nth) {
  MentionOps(types, Mention::What::kOperand, arg);
  return AssertUse(StrCat("is read by ", Listed(types), ArgText(arg, nth)), types,
                   [arg, nth](const OpOperand& use) { return ReadsAs(use, arg, nth); });
}
PDNode* PDNode::assert_is_only_input_of_op(const std::string& type) {
  return assert_is_only_input_of_ops({type});
}
PDNode* PDNode::assert_is_only_input_of_ops(const std::vector<std::string>& types) {
  MentionOps(types);
  return AssertUse(StrCat("is the only input of ", Listed(types)), types,
                   [](const OpOperand& use) { return NumPresentOperands(use.owner()) == 1; });
}

PDNode* PDNode::assert_is_op_output(const std::string& type, const std::string& arg) {
  return assert_is_ops_nth_output({type}, arg, -1);
}
PDNode* PDNode::assert_is_ops_output(const std::vector<std::string>& types,
                                     const std::string& arg) {
  return assert_is_ops_nth_output(types, arg, -1);
}
PDNode* PDNode::assert_is_op_nth_output(const std::string& type, const std::string& arg, int nth) {
  return assert_is_ops_nth_output({type}, arg, nth);
}
PDNode* PDNode::assert_is_ops_nth_output(const std::vector<std::string>& types,
                                         const std::string& arg, int nth) {
  AssertKind(Kind::kVar);
  MentionOps(types, Mention::What::kResult, arg);
  return Assert(StrCat("is made by ", Listed(types), ArgText(arg, nth)),
                [types, arg, nth](const Node& n, const Program&) {
                  const Operation* maker = MakerOf(n);
                  return maker != nullptr && Contains(types, maker->name()) &&
                         MadeAs(n.value(), arg, nth);
                });
}
PDNode* PDNode::assert_is_only_output_of_op(const std::string& type) {
  return assert_is_only_output_of_ops({type});
}
PDNode* PDNode::assert_is_only_output_of_ops(const std::vector<std::string>& types) {
  AssertKind(Kind::kVar);
  MentionOps(types);
  return Assert(
      StrCat("is the only output of ", Listed(types)), [types](const Node& n, const Program&) {
        const Operation* maker = MakerOf(n);
        return maker != nullptr && Contains(types, maker->name()) && maker->num_results() == 1;
      });
}

PDNode* PDNode::assert_is_not_op_input(const std::string& arg) {
  AssertKind(Kind::kOp);
  MentionOps({}, Mention::What::kOperand, arg);
  return Assert("has no operand " + arg, [arg](const Node& n, const Program&) {
    const OpDef* def = n.op()->info().def();
    if (def == nullptr) return false;
    for (size_t i = 0; i < n.op()->num_operands(); ++i) {
      if (n.op()->operand(i) && IsArgument(def->operands, arg, -1, i)) return false;
    }
    return true;
  });
}
PDNode* PDNode::assert_op_has_n_inputs(const std::string& type, size_t n) {
  return assert_is_op(type)->assert_has_n_inputs(n);
}
PDNode* PDNode::assert_op_has_n_outputs(const std::string& type, size_t n) {
  return assert_is_op(type)->assert_has_n_outputs(n);
}
PDNode* PDNode::assert_has_n_inputs(size_t n) {
  return Assert(StrCat("has ", n, " inputs"), [n](const Node& node, const Program&) {
    return n == (node.IsOp() ? NumPresentOperands(node.op()) : node.inputs().size());
  });
}
PDNode* PDNode::assert_has_n_outputs(size_t n) {
  return Assert(StrCat("has ", n, " outputs"), [n](const Node& node, const Program&) {
    return n == (node.IsOp() ? node.op()->num_results() : node.outputs().size());
  });
}
PDNode* PDNode::AssertAttr(const std::string& name, AttrLiteral value) {
  return assert_op_attr(
      name, [value = std::move(value)](Attribute a) { return a && Holds(a, value); },
      "attribute " + name + " has the value asked for");
}
PDNode* PDNode::assert_op_attr(const std::string& name, std::function<bool(Attribute)> holds,
                               std::string what) {
  AssertKind(Kind::kOp);
  MentionOps({}, Mention::What::kAttribute, name);
  return Assert(std::move(what), [name, holds = std::move(holds)](const Node& n, const Program&) {
    return holds(n.op()->attribute(name));
  });
}
PDNode* PDNode::assert_op_attrs_default(std::vector<std::string> mentioned) {
  AssertKind(Kind::kOp);
  return Assert("has default attributes",
                [mentioned = std::move(mentioned)](const Node& n, const Program&) {
                  const OpInfoImpl& info = *n.op()->info().impl();
                  const auto names = info.attribute_names();
                  for (size_t i = 0; i < names.size(); ++i) {
                    if (n.op()->attributes().Find(names[i]) != info.default_value(i) &&
                        !Contains(mentioned, names[i].value())) {
                      return false;
                    }
                  }
                  return true;
                });
}
PDNode* PDNode::assert_more(Teller teller, std::string what) {
  return Assert(std::move(what),
                [teller = std::move(teller)](const Node& n, const Program&) { return teller(n); });
}

// ---- patterns ----

PDNode* PDPattern::NewNode(const std::string& name) {
  std::string unique = name;
  for (size_t i = nodes_.size(); unique.empty() || (name.empty() && RetrieveNode(unique)); ++i) {
    unique = StrCat("pdnode-", i);
  }
  if (RetrieveNode(unique) != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "pattern/duplicate-node",
                StrCat("the pattern has a node '", unique, "' already"));
  }
  nodes_.push_back(std::unique_ptr<PDNode>(new PDNode(this, std::move(unique))));
  nodes_.back()->index_ = nodes_.size() - 1;
  return nodes_.back().get();
}
PDNode* PDPattern::NewNode(PDNode::Teller teller, const std::string& name) {
  return NewNode(name)->assert_more(std::move(teller), "is as its teller says");
}

PDNode* PDPattern::RetrieveNode(std::string_view name) const {
  for (const auto& node : nodes_) {
    if (node->name() == name) return node.get();
  }
  return nullptr;
}

void PDPattern::AddEdge(PDNode* from, PDNode* to) {
  const char* wrong = nullptr;
  if (from == to) wrong = "a node is linked to itself";
  if (from->kind() != PDNode::Kind::kAny && from->kind() == to->kind()) {
    wrong = from->is_op() ? "two ops are linked without a variable between them"
                          : "two variables are linked without an op between them";
  }
  if (wrong != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "pattern/edge",
                StrCat(wrong, ": '", from->name(), "' -> '", to->name(), "'"));
  }
  edges_.emplace_back(from, to);
}

namespace {

/// Whether a declaration has the name; `known` gathers those it has.
bool Declares(std::span<const ValueDef> declared, const std::string& name,
              std::vector<std::string>& known) {
  for (const ValueDef& v : declared) known.emplace_back(v.name);
  return Contains(known, name);
}

bool DeclaresAttribute(OpInfo info, const std::string& name, std::vector<std::string>& known) {
  for (const StrAttribute n : info.impl()->attribute_names()) known.emplace_back(n.value());
  return Contains(known, name);
}

}  // namespace

void PDNode::CheckMention(const Mention& mention, IrContext& context) const {
  const std::vector<std::string>& types = mention.types.empty() ? op_types_ : mention.types;
  std::vector<std::string> known;
  for (const std::string& type : types) {
    const OpInfo info = context.GetOrMakeOp(type);
    if (mention.name.empty()) continue;
    if (info.def() == nullptr) return;  // its names are not known
    const bool found = mention.what == Mention::What::kAttribute
                           ? DeclaresAttribute(info, mention.name, known)
                       : mention.what == Mention::What::kResult
                           ? Declares(info.def()->results, mention.name, known)
                           : Declares(info.def()->operands, mention.name, known);
    if (found) return;
  }
  if (mention.name.empty() || types.empty()) return;
  const bool attribute = mention.what == Mention::What::kAttribute;
  Error error(ErrorCode::kNotFound, attribute ? "pattern/attribute" : "pattern/argument",
              StrCat(Listed(types), " has no ",
                     attribute                                ? "attribute"
                     : mention.what == Mention::What::kResult ? "result"
                                                              : "operand",
                     " '", mention.name, "'"));
  for (const std::string& near : Nearest(mention.name, known)) {
    error.Hint(StrCat("did you mean '", near, "'?"));
  }
  throw error;
}

void PDPattern::CheckNames(IrContext& context) const {
  for (const auto& node : nodes_) {
    for (const PDNode::Mention& mention : node->mentions_) {
      try {
        node->CheckMention(mention, context);
      } catch (Error& error) {
        error.Note(StrCat("pattern node '", node->name(), "' names it"));
        throw;
      }
    }
  }
}

std::string PDPattern::DotString() const {
  static constexpr const char* kFill[] = {"white", "lightgreen", "orange", "yellow"};
  std::string dot = "digraph G {\n";
  for (const auto& node : nodes_) {
    std::string label = node->name();
    for (const PDNode::Assertion& a : node->assertions_) label += "\n" + a.what;
    for (const PDNode::UseAssertion& a : node->uses_) label += "\n" + a.what;
    dot += StrCat("  n", node->index_, " [label=", Quote(label),
                  ", shape=", node->is_op() ? "box" : "ellipse",
                  ", style=filled, fillcolor=", kFill[static_cast<size_t>(node->role())], "];\n");
  }
  for (const auto& [from, to] : edges_) {
    dot += StrCat("  n", from->index_, " -> n", to->index_, ";\n");
  }
  return dot + "}\n";
}

}  // namespace lathe
