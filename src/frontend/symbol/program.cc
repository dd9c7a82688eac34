#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/support/error.h"
#include "src/frontend/symbol/node.h"

namespace lathe {

namespace {

using symbol::Describe;

template <class T>
const T* FindBinding(const std::vector<std::pair<std::string, T>>& bindings,
                     const std::string& name) {
  for (const auto& [bound, value] : bindings) {
    if (bound == name) return &value;
  }
  return nullptr;
}

/// Writes a symbol as a program. The versions of a variable become SSA values: an op that writes
/// one is its twin with value semantics, and the last value is stored at the end.
class ProgramMaker {
 public:
  ProgramMaker(IrContext& context, const Symbol& symbol, const SymbolBindings& bindings)
      : context_(context),
        symbol_(symbol),
        bindings_(bindings),
        program_(context),
        builder_(Builder::AtEnd(program_.block())),
        facts_(&program_.parameters()) {
    builder_.set_facts(&facts_);
  }

  Program Make() {
    FindWrites();
    MakeVariables();
    for (SymbolNode* node : Ordered()) {
      if (!node->is_variable() && !symbol::IsScalar(*node)) Emit(*node);
    }
    StoreStates();
    Fetch();
    program_.RefreshMutability();
    VerifyOrThrow(program_);
    return std::move(program_);
  }

 private:
  struct Writer {
    uint32_t version;
    SymbolNode* node;
    size_t result;
  };

  // ---- versions ----

  void FindWrites() {
    for (SymbolNode* node : symbol::PostOrder(symbol_.outputs())) {
      for (const symbol::Write& w : symbol::WritesOf(*node)) {
        if (w.operand >= node->inputs.size()) continue;
        const SymbolEntry& e = node->inputs[w.operand];
        if (!e.node->is_variable()) continue;
        states_.insert(e.node.get());
        if (w.changes) writers_[e.node.get()].push_back({e.version, node, w.result});
      }
    }
    for (auto& [variable, writers] : writers_) {
      std::sort(writers.begin(), writers.end(),
                [](const Writer& a, const Writer& b) { return a.version < b.version; });
    }
  }

  /// Who makes that version of the variable; null: nobody in this symbol.
  const Writer* WriterOf(const SymbolNode* variable, uint32_t version) const {
    const auto at = writers_.find(variable);
    const Writer* last = nullptr;
    if (at == writers_.end()) return last;
    for (const Writer& w : at->second) {
      if (w.version <= version) last = &w;
    }
    return last;
  }

  /// The version that the node reads as operand `i`: before its own write.
  static uint32_t VersionRead(const SymbolNode& node, size_t i) {
    const uint32_t version = node.inputs[i].version;
    for (const symbol::Write& w : symbol::WritesOf(node)) {
      if (w.changes && w.operand == i) return version - 1;
    }
    return version;
  }

  std::vector<SymbolNode*> Dependencies(const SymbolNode& node) const {
    std::vector<SymbolNode*> before;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      SymbolNode* from = node.inputs[i].node.get();
      if (from == nullptr) continue;
      if (from->is_variable()) {
        const Writer* writer = WriterOf(from, VersionRead(node, i));
        if (writer != nullptr) before.push_back(writer->node);
      } else {
        before.push_back(from);
      }
    }
    for (const symbol::NodePtr& d : node.control_deps) before.push_back(d.get());
    return before;
  }

  /// Every node after what it reads and after the writers of the versions that it reads.
  std::vector<SymbolNode*> Ordered() const {
    enum class Mark : uint8_t { kOpen, kDone };
    struct Frame {
      SymbolNode* node;
      std::vector<SymbolNode*> before;
      size_t next;
    };
    std::unordered_map<const SymbolNode*, Mark> marks;  // look-up only
    std::vector<SymbolNode*> order;
    std::vector<Frame> stack;
    const auto open = [&](SymbolNode* node) {
      const auto [at, fresh] = marks.emplace(node, Mark::kOpen);
      if (fresh) {
        stack.push_back({node, Dependencies(*node), 0});
      } else if (at->second == Mark::kOpen) {
        throw Error(ErrorCode::kInvalidArgument, "symbol/cycle",
                    StrCat(Describe(*node), " waits for itself"));
      }
    };
    for (SymbolNode* root : symbol::PostOrder(symbol_.outputs())) {
      if (marks.count(root) == 0) open(root);
      while (!stack.empty()) {
        Frame& top = stack.back();
        if (top.next < top.before.size()) {
          open(top.before[top.next++]);
          continue;
        }
        marks[top.node] = Mark::kDone;
        order.push_back(top.node);
        stack.pop_back();
      }
    }
    return order;
  }

  // ---- variables ----

  void MakeVariables() {
    const std::vector<Symbol> inputs = symbol_.ListInputs();
    std::unordered_set<std::string_view> names;  // asked only whether it holds a name
    for (const Symbol& input : inputs) {
      const SymbolNode& node = *input.outputs()[0].node;
      if (names.insert(node.name).second) continue;
      throw Error(ErrorCode::kInvalidArgument, "symbol/duplicate-variable",
                  StrCat("there are two variables '", node.name, "'"))
          .Hint("ops without a name call what they make by itself after its argument: name them");
    }
    for (const auto& [name, type] : bindings_.types) CheckBound(name);
    for (const auto& [name, data] : bindings_.parameters) CheckBound(name);
    for (const Symbol& input : inputs) MakeVariable(*input.outputs()[0].node);
  }

  void CheckBound(const std::string& name) const {
    const std::vector<std::string> names = symbol_.ListInputNames();
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    Error error(ErrorCode::kNotFound, "symbol/unknown-argument",
                StrCat("there is no variable '", name, "'"));
    if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
    throw error;
  }

  Type TypeOf(const SymbolNode& node, const Tensor* data) const {
    if (const Type* bound = FindBinding(bindings_.types, node.name)) return *bound;
    if (data != nullptr) {
      return VTensorType::Get(context_, SymShape::FromConstants(data->shape()),
                              data->element_type());
    }
    const auto shape = node.attrs.find(std::string(symbol::kShapeKey));
    const auto dtype = node.attrs.find(std::string(symbol::kDtypeKey));
    return ParseType(context_,
                     StrCat("v_tensor<", shape != node.attrs.end() ? shape->second : "*", ", ",
                            dtype != node.attrs.end() ? dtype->second : "f32", ">"));
  }

  void MakeVariable(const SymbolNode& node) {
    const Tensor* data = FindBinding(bindings_.parameters, node.name);
    const Type type = TypeOf(node, data);
    const bool is_state = states_.count(&node) != 0;
    if (data != nullptr || is_state) AddParameter(node, type, data);
    std::vector<NamedAttribute> attributes{
        builder_.Named("name", builder_.Attr(std::string_view(node.name)))};
    for (const auto& [key, text] : node.attrs) {
      if (key == "name" || key == symbol::kShapeKey || key == symbol::kDtypeKey) continue;
      attributes.push_back(builder_.Named(key, builder_.Attr(std::string_view(text))));
    }
    const char* op = data != nullptr || is_state ? builtin::kGetParameter : nn::kFeed;
    Operation* made = builder_.Create(op, {}, attributes, {&type, 1});
    facts_.Visit(made);
    initial_[&node] = made->result(0);
  }

  void AddParameter(const SymbolNode& node, Type type, const Tensor* data) {
    const auto tensor = type.dyn_cast<AnyTensorType>();
    if (data == nullptr && (!tensor || !tensor.is_static())) {
      throw Error(ErrorCode::kInvalidArgument, "symbol/state-data",
                  StrCat("state '", node.name, "' has no data, and its shape is not known"))
          .Hint(StrCat("bind a tensor or a static type to '", node.name, "'"));
    }
    Tensor value = data != nullptr ? *data : Tensor(tensor.element(), *tensor.shape().Constants());
    program_.parameters().Insert(StrAttribute::Get(context_, node.name), {std::move(value), false});
  }

  // ---- ops ----

  Value Resolve(const SymbolEntry& e, uint32_t version) const {
    if (!e.node->is_variable()) return values_.at(e.node.get())->result(e.index);
    const Writer* writer = WriterOf(e.node.get(), version);
    return writer == nullptr ? initial_.at(e.node.get())
                             : values_.at(writer->node)->result(writer->result);
  }

  void Emit(SymbolNode& node) {
    std::vector<Value> operands(node.inputs.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      const SymbolEntry& e = node.inputs[i];
      if (e.node != nullptr && !symbol::IsScalar(*e.node)) {
        operands[i] = Resolve(e, VersionRead(node, i));
      }
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const SymbolEntry& e = node.inputs[i];
      if (e.node != nullptr && symbol::IsScalar(*e.node)) {
        operands[i] = Scalar(*e.node, ElementFor(node, operands, i));
      }
    }
    builder_.set_location(node.name.empty() ? Location() : Location::Name(context_, node.name));
    WaitFor(node, operands);
    Operation* op = builder_.CreateInferred(WithValueSemantics(node), operands,
                                            symbol::TypedAttrs(node), NumResults(node));
    facts_.Visit(op);
    values_[&node] = op;
    for (const symbol::Write& w : symbol::WritesOf(node)) {
      if (w.changes) CheckState(node, w, *op);
    }
  }

  OpInfo WithValueSemantics(const SymbolNode& node) const {
    if (!node.op.HasTrait<Inplace>()) return node.op;
    const std::string_view name = node.op.name();
    return context_.GetOrMakeOp(name.substr(0, name.size() - 1));
  }

  size_t NumResults(const SymbolNode& node) const {
    size_t count = symbol::NumVisible(node);
    for (const symbol::Write& w : symbol::WritesOf(node)) {
      if (w.changes) count = std::max(count, w.result + 1);
    }
    return count;
  }

  void CheckState(const SymbolNode& node, const symbol::Write& w, const Operation& op) const {
    const SymbolNode& variable = *node.inputs[w.operand].node;
    const Type now = op.result(w.result).type();
    const Type before = initial_.at(&variable).type();
    if (Compatible(now, before)) return;
    throw Error(ErrorCode::kType, "symbol/state-type",
                StrCat(Describe(node), " would leave ", now.ToString(), " in variable '",
                       variable.name, "', which is ", before.ToString()));
  }

  /// The element type of operand `i` of `node`, from an operand that must have the same.
  ElementType ElementFor(const SymbolNode& node, const std::vector<Value>& operands,
                         size_t i) const {
    const std::span<const ValueDef> defs = node.op.def()->operands;
    const auto rule = [&](size_t k) { return defs[std::min(k, defs.size() - 1)].type; };
    if (rule(i).kind == TypeRule::Kind::kElement) return rule(i).element;
    ElementType any = ElementType::kF32;
    for (size_t k = operands.size(); k-- > 0;) {
      const auto type =
          operands[k] ? operands[k].type().dyn_cast<AnyTensorType>() : AnyTensorType();
      if (!type) continue;
      any = type.element();
      const bool same = rule(k).kind == rule(i).kind && rule(k).index == rule(i).index;
      if (same && rule(i).kind == TypeRule::Kind::kVariable) break;
    }
    return any;
  }

  Value Scalar(const SymbolNode& node, ElementType element) {
    const auto key = std::make_pair(&node, element);
    for (const auto& [made, value] : scalars_[&node]) {
      if (made == element) return value;
    }
    const double number = *ParseDouble(node.attrs.at("value"));
    const NamedAttribute attribute =
        builder_.Named("value", builder_.Attr(Cast(Tensor::Scalar<double>(number), element)));
    builder_.set_location(Location());
    Operation* op = builder_.Create(
        node.op, {}, {&attribute, 1},
        std::vector<Type>{VTensorType::Get(context_, SymShape(std::vector<Dim>{}), element)});
    facts_.Visit(op);
    scalars_[key.first].emplace_back(element, op->result(0));
    return op->result(0);
  }

  /// Makes operand 0 wait for the ops that the node is to follow.
  void WaitFor(const SymbolNode& node, std::vector<Value>& operands) {
    std::vector<Value> waiting;
    for (const symbol::NodePtr& d : node.control_deps) {
      if (d->is_variable() || symbol::IsScalar(*d)) continue;
      waiting.push_back(TokenOf(*values_.at(d.get())));
    }
    if (waiting.empty()) return;
    waiting.insert(waiting.begin(), operands[0]);
    const Type type = operands[0].type();
    operands[0] = builder_.Create(builtin::kDepend, waiting, {}, {&type, 1})->result(0);
  }

  Value TokenOf(Operation& op) {
    Value& token = tokens_[&op];
    if (token) return token;
    std::vector<Value> results;
    for (size_t i = 0; i < op.num_results(); ++i) results.push_back(op.result(i));
    const Type type = TokenType::Get(context_);
    token = builder_.Create(builtin::kTokenOf, results, {}, {&type, 1})->result(0);
    return token;
  }

  // ---- ends ----

  void StoreStates() {
    builder_.set_location(Location());
    for (const Symbol& input : symbol_.ListInputs()) {
      const SymbolNode& node = *input.outputs()[0].node;
      const auto at = writers_.find(&node);
      if (at == writers_.end()) continue;
      const Writer& last = at->second.back();
      const Value value = values_.at(last.node)->result(last.result);
      const NamedAttribute name =
          builder_.Named("name", builder_.Attr(std::string_view(node.name)));
      builder_.Create(builtin::kSetParameter, {&value, 1}, {&name, 1});
    }
  }

  void Fetch() {
    std::unordered_set<std::string> taken;  // asked only whether it holds a name
    for (const SymbolEntry& e : symbol_.outputs()) {
      const std::string base = symbol::OutputName(*e.node, e.index);
      std::string unique = base;
      for (int i = 1; !taken.insert(unique).second; ++i) unique = StrCat(base, ".", i);
      const NamedAttribute name = builder_.Named("name", builder_.Attr(std::string_view(unique)));
      const Value value =
          symbol::IsScalar(*e.node) ? Scalar(*e.node, ElementType::kF32) : Resolve(e, e.version);
      builder_.Create(nn::kFetch, {&value, 1}, {&name, 1});
    }
  }

  IrContext& context_;
  const Symbol& symbol_;
  const SymbolBindings& bindings_;
  Program program_;
  Builder builder_;
  ShapeInferencer facts_;
  // Looked up, never iterated in an order that matters.
  std::unordered_map<const SymbolNode*, std::vector<Writer>> writers_;
  std::unordered_set<const SymbolNode*> states_;
  std::unordered_map<const SymbolNode*, Value> initial_;
  std::unordered_map<const SymbolNode*, Operation*> values_;
  std::unordered_map<const SymbolNode*, std::vector<std::pair<ElementType, Value>>> scalars_;
  std::unordered_map<const Operation*, Value> tokens_;
};

}  // namespace

Program Symbol::ToProgram(const SymbolBindings& bindings) const {
  for (const SymbolEntry& e : outputs_) {
    if (e.node->composed || e.node->is_variable()) continue;
    throw Error(ErrorCode::kInvalidArgument, "symbol/no-arguments",
                StrCat(Describe(*e.node), " has no arguments yet"))
        .Hint("compose it first");
  }
  return ProgramMaker(context(), *this, bindings).Make();
}

}  // namespace lathe
