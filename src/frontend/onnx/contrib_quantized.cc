// Operators of com.microsoft on small integers, as operators of the standard.

#include "src/frontend/onnx/contrib.h"
#include "src/frontend/onnx/op_table.h"

namespace lathe::onnx {

namespace {

constexpr auto kF32 = static_cast<int64_t>(ElementType::kF32);

// The numbers that inputs `first`, `first + 1` (scale) and `first + 2` (zero point) say.
Text Numbers(UpgradeContext& c, size_t first) {
  return Nodes(c)("DequantizeLinear",
                  {c.node.inputs[first], c.node.inputs[first + 1], InputOr(c, first + 2)});
}

// As integers by the scale at `first` and the zero point behind it; of type `type` without one.
Text Quantized(UpgradeContext& c, Text x, size_t first, ElementType type) {
  std::vector<AttributeMsg> attributes;
  const Text zero_point = InputOr(c, first + 1);
  if (zero_point.empty()) {
    attributes.push_back(MakeInt("output_dtype", static_cast<int64_t>(type)));
  }
  return Nodes(c)("QuantizeLinear", {x, c.node.inputs[first], zero_point}, std::move(attributes));
}

// ---- element by element, pools ----

// The first input with channels behind the batch.
Text ImageChannelsFirst(UpgradeContext& c) {
  const std::vector<int64_t> perm = ChannelsFirst(c.NeedRank(0));
  return Nodes(c)("Transpose", {c.node.inputs[0]}, {MakeInts("perm", perm)});
}

// The result is `y`, which has as many axes as the first input, with channels at the end.
void GiveChannelsLast(UpgradeContext& c, Text y) {
  c.Give(0, Nodes(c)("Transpose", {y}, {MakeInts("perm", ChannelsLast(c.NeedRank(0)))}));
}

bool HasChannelsLast(const UpgradeContext& c) {
  return c.IntAttr("channels_last").value_or(0) != 0;
}

// Of one tensor, whose scale and zero point follow it, and then those of the result.
void Unary(UpgradeContext& c, Text op, std::vector<AttributeMsg> attributes) {
  Nodes make(c);
  const bool moves = HasChannelsLast(c);
  const Text x = moves ? ImageChannelsFirst(c) : c.node.inputs[0];
  const Text numbers = make("DequantizeLinear", {x, c.node.inputs[1], InputOr(c, 2)});
  const Text y = make(op, {numbers}, std::move(attributes));
  const Text rounded = Quantized(c, y, 3, c.InputElement(0));
  moves ? GiveChannelsLast(c, rounded) : c.Give(0, rounded);
}

// Of two.
void Binary(UpgradeContext& c, Text op) {
  const Text y = Nodes(c)(op, {Numbers(c, 0), Numbers(c, 3)});
  c.Give(0, Quantized(c, y, 6, c.InputElement(0)));
}

void QLinearAdd(UpgradeContext& c) { Binary(c, "Add"); }
void QLinearMul(UpgradeContext& c) { Binary(c, "Mul"); }
void QLinearSigmoid(UpgradeContext& c) { Unary(c, "Sigmoid", {}); }
void QLinearLeakyRelu(UpgradeContext& c) { Unary(c, "LeakyRelu", Pass(c, {"alpha"})); }

void QLinearAveragePool(UpgradeContext& c) {
  Unary(c, "AveragePool",
        Pass(c, {"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"}));
}

void QLinearGlobalAveragePool(UpgradeContext& c) { Unary(c, "GlobalAveragePool", {}); }

void NhwcMaxPool(UpgradeContext& c) {
  GiveChannelsLast(
      c,
      Nodes(c)("MaxPool", {ImageChannelsFirst(c)},
               Pass(c, {"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"})));
}

void QLinearReduceMean(UpgradeContext& c) {
  Nodes make(c);
  const auto axes = c.IntsAttr("axes");
  const Text y =
      make("ReduceMean", {Numbers(c, 0), axes ? make.Ints(*axes) : Text()}, Pass(c, {"keepdims"}));
  c.Give(0, Quantized(c, y, 3, c.InputElement(0)));
}

// Before opset 13 it is over all axes from `axis` on.
void QLinearSoftmax(UpgradeContext& c) {
  const int64_t axis = c.IntAttr("axis").value_or(-1);
  const bool is_last = axis == -1 || axis == c.NeedRank(0) - 1;
  if (c.IntAttr("opset").value_or(13) < 13 && !is_last) {
    c.Refuse("a softmax of opset 12 over several axes is not supported");
  }
  Unary(c, "Softmax", {MakeInt("axis", axis)});
}

void QLinearWhere(UpgradeContext& c) {
  const Text y = Nodes(c)("Where", {c.node.inputs[0], Numbers(c, 1), Numbers(c, 4)});
  c.Give(0, Quantized(c, y, 7, c.InputElement(1)));
}

// The scale and zero point of the result come first, then three inputs for each part.
void QLinearConcat(UpgradeContext& c) {
  if (c.node.inputs.size() % 3 != 2) {
    c.Refuse("each part has a tensor, a scale and a zero point");
  }
  std::vector<Text> parts;
  for (size_t i = 2; i < c.node.inputs.size(); i += 3) parts.push_back(Numbers(c, i));
  const Text y = Nodes(c)("Concat", std::move(parts), Pass(c, {"axis"}));
  c.Give(0, Quantized(c, y, 0, c.InputElement(2)));
}

// Those of the standard, of more types than it had then.
void QuantizeLinear(UpgradeContext& c) {
  c.Give(0, Nodes(c)("QuantizeLinear", c.node.inputs, Pass(c, {"axis", "block_size"})));
}
void DequantizeLinear(UpgradeContext& c) {
  c.Give(0, Nodes(c)("DequantizeLinear", c.node.inputs, Pass(c, {"axis", "block_size"})));
}

// ---- products ----

// That of the standard, whose channels may be at the end; filters are what they are there.
void QLinearConv(UpgradeContext& c) {
  const bool moves = HasChannelsLast(c);
  std::vector<Text> inputs = c.node.inputs;
  if (moves) inputs[0] = ImageChannelsFirst(c);
  const Text y =
      Nodes(c)("QLinearConv", std::move(inputs),
               Pass(c, {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
  moves ? GiveChannelsLast(c, y) : c.Give(0, y);
}

// A sum of products of integers, exact, by its scales: f32.
Text Scaled(UpgradeContext& c, Text sum, Text a_scale, Text b_scale) {
  Nodes make(c);
  const Text numbers = make("Cast", {sum}, {MakeInt("to", kF32)});
  return make("Mul", {numbers, make("Mul", {a_scale, b_scale})});
}

Text Turned(UpgradeContext& c, size_t i, Text attribute) {
  const Text x = c.node.inputs[i];
  return c.IntAttr(attribute).value_or(0) == 0 ? x : Nodes(c)("Transpose", {x});
}

void QGemm(UpgradeContext& c) {
  Nodes make(c);
  Text sum = make("MatMulInteger",
                  {Turned(c, 0, "transA"), Turned(c, 3, "transB"), InputOr(c, 2), InputOr(c, 5)});
  sum = make.Sum({sum, InputOr(c, 6)});
  Text y = Scaled(c, sum, c.node.inputs[1], c.node.inputs[4]);
  const double alpha = c.FloatAttr("alpha").value_or(1);
  if (alpha != 1) y = make("Mul", {y, make.Scalar(1, alpha)});
  c.Give(0, c.HasInput(7) ? Quantized(c, y, 7, c.InputElement(0)) : y);
}

void MatMulIntegerToFloat(UpgradeContext& c) {
  Nodes make(c);
  const Text sum =
      make("MatMulInteger", {c.node.inputs[0], c.node.inputs[1], InputOr(c, 4), InputOr(c, 5)});
  c.Give(0, make.Sum({Scaled(c, sum, c.node.inputs[2], c.node.inputs[3]), InputOr(c, 6)}));
}

void DynamicQuantizeMatMul(UpgradeContext& c) {
  Nodes make(c);
  const std::vector<Text> a = make.Many("DynamicQuantizeLinear", {c.node.inputs[0]}, {}, 3);
  const Text sum = make("MatMulInteger", {a[0], c.node.inputs[1], a[2], InputOr(c, 3)});
  c.Give(0, make.Sum({Scaled(c, sum, a[1], c.node.inputs[2]), InputOr(c, 4)}));
}

// ---- recurrent layers ----

// Weights [directions, inputs, 4 hidden] as those of LSTM, [directions, 4 hidden, inputs]; a scale
// for each direction, or for each of its columns.
Text LstmWeights(UpgradeContext& c, size_t input, size_t scale) {
  Nodes make(c);
  const bool both = c.StringAttr("direction").value_or("forward") == "bidirectional";
  const auto numbers = [&](size_t i) {
    const Text x = make("Cast", {c.node.inputs[i]}, {MakeInt("to", kF32)});
    return i == input ? x : make("Reshape", {x, make.Ints({both ? 2 : 1, 1, -1})});
  };
  const Text centered = make("Sub", {numbers(input), numbers(scale + 1)});
  const Text weights = make("Mul", {centered, numbers(scale)});
  return make("Transpose", {weights}, {MakeInts("perm", {0, 2, 1})});
}

// In f32: onnxruntime rounds the inputs of each product to eight bits, too.
void DynamicQuantizeLstm(UpgradeContext& c) {
  for (const size_t i : {1, 2, 8, 9, 10, 11}) {
    if (!c.HasInput(i)) c.Refuse(StrCat("input ", i, " is missing"));
  }
  std::vector<Text> inputs = {c.node.inputs[0], LstmWeights(c, 1, 8), LstmWeights(c, 2, 10)};
  for (size_t i = 3; i < 8; ++i) inputs.push_back(InputOr(c, i));
  const std::vector<Text> y =
      Nodes(c).Many("LSTM", std::move(inputs),
                    Pass(c, {"activation_alpha", "activation_beta", "activations", "clip",
                             "direction", "hidden_size", "input_forget"}),
                    3);
  for (size_t i = 0; i < 3; ++i) c.Give(i, y[i]);
}

constexpr size_t kAnyNumber = size_t{1} << 20;

constexpr ContribRule kQuantized[] = {
    {"DequantizeLinear", 2, 3, 1, DequantizeLinear, "axis block_size"},
    {"DynamicQuantizeLSTM", 12, 12, 3, DynamicQuantizeLstm,
     "activation_alpha activation_beta activations clip direction hidden_size input_forget"},
    {"DynamicQuantizeMatMul", 3, 5, 1, DynamicQuantizeMatMul},
    {"MatMulIntegerToFloat", 4, 7, 1, MatMulIntegerToFloat},
    {"NhwcMaxPool", 1, 1, 1, NhwcMaxPool, "auto_pad ceil_mode dilations kernel_shape pads strides"},
    {"QGemm", 6, 9, 1, QGemm, "alpha transA transB"},
    {"QLinearAdd", 7, 8, 1, QLinearAdd},
    {"QLinearAveragePool", 4, 5, 1, QLinearAveragePool,
     "auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides"},
    {"QLinearConcat", 5, kAnyNumber, 1, QLinearConcat, "axis"},
    {"QLinearConv", 8, 9, 1, QLinearConv,
     "auto_pad channels_last dilations group kernel_shape pads strides"},
    {"QLinearGlobalAveragePool", 4, 5, 1, QLinearGlobalAveragePool, "channels_last"},
    {"QLinearLeakyRelu", 4, 5, 1, QLinearLeakyRelu, "alpha"},
    {"QLinearMul", 7, 8, 1, QLinearMul},
    {"QLinearReduceMean", 4, 5, 1, QLinearReduceMean, "axes keepdims"},
    {"QLinearSigmoid", 4, 5, 1, QLinearSigmoid},
    {"QLinearSoftmax", 4, 5, 1, QLinearSoftmax, "axis opset"},
    {"QLinearWhere", 8, 9, 1, QLinearWhere},
    {"QuantizeLinear", 2, 3, 1, QuantizeLinear, "axis block_size"},
};

}  // namespace

std::span<const ContribRule> ContribQuantized() { return kQuantized; }

}  // namespace lathe::onnx
