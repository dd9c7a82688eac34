#include "lathe/pass/graph.h"

#include <algorithm>
#include <unordered_set>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"

namespace lathe {

// ---- nodes ----

bool Node::IsCtrlVar() const { return value_ && value_.type().isa<TokenType>(); }

std::string Node::Name() const {
  if (op_ != nullptr) return std::string(op_->name());
  if (value_.is_block_argument()) return StrCat("argument#", value_.index());
  const Operation* maker = value_.defining_op();
  if (const auto name = maker->attribute("name").dyn_cast<StrAttribute>()) {
    return std::string(name.value());
  }
  return StrCat(maker->name(), "#", value_.index());
}

std::vector<Node> Node::inputs() const {
  std::vector<Node> nodes;
  if (op_ == nullptr) {
    if (Operation* maker = value_.defining_op()) nodes.emplace_back(maker);
    return nodes;
  }
  for (const detail::OpOperandImpl& o : op_->operands()) {
    if (o.value != nullptr) nodes.emplace_back(Value(o.value));
  }
  return nodes;
}

std::vector<Node> Node::outputs() const {
  std::vector<Node> nodes;
  if (op_ != nullptr) {
    for (size_t i = 0; i < op_->num_results(); ++i) nodes.emplace_back(op_->result(i));
    return nodes;
  }
  for (const OpOperand use : value_.uses()) {  // newest first
    const Node user(use.owner());
    if (nodes.empty() || nodes.back() != user) nodes.push_back(user);
  }
  std::reverse(nodes.begin(), nodes.end());
  std::stable_sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
    return a.op()->block() == b.op()->block() && a.op()->IsBefore(b.op());
  });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

// ---- graphs ----

std::vector<Node> Graph::Nodes() const {
  std::vector<Node> nodes;
  for (size_t i = 0; i < block_->num_arguments(); ++i) nodes.emplace_back(block_->argument(i));
  for (Operation& op : *block_) {
    nodes.emplace_back(&op);
    for (size_t i = 0; i < op.num_results(); ++i) nodes.emplace_back(op.result(i));
  }
  return nodes;
}

namespace {
Builder AtEndOf(Block* block) {
  if (Operation* last = block->terminator()) return Builder::Before(last);
  return Builder::AtEnd(block);
}
}  // namespace

Node Graph::CreateOpNode(std::string_view op, std::span<const Value> operands,
                         std::span<const NamedAttribute> attributes,
                         std::span<const Type> result_types) {
  return Node(AtEndOf(block_).Create(op, operands, attributes, result_types));
}

Node Graph::CreateVarNode(std::string_view name, Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  if (!tensor || !tensor.is_static()) {
    throw Error(ErrorCode::kType, "graph/variable-type",
                StrCat("a variable needs a tensor type with known extents, not ", type.ToString()));
  }
  const StrAttribute key = StrAttribute::Get(context(), name);
  program_.parameters().Insert(key, {Tensor(tensor.element(), *tensor.shape().Constants()), false});
  Builder b(context());
  if (block_->empty()) {
    b.SetInsertionPointToEnd(block_);
  } else {
    b.SetInsertionPoint(block_->front());
  }
  const NamedAttribute attribute = b.Named("name", key);
  return Node(b.Create(kGetParameterOp, {}, {&attribute, 1}, {&type, 1})->result(0));
}

Node Graph::CreateControlDepVar(Node before, Node after) {
  LATHE_CHECK(before.IsOp() && after.IsOp(), "a control dependency joins two operations");
  Operation* first = before.op();
  Operation* second = after.op();
  if (first->block() != block_ || second->block() != block_ || !first->IsBefore(second)) {
    throw Error(
        ErrorCode::kInvalidArgument, "graph/control-dep",
        StrCat(first->Describe(), " does not come before ", second->Describe(), " in this block"));
  }
  if (first->num_results() == 0) {
    throw Error(ErrorCode::kUnsupported, "graph/control-dep",
                StrCat(first->Describe(), " has no result to wait for"))
        .Hint("operations with side effects keep their order by themselves");
  }
  if (second->num_operands() == 0 || !second->operand(0)) {
    throw Error(ErrorCode::kUnsupported, "graph/control-dep",
                StrCat(second->Describe(), " reads no value that could wait"));
  }
  std::vector<Value> results;
  for (size_t i = 0; i < first->num_results(); ++i) results.push_back(first->result(i));
  const Type token_type = TokenType::Get(context());
  const Value token =
      Builder::After(first).Create(kTokenOfOp, results, {}, {&token_type, 1})->result(0);
  const Value waiting = second->operand(0);
  const Type type = waiting.type();
  Operation* depend =
      Builder::Before(second).Create(kDependOp, std::vector<Value>{waiting, token}, {}, {&type, 1});
  second->set_operand(0, depend->result(0));
  return Node(token);
}

Node Graph::CreateEmptyNode(std::string_view name) {
  Builder b = AtEndOf(block_);
  const NamedAttribute attribute = b.Named("name", b.Attr(name));
  return Node(b.Create(kEmptyOp, {}, {&attribute, 1}));
}

std::vector<OwningOp> Graph::ReleaseNodes() {
  std::vector<OwningOp> ops;
  while (Operation* op = block_->front()) {
    op->RemoveFromBlock();
    ops.emplace_back(op);
  }
  return ops;
}

void Graph::RemoveNodes(std::span<const Node> nodes) {
  std::vector<Operation*> ops;
  std::unordered_set<const Operation*> gone;  // asked only whether it holds an op
  for (const Node& n : nodes) {
    const bool here =
        n.IsOp() ? n.op()->block() == block_ : n.IsVar() && n.value().parent_block() == block_;
    if (!here) {
      throw Error(ErrorCode::kNotFound, "graph/no-node",
                  StrCat(n ? StrCat("'", n.Name(), "'") : "the empty node",
                         " is not a node of this graph"));
    }
    if (n.IsOp() && gone.insert(n.op()).second) ops.push_back(n.op());
  }
  for (Operation* op : ops) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      for (const OpOperand use : op->result(i).uses()) {
        if (gone.count(use.owner()) != 0) continue;
        throw Error(
            ErrorCode::kInvalidArgument, "graph/remove-used",
            StrCat("result ", i, " of ", op->Describe(), " is used by ", use.owner()->Describe()));
      }
    }
  }
  for (Operation* op : ops) {
    for (size_t i = 0; i < op->num_operands(); ++i) op->set_operand(i, Value());
  }
  for (Operation* op : ops) op->Erase();
}

}  // namespace lathe
