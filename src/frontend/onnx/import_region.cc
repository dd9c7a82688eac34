#include <utility>

#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/region_interface.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/op_def.h"
#include "lathe/ir/value_names.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/frontend/onnx/importer.h"

namespace lathe::onnx {

namespace {

// The graph of a region: the attribute has its name, or its name and "_branch".
const GraphMsg* GraphOf(const NodeMsg& node, std::string_view region) {
  const AttributeMsg* a = node.Find(region);
  if (a == nullptr) a = node.Find(StrCat(region, "_branch"));
  if (a == nullptr || a->type != AttrType::kGraph || a->graphs.empty()) return nullptr;
  return a->graphs[0].get();
}

class NestingGuard {
 public:
  explicit NestingGuard(int& nesting) : nesting_(nesting) { ++nesting_; }
  ~NestingGuard() { --nesting_; }

 private:
  int& nesting_;
};

}  // namespace

void Importer::ImportRegionOp(OpInfo info, const NodeMsg& node, Scope& scope, const Frame& frame) {
  const auto regions = info.def()->regions;
  std::vector<const GraphMsg*> graphs;
  for (const RegionDef& region : regions) {
    graphs.push_back(GraphOf(node, region.name));
    if (graphs.back() == nullptr) {
      Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
           StrCat(Operator(node), ": graph '", region.name, "' is missing"));
    }
  }
  const std::vector<Value> operands = Operands(info, node, scope);
  CheckOperandTypes(info, node, operands);
  NodeMsg plain = node;
  std::erase_if(plain.attributes, [](const AttributeMsg& a) { return !a.graphs.empty(); });
  const std::vector<NamedAttribute> attributes = Attributes(info, plain);
  const std::vector<Type> types(NumResults(info, node), NoneType::Get(context_));
  Operation* op = builder_.Create(info, operands, attributes, types, regions.size());
  const Location location = builder_.location();
  const std::string where = where_;
  for (size_t i = 0; i < graphs.size(); ++i) {
    Block* block = op->region(i).AddBlock();
    for (size_t a = 0; a < graphs[i]->inputs.size(); ++a) {
      block->AddArgument(NoneType::Get(context_));
    }
  }
  if (auto arguments = op->dyn_cast<RegionArgumentsInterface>()) {
    arguments.Set(RegionRound::kFirst);
  }
  const bool repeated = op->HasInterface<RegionArgumentsInterface>();
  if (repeated) ++repeated_;
  for (size_t i = 0; i < graphs.size(); ++i) {
    ImportRegion(*graphs[i], op->region(i), scope, frame);
  }
  if (repeated) --repeated_;
  builder_.SetInsertionPointToEnd(op->block());
  builder_.set_location(location);
  where_ = where;
  if (!refusals_.empty()) return Poison(node, scope);
  Infer(op);
  CheckRegions(op, node);
  BindResults(op, node, scope);
}

// Exporters leave branches behind that sizes and ranks decide; the other branch need not even make
// sense then. In a loop what is known holds for the first round only.
bool Importer::ImportDecidedIf(const NodeMsg& node, Scope& scope, const Frame& frame) {
  if (node.op_type != "If" || node.inputs.size() != 1 || repeated_ > 0) return false;
  const Tensor* condition = facts_.Constant(Lookup(node.inputs[0], node, scope));
  if (condition == nullptr || condition->element_type() != ElementType::kBool ||
      condition->num_elements() != 1) {
    return false;
  }
  const GraphMsg* graph = GraphOf(node, condition->data<bool>()[0] ? "then" : "else");
  if (graph == nullptr || GraphOf(node, "then") == nullptr || GraphOf(node, "else") == nullptr ||
      graph->outputs.size() < node.outputs.size() || !graph->inputs.empty()) {
    return false;  // which is an error, found where branches are imported
  }
  const NestingGuard guard(nesting_);
  CheckNesting();
  Scope body;
  body.parent = &scope;
  const std::string where = where_;
  for (const ValueInfoMsg& info : graph->value_infos) body.declared.emplace(info.name, &info.type);
  ImportInitializers(*graph, body);
  ImportNodes(graph->nodes, body, frame);
  where_ = where;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    Define(scope, node.outputs[i], Lookup(graph->outputs[i].name, node, body), "output");
  }
  return true;
}

void Importer::CheckNesting() const {
  if (nesting_ <= options_.max_nesting) return;
  Fail(ErrorCode::kLimit, "onnx/nesting",
       StrCat("graphs are nested deeper than ", options_.max_nesting));
}

// What the op itself promises about its regions is checked here, so that the message can name the
// node of the file.
void Importer::CheckRegions(Operation* op, const NodeMsg& node) const {
  const auto verify = op->dyn_cast<VerifyInterface>();
  if (!verify) return;
  try {
    verify.Verify();
  } catch (const Error& error) {
    Fail(ErrorCode::kInvalidArgument, "onnx/subgraph",
         StrCat(Operator(node), ": ", error.message()));
  }
}

void Importer::ImportRegion(const GraphMsg& graph, Region& region, const Scope& outer,
                            const Frame& frame) {
  const NestingGuard guard(nesting_);
  CheckNesting();
  Block* block = region.front();
  builder_.SetInsertionPointToEnd(block);
  Scope scope;
  scope.parent = &outer;
  for (const ValueInfoMsg& info : graph.value_infos) {
    scope.declared.emplace(info.name, &info.type);
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ValueInfoMsg& input = graph.inputs[i];
    const Value argument = block->argument(i);
    const bool typed = argument.type() != NoneType::Get(context_);
    if (!typed) argument.set_type(ConvertType(input.type, input.name));
    Define(scope, input.name, argument, "graph input");
  }
  ImportInitializers(graph, scope);
  ImportNodes(graph.nodes, scope, frame);
  std::vector<Value> results;
  for (const ValueInfoMsg& output : graph.outputs) {
    const Value* value = scope.Find(output.name);
    if (value == nullptr) {
      Fail(ErrorCode::kInvalidArgument, "onnx/undefined-input",
           StrCat("graph output ", Shown(output.name), " is made by no node"));
    }
    if (!*value) return;  // refused below
    if (class_labels_.contains(*value)) RefuseZipMap(StrCat("graph output ", Shown(output.name)));
    results.push_back(*value);
  }
  builder_.Create(cf::kYield, results);
  ImportStatement(graph, *block);
}

void Importer::CallFunction(const FunctionMsg& function, const NodeMsg& node, Scope& scope,
                            const Frame& caller) {
  const std::string name = QualifiedName(NormalDomain(function.domain), function.name);
  for (const Frame* frame = &caller; frame != nullptr; frame = frame->caller) {
    if (frame->function == &function) {
      Fail(ErrorCode::kInvalidArgument, "onnx/function-cycle",
           StrCat("function ", Shown(name), " calls itself"), "ONNX functions cannot recur");
    }
  }
  if (caller.depth >= options_.max_nesting) {
    Fail(ErrorCode::kLimit, "onnx/nesting",
         StrCat("functions call each other deeper than ", options_.max_nesting));
  }
  if (node.inputs.size() > function.inputs.size() ||
      node.outputs.size() > function.outputs.size()) {
    Fail(ErrorCode::kInvalidArgument, "onnx/inputs",
         StrCat("function ", Shown(name), " has ", function.inputs.size(), " inputs and ",
                function.outputs.size(), " outputs, the call ", node.inputs.size(), " and ",
                node.outputs.size()));
  }
  Frame frame;
  frame.caller = &caller;
  frame.function = &function;
  frame.call = &node;
  frame.depth = caller.depth + 1;
  frame.prefix = StrCat(NodeName(node, caller), "/");
  ReadOpsets(function.opsets, frame, StrCat("function ", Shown(name)));
  Scope body;
  for (size_t i = 0; i < function.inputs.size(); ++i) {
    if (i >= node.inputs.size() || node.inputs[i].empty()) {
      body.absent.insert(function.inputs[i]);
      continue;
    }
    Define(body, function.inputs[i], Lookup(node.inputs[i], node, scope), "function input");
  }
  const std::string where = where_;
  const std::string prefix = std::exchange(value_prefix_, frame.prefix);
  ImportNodes(function.nodes, body, frame);
  value_prefix_ = prefix;
  where_ = where;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    const Value* value = body.Find(function.outputs[i]);
    if (value == nullptr) {
      Fail(ErrorCode::kInvalidArgument, "onnx/undefined-input",
           StrCat("output ", Shown(function.outputs[i]), " of function ", Shown(name),
                  " is made by no node"));
    }
    const bool made_inside = *value && NameInFile(*value).starts_with(frame.prefix);
    if (made_inside) SetNameInFile(*value, StrCat(prefix, node.outputs[i]));
    Define(scope, node.outputs[i], *value, "output");
  }
}

}  // namespace lathe::onnx
