// Operators that no op stands for: the importer builds them from others.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/gradient.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/frontend/onnx/importer.h"

namespace lathe::onnx {

namespace {

// What the importer knows, and what it will learn about operations made just now.
class LazyFacts : public ValueFacts {
 public:
  explicit LazyFacts(ShapeInferencer& facts) : facts_(facts) {}
  const Tensor* Constant(Value value) override {
    Learn(value);
    return facts_.Constant(value);
  }
  const std::vector<Dim>* Contents(Value value) override {
    Learn(value);
    return facts_.Contents(value);
  }

 private:
  void Learn(Value value) {
    Operation* op = value.defining_op();
    if (op == nullptr || op->num_regions() > 0 || !seen_.insert(value).second) return;
    if (facts_.Constant(value) == nullptr && facts_.Contents(value) == nullptr) facts_.Visit(op);
  }

  ShapeInferencer& facts_;
  std::unordered_set<Value> seen_;
};

std::vector<Text> NamesIn(const NodeMsg& node, Text attribute) {
  const AttributeMsg* a = node.Find(attribute);
  if (a == nullptr || a->type != AttrType::kStrings) return {};
  return std::vector<Text>(a->strings.begin(), a->strings.end());
}

const GraphMsg* GraphIn(const NodeMsg& node, Text attribute) {
  const AttributeMsg* a = node.Find(attribute);
  if (a == nullptr || a->type != AttrType::kGraph || a->graphs.empty()) return nullptr;
  return a->graphs[0].get();
}

}  // namespace

bool Importer::ImportBuilt(const NodeMsg& node, Scope& scope, const Frame& frame) {
  const Text domain = NormalDomain(node.domain);
  const bool gradient = domain == "ai.onnx.preview.training" && node.op_type == "Gradient";
  const bool attention = domain == "ai.onnx.preview" && node.op_type == "FlexAttention";
  const bool zip_map = domain == "ai.onnx.ml" && node.op_type == "ZipMap";
  if (!gradient && !attention && !zip_map) return false;
  if (IsPoisoned(node, scope)) return Poison(node, scope), true;
  Block* block = builder_.block();
  Operation* last = block->back();
  try {
    if (gradient) ImportGradient(node, scope);
    if (attention) ImportFlexAttention(node, scope, frame);
    if (zip_map) ImportZipMap(node, scope, frame);
  } catch (Error& error) {
    if (error.where().empty()) error.At(StrCat(file_, ": ", where_));
    throw;
  }
  for (Operation* op = last ? last->next() : block->front(); op; op = op->next()) {
    facts_.Visit(op);
  }
  return true;
}

// The operator names values of its graph instead of reading them: xs and zs are the variables, y is
// what is differentiated. Its inputs say where, which here must be the variables themselves.
void Importer::ImportGradient(const NodeMsg& node, Scope& scope) {
  const std::vector<Text> xs = NamesIn(node, "xs");
  const std::vector<Text> zs = NamesIn(node, "zs");
  const AttributeMsg* y = node.Find("y");
  if (xs.empty() || y == nullptr || y->type != AttrType::kString ||
      node.outputs.size() > xs.size()) {
    Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
         "Gradient needs attributes 'xs' and 'y', and at most one output for each x");
  }
  std::vector<Text> variables = xs;
  variables.insert(variables.end(), zs.begin(), zs.end());
  if (node.inputs != variables) {
    Fail(ErrorCode::kUnsupported, "onnx/gradient",
         "Gradient: gradients at another point than the values of xs and zs are not supported",
         "give the tensors that xs and zs name as inputs, in that order");
  }
  std::vector<Value> values;
  for (const Text name : variables) values.push_back(Lookup(name, node, scope));
  const Value result = Lookup(y->s, node, scope);
  if (!result) return Poison(node, scope);
  LazyFacts facts(facts_);
  Builder b = Builder::AtEnd(builder_.block());
  b.set_location(builder_.location());
  b.set_facts(&facts);
  const std::span<const Value> all(values);
  const std::vector<Value> gradients =
      BuildGradients(b, result, all.first(xs.size()), all.subspan(xs.size()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].empty()) Define(scope, node.outputs[i], gradients[i], "output");
  }
}

// The body of a graph with one input and one output, between the nodes around it.
Value Importer::ImportInline(const GraphMsg& graph, Value input, const Scope& outer,
                             const Frame& frame) {
  if (graph.inputs.size() != 1 || graph.outputs.size() != 1) {
    Fail(ErrorCode::kInvalidArgument, "onnx/subgraph",
         StrCat("a graph of FlexAttention has ", graph.inputs.size(), " inputs and ",
                graph.outputs.size(), " outputs, one of each is expected"));
  }
  ++nesting_;
  CheckNesting();
  Scope scope;
  scope.parent = &outer;
  Define(scope, graph.inputs[0].name, input, "graph input");
  const std::string where = where_;
  ImportInitializers(graph, scope);
  ImportNodes(graph.nodes, scope, frame);
  where_ = where;
  --nesting_;
  const Value* result = scope.Find(graph.outputs[0].name);
  if (result != nullptr) return *result;
  Fail(ErrorCode::kInvalidArgument, "onnx/undefined-input",
       StrCat("graph output ", Shown(graph.outputs[0].name), " is made by no node"));
}

namespace {

// Extents of the operands of FlexAttention: [B, Hq, L, E], [B, Hk, S, E], [B, Hk, S, F].
struct FlexSizes {
  Dim heads, key_heads, length, keys, features, value_features;

  // Query heads share key heads.
  [[nodiscard]] bool grouped() const { return !ProvablyEqual(heads, key_heads); }
  [[nodiscard]] bool Supported() const {
    if (!features.is_constant()) return false;
    if (!grouped()) return true;
    for (const Dim& d : {heads, key_heads, length, keys, value_features}) {
      if (!d.is_constant()) return false;
    }
    return key_heads.value() > 0 && heads.value() % key_heads.value() == 0;
  }
};

// Ops of FlexAttention. A group of query heads that share a key head stands as more rows of it.
struct FlexBuilder {
  Builder& b;
  FlexSizes sizes;
  ElementType type, precise;

  [[nodiscard]] Value Constant(const Tensor& value) const {
    return builtin::ConstantOp::Create(b, {.value = value}).result();
  }
  [[nodiscard]] Value As(Value v, ElementType wanted) const {
    if (v.type().cast<AnyTensorType>().element() == wanted) return v;
    return nn::CastOp::Create(b, v, {.to = wanted}).output();
  }
  // [B, ., ., columns] with the given number of heads.
  [[nodiscard]] Value WithHeads(Value v, const Dim& heads, const Dim& columns) const {
    if (!sizes.grouped()) return v;
    const Tensor shape = Tensor::Of<int64_t>({4}, {0, heads.value(), -1, columns.value()});
    return nn::ReshapeOp::Create(b, v, Constant(shape)).reshaped();
  }
  [[nodiscard]] Value Scores(Value q, Value k, double scale) const {
    const Value factor = Constant(Cast(Tensor::Scalar<double>(std::sqrt(scale)), type));
    const Value rows =
        WithHeads(nn::MulOp::Create(b, q, factor).c(), sizes.key_heads, sizes.features);
    const Value keys = nn::MulOp::Create(b, k, factor).c();
    const Value scores = nn::MatmulOp::Create(b, rows, keys, {.transpose_y = true}).z();
    return As(WithHeads(scores, sizes.heads, sizes.keys), precise);
  }
  [[nodiscard]] Value Output(Value weights, Value v) const {
    const Value rows = WithHeads(weights, sizes.key_heads, sizes.keys);
    const Value y = nn::MatmulOp::Create(b, rows, As(v, precise)).z();
    return As(WithHeads(y, sizes.heads, sizes.value_features), type);
  }
};

ElementType SoftmaxType(const NodeMsg& node, ElementType type) {
  const AttributeMsg* given = node.Find("softmax_precision");
  if (given == nullptr) return type == ElementType::kF64 ? type : ElementType::kF32;
  const auto precise = ElementTypeFromOnnx(given->i);
  if (precise && IsFloat(*precise)) return *precise;
  throw Error(ErrorCode::kInvalidArgument, "onnx/attribute",
              StrCat("FlexAttention: softmax_precision is ", given->i));
}

}  // namespace

// ai.onnx.preview.FlexAttention: softmax(score_mod(scale * Q K^T)), then prob_mod, times V.
void Importer::ImportFlexAttention(const NodeMsg& node, Scope& scope, const Frame& frame) {
  if (node.inputs.size() != 3 || node.outputs.size() != 1) {
    Fail(ErrorCode::kInvalidArgument, "onnx/inputs", "FlexAttention has three inputs, one output");
  }
  std::vector<AnyTensorType> types;
  std::vector<Value> inputs;
  for (const Text name : node.inputs) {
    inputs.push_back(Lookup(name, node, scope));
    types.push_back(inputs.back().type().dyn_cast<AnyTensorType>());
    if (types.back() && types.back().has_rank() && types.back().rank() == 4 &&
        IsFloat(types.back().element())) {
      continue;
    }
    Fail(ErrorCode::kShape, "shape/rank",
         StrCat("FlexAttention: ", Shown(name), " is ", inputs.back().type().ToString(),
                ", floats [batch, heads, length, features] are expected"));
  }
  const std::vector<Dim> q = types[0].shape().dims, k = types[1].shape().dims;
  const FlexSizes sizes{q[1], k[1], q[2], k[2], q[3], types[2].shape().dims[3]};
  if (!sizes.Supported()) {
    Fail(ErrorCode::kUnsupported, "onnx/flex-attention",
         StrCat("FlexAttention of ", types[0].ToString(), " and ", types[1].ToString()),
         "features, and with shared key heads all extents but the batch, must be constants that "
         "fit");
  }
  LazyFacts facts(facts_);
  Builder b = Builder::AtEnd(builder_.block());
  b.set_location(builder_.location());
  b.set_facts(&facts);
  const ElementType type = types[0].element();
  const FlexBuilder make{b, sizes, type, SoftmaxType(node, type)};
  const AttributeMsg* given = node.Find("scale");
  const double scale =
      given != nullptr ? given->f : 1 / std::sqrt(static_cast<double>(sizes.features.value()));
  Value scores = make.Scores(inputs[0], inputs[1], scale);
  const GraphMsg* mod = GraphIn(node, "score_mod");
  if (mod != nullptr) scores = ImportInline(*mod, scores, scope, frame);
  if (!scores) return Poison(node, scope);
  Value weights = nn::SoftmaxOp::Create(b, scores, {.axis = -1}).y();
  mod = GraphIn(node, "prob_mod");
  if (mod != nullptr) weights = ImportInline(*mod, weights, scope, frame);
  if (!weights) return Poison(node, scope);
  Define(scope, node.outputs[0], make.Output(weights, inputs[2]), "output");
}

namespace {

// Of type list(dict(label, f32)), one dictionary for each row.
std::string LabelsOfZipMap(const NodeMsg& node, size_t& count) {
  const AttributeMsg* ints = node.Find("classlabels_int64s");
  const AttributeMsg* strings = node.Find("classlabels_strings");
  const bool has_ints = ints != nullptr && !ints->ints.empty();
  const bool has_strings = strings != nullptr && !strings->strings.empty();
  if (has_ints == has_strings) {
    throw Error(ErrorCode::kInvalidArgument, "onnx/attribute",
                "ZipMap needs one of 'classlabels_int64s' and 'classlabels_strings'");
  }
  count = has_ints ? ints->ints.size() : strings->strings.size();
  if (has_ints) return nlohmann::json(ints->ints).dump();
  return nlohmann::json(strings->strings)
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void Importer::RefuseZipMap(std::string_view what) const {
  Fail(ErrorCode::kUnsupported, "onnx/zip-map",
       StrCat(what, " is a list of dictionaries made by ZipMap; it can only be an output"),
       "export the model without ZipMap (skl2onnx: options={'zipmap': False}), or read the "
       "probabilities in front of it");
}

// ai.onnx.ml.ZipMap makes a dictionary of each row of probabilities. What it says is the same for
// all rows but for the numbers, so the tensor is what the program gives, and the keys are metadata.
void Importer::ImportZipMap(const NodeMsg& node, Scope& scope, const Frame& frame) {
  if (node.inputs.size() != 1 || node.outputs.size() != 1) {
    Fail(ErrorCode::kInvalidArgument, "onnx/inputs", "ZipMap has one input and one output");
  }
  const bool outside = scope.parent == nullptr && frame.function == nullptr;
  const auto& outputs = model_.graph.outputs;
  if (!outside ||
      std::ranges::find(outputs, node.outputs[0], &ValueInfoMsg::name) == outputs.end()) {
    RefuseZipMap(
        StrCat("ZipMap: ", Shown(node.outputs[0]), ", which is not an output of the model,"));
  }
  const Value scores = Lookup(node.inputs[0], node, scope);
  const auto type = scores.type().dyn_cast<AnyTensorType>();
  size_t count = 0;
  const std::string labels = LabelsOfZipMap(node, count);
  if (!type || type.element() != ElementType::kF32 || !type.has_rank() || type.rank() != 2 ||
      !ProvablyEqual(type.dims()[1], Dim(static_cast<int64_t>(count)))) {
    Fail(ErrorCode::kInvalidArgument, "onnx/input-type",
         StrCat("ZipMap: ", Shown(node.inputs[0]), " is ", scores.type().ToString(),
                ", probabilities f32[N,", count, "] are expected"));
  }
  Builder b = Builder::AtEnd(builder_.block());
  b.set_location(builder_.location());
  // A value of its own: what the dictionaries are made of can be read by others.
  const Value kept = nn::IdentityOp::Create(b, scores).y();
  class_labels_.emplace(kept, labels);
  Define(scope, node.outputs[0], kept, "output");
}

}  // namespace lathe::onnx
