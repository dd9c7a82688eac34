#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/ir/value_names.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "lathe/transform/quantization.h"
#include "src/transform/conv_constants.h"
#include "src/transform/fetch.h"
#include "src/transform/quantized_values.h"

namespace lathe {

namespace {

using Numbers = std::vector<double>;

constexpr double kMostByte = 255, kMostSigned = 127;
constexpr double kLeastScale = 1e-12;  // products of two are still ordinary numbers of f32
constexpr double kMostBias = 1 << 30;  // leaves as much of i32 to the products

// How all of a tensor becomes bytes.
struct Bytes {
  float scale = 1;
  double zero = 0;
  ElementType type = ElementType::kU8;

  // The least and the greatest number that there is a byte for.
  double least() const { return ((type == ElementType::kU8 ? 0 : -128) - zero) * scale; }
  double most() const { return ((type == ElementType::kU8 ? 255 : 127) - zero) * scale; }
};

float ScaleOf(double range, double steps) {
  return range == 0 ? 1 : static_cast<float>(std::max(range / steps, kLeastScale));
}

// Zero is one of the numbers, so that padding is exact.
Bytes BytesFor(const ValueRange& range, bool symmetric) {
  const double least = std::min(range.least, 0.0), most = std::max(range.most, 0.0);
  if (symmetric) {
    return {ScaleOf(std::max(-least, most), kMostSigned), 0, ElementType::kI8};
  }
  const float scale = ScaleOf(most - least, kMostByte);
  return {scale, std::clamp(std::nearbyint(-least / scale), 0.0, kMostByte), ElementType::kU8};
}

// The weights of a layer; one scale, or one for each index of the axis.
struct Weights {
  Tensor integers;
  std::vector<float> scale;
};

// The channel of each element along `axis`.
struct Channels {
  size_t count, inner;
  Channels(const Tensor& t, size_t axis) : count(static_cast<size_t>(t.dim(axis))), inner(1) {
    for (size_t a = axis + 1; a < t.shape().size(); ++a) inner *= static_cast<size_t>(t.dim(a));
  }
  size_t Of(size_t element) const { return element / inner % count; }
};

// Of each channel the greatest absolute value that its scale has to reach: that of its weights, or
// more, where the bias would not fit into its integers otherwise.
Numbers Sizes(const Tensor& weights, size_t axis, const Numbers& bias, double input_scale) {
  const Numbers values = ToDoubles(weights);
  const Channels channels(weights, axis);
  Numbers sizes(channels.count);
  for (size_t i = 0; i < values.size(); ++i) {
    double& size = sizes[channels.Of(i)];
    size = std::max(size, std::abs(values[i]));
  }
  for (size_t c = 0; c < bias.size(); ++c) {
    sizes[c] = std::max(sizes[c], std::abs(bias[c]) / (input_scale * kMostBias) * kMostSigned);
  }
  return sizes;
}

Weights QuantizeWeights(const Tensor& weights, size_t axis, Numbers sizes, bool per_tensor) {
  if (per_tensor) sizes = {*std::ranges::max_element(sizes)};
  std::vector<float> scale;
  for (const double size : sizes) scale.push_back(ScaleOf(size, kMostSigned));
  Numbers values = ToDoubles(weights);
  const Channels channels(weights, axis);
  for (size_t i = 0; i < values.size(); ++i) {
    const double unit = scale[per_tensor ? 0 : channels.Of(i)];
    values[i] = std::clamp(std::nearbyint(values[i] / unit), -kMostSigned, kMostSigned);
  }
  return {Cast(Tensor::Of<double>(weights.shape(), values), ElementType::kI8), scale};
}

Tensor FloatTensor(const std::vector<float>& values) {
  const Shape shape = values.size() == 1 ? Shape{} : Shape{static_cast<int64_t>(values.size())};
  return Tensor::Of<float>(shape, values);
}

}  // namespace

/// Values become bytes and numbers again, so that layers may multiply bytes.
class InsertQuantizationPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    rewriter_.emplace(program, this);
    bytes_.clear();
    options_ =
        Has("quantization") ? Get<QuantizationOptions>("quantization") : FromOptions(program);
    std::vector<QuantizationLayer> layers = QuantizationLayers(program);
    std::erase_if(layers, [&](const QuantizationLayer& layer) {
      return std::ranges::find(options_.layers, layer.name) == options_.layers.end();
    });
    ChooseBytes(layers);
    for (const QuantizationLayer& layer : layers) Rewrite(layer);
    if (!options_.compare) InsertBetween(graph.block());
  }

 private:
  QuantizationOptions FromOptions(const Program& program) const {
    QuantizationOptions o{.per_tensor = option_bool("per_tensor"),
                          .symmetric = option_bool("symmetric")};
    const auto selected =
        SelectLayers(QuantizationLayers(program), option_list("ops"), option_list("exclude"));
    for (const QuantizationLayer& layer : selected) o.layers.push_back(layer.name);
    o.ranges.assign(ResultsOf(program).size(), {option_float("least"), option_float("most")});
    return o;
  }

  // What is moved keeps its bytes.
  void ChooseBytes(const std::vector<QuantizationLayer>& layers) {
    const std::vector<Value> results = ResultsOf(rewriter_->program());
    const std::vector<bool> quantized = QuantizedResults(rewriter_->program(), layers);
    LATHE_CHECK(options_.ranges.size() == results.size(), "a range for each result");
    ShareRanges(results, quantized);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!quantized[i]) continue;
      const Operation* op = results[i].defining_op();
      const auto moved = IsMove(op) ? bytes_.find(op->operand(0)) : bytes_.end();
      if (moved != bytes_.end()) {
        bytes_.emplace(results[i], Bytes(moved->second));
      } else if (options_.ranges[i].is_known()) {
        bytes_.emplace(results[i], BytesFor(options_.ranges[i], options_.symmetric));
      }
    }
  }

  // Parts of a concat, and what they are moved from, have its range: bytes are joined as they are.
  void ShareRanges(const std::vector<Value>& results, const std::vector<bool>& quantized) {
    std::unordered_map<Value, size_t> index;  // looked up only
    for (size_t i = 0; i < results.size(); ++i) index.emplace(results[i], i);
    std::vector<bool> is_shared(results.size());
    for (size_t i = results.size(); i-- > 0;) {
      const Operation* op = results[i].defining_op();
      const bool is_concat = op->isa<nn::ConcatOp>();
      if (!quantized[i] || !(is_concat || (is_shared[i] && IsMove(op)))) continue;
      for (size_t k = 0; k < (is_concat ? op->num_operands() : 1); ++k) {
        const size_t from = index.at(op->operand(k));
        options_.ranges[from] = options_.ranges[i];
        is_shared[from] = true;
      }
    }
  }

  // ---- layers ----

  static size_t ChannelAxis(Operation* op) {
    if (op->isa<nn::ConvOp>()) return 0;
    const bool transposed =
        op->isa<nn::GemmOp>() ? nn::GemmOp(op).transB() : nn::MatmulOp(op).transpose_y();
    return transposed ? 0 : 1;
  }

  // Of a constant bias with a number for each channel.
  Numbers BiasOf(const Operation* op, size_t channels) const {
    const Value bias = op->num_operands() > 2 ? op->operand(2) : Value();
    const Tensor* t = bias ? ConstantValue(rewriter_->program(), bias) : nullptr;
    const bool fits = t != nullptr && t->rank() > 0 &&
                      static_cast<size_t>(t->num_elements()) == channels &&
                      static_cast<size_t>(t->dim(t->rank() - 1)) == channels;
    if (!fits) return {};
    Numbers numbers = ToDoubles(*t);
    const bool finite = std::ranges::all_of(numbers, [](double v) { return std::isfinite(v); });
    return finite ? numbers : Numbers();
  }

  void Rewrite(const QuantizationLayer& layer) {
    Operation* op = layer.op;
    const auto input = bytes_.find(op->operand(0));
    if (input == bytes_.end()) return Missed(op, "nothing is known of the range of its input");
    rewriter_->SetInsertionPoint(op);
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
    QuantizeConstants(op, input->second, operands);
    if (options_.compare) {
      operands[0] = Through(operands[0], input->second, layer.name);
      return Compare(layer, operands);
    }
    for (size_t i = 1; i < operands.size(); ++i) {
      if (operands[i] != op->operand(i)) rewriter_->SetOperand(op, i, operands[i]);
    }
    rewriter_->Applied(op, "its weights become bytes");
    Count("layers");
  }

  // Weights and bias among the operands of a layer.
  void QuantizeConstants(Operation* op, const Bytes& input, std::vector<Value>& operands) {
    const Tensor weights = *ConstantValue(rewriter_->program(), operands[1]);
    const size_t axis = ChannelAxis(op);
    const Numbers bias = BiasOf(op, static_cast<size_t>(weights.dim(axis)));
    const Weights w = QuantizeWeights(weights, axis, Sizes(weights, axis, bias, input.scale),
                                      options_.per_tensor);
    const std::string name = ParameterBase(operands[1], "weights");
    operands[1] = Dequantized(name, w.integers, w.scale, static_cast<int64_t>(axis));
    if (bias.empty()) return;
    std::vector<float> units;
    Numbers integers;
    for (size_t c = 0; c < bias.size(); ++c) {
      units.push_back(input.scale * w.scale[w.scale.size() == 1 ? 0 : c]);
      integers.push_back(std::clamp(std::nearbyint(bias[c] / units.back()), -kMostBias, kMostBias));
    }
    const Tensor exact = Tensor::Of<double>({static_cast<int64_t>(bias.size())}, integers);
    operands[2] =
        Dequantized(ParameterBase(operands[2], "bias"), Cast(exact, ElementType::kI32), units, 0);
  }

  Value Dequantized(const std::string& name, const Tensor& integers,
                    const std::vector<float>& scale, int64_t axis) {
    rewriter_->set_location(Location::Name(rewriter_->context(), StrCat(name, "_dequantize")));
    const Value x = rewriter_->Parameter(StrCat(name, "_quantized"), integers);
    const Value s = rewriter_->Parameter(StrCat(name, "_scale"), FloatTensor(scale));
    return nn::DequantizeLinearOp::Create(*rewriter_, x, s, {}, {.axis = axis}).y();
  }

  // The layer a second time, with what is quantized, and both results as outputs.
  void Compare(const QuantizationLayer& layer, const std::vector<Value>& operands) {
    const Value y =
        rewriter_->Create(layer.op->name(), operands, layer.op->attributes().entries())->result(0);
    Fetch(rewriter_->program(), layer.name + kExactSuffix, layer.op->result(0));
    Fetch(rewriter_->program(), layer.name + kQuantizedSuffix, y);
  }

  // ---- what lies between ----

  void InsertBetween(Block* block) {
    std::vector<Value> values;
    for (Operation& op : *block) {
      for (size_t i = 0; i < op.num_results(); ++i) {
        if (bytes_.contains(op.result(i))) values.push_back(op.result(i));
      }
    }
    for (const Value v : values) Insert(v, bytes_.at(v));
    Count("values", static_cast<int64_t>(values.size()));
  }

  void Insert(Value v, const Bytes& bytes) {
    Operation* op = v.defining_op();
    rewriter_->SetInsertionPoint(op->next());
    const Value from = WithoutClamps(v, bytes);
    std::vector<OpOperand> uses(v.uses().begin(), v.uses().end());
    const Value to = Through(from, bytes, NameOf(v));
    for (const OpOperand use : uses) rewriter_->SetOperand(use.owner(), use.index(), to);
    if (from != v) rewriter_->EraseDead(op);
  }

  static std::string NameOf(Value v) {
    const auto name = v.defining_op()->attribute("name").dyn_cast<StrAttribute>();
    if (name) return std::string(name.value());
    const std::string_view in_file = NameInFile(v);
    return in_file.empty() ? "value" : std::string(in_file);
  }

  // `v` as bytes and as numbers again.
  Value Through(Value v, const Bytes& bytes, const std::string& name) {
    rewriter_->set_location(Location::Name(rewriter_->context(), StrCat(name, "_quantize")));
    const Value scale =
        rewriter_->Parameter(StrCat(name, "_scale"), Tensor::Scalar<float>(bytes.scale));
    const Value zero = rewriter_->Parameter(StrCat(name, "_zero_point"),
                                            Cast(Tensor::Scalar<double>(bytes.zero), bytes.type));
    const Value q = nn::QuantizeLinearOp::Create(*rewriter_, v, scale, zero).y();
    rewriter_->set_location(Location::Name(rewriter_->context(), StrCat(name, "_dequantize")));
    return nn::DequantizeLinearOp::Create(*rewriter_, q, scale, zero).y();
  }

  // What `v` is before a relu or clip that changes no number that there is a byte for: the
  // conversion saturates as it does.
  Value WithoutClamps(Value v, const Bytes& bytes) const {
    for (;;) {
      const Operation* op = v.defining_op();
      if (op == nullptr || !IsImplied(op, bytes)) return v;
      v = op->operand(0);
    }
  }

  bool IsImplied(const Operation* op, const Bytes& bytes) const {
    if (op->name() == nn::kRelu) return bytes.least() >= 0;
    if (op->name() != nn::kClip) return false;
    const double slack = 1e-6 * (bytes.most() - bytes.least());
    const auto bound = [&](size_t i, double otherwise) -> std::optional<double> {
      const Value v = i < op->num_operands() ? op->operand(i) : Value();
      if (!v || v.type().isa<NoneType>()) return otherwise;
      const Tensor* t = ConstantValue(rewriter_->program(), v);
      return t != nullptr ? std::optional(ToDoubles(*t)[0]) : std::nullopt;
    };
    const auto least = bound(1, -INFINITY), most = bound(2, INFINITY);
    return least && most && bytes.least() >= *least - slack && bytes.most() <= *most + slack;
  }

  std::optional<Rewriter> rewriter_;
  QuantizationOptions options_;
  std::unordered_map<Value, Bytes> bytes_;  // looked up only
};

REGISTER_PASS(insert_quantization, InsertQuantizationPass)
    .Doc("makes bytes of what convolutions and products by constant weights read, and of weights")
    .Details(
        "A quantize_linear and a dequantize_linear stand behind each value that such a layer reads "
        "or that a convolution gives, and behind what is moved, joined or added between them; "
        "weights become signed bytes with a scale per output channel, a bias 32-bit integers with "
        "the product of the scales. Zero is always exact. A relu or clip that the conversion "
        "implies goes. Which layers, and the ranges of values, which `lathe quantize` measures, "
        "are the attribute `quantization`; without it all layers of `ops`, and one range for "
        "everything.")
    .Option("least", PassOption::Kind::kFloat, "-1", "the least number of every value")
    .Option("most", PassOption::Kind::kFloat, "1", "the greatest number of every value")
    .Option("per_tensor", PassOption::Kind::kBool, "false", "one scale for the weights of a layer")
    .Option("symmetric", PassOption::Kind::kBool, "false", "signed bytes about zero")
    .Option("ops", PassOption::Kind::kStrings, "[conv, matmul, gemm]", "kinds of layers")
    .Option("exclude", PassOption::Kind::kStrings, "[]", "names of layers that stay as they are");

}  // namespace lathe
