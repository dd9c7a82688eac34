#include <algorithm>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/op_def.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/dialect/cf/regions.h"
#include "src/frontend/onnx/contrib.h"
#include "src/frontend/onnx/importer.h"
#include "src/frontend/onnx/upgrade.h"

namespace lathe::onnx {

/// Gives upgrade rules their view of the importer.
class NodeUpgrader : public UpgradeContext {
 public:
  NodeUpgrader(Importer& importer, NodeMsg& at, Scope& scope, const Frame& frame)
      : UpgradeContext(at), importer_(importer), scope_(scope), frame_(frame) {}

  Type InputType(size_t i) override {
    return HasInput(i) ? importer_.Lookup(node.inputs[i], node, scope_).type() : Type();
  }
  const Tensor* Constant(size_t i) override {
    if (!HasInput(i)) return nullptr;
    return importer_.facts_.Constant(importer_.Lookup(node.inputs[i], node, scope_));
  }
  Text AddConstant(const Tensor& value) override {
    const Text name = FreshName("constant");
    scope_.values.emplace(name, importer_.MakeConstant(value));
    return name;
  }
  std::vector<Text> EmitAll(NodeMsg added, size_t outputs) override {
    added.name = node.name;
    for (size_t i = 0; i < outputs; ++i) added.outputs.push_back(FreshName(added.op_type));
    importer_.ImportCurrent(added, scope_, frame_);
    return added.outputs;
  }
  void Give(size_t i, Text name) override {
    if (!HasOutput(i)) return;
    const Value value = importer_.Lookup(name, node, scope_);
    importer_.RefineType(value, node.outputs[i], scope_);
    importer_.Define(scope_, node.outputs[i], value, "output");
  }
  void EmitAfter(NodeMsg added) override {
    added.name = node.name;
    after_.push_back(std::move(added));
  }
  Text FreshName(std::string_view hint) override { return importer_.FreshName(hint); }
  Text Keep(std::string text) override { return importer_.Keep(std::move(text)); }
  void Refuse(std::string_view why) override {
    if (FindContrib(NormalDomain(node.domain), node.op_type) != nullptr) {
      importer_.Fail(ErrorCode::kUnsupported, "onnx/contrib",
                     StrCat(QualifiedName(NormalDomain(node.domain), node.op_type), ": ", why),
                     NormalDomain(node.domain) == "com.microsoft"
                         ? "export the model without the optimizations of onnxruntime"
                         : "export another form of it");
    }
    importer_.Fail(ErrorCode::kUnsupported, "onnx/upgrade",
                   StrCat(Operator(node), " of opset ", importer_.OpsetOf(node, frame_), ": ", why),
                   "convert the model to a newer opset (onnx.version_converter)");
  }
  const std::vector<NodeMsg>& after() const { return after_; }

 private:
  Importer& importer_;
  Scope& scope_;
  const Frame& frame_;
  std::vector<NodeMsg> after_;
};

std::string Operator(const NodeMsg& node) {
  return IsBareIdentifier(node.op_type) && node.op_type.size() < 100 ? std::string(node.op_type)
                                                                     : Shown(node.op_type);
}

std::string Importer::NodeName(const NodeMsg& node, const Frame& frame) const {
  // Longer names serve nobody, and would fill every message.
  constexpr size_t kLongest = 400;
  if (!node.name.empty()) return StrCat(frame.prefix, node.name.substr(0, kLongest));
  const Text output = node.outputs.empty() ? Text() : node.outputs[0];
  return StrCat(frame.prefix, node.op_type.substr(0, kLongest), ":",
                output.substr(0, std::min(kLongest, output.find('\0'))));
}

int64_t Importer::OpsetOf(const NodeMsg& node, const Frame& frame) const {
  const auto found = frame.opsets.find(NormalDomain(node.domain));
  if (found != frame.opsets.end()) return found->second;
  // Functions may leave the sets that the model imports to it.
  return frame.caller == nullptr ? 0 : OpsetOf(node, *frame.caller);
}

Value Importer::Lookup(Text name, const NodeMsg& node, const Scope& scope) const {
  const Value* value = scope.Find(name);
  if (value == nullptr) {
    Fail(ErrorCode::kInvalidArgument, "onnx/undefined-input",
         StrCat(Operator(node), ": input ", Shown(name),
                " is made by no node and is not a graph input"));
  }
  if (class_labels_.contains(*value)) RefuseZipMap(StrCat(Operator(node), ": input ", Shown(name)));
  return *value;
}

NodeMsg Importer::Resolve(const NodeMsg& node, const Scope& scope, const Frame& frame) const {
  NodeMsg resolved = node;
  for (Text& input : resolved.inputs) {
    if (scope.IsAbsent(input)) input = Text();
  }
  resolved.attributes.clear();
  for (const AttributeMsg& a : node.attributes) {
    if (a.ref_attr_name.empty()) {
      resolved.attributes.push_back(a);
      continue;
    }
    if (frame.call == nullptr) {
      Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
           StrCat(node.op_type, ": attribute '", a.name, "' refers to ", Quote(a.ref_attr_name),
                  " of a function, but the node is not in one"));
    }
    const AttributeMsg* given = frame.call->Find(a.ref_attr_name);
    if (given == nullptr && frame.function != nullptr) {
      for (const AttributeMsg& d : frame.function->default_attributes) {
        if (d.name == a.ref_attr_name) given = &d;
      }
    }
    // Absent in the call: absent here.
    if (given == nullptr) continue;
    resolved.attributes.push_back(*given);
    resolved.attributes.back().name = a.name;
    resolved.attributes.back().ref_attr_name = Text();
  }
  return resolved;
}

void Importer::ImportNodes(const std::vector<NodeMsg>& nodes, Scope& scope, const Frame& frame) {
  scope.values.reserve(scope.values.size() + nodes.size());
  for (const NodeMsg* node : InDependencyOrder(nodes)) ImportNode(*node, scope, frame);
}

void Importer::ImportNode(const NodeMsg& node, Scope& scope, const Frame& frame) {
  CheckBudget();
  const std::string name = NodeName(node, frame);
  where_ = StrCat("node ", Shown(name));
  builder_.set_location(Location::Name(context_, name));
  if (frame.function != nullptr && ++inlined_nodes_ > options_.max_inlined_nodes) {
    Fail(ErrorCode::kLimit, "onnx/function-size",
         StrCat("inlining local functions makes more than ", options_.max_inlined_nodes, " nodes"));
  }
  if (frame.function != nullptr) {
    return ImportUpgraded(Resolve(node, scope, frame), scope, frame);
  }
  for (const AttributeMsg& a : node.attributes) {
    if (a.ref_attr_name.empty()) continue;
    Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
         StrCat(Operator(node), ": attribute ", Shown(a.name), " refers to attribute ",
                Shown(a.ref_attr_name), " of a function, but is in none"));
  }
  const int64_t opset = OpsetOf(node, frame);
  const bool old =
      NormalDomain(node.domain).empty() && NeedsUpgrade(node.op_type, static_cast<int>(opset));
  if (old) return ImportUpgraded(node, scope, frame);
  ImportCurrent(node, scope, frame);
}

void Importer::ImportUpgraded(NodeMsg node, Scope& scope, const Frame& frame) {
  const int64_t opset = OpsetOf(node, frame);
  const bool standard = NormalDomain(node.domain).empty() && FindFunction(node) == nullptr;
  if (!standard || node.is_current || opset == 0 || IsPoisoned(node, scope))
    return ImportCurrent(node, scope, frame);
  if (!NeedsUpgrade(node.op_type, static_cast<int>(opset))) {
    return ImportCurrent(node, scope, frame);
  }
  CheckFirstOpset(node, frame);
  NodeUpgrader upgrader(*this, node, scope, frame);
  upgrading_ = true;
  Upgrade(upgrader, static_cast<int>(opset));
  ImportCurrent(node, scope, frame);
  for (const NodeMsg& after : upgrader.after()) ImportCurrent(after, scope, frame);
  upgrading_ = false;
}

bool Importer::IsPoisoned(const NodeMsg& node, const Scope& scope) const {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](Text input) { return !input.empty() && !Lookup(input, node, scope); });
}

void Importer::Poison(const NodeMsg& node, Scope& scope) {
  for (const Text output : node.outputs) {
    if (!output.empty()) Define(scope, output, Value(), "output");
  }
}

// Upgraded nodes are newer than the model, and are found to be fine by then.
void Importer::CheckFirstOpset(const NodeMsg& node, const Frame& frame) const {
  if (upgrading_ || node.is_current || !NormalDomain(node.domain).empty()) return;
  const int first = FirstOpsetOf(node.op_type);
  if (OpsetOf(node, frame) >= first) return;
  Fail(ErrorCode::kInvalidArgument, "onnx/opset",
       StrCat(Operator(node), " appears in opset ", first, "; the model uses opset ",
              OpsetOf(node, frame)),
       StrCat("import opset ", first, " or newer in the model"));
}

void Importer::ImportContrib(const ContribRule& rule, NodeMsg node, Scope& scope,
                             const Frame& frame) {
  if (IsPoisoned(node, scope)) return Poison(node, scope);
  NodeUpgrader upgrader(*this, node, scope, frame);
  ApplyContrib(rule, upgrader);
}

// Exporters for old sets write 0, 1, ..., n - 1 as the places of what is not zero among n ones. Its
// size follows from the sizes of the inputs where n does.
bool Importer::ImportCount(const NodeMsg& node, Scope& scope, const Frame& frame) {
  if (node.op_type != "NonZero" || node.inputs.size() != 1) return false;
  const Operation* ones = Lookup(node.inputs[0], node, scope).defining_op();
  if (ones == nullptr || ones->name() != nn::kConstantOfShape) return false;
  const auto type = ones->result(0).type().dyn_cast<AnyTensorType>();
  const auto value = ones->attribute("value").dyn_cast<TensorAttribute>();
  const bool counts = type && type.has_rank() && type.rank() == 1 && value &&
                      type.element() == ElementType::kI64 && value.value().data<int64_t>()[0] != 0;
  if (!counts) return false;
  NodeMsg copy = node;
  NodeUpgrader upgrader(*this, copy, scope, frame);
  Nodes make(upgrader);
  const Text size = FreshName("count");
  scope.values.emplace(size, ones->operand(0));
  const Text count = make("Range", {make.Int(0), make("Squeeze", {size}), make.Int(1)});
  upgrader.Give(0, make("Unsqueeze", {count, make.Ints({0})}));
  return true;
}

// Other sets than ai.onnx have hardly changed; the newest one is what other readers take.
void Importer::CheckForgottenDomain(const NodeMsg& node) {
  const Text domain = NormalDomain(node.domain);
  const std::string what =
      StrCat(QualifiedName(domain, node.op_type), ": the model does not import the domain ",
             Shown(domain.empty() ? Text("ai.onnx") : domain));
  if (domain.empty()) {
    Fail(ErrorCode::kInvalidArgument, "onnx/opset", what,
         "opset_import must name the version of each domain that is used");
  }
  if (forgotten_domains_.insert(domain).second) Doubt("onnx/opset", what);
}

void Importer::ImportCurrent(const NodeMsg& node, Scope& scope, const Frame& frame) {
  if (const FunctionMsg* function = FindFunction(node)) {
    if (IsPoisoned(node, scope)) return Poison(node, scope);
    return CallFunction(*function, node, scope, frame);
  }
  const Text domain = NormalDomain(node.domain);
  if (!node.is_current && OpsetOf(node, frame) == 0) CheckForgottenDomain(node);
  if (domain.empty() && node.op_type == "Constant") return ImportConstant(node, scope);
  if (ImportBuilt(node, scope, frame)) return;
  const OpInfo info = table_.Find(domain, node.op_type);
  const bool is_written = info && node.is_current;  // by a rule of these
  const ContribRule* rule = is_written ? nullptr : FindContrib(domain, node.op_type);
  if (rule != nullptr) return ImportContrib(*rule, node, scope, frame);
  if (!info) return RefuseOp(node, scope, frame);
  CheckFirstOpset(node, frame);
  if (IsPoisoned(node, scope)) return Poison(node, scope);
  ImportOp(info, node, scope, frame);
}

namespace {

// The value of a Constant node, in any of the forms that it can have.
Tensor ConstantValue(const AttributeMsg& a, const Source& source) {
  const auto count = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  switch (a.type) {
    case AttrType::kTensor:
      return a.tensors.empty() ? Tensor() : DecodeTensor(*a.tensors[0], source);
    case AttrType::kSparseTensor:
      return a.sparse_tensors.empty() ? Tensor() : DecodeSparse(*a.sparse_tensors[0], source);
    case AttrType::kFloat:
      return Tensor::Scalar<float>(a.f);
    case AttrType::kInt:
      return Tensor::Scalar<int64_t>(a.i);
    case AttrType::kString:
      return Tensor::Scalar<std::string>(std::string(a.s));
    case AttrType::kFloats:
      return Tensor::Of<float>({count(a.floats)},
                               std::vector<float>(a.floats.begin(), a.floats.end()));
    case AttrType::kInts:
      return Tensor::Of<int64_t>({count(a.ints)}, a.ints);
    case AttrType::kStrings:
      return Tensor::Of<std::string>({count(a.strings)},
                                     std::vector<std::string>(a.strings.begin(), a.strings.end()));
    default:
      return Tensor();
  }
}

}  // namespace

void Importer::ImportConstant(const NodeMsg& node, Scope& scope) {
  if (node.attributes.size() != 1 || node.outputs.size() != 1 || !node.inputs.empty()) {
    Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
         "Constant needs exactly one attribute and one output, and no input");
  }
  const Tensor value = ConstantValue(node.attributes[0], source_);
  if (!value.is_defined()) {
    Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
         StrCat("Constant: attribute '", node.attributes[0].name, "' holds no value"));
  }
  const bool small = value.byte_size() <= options_.max_constant_bytes;
  Define(scope, node.outputs[0],
         small ? MakeConstant(value) : MakeParameter(node.outputs[0], value, true), "output");
}

std::vector<Value> Importer::Operands(OpInfo info, const NodeMsg& node, const Scope& scope) {
  const auto defs = info.def()->operands;
  const bool variadic = !defs.empty() && defs.back().variadic;
  size_t count = node.inputs.size();
  while (count > 0 && node.inputs[count - 1].empty()) --count;
  if (count > defs.size() && !variadic) {
    Fail(ErrorCode::kInvalidArgument, "onnx/inputs",
         StrCat(Operator(node), " takes ", defs.size(), " inputs, the node has ", count));
  }
  std::vector<Value> operands;
  for (size_t i = 0; i < std::max(count, defs.size()); ++i) {
    const ValueDef& def = defs[std::min(i, defs.size() - 1)];
    const bool present = i < count && !node.inputs[i].empty();
    if (!present && !def.optional && !def.variadic) {
      Fail(ErrorCode::kInvalidArgument, "onnx/inputs",
           StrCat(Operator(node), ": input '", def.name, "' is missing"));
    }
    if (i < count) {
      operands.push_back(present ? Lookup(node.inputs[i], node, scope) : Value());
    }
  }
  return operands;
}

size_t Importer::NumResults(OpInfo info, const NodeMsg& node) const {
  const auto defs = info.def()->results;
  const bool variadic = !defs.empty() && defs.back().variadic;
  size_t count = node.outputs.size();
  while (count > 0 && node.outputs[count - 1].empty()) --count;
  if (count > defs.size() && !variadic) {
    Fail(ErrorCode::kInvalidArgument, "onnx/outputs",
         StrCat(Operator(node), " has ", defs.size(), " outputs, the node names ", count));
  }
  size_t needed = 0;
  for (const ValueDef& def : defs) needed += def.optional || def.variadic ? 0 : 1;
  // A list of outputs may have gaps; its length still counts.
  return std::max(needed, variadic ? node.outputs.size() : count);
}

void Importer::ImportOp(OpInfo info, const NodeMsg& node, Scope& scope, const Frame& frame) {
  if (ImportDecidedIf(node, scope, frame) || ImportCount(node, scope, frame)) return;
  if (!info.def()->regions.empty()) return ImportRegionOp(info, node, scope, frame);
  const std::vector<Value> operands = Operands(info, node, scope);
  CheckOperandTypes(info, node, operands);
  const std::vector<NamedAttribute> attributes = Attributes(info, node);
  const std::vector<Type> types(NumResults(info, node), NoneType::Get(context_));
  Operation* op = builder_.Create(info, operands, attributes, types);
  KnowWhole(op);
  Infer(op);
  BindResults(op, node, scope);
}

// Scales of a resize, limits of a range: floats that say sizes are constants, as integers are.
void Importer::KnowWhole(Operation* op) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Operation* parameter = op->operand(i) ? op->operand(i).defining_op() : nullptr;
    if (!NeedsWhole(op, i) || parameter == nullptr || parameter->name() != builtin::kGetParameter) {
      continue;
    }
    const StrAttribute name = parameter->attribute("name").cast<StrAttribute>();
    const Tensor& data = program_.parameters().Find(name.value())->data;
    if (data.byte_size() > options_.max_constant_bytes) continue;
    builder_.SetInsertionPoint(op);
    op->set_operand(i, MakeConstant(data));
    builder_.SetInsertionPointToEnd(op->block());
  }
}

void Importer::Infer(Operation* op) {
  try {
    facts_.Visit(op);
  } catch (Error& error) {
    if (error.where().empty()) error.At(StrCat(file_, ": ", where_));
    throw;
  }
}

void Importer::BindResults(Operation* op, const NodeMsg& node, Scope& scope) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Text name = node.outputs[i];
    if (name.empty()) continue;
    RefineType(op->result(i), name, scope);
    Define(scope, name, op->result(i), "output");
  }
}

namespace {

// Whether what a file says cannot be true of a value of the inferred type.
bool Contradicts(AnyTensorType declared, AnyTensorType inferred) {
  if (declared.element() != inferred.element()) return true;
  if (!declared.has_rank() || !inferred.has_rank()) return false;
  if (declared.rank() != inferred.rank()) return true;
  for (size_t i = 0; i < declared.rank(); ++i) {
    if (ProvablyDifferent(declared.dims()[i], inferred.dims()[i])) return true;
  }
  return false;
}

// Whether a region of an `if` gives the value another rank: it has that one if the region runs.
bool MayHaveOtherRank(Value value, size_t rank) {
  Operation* op = value.defining_op();
  if (op == nullptr || !op->isa<cf::IfOp>()) return false;
  return std::ranges::any_of(op->regions(), [&](const Region& region) {
    const auto type = cf::YieldType(region, value.index()).dyn_cast<AnyTensorType>();
    return type && type.has_rank() && type.rank() != rank;
  });
}

constexpr int64_t kMostTold = 10;

}  // namespace

// Exporters are often wrong about sizes: what they traced with, one name for two of them. Nothing
// may be computed from such a size; a rank, where inference knows none, is all that is taken over.
void Importer::RefineType(Value value, Text name, const Scope& scope) {
  const auto found = scope.declared.find(name);
  if (found == scope.declared.end() || found->second->kind != TypeMsg::kTensor) return;
  const auto inferred = value.type().dyn_cast<AnyTensorType>();
  if (found->second->elem_type == 0 || !inferred) return;
  AnyTensorType declared;
  try {
    declared = ConvertType(*found->second, name).cast<AnyTensorType>();
  } catch (const Error& error) {
    return Doubt(error.id(), error.message());
  }
  if (Contradicts(declared, inferred)) {
    return Doubt("onnx/value-info", StrCat(Shown(name), " is declared as ", declared.ToString(),
                                           ", but is ", inferred.ToString()));
  }
  if (inferred.has_rank() || !declared.has_rank()) return;
  if (MayHaveOtherRank(value, declared.rank())) return;
  value.set_type(inferred.With(inferred.element(), SymShape::OfRank(declared.rank())));
}

// Something that the file gets wrong and that nothing relies on.
void Importer::Doubt(const std::string& id, const std::string& message) {
  if (options_.strict) {
    Fail(ErrorCode::kInvalidArgument, id, message,
         "the model contradicts itself; run onnx.checker with full_check on it");
  }
  if (doubts_++ >= kMostTold || !options_.warn) return;
  Error doubt(ErrorCode::kInvalidArgument, id, message);
  options_.warn(doubt.At(where_.empty() ? file_ : StrCat(file_, ": ", where_)));
}

// How many doubts were not told.
void Importer::TellRest() const {
  if (doubts_ <= kMostTold || !options_.warn) return;
  Error rest(ErrorCode::kInvalidArgument, "onnx/value-info",
             StrCat("and ", doubts_ - kMostTold, " more like these"));
  options_.warn(rest.At(file_));
}

namespace {

const char* HintFor(Text domain) {
  if (domain.empty()) {
    return "give it as a local function of the model, or load a plug-in that declares it";
  }
  if (domain == "com.microsoft.nchwc") {
    return "onnxruntime has optimized this file for one kind of processor: take the one before "
           "that, or save it with ORT_ENABLE_EXTENDED";
  }
  return "custom domains need a plug-in that declares the operator";
}

}  // namespace

void Importer::RefuseOp(const NodeMsg& node, Scope& scope, const Frame& frame) {
  const Text domain = NormalDomain(node.domain);
  const std::string op = domain.empty() ? Operator(node) : QualifiedName(domain, Operator(node));
  if (refused_.insert(op).second) {
    Error error(ErrorCode::kUnsupported, "onnx/unsupported-op",
                StrCat("operator ", op, " of opset ", OpsetOf(node, frame), " is not supported"));
    error.At(StrCat(file_, ": ", where_));
    std::string types;
    for (const Text input : node.inputs) {
      const Value value = input.empty() ? Value() : Lookup(input, node, scope);
      types += StrCat(types.empty() ? "" : ", ",
                      value ? value.type().ToString() : std::string(input.empty() ? "none" : "?"));
    }
    constexpr size_t kLongest = 400;
    error.Note(StrCat("inputs: ", types.empty() ? "none" : types.substr(0, kLongest)));
    const std::string near = table_.Suggestion(node.domain, node.op_type);
    if (!near.empty()) error.Hint(near);
    error.Hint(HintFor(domain));
    refusals_.push_back(std::move(error));
  }
  Poison(node, scope);
}

}  // namespace lathe::onnx
