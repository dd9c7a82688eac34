#include <algorithm>
#include <optional>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/decompose.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/metadata.h"
#include "lathe/ir/op_def.h"
#include "lathe/ir/stated_constraints.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/value_names.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/text.h"
#include "lathe/support/version.h"
#include "src/frontend/onnx/exporter.h"
#include "src/frontend/onnx/op_table.h"
#include "src/frontend/onnx/tensor_codec.h"

namespace lathe::onnx {

namespace {

// Small enough that a model of nothing but such parameters stays readable as one file.
constexpr uint64_t kSmallParameter = 1024;
// Below protobuf's 2 GiB, with room for the graph.
constexpr uint64_t kMaxInside = uint64_t{1} << 30;
constexpr uint64_t kDataAlignment = 4096;
// Sets older than this lack the meaning that our ops follow by default.
constexpr int kOldestExportOpset = 18;

std::string_view NameAttr(const Operation& op) {
  const auto name = op.attribute("name").dyn_cast<StrAttribute>();
  return name ? name.value() : std::string_view();
}

// IR versions that first came with an operator set.
int64_t IrVersionFor(int64_t opset) {
  constexpr std::pair<int64_t, int64_t> kVersions[] = {{18, 8},  {20, 9},  {22, 10},
                                                       {23, 11}, {24, 12}, {27, 13}};
  for (const auto& [newest, version] : kVersions) {
    if (opset <= newest) return version;
  }
  return kNewestOnnxIrVersion;
}

NodeMsg ConstantNode(Text output, std::shared_ptr<const TensorMsg> value) {
  AttributeMsg a;
  a.name = "value";
  a.type = AttrType::kTensor;
  a.tensors.push_back(std::move(value));
  NodeMsg node;
  node.op_type = "Constant";
  node.outputs = {output};
  node.attributes.push_back(std::move(a));
  return node;
}

}  // namespace

Exporter::Exporter(const Program& program, const OnnxExportOptions& options)
    : program_(program), options_(options) {}

Text Exporter::Keep(std::string text) { return kept_.emplace_back(std::move(text)); }

Text Exporter::FreshName() {
  for (;;) {
    std::string name = StrCat("v", next_name_++);
    if (taken_.insert(name).second) return Keep(std::move(name));
  }
}

Text Exporter::NameOf(Value value) {
  if (!value) return {};
  auto [entry, added] = names_.try_emplace(value);
  if (added) entry->second = FreshName();
  return entry->second;
}

// Inputs, parameters and outputs keep their names whatever else has them.
void Exporter::ReserveNames() {
  for (const Operation* feed : program_.feeds()) taken_.emplace(NameAttr(*feed));
  for (const auto& [name, variable] : program_.parameters()) taken_.emplace(name.value());
  for (const Operation* fetch : program_.fetches()) {
    const bool fresh = taken_.emplace(NameAttr(*fetch)).second;
    const Value value = fetch->operand(0);
    const Operation* maker = value.defining_op();
    const bool direct = fresh && maker != nullptr && maker->block() == program_.block() &&
                        maker->num_operands() + maker->num_regions() > 0;
    if (direct) names_.try_emplace(value, NameAttr(*fetch));
  }
}

// What passes made of a value may be several operations at its place: the last one gives it.
void Exporter::KeepNamesOfFile() {
  std::unordered_map<std::string_view, Value> named;
  std::vector<std::string_view> order;
  for (OpWalker w(program_.block()); Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const std::string_view name = NameInFile(op->result(i));
      if (!name.empty() && named.insert_or_assign(name, op->result(i)).second)
        order.push_back(name);
    }
  }
  for (const std::string_view name : order) {
    const Value value = named.at(name);
    if (!names_.contains(value) && taken_.emplace(name).second)
      names_.emplace(value, Keep(std::string(name)));
  }
}

// What the importer calls a dim of an input that has no name, unless it is one of another input
// too.
void Exporter::FindOpenDims() {
  std::map<Text, size_t> uses;
  for (const Operation* feed : program_.feeds()) {
    const auto type = feed->result(0).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) continue;
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      const Dim& dim = type.dims()[axis];
      if (!dim.is_symbol()) continue;
      const Text name = dim.symbol_name();
      const bool is_own = name == StrCat(NameAttr(*feed), ".", axis);
      if (uses[name]++ == 0 && is_own) open_dims_.insert(name);
      if (uses[name] > 1) open_dims_.erase(name);
    }
  }
}

void Exporter::Refuse(const Operation* op, std::string_view why) {
  Error error(ErrorCode::kUnsupported, "onnx/export", StrCat(op->name(), " ", why));
  error.At(op->Describe());
  const bool function = op->name() == builtin::kFunc || op->name() == builtin::kCall;
  if (function) error.Hint("run the pass inline{max_ops=-1} first");
  refusals_.push_back(std::move(error));
}

TypeMsg Exporter::ConvertType(Type type) const {
  TypeMsg message;
  if (type.isa<AnyTensorType>()) {
    const auto tensor = type.cast<AnyTensorType>();
    message.kind = TypeMsg::kTensor;
    message.elem_type = static_cast<int32_t>(tensor.element());
    message.has_shape = tensor.has_rank();
    for (const Dim& dim : tensor.dims()) message.dims.push_back(ConvertDim(dim));
    return message;
  }
  if (!type.isa<ContainerType>()) return message;
  const auto elements = type.cast<ContainerType>().elements();
  message.kind = type.isa<ListType>()       ? TypeMsg::kSequence
                 : type.isa<OptionalType>() ? TypeMsg::kOptional
                 : type.isa<DictType>()     ? TypeMsg::kMap
                                            : TypeMsg::kNone;
  if (message.kind == TypeMsg::kMap) {
    message.elem_type = static_cast<int32_t>(elements[0].cast<ElemType>().element());
  }
  message.inner = std::make_shared<TypeMsg>(ConvertType(elements.back()));
  return message;
}

DimMsg Exporter::ConvertDim(const Dim& dim) const {
  DimMsg message;
  if (dim.is_constant()) {
    message.has_value = true;
    message.value = dim.value();
  } else if (dim.is_symbol()) {
    if (!open_dims_.contains(dim.symbol_name()))
      message.param = kept_.emplace_back(dim.symbol_name());
  } else if (!dim.is_unknown()) {
    message.param = kept_.emplace_back(dim.ToString());
  }
  return message;
}

void Exporter::ExportFeed(Operation* op, GraphMsg& graph) {
  names_[op->result(0)] = NameAttr(*op);
  graph.inputs.push_back({NameAttr(*op), ConvertType(op->result(0).type())});
}

void Exporter::ExportParameter(Operation* op) {
  const Text name = NameAttr(*op);
  names_[op->result(0)] = name;
  if (exported_.count(name) != 0) return;
  const Variable* variable = program_.parameters().Find(name);
  if (variable == nullptr) return Refuse(op, StrCat("reads ", Quote(name), ", which has no data"));
  exported_.insert(name);
  const auto constant = op->attribute("constant").dyn_cast<BoolAttribute>();
  if (constant && constant.value()) return ExportLargeConstant(name, variable->data);
  initializers_.push_back(EncodeTensor(variable->data, name));
}

void Exporter::ExportLargeConstant(Text name, const Tensor& value) {
  values_of_constants_.push_back(std::make_shared<TensorMsg>(EncodeTensor(value, {})));
  constants_.push_back(ConstantNode(name, values_of_constants_.back()));
}

void Exporter::AddIdentity(GraphMsg& graph, Value value, Text output) {
  NodeMsg node;
  node.op_type = "Identity";
  node.inputs = {NameOf(value)};
  node.outputs = {output};
  graph.nodes.push_back(std::move(node));
}

void Exporter::ExportFetch(Operation* op, GraphMsg& graph) {
  Text name = NameAttr(*op);
  const Value value = op->operand(0);
  for (const Operation* feed : program_.feeds()) {
    if (NameAttr(*feed) != name || feed->result(0) == value) continue;
    // The new contents of an input cannot have its name.
    while (!taken_.emplace(name).second) name = Keep(StrCat(name, "_out"));
  }
  graph.outputs.push_back({name, ConvertType(value.type())});
  if (NameOf(value) != name) AddIdentity(graph, value, name);
}

void Exporter::ExportConstant(Operation* op, GraphMsg& graph) {
  const auto value = op->attribute("value").dyn_cast<TensorAttribute>();
  if (!value) return Refuse(op, "has no tensor");
  graph.nodes.push_back(ConstantNode(
      NameOf(op->result(0)), std::make_shared<const TensorMsg>(EncodeTensor(value.value(), {}))));
}

// Outputs of a graph must be made in it, each once.
void Exporter::ExportYield(Operation* op, GraphMsg& graph) {
  std::set<Text> seen;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value value = op->operand(i);
    Text name = NameOf(value);
    const Operation* maker = value.defining_op();
    const bool inside =
        maker != nullptr && maker->block() == op->block() && maker->name() != kGetParameter;
    if (!inside || !seen.insert(name).second) {
      name = FreshName();
      AddIdentity(graph, value, name);
    }
    graph.outputs.push_back({name, ConvertType(value.type())});
  }
}

GraphMsg Exporter::ExportRegion(Region& region) {
  GraphMsg graph;
  graph.name = "body";
  Block* block = region.front();
  for (size_t i = 0; block != nullptr && i < block->num_arguments(); ++i) {
    const Value argument = block->argument(i);
    graph.inputs.push_back({NameOf(argument), ConvertType(argument.type())});
  }
  if (block == nullptr) return graph;
  ExportBlock(*block, graph);
  ExportTypes(*block, graph);
  ExportStatement(*block, graph);
  return graph;
}

// Types of values within the graph, for those who look at it or have no inference of shapes.
void Exporter::ExportTypes(const Block& block, GraphMsg& graph) const {
  std::unordered_set<Text> done;  // outputs have theirs
  for (const ValueInfoMsg& output : graph.outputs) done.insert(output.name);
  for (const Operation& op : block) {
    for (size_t i = 0; i < op.num_results(); ++i) {
      const auto name = names_.find(op.result(i));
      const bool is_made = name != names_.end() && !Handlers().contains(op.name());
      if (!is_made || !done.insert(name->second).second) continue;
      TypeMsg type = ConvertType(op.result(i).type());
      if (type.kind != TypeMsg::kNone) graph.value_infos.push_back({name->second, std::move(type)});
    }
  }
}

// What a graph relies on and no longer shows.
void Exporter::ExportStatement(const Block& block, GraphMsg& graph) {
  const std::string text = StatementText(block);
  if (!text.empty()) graph.metadata.emplace_back(kStatementKey, Keep(text));
}

// Ops that come from one node share its name; onnxruntime wants every node to have its own.
Text Exporter::NodeName(std::string_view name) {
  if (node_names_.insert(name).second) return name;
  for (int64_t i = next_suffix_[name] + 1;; ++i) {
    const Text unique = Keep(StrCat(name, "/", i));
    if (!node_names_.insert(unique).second) continue;
    next_suffix_[name] = i;
    return unique;
  }
}

void Exporter::ExportOp(Operation* op, GraphMsg& graph) {
  const OpDef* def = op->info().def();
  if (def == nullptr || def->onnx_name == nullptr || op->HasTrait<Inplace>()) {
    return Refuse(op, "has no ONNX counterpart");
  }
  const auto layout = op->attribute("layout").dyn_cast<StrAttribute>();
  if (layout && layout.value() == "NHWC") {
    return Refuse(op, "has its channels last; run the pass layout{to=nchw} before");
  }
  NodeMsg node;
  const std::string_view domain = def->onnx_domain == nullptr ? "" : def->onnx_domain;
  node.op_type = def->onnx_name;
  node.domain = NormalDomain(domain);
  if (op->location().is_name()) node.name = NodeName(op->location().name());
  for (size_t i = 0; i < op->num_operands(); ++i) node.inputs.push_back(NameOf(op->operand(i)));
  for (size_t i = 0; i < op->num_results(); ++i) {
    const bool absent = op->result(i).type().isa<NoneType>();
    node.outputs.push_back(absent ? Text() : NameOf(op->result(i)));
  }
  ExportAttributes(op, node, graph);
  int& opset = opsets_.try_emplace(node.domain, 0).first->second;
  opset = std::max(opset, OpsetNeeded(op, node));
  for (size_t i = 0; i < op->num_regions(); ++i) {
    AttributeMsg a;
    a.name = RegionAttribute(def->regions[i].name);
    a.type = AttrType::kGraph;
    a.graphs.push_back(std::make_shared<GraphMsg>(ExportRegion(op->region(i))));
    node.attributes.push_back(std::move(a));
  }
  graph.nodes.push_back(std::move(node));
}

void Exporter::ExportBlock(Block& block, GraphMsg& graph) {
  LATHE_CHECK(depth_ >= 0);
  if (++depth_ > kMaxRegionDepth) {
    throw Error(ErrorCode::kLimit, "onnx/nesting",
                StrCat("regions are nested deeper than ", kMaxRegionDepth));
  }
  for (Operation& op : block) {
    const auto handler = Handlers().find(op.name());
    if (handler == Handlers().end()) {
      ExportOp(&op, graph);
    } else {
      (this->*handler->second)(&op, graph);
    }
  }
  --depth_;
}

const Exporter::HandlerTable& Exporter::Handlers() {
  static const HandlerTable table = {
      {nn::kFeed, &Exporter::ExportFeed},
      {nn::kFetch, &Exporter::ExportFetch},
      {kGetParameter, &Exporter::ExportParameterOp},
      {builtin::kConstant, &Exporter::ExportConstant},
      {cf::kYield, &Exporter::ExportYield},
  };
  return table;
}

// Names of metadata, as import makes them, and where they go.
void Exporter::ExportMetadata(ModelMsg& model) {
  constexpr std::string_view kProps = "metadata_props.", kValue = "value.", kDoc = ".doc_string";
  constexpr std::string_view kLabels = ".class_labels";
  const std::pair<std::string_view, Text*> texts[] = {
      {"producer_name", &model.producer_name},
      {"producer_version", &model.producer_version},
      {"domain", &model.domain},
      {"doc_string", &model.doc},
      {"graph.name", &model.graph.name},
      {"graph.doc_string", &model.graph.doc},
  };
  for (const auto& [name, value] : MetadataOf(program_)) {
    const Text kept = Keep(value);
    for (const auto& [text, to] : texts) {
      if (name == text) *to = kept;
    }
    if (name == "model_version") model.version = ParseInt(value).value_or(0);
    if (name.starts_with(kProps))
      model.metadata.emplace_back(Keep(name.substr(kProps.size())), kept);
    if (name.starts_with(kValue) && name.ends_with(kLabels))
      model.metadata.emplace_back(Keep(name), kept);
    if (!name.starts_with(kValue) || !name.ends_with(kDoc)) continue;
    const std::string of = name.substr(kValue.size(), name.size() - kValue.size() - kDoc.size());
    for (auto* values : {&model.graph.inputs, &model.graph.outputs}) {
      for (ValueInfoMsg& v : *values) {
        if (v.name == of) v.doc = kept;
      }
    }
  }
  if (model.producer_name != options_.producer) {
    model.metadata.emplace_back(kExporterKey, Keep(std::string(Version())));
  }
}

ModelMsg Exporter::Run() {
  ReserveNames();
  KeepNamesOfFile();
  FindOpenDims();
  ModelMsg model;
  model.has_graph = true;
  model.graph.name = kMainGraph;
  model.producer_name = options_.producer;
  ExportBlock(*program_.block(), model.graph);
  ExportTypes(*program_.block(), model.graph);
  ExportStatement(*program_.block(), model.graph);
  if (!refusals_.empty()) {
    Error first = std::move(refusals_.front());
    first.others.assign(std::make_move_iterator(refusals_.begin() + 1),
                        std::make_move_iterator(refusals_.end()));
    throw std::move(first);
  }
  model.graph.initializers = std::move(initializers_);
  model.graph.nodes.insert(model.graph.nodes.begin(), std::make_move_iterator(constants_.begin()),
                           std::make_move_iterator(constants_.end()));
  opsets_.try_emplace(Text(), kOldestExportOpset);
  for (auto& [domain, version] : opsets_) {
    if (domain.empty()) version = std::max(version, kOldestExportOpset);
    model.opsets.push_back({domain, version});
  }
  model.ir_version = IrVersionFor(opsets_.at(Text()));
  ExportMetadata(model);
  return model;
}

std::vector<TensorMsg*> Exporter::Tensors(ModelMsg& model) const {
  std::vector<TensorMsg*> tensors;
  for (TensorMsg& t : model.graph.initializers) tensors.push_back(&t);
  for (const std::shared_ptr<TensorMsg>& t : values_of_constants_) tensors.push_back(t.get());
  return tensors;
}

uint64_t Exporter::ExternalThreshold(std::span<TensorMsg* const> tensors) const {
  uint64_t total = 0;
  for (const TensorMsg* t : tensors) total += t->raw_data.size();
  const bool too_large = total > kMaxInside;
  return too_large ? std::min(options_.external_data_threshold, kSmallParameter)
                   : options_.external_data_threshold;
}

std::unique_ptr<FileWriter> Exporter::MoveOutside(ModelMsg& model, const std::string& path) {
  std::vector<TensorMsg*> tensors = Tensors(model);
  const uint64_t threshold = ExternalThreshold(tensors);
  std::erase_if(tensors, [&](const TensorMsg* t) {
    return !t->has_raw || t->raw_data.empty() || t->raw_data.size() < threshold;
  });
  if (tensors.empty()) return nullptr;
  const size_t slash = path.rfind('/');
  const Text location = Keep(path.substr(slash == std::string::npos ? 0 : slash + 1) + ".data");
  auto writer = std::make_unique<FileWriter>(path + ".data");
  uint64_t at = 0;
  for (TensorMsg* t : tensors) {
    const uint64_t padding = (kDataAlignment - at % kDataAlignment) % kDataAlignment;
    writer->Write(std::string(padding, '\0'));
    at += padding;
    writer->Write(t->raw_data);
    t->external_data = {{"location", location},
                        {"offset", Keep(std::to_string(at))},
                        {"length", Keep(std::to_string(t->raw_data.size()))}};
    at += t->raw_data.size();
    t->external = true;
    t->has_raw = false;
  }
  return writer;
}

}  // namespace lathe::onnx

namespace lathe {

namespace {

bool NeedsDecomposing(const Operation* op) {
  const OpDef* def = op->info().def();
  return def != nullptr && def->onnx_name == nullptr && op->HasInterface<DecomposeInterface>();
}

/// The program without ops that ONNX lacks but whose parts it has. A copy only if there are such.
class ForExport {
 public:
  explicit ForExport(const Program& program) : program_(&program) {
    for (OpWalker w(program.block()); const Operation* op = w.Next();) {
      if (!NeedsDecomposing(op)) continue;
      copy_.emplace(program.Clone());
      Builder b(program.context());
      DecomposeOps(*copy_, b, NeedsDecomposing);
      program_ = &*copy_;
      return;
    }
  }
  const Program& program() const { return *program_; }

 private:
  const Program* program_;
  std::optional<Program> copy_;
};

}  // namespace

std::string SerializeOnnx(const Program& program, const OnnxExportOptions& options) {
  const ForExport simple(program);
  onnx::Exporter exporter(simple.program(), options);
  return onnx::Serialize(exporter.Run());
}

void ExportOnnx(const Program& program, const std::string& path, const OnnxExportOptions& options) {
  const ForExport simple(program);
  onnx::Exporter exporter(simple.program(), options);
  onnx::ModelMsg model = exporter.Run();
  const std::unique_ptr<FileWriter> data = exporter.MoveOutside(model, path);
  FileWriter writer(path);
  writer.Write(onnx::Serialize(model));
  if (data == nullptr) return writer.Commit();
  FileWriter::CommitTogether({data.get(), &writer});
}

}  // namespace lathe
