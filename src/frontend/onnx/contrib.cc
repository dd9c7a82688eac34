#include "src/frontend/onnx/contrib.h"

#include <algorithm>

#include "lathe/support/error.h"
#include "src/frontend/onnx/op_table.h"

namespace lathe::onnx {

namespace {

constexpr double kBertEpsilon = 1e-12;

AttributeMsg Epsilon(const UpgradeContext& c) {
  return MakeFloat("epsilon", static_cast<float>(c.FloatAttr("epsilon").value_or(kBertEpsilon)));
}

// ---- activations ----

void Gelu(UpgradeContext& c) { c.Give(0, Nodes(c)("Gelu", {c.node.inputs[0]})); }

void FastGelu(UpgradeContext& c) {
  Nodes make(c);
  const Text x = make.Sum({c.node.inputs[0], InputOr(c, 1)});
  c.Give(0, make("Gelu", {x}, {MakeString("approximate", "tanh")}));
}

void BiasGelu(UpgradeContext& c) {
  Nodes make(c);
  c.Give(0, make("Gelu", {make("Add", {c.node.inputs[0], c.node.inputs[1]})}));
}

void QuickGelu(UpgradeContext& c) {
  const float alpha = static_cast<float>(c.FloatAttr("alpha").value_or(1.702F));
  c.Give(0, Nodes(c)("Swish", {c.node.inputs[0]}, {MakeFloat("alpha", alpha)}));
}

// Activations that are part of other operators, and how many parameters each has.
struct Activation {
  const char* op;
  size_t parameters = 0;
};

constexpr Activation kActivations[] = {
    {"Elu", 1},   {"HardSigmoid", 2}, {"LeakyRelu", 1},       {"Relu"}, {"Sigmoid"}, {"Softplus"},
    {"Softsign"}, {"Tanh"},           {"ThresholdedRelu", 1},
};

const Activation& ActivationNamed(UpgradeContext& c, Text name) {
  for (const Activation& a : kActivations) {
    if (name == a.op) return a;
  }
  c.Refuse(StrCat("activation ", Shown(name), " is not supported"));
  return kActivations[0];
}

Text Activated(UpgradeContext& c, Text x, const std::vector<std::optional<double>>& given) {
  static constexpr const char* kNames[] = {"alpha", "beta"};
  const Text name = c.StringAttr("activation").value_or(Text());
  Nodes make(c);
  if (name.empty()) return x;
  if (name == "Clip" && given.size() >= 2 && given[0] && given[1]) {
    return make("Clip", {x, make.Scalar(0, *given[0]), make.Scalar(0, *given[1])});
  }
  const Activation& activation = ActivationNamed(c, name);
  std::vector<AttributeMsg> attributes;
  for (size_t i = 0; i < activation.parameters; ++i) {
    if (i >= given.size() || !given[i]) {
      c.Refuse(StrCat("activation ", name, " lacks its parameter '", kNames[i], "'"));
    }
    attributes.push_back(MakeFloat(kNames[i], static_cast<float>(*given[i])));
  }
  return make(activation.op, {x}, std::move(attributes));
}

// ---- products ----

std::vector<int64_t> Identity(int64_t rank) {
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) axes[static_cast<size_t>(i)] = i;
  return axes;
}

// An operand of FusedMatMul: of [B, M, C, K] transBatch makes [M, C, B, K], trans swaps the last
// two dims of that. A vector has nothing to swap.
Text MatMulOperand(UpgradeContext& c, size_t i, Text trans, Text trans_batch) {
  const bool swap = c.IntAttr(trans).value_or(0) != 0;
  const bool batch = c.IntAttr(trans_batch).value_or(0) != 0;
  if (!swap && !batch) return c.node.inputs[i];
  const int64_t rank = c.NeedRank(i);
  if (rank < 2) return c.node.inputs[i];
  std::vector<int64_t> perm = Identity(rank);
  if (batch) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (swap) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return Nodes(c)("Transpose", {c.node.inputs[i]}, {MakeInts("perm", std::move(perm))});
}

void FusedMatMul(UpgradeContext& c) {
  Nodes make(c);
  const Text a = MatMulOperand(c, 0, "transA", "transBatchA");
  Text y = make("MatMul", {a, MatMulOperand(c, 1, "transB", "transBatchB")});
  const double alpha = c.FloatAttr("alpha").value_or(1);
  if (alpha != 1) y = make("Mul", {y, make.Scalar(0, alpha)});
  c.Give(0, y);
}

void FusedGemm(UpgradeContext& c) {
  const Text y = Nodes(c)("Gemm", c.node.inputs, Pass(c, {"alpha", "beta", "transA", "transB"}));
  c.Give(0, Activated(c, y, {c.FloatAttr("activation_alpha"), c.FloatAttr("activation_beta")}));
}

// ---- convolutions ----

std::vector<std::optional<double>> ConvActivationParameters(const UpgradeContext& c) {
  const AttributeMsg* given = c.node.Find("activation_params");
  std::vector<std::optional<double>> values;
  if (given != nullptr) values.assign(given->floats.begin(), given->floats.end());
  return values;
}

// The sum Z comes before the activation.
void ConvOf(UpgradeContext& c, bool channels_last) {
  Nodes make(c);
  const auto moved = [&](Text x, std::vector<int64_t> (*perm)(int64_t)) {
    return channels_last ? make("Transpose", {x}, {MakeInts("perm", perm(c.NeedRank(0)))}) : x;
  };
  const Text x = moved(c.node.inputs[0], ChannelsFirst);
  Text y = make("Conv", {x, c.node.inputs[1], InputOr(c, 2)},
                Pass(c, {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
  y = make.Sum({moved(y, ChannelsLast), InputOr(c, 3)});
  c.Give(0, Activated(c, y, ConvActivationParameters(c)));
}

void FusedConv(UpgradeContext& c) { ConvOf(c, false); }
void NhwcConv(UpgradeContext& c) { ConvOf(c, true); }

// ---- norms ----

void SkipLayerNorm(UpgradeContext& c) {
  Nodes make(c);
  const Text sum = make.Sum({c.node.inputs[0], c.node.inputs[1], InputOr(c, 4)});
  const std::vector<Text> y =
      make.Many("LayerNormalization", {sum, c.node.inputs[2], InputOr(c, 3)}, {Epsilon(c)}, 3);
  for (size_t i = 0; i < 3; ++i) c.Give(i, y[i]);
  c.Give(3, sum);
}

void SkipSimplifiedLayerNorm(UpgradeContext& c) {
  if (c.HasOutput(1) || c.HasOutput(2)) c.Refuse("outputs 'mean' and 'inv_std_var'");
  Nodes make(c);
  const Text sum = make.Sum({c.node.inputs[0], c.node.inputs[1], InputOr(c, 3)});
  c.Give(0, make("RMSNormalization", {sum, c.node.inputs[2]}, {Epsilon(c)}));
  c.Give(3, sum);
}

void SimplifiedLayerNorm(UpgradeContext& c) {
  if (c.HasOutput(1)) c.Refuse("output 'inv_std_var'");
  c.Give(0,
         Nodes(c)("RMSNormalization", c.node.inputs, Pass(c, {"axis", "epsilon", "stash_type"})));
}

// Rows of the tables of words, positions and segments, inputs 2 to 4, and the scale and shift
// behind them; in bytes each has its scale six inputs on, and its zero point eleven.
struct Embedding {
  UpgradeContext& c;
  Nodes make;
  bool in_bytes;

  Text Numbers(Text x, size_t table) {
    if (!in_bytes) return x;
    return make("DequantizeLinear", {x, c.node.inputs[table + 6], c.node.inputs[table + 11]});
  }
  Text Whole(size_t table) { return Numbers(c.node.inputs[table], table); }
  Text Rows(size_t table, Text at) {
    return Numbers(make("Gather", {c.node.inputs[table], at}), table);
  }
  // Those asked for, or the first of them in order.
  Text Positions() {
    constexpr size_t kGiven = 8;
    if (!in_bytes && c.HasInput(kGiven)) return Rows(3, c.node.inputs[kGiven]);
    const Text length = make.Size(c.node.inputs[0], 1), zero = make.Ints({0});
    return Numbers(make("Slice", {c.node.inputs[3], zero, length, zero}), 3);
  }
};

// The number of words of each row: of ones in its mask.
Text MaskIndex(UpgradeContext& c, Nodes& make) {
  const std::vector<AttributeMsg> plain = {MakeInt("keepdims", 0)};
  const AttributeMsg as_i32 = MakeInt("to", static_cast<int64_t>(ElementType::kI32));
  if (c.HasInput(7)) {
    const Text words = make("Equal", {c.node.inputs[7], make.Scalar(7, 1)});
    return make("ReduceSum", {make("Cast", {words}, {as_i32}), make.Ints({1})}, plain);
  }
  const Text zero = c.AddConstant(Tensor::Scalar<int32_t>(0));
  return make("Expand", {zero, make.Size(c.node.inputs[0], 0)});
}

void CheckEmbedding(UpgradeContext& c, bool in_bytes) {
  constexpr size_t kWords = 2, kPositions = 3, kSegments = 4, kScale = 5, kShift = 6;
  const auto is_whole = [&](size_t i) {
    return c.HasInput(i) && (!in_bytes || (c.HasInput(i + 6) && c.HasInput(i + 11)));
  };
  for (const size_t i : {kWords, kPositions, kScale, kShift}) {
    if (!is_whole(i)) c.Refuse(StrCat("input ", i, " is missing"));
  }
  if (c.HasInput(1) != c.HasInput(kSegments) || (c.HasInput(1) && !is_whole(kSegments))) {
    c.Refuse("'segment_ids' and 'segment_embedding' come together or not at all");
  }
}

void EmbedLayerNormOf(UpgradeContext& c, bool in_bytes) {
  CheckEmbedding(c, in_bytes);
  Embedding e{c, Nodes(c), in_bytes};
  const Text words = e.Rows(2, c.node.inputs[0]);
  const Text segments = c.HasInput(1) ? e.Rows(4, c.node.inputs[1]) : Text();
  const Text sum = e.make.Sum({words, e.Positions(), segments});
  c.Give(0, e.make("LayerNormalization", {sum, e.Whole(5), e.Whole(6)}, {Epsilon(c)}));
  if (c.HasOutput(1)) c.Give(1, MaskIndex(c, e.make));
  c.Give(2, sum);
}

void EmbedLayerNorm(UpgradeContext& c) { EmbedLayerNormOf(c, false); }
void QEmbedLayerNorm(UpgradeContext& c) { EmbedLayerNormOf(c, true); }

// ---- others ----

void GridSample(UpgradeContext& c) {
  const Text mode = c.StringAttr("mode").value_or("bilinear");
  const Text name = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
  // onnxruntime clamps each of the points that a cubic reads, the standard the one between them.
  if (mode == "bicubic" && c.StringAttr("padding_mode").value_or(Text()) == "border") {
    c.Refuse("mode 'bicubic' with padding_mode 'border' is not supported");
  }
  std::vector<AttributeMsg> attributes = Pass(c, {"align_corners", "padding_mode"});
  attributes.push_back(MakeString("mode", name));
  c.Give(0, Nodes(c)("GridSample", c.node.inputs, std::move(attributes)));
}

// ---- operators that came before those of the standard ----

Text AsI64(Nodes& make, Text x) {
  return make("Cast", {x}, {MakeInt("to", static_cast<int64_t>(ElementType::kI64))});
}
Text AsScalar(Nodes& make, Text x) { return make("Reshape", {x, make.Ints({})}); }
Text AsList(Nodes& make, Text x) { return make("Reshape", {x, make.Ints({-1})}); }

void ExpandDims(UpgradeContext& c) {
  Nodes make(c);
  const Text axis = AsList(make, AsI64(make, c.node.inputs[1]));
  c.Give(0, make("Unsqueeze", {c.node.inputs[0], axis}));
}

void GatherNd(UpgradeContext& c) {
  Nodes make(c);
  c.Give(0, make("GatherND", {c.node.inputs[0], AsI64(make, c.node.inputs[1])}));
}

void Pad(UpgradeContext& c) {
  Nodes make(c);
  const Text value = c.HasInput(2) ? AsScalar(make, c.node.inputs[2]) : Text();
  c.Give(0,
         make("Pad", {c.node.inputs[0], AsList(make, c.node.inputs[1]), value}, Pass(c, {"mode"})));
}

void Range(UpgradeContext& c) {
  Nodes make(c);
  const Text step = c.HasInput(2) ? AsScalar(make, c.node.inputs[2]) : make.Scalar(0, 1);
  c.Give(0,
         make("Range", {AsScalar(make, c.node.inputs[0]), AsScalar(make, c.node.inputs[1]), step}));
}

void Trilu(UpgradeContext& c) { c.Give(0, Nodes(c)("Trilu", c.node.inputs, Pass(c, {"upper"}))); }

// Of each row of A to each row of B.
void CDist(UpgradeContext& c) {
  const Text metric = c.StringAttr("metric").value_or("sqeuclidean");
  if (metric != "euclidean" && metric != "sqeuclidean") {
    c.Refuse(StrCat("metric ", Shown(metric), " is not supported"));
  }
  Nodes make(c);
  const Text apart = make("Sub", {make("Unsqueeze", {c.node.inputs[0], make.Ints({1})}),
                                  make("Unsqueeze", {c.node.inputs[1], make.Ints({0})})});
  const char* op = metric == "euclidean" ? "ReduceL2" : "ReduceSumSquare";
  c.Give(0, make(op, {apart, make.Ints({2})}, {MakeInt("keepdims", 0)}));
}

constexpr const char* kConv =
    "activation activation_params auto_pad dilations group kernel_shape pads strides";
constexpr const char* kMatMul = "alpha transA transB transBatchA transBatchB";

// In the order of their first occurrences.
void Unique(UpgradeContext& c) {
  const std::vector<Text> all =
      Nodes(c).Many("Unique", {c.node.inputs[0]}, {MakeInt("sorted", 0)}, 4);
  c.Give(0, all[0]);
  c.Give(1, all[2]);
  c.Give(2, all[3]);
}

constexpr ContribRule kLayers[] = {
    {"BiasGelu", 2, 2, 1, BiasGelu},
    {"CDist", 2, 2, 1, CDist, "metric"},
    {"EmbedLayerNormalization", 7, 9, 3, EmbedLayerNorm, "epsilon mask_index_type"},
    {"ExpandDims", 2, 2, 1, ExpandDims},
    {"FastGelu", 1, 2, 1, FastGelu},
    {"FusedConv", 2, 4, 1, FusedConv, kConv},
    {"FusedGemm", 2, 3, 1, FusedGemm,
     "activation activation_alpha activation_beta activation_gamma alpha beta transA transB"},
    {"FusedMatMul", 2, 2, 1, FusedMatMul, kMatMul},
    {"GatherND", 2, 2, 1, GatherNd},
    {"Gelu", 1, 1, 1, Gelu},
    {"GridSample", 2, 2, 1, GridSample, "align_corners mode padding_mode"},
    {"NhwcConv", 2, 3, 1, NhwcConv, kConv},
    {"NhwcFusedConv", 2, 4, 1, NhwcConv, kConv},
    {"Pad", 2, 3, 1, Pad, "mode"},
    {"QEmbedLayerNormalization", 18, 18, 2, QEmbedLayerNorm, "epsilon mask_index_type"},
    {"QuickGelu", 1, 1, 1, QuickGelu, "alpha"},
    {"Range", 2, 3, 1, Range},
    {"SimplifiedLayerNormalization", 2, 2, 2, SimplifiedLayerNorm, "axis epsilon stash_type"},
    {"SkipLayerNormalization", 3, 5, 4, SkipLayerNorm, "epsilon"},
    {"SkipSimplifiedLayerNormalization", 3, 4, 4, SkipSimplifiedLayerNorm, "epsilon"},
    {"TransposeMatMul", 2, 2, 1, FusedMatMul, kMatMul},
    {"Trilu", 1, 2, 1, Trilu, "upper"},
    {"Unique", 1, 1, 3, Unique},
};

const ContribRule* RuleNamed(std::span<const ContribRule> rules, Text op) {
  const auto found = std::ranges::find_if(rules, [&](const auto& rule) { return op == rule.op; });
  return found == rules.end() ? nullptr : &*found;
}

bool Lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

std::span<const ContribRule> ContribLayers() { return kLayers; }

int64_t NeedSize(UpgradeContext& c, size_t input, size_t axis) {
  c.NeedRank(input);
  const auto type = c.InputType(input).cast<AnyTensorType>();
  if (axis >= type.rank() || !type.dims()[axis].is_constant()) {
    c.Refuse(StrCat("the size of input ", input, " on axis ", axis, " is not known"));
  }
  const int64_t size = type.dims()[axis].value();
  if (size > kMostSize) c.Refuse(StrCat("input ", input, " has size ", size, " on axis ", axis));
  return size;
}

int64_t LastSize(UpgradeContext& c, size_t input) {
  const int64_t rank = c.NeedRank(input);
  if (rank == 0) c.Refuse(StrCat("input ", input, " is a scalar"));
  return NeedSize(c, input, static_cast<size_t>(rank - 1));
}

std::vector<int64_t> ChannelsFirst(int64_t rank) {
  std::vector<int64_t> perm = Identity(rank);
  if (rank >= 2) std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
  return perm;
}

std::vector<int64_t> ChannelsLast(int64_t rank) {
  std::vector<int64_t> perm = Identity(rank);
  if (rank >= 2) std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return perm;
}

std::vector<AttributeMsg> Pass(const UpgradeContext& c, std::initializer_list<Text> names) {
  std::vector<AttributeMsg> attributes;
  for (const Text name : names) {
    if (const AttributeMsg* a = c.node.Find(name)) attributes.push_back(*a);
  }
  return attributes;
}

// onnxruntime has SimplifiedLayerNormalization in the standard's domain.
const ContribRule* FindContrib(Text domain, Text op) {
  if (domain == "ai.onnx.ml") return RuleNamed(ContribClassical(), op);
  if (domain.empty() && op != "SimplifiedLayerNormalization") return RuleNamed(ContribEarly(), op);
  if (!domain.empty() && domain != "com.microsoft") return nullptr;
  for (const auto rules :
       {ContribLayers(), ContribAttention(), ContribGroupQuery(), ContribBlocks(), ContribStates(),
        ContribExperts(), ContribQuantized()}) {
    if (const ContribRule* rule = RuleNamed(rules, op)) return rule;
  }
  return nullptr;
}

void ApplyContrib(const ContribRule& rule, UpgradeContext& c) {
  NodeMsg& node = c.node;
  while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
  while (!node.outputs.empty() && node.outputs.back().empty()) node.outputs.pop_back();
  if (node.inputs.size() < rule.min_inputs || node.inputs.size() > rule.max_inputs) {
    c.Refuse(StrCat("it has ", node.inputs.size(), " inputs"));
  }
  if (node.inputs[0].empty() || node.outputs.size() > rule.max_outputs) {
    c.Refuse(StrCat("it has ", node.outputs.size(), " outputs, or no first input"));
  }
  for (const AttributeMsg& a : node.attributes) {
    if (!Lists(rule.attributes, a.name)) {
      c.Refuse(StrCat("attribute ", Shown(a.name), " is not supported"));
    }
  }
  rule.apply(c);
}

}  // namespace lathe::onnx
