#include <algorithm>
#include <map>
#include <utility>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/metadata.h"
#include "lathe/ir/stated_constraints.h"
#include "lathe/ir/value_names.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/frontend/onnx/importer.h"

namespace lathe::onnx {

namespace {

constexpr int64_t kFirstIrVersionWithOpsets = 3;

std::string FunctionName(Text domain, Text name, Text overload) {
  return StrCat(NormalDomain(domain), "\n", name, "\n", overload);
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

const Value* Scope::Find(Text name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    const auto found = scope->values.find(name);
    if (found != scope->values.end()) return &found->second;
  }
  return nullptr;
}

bool Scope::IsAbsent(Text name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    if (scope->absent.count(name) != 0) return true;
    if (scope->values.count(name) != 0) return false;
  }
  return false;
}

Importer::Importer(IrContext& context, const ModelMsg& model, Source source, std::string file,
                   const OnnxImportOptions& options)
    : context_(context),
      model_(model),
      source_(std::move(source)),
      file_(std::move(file)),
      options_(options),
      table_(context),
      program_(context),
      builder_(Builder::AtEnd(program_.block())),
      facts_(&program_.parameters()) {}

void Importer::CheckModel() {
  if (!model_.has_graph) {
    Fail(ErrorCode::kParse, "onnx/no-graph", "the file holds no graph",
         "is it an ONNX model? Data files (input_0.pb) are not models");
  }
  if (model_.ir_version > kNewestOnnxIrVersion) {
    Fail(ErrorCode::kUnsupported, "onnx/ir-version",
         StrCat("IR version ", model_.ir_version, " is newer than ", kNewestOnnxIrVersion,
                ", the newest that is understood"),
         "export the model for an older IR version");
  }
  if (model_.opsets.empty() && model_.ir_version >= kFirstIrVersionWithOpsets) {
    Fail(ErrorCode::kInvalidArgument, "onnx/opset", "the model imports no operator set",
         "opset_import must name the version of each domain that is used");
  }
}

void Importer::ReadOpsets(const std::vector<OpsetMsg>& opsets, Frame& frame,
                          std::string_view where) {
  for (const OpsetMsg& opset : opsets) {
    const Text domain = NormalDomain(opset.domain);
    const std::string name(domain.empty() ? Text("ai.onnx") : domain);
    if (opset.version < 1) {
      Fail(ErrorCode::kInvalidArgument, "onnx/opset",
           StrCat(where, " imports version ", opset.version, " of ", name));
    }
    if (domain.empty() && opset.version > kNewestOnnxOpset) {
      Fail(ErrorCode::kUnsupported, "onnx/opset",
           StrCat(where, " uses opset ", opset.version, "; the newest that is understood is ",
                  kNewestOnnxOpset),
           StrCat("export it for opset ", kNewestOnnxOpset, " or older"));
    }
    const auto [entry, added] = frame.opsets.try_emplace(domain, opset.version);
    if (!added && entry->second != opset.version) {
      Fail(
          ErrorCode::kInvalidArgument, "onnx/opset",
          StrCat(where, " imports ", name, " in versions ", entry->second, " and ", opset.version));
    }
  }
}

void Importer::IndexFunctions() {
  for (const FunctionMsg& f : model_.functions) {
    const auto [entry, added] = functions_.emplace(FunctionName(f.domain, f.name, f.overload), &f);
    if (!added) {
      Fail(ErrorCode::kInvalidArgument, "onnx/duplicate-name",
           StrCat("function ", Shown(QualifiedName(f.domain, f.name)), " is defined twice"));
    }
  }
}

const FunctionMsg* Importer::FindFunction(const NodeMsg& node) const {
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find(FunctionName(node.domain, node.op_type, node.overload));
  return found == functions_.end() ? nullptr : found->second;
}

void Importer::Define(Scope& scope, Text name, Value value, std::string_view what) {
  if (scope.values.emplace(name, value).second) {
    // Inputs and parameters have their names as an attribute.
    const Operation* op = value ? value.defining_op() : nullptr;
    const bool is_made = op != nullptr && (what == "output" || op->name() == builtin::kConstant);
    if (is_made && NameInFile(value).empty()) SetNameInFile(value, StrCat(value_prefix_, name));
    return;
  }
  Fail(ErrorCode::kInvalidArgument, "onnx/duplicate-name",
       StrCat(what, " ", Shown(name), " has a name that is already taken in this graph"),
       "every value of a graph needs a name of its own");
}

Value Importer::MakeParameter(Text name, Tensor data, bool constant) {
  const StrAttribute unique = program_.parameters().FreshName(context_, name);
  const Type type =
      VTensorType::Get(context_, SymShape::FromConstants(data.shape()), data.element_type());
  program_.parameters().Insert(unique, Variable{std::move(data), false});
  std::vector<NamedAttribute> attributes = {builder_.Named("name", unique)};
  if (constant) attributes.push_back(builder_.Named("constant", builder_.Attr(true)));
  Operation* op = builder_.Create(builtin::kGetParameter, {}, attributes, {&type, 1});
  facts_.Visit(op);
  return op->result(0);
}

Value Importer::MakeConstant(const Tensor& value) {
  const Type type =
      VTensorType::Get(context_, SymShape::FromConstants(value.shape()), value.element_type());
  const NamedAttribute attributes[] = {builder_.Named("value", builder_.Attr(value))};
  Operation* op = builder_.Create(builtin::kConstant, {}, attributes, {&type, 1});
  facts_.Visit(op);
  return op->result(0);
}

// Whether an initializer is what the file's author wrote as an argument (axes, pads, a shape): the
// program is compiled for it, while weights can be exchanged.
bool Importer::IsArgument(const Tensor& data) const {
  const bool whole =
      data.element_type() == ElementType::kI64 || data.element_type() == ElementType::kI32;
  return whole && data.rank() <= 1 && data.byte_size() <= options_.max_constant_bytes;
}

void Importer::CheckGivenInitializers(const GraphMsg& graph) const {
  for (const auto& [name, value] : options_.initializers) {
    if (std::ranges::find(graph.initializers, name, &TensorMsg::name) == graph.initializers.end()) {
      Fail(ErrorCode::kNotFound, "onnx/initializer",
           StrCat("a value is given for ", Shown(name), ", which is not an initializer"));
    }
  }
}

// That of the file, or the one that the options give instead.
Tensor Importer::ValueOfInitializer(const TensorMsg& message) const {
  const auto& given = options_.initializers;
  const auto own = std::ranges::find(given, message.name, &std::pair<std::string, Tensor>::first);
  if (own == given.end()) return DecodeTensor(message, source_);
  const Tensor& value = own->second;
  const auto element = ElementTypeFromOnnx(message.data_type).value_or(ElementType::kUndefined);
  if (value.element_type() != element || value.shape() != message.dims) {
    const SymShape wanted = SymShape::FromConstants(message.dims);
    Fail(ErrorCode::kInvalidArgument, "onnx/initializer",
         StrCat(value.TypeString(), " is given, the model has ", Name(element), wanted.ToString()));
  }
  return value;
}

void Importer::ImportInitializers(const GraphMsg& graph, Scope& scope) {
  CheckGivenInitializers(graph);
  std::unordered_set<Text> feeds;
  for (const ValueInfoMsg& input : graph.inputs) {
    if (std::ranges::find(options_.initializers_as_inputs, input.name) !=
        options_.initializers_as_inputs.end())
      feeds.insert(input.name);
  }
  for (const TensorMsg& tensor : graph.initializers) {
    if (feeds.contains(tensor.name)) continue;
    where_ = StrCat("initializer ", Shown(tensor.name));
    builder_.set_location(Location::Name(context_, tensor.name));
    Tensor data = ValueOfInitializer(tensor);
    Define(scope, tensor.name,
           IsArgument(data) ? MakeConstant(data) : MakeParameter(tensor.name, std::move(data)),
           "initializer");
  }
  for (const SparseTensorMsg& sparse : graph.sparse_initializers) {
    const Text name = sparse.values.name;
    where_ = StrCat("initializer ", Shown(name));
    builder_.set_location(Location::Name(context_, name));
    Define(scope, name, MakeParameter(name, DecodeSparse(sparse, source_)), "initializer");
  }
  where_.clear();
}

namespace {

// What the exporters of PyTorch say of the tensors of a module: PARAMETER, BUFFER, CONSTANT_TENSOR.
constexpr std::string_view kKindOfTensor = "pkg.torch.export.graph_signature.InputSpec.kind";

std::map<Text, Text> KindsOf(const GraphMsg& graph) {
  std::map<Text, Text> kinds;
  for (const ValueInfoMsg& info : graph.value_infos) {
    for (const auto& [key, value] : info.metadata) {
      if (key == kKindOfTensor) kinds.emplace(info.name, value);
    }
  }
  return kinds;
}

// Statistics follow the batches when a model is trained.
bool IsStatistic(Value parameter) {
  return std::ranges::any_of(parameter.uses(), [](const OpOperand& use) {
    using nn::BatchNormalizationOp;
    return use.owner()->isa<BatchNormalizationOp>() && use.index() >= BatchNormalizationOp::kMean;
  });
}

// Where a clip ends.
bool IsBound(Value parameter) {
  const auto type = parameter.type().cast<AnyTensorType>();
  return type.has_rank() && type.rank() == 0 && !parameter.use_empty() &&
         std::ranges::all_of(parameter.uses(), [](const OpOperand& use) {
           return use.owner()->isa<nn::ClipOp>() && use.index() >= nn::ClipOp::kMin;
         });
}

}  // namespace

// A buffer of a module is not a weight; nor is a number of its code, of which an exporter that says
// what parameters are says nothing, nor a bound that nobody says is one.
void Importer::MarkBuffers() {
  const std::map<Text, Text> kinds = KindsOf(model_.graph);
  for (Operation& op : *program_.block()) {
    if (op.name() != builtin::kGetParameter || IsStatistic(op.result(0))) continue;
    const auto type = op.result(0).type().cast<AnyTensorType>();
    const auto kind = kinds.find(Text(op.attribute("name").cast<StrAttribute>().value()));
    const bool is_number = !kinds.empty() && type.has_rank() && type.rank() == 0;
    const bool is_constant =
        kind == kinds.end() ? is_number || IsBound(op.result(0)) : kind->second != "PARAMETER";
    if (is_constant) op.SetAttribute("constant", builder_.Attr(true));
  }
}

void Importer::ImportFeeds(const GraphMsg& graph, Scope& scope) {
  for (const ValueInfoMsg& input : graph.inputs) {
    for (const DimMsg& dim : input.type.dims) named_dims_.insert(dim.param);
  }
  std::unordered_set<Text> seen;
  for (const ValueInfoMsg& input : graph.inputs) {
    if (!seen.insert(input.name).second || input.name.empty()) {
      Fail(ErrorCode::kInvalidArgument, "onnx/duplicate-name",
           StrCat("graph input ", Shown(input.name), " is listed twice or has no name"));
    }
    // Old files list the initializers among the inputs.
    if (scope.values.count(input.name) != 0) continue;
    const Type type = NameOpenDims(ConvertType(input.type, input.name), input.name);
    const NamedAttribute attributes[] = {builder_.Named("name", builder_.Attr(input.name))};
    builder_.set_location(Location::Name(context_, input.name));
    Operation* op = builder_.Create(nn::kFeed, {}, attributes, {&type, 1});
    Define(scope, input.name, op->result(0), "graph input");
  }
}

// A loop that starts from an optional may end with one where the file promises what is in it.
Value Importer::Unwrapped(Value value, const TypeMsg& declared) {
  const bool promised = declared.kind != TypeMsg::kNone && declared.kind != TypeMsg::kOptional;
  const OpInfo unwrap = table_.Find("", "OptionalGetElement");
  if (!promised || !unwrap || !value.type().isa<OptionalType>()) return value;
  const Type type = value.type().cast<OptionalType>().elements()[0];
  Operation* op = builder_.Create(unwrap, {&value, 1}, {}, {&type, 1});
  facts_.Visit(op);
  return op->result(0);
}

void Importer::ImportFetches(const GraphMsg& graph, const Scope& scope) {
  // One that is listed again, as Keras does, is an output of another name. Those that are listed
  // once have theirs in any case.
  std::unordered_set<Text> taken, done;
  for (const ValueInfoMsg& output : graph.outputs) taken.insert(output.name);
  for (const ValueInfoMsg& output : graph.outputs) {
    const Value* value = scope.Find(output.name);
    if (value == nullptr) {
      Fail(ErrorCode::kInvalidArgument, "onnx/undefined-input",
           StrCat("graph output ", Shown(output.name), " is made by no node"));
    }
    if (!*value) continue;
    const Value given = Unwrapped(*value, output.type);
    Text name = output.name;
    if (!done.insert(name).second) {
      for (int n = 2; !taken.insert(name).second; ++n) name = Keep(StrCat(output.name, "_", n));
    }
    const NamedAttribute attributes[] = {builder_.Named("name", builder_.Attr(name))};
    builder_.set_location(Location::Name(context_, output.name));
    builder_.Create(nn::kFetch, {&given, 1}, attributes);
  }
}

void Importer::ThrowRefusals() {
  if (refusals_.empty()) return;
  Error first = std::move(refusals_.front());
  for (size_t i = 1; i < refusals_.size(); ++i) first.others.push_back(std::move(refusals_[i]));
  throw first;
}

Text Importer::FreshName(std::string_view hint) {
  // A NUL can stand in no name of a file that a person wrote, and hides nothing if it does.
  return Keep(StrCat(hint, std::string_view("\0#", 2), fresh_names_++));
}

// What Lathe itself wrote is not worth repeating.
void Importer::ImportMetadata(const Scope& scope) {
  Metadata metadata;
  const auto add = [&](std::string name, Text value) {
    if (!value.empty() && IsValidUtf8(name) && IsValidUtf8(value))
      metadata.emplace_back(std::move(name), value);
  };
  if (model_.producer_name != OnnxExportOptions().producer) {
    add("producer_name", model_.producer_name);
    add("producer_version", model_.producer_version);
  }
  add("domain", model_.domain);
  if (model_.version != 0) add("model_version", std::to_string(model_.version));
  add("doc_string", model_.doc);
  if (model_.graph.name != kMainGraph) add("graph.name", model_.graph.name);
  add("graph.doc_string", model_.graph.doc);
  for (const auto* values : {&model_.graph.inputs, &model_.graph.outputs}) {
    for (const ValueInfoMsg& v : *values) add(StrCat("value.", v.name, ".doc_string"), v.doc);
  }
  for (const ValueInfoMsg& v : model_.graph.outputs) {
    const auto labels = class_labels_.find(*scope.Find(v.name));
    if (labels != class_labels_.end())
      add(StrCat("value.", v.name, ".class_labels"), labels->second);
  }
  for (const auto& [key, value] : model_.metadata) {
    if (key == kExporterKey) continue;
    const bool labels = key.starts_with("value.") && key.ends_with(".class_labels");
    add(labels ? std::string(key) : StrCat("metadata_props.", key), value);
  }
  SetMetadata(program_, metadata);
}

void Importer::ImportStatement(const GraphMsg& graph, Block& block) const {
  for (const auto& [key, text] : graph.metadata) {
    if (key != kStatementKey) continue;
    try {
      StateText(block, text);
    } catch (const Error& error) {
      Fail(ErrorCode::kInvalidArgument, "onnx/relies-on",
           StrCat("what the metadata ", kStatementKey, " of a graph says: ", error.message()));
    }
  }
}

Program Importer::Run() {
  CheckModel();
  Frame frame;
  ReadOpsets(model_.opsets, frame, "the model");
  if (model_.opsets.empty()) frame.opsets.emplace(Text(), 1);
  IndexFunctions();
  Scope scope;
  for (const ValueInfoMsg& info : model_.graph.value_infos) {
    scope.declared.emplace(info.name, &info.type);
  }
  for (const ValueInfoMsg& info : model_.graph.outputs) {
    scope.declared.emplace(info.name, &info.type);
  }
  ImportInitializers(model_.graph, scope);
  ImportFeeds(model_.graph, scope);
  ImportNodes(model_.graph.nodes, scope, frame);
  where_.clear();
  if (refusals_.empty()) ImportFetches(model_.graph, scope);
  ThrowRefusals();
  ImportStatement(model_.graph, *program_.block());
  MarkBuffers();
  TellRest();
  ImportMetadata(scope);
  return std::move(program_);
}

}  // namespace lathe::onnx

namespace lathe {

Program ImportOnnx(IrContext& context, std::shared_ptr<Buffer> buffer, const std::string& name,
                   const std::string& folder, const OnnxImportOptions& options) {
  const std::string_view bytes(reinterpret_cast<const char*>(buffer->data()), buffer->size());
  const onnx::ModelMsg model = onnx::ParseModel(bytes, name);
  onnx::ExternalFiles external(folder, options.external);
  return onnx::Importer(context, model, {std::move(buffer), &external}, name, options).Run();
}

Program ImportOnnx(IrContext& context, const std::string& path, const OnnxImportOptions& options) {
  return ImportOnnx(context, Buffer::MapFile(path), path, onnx::FolderOf(path), options);
}

}  // namespace lathe
