#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "lathe/transform/weight_quantization.h"
#include "src/transform/conv_constants.h"

namespace lathe {

namespace {

constexpr size_t kWeights = 1;  // operand of a product

bool TurnsMatrix(const Operation* op) {
  const auto perm = nn::TransposeOp(op).perm();
  return perm.value_or(std::vector<int64_t>{1, 0}) == std::vector<int64_t>{1, 0};
}

/// A constant matrix, or its transpose, as a product reads it.
struct WeightSource {
  Value matrix;
  const Tensor* tensor = nullptr;
  bool turned = false;  // [N, K]
};

WeightSource SourceOf(const Program& program, const Operation* product) {
  auto* op = const_cast<Operation*>(product);
  WeightSource w{op->operand(kWeights)};
  w.turned = op->isa<nn::MatmulOp>() ? nn::MatmulOp(op).transpose_y() : nn::GemmOp(op).transB();
  const Operation* maker = w.matrix.defining_op();
  if (maker != nullptr && maker->isa<nn::TransposeOp>() && TurnsMatrix(maker)) {
    w.matrix = maker->operand(0);
    w.turned = !w.turned;
  }
  w.tensor = ConstantValue(program, w.matrix);
  return w;
}

std::string ObstacleOf(const Program& program, Operation* op) {
  if (!op->isa<nn::MatmulOp>() && !op->isa<nn::GemmOp>()) return "it is not a product of matrices";
  if (TensorOrNull(op->result(0)).element() != ElementType::kF32) {
    return "it does not compute in f32";
  }
  const Tensor* weights = SourceOf(program, op).tensor;
  if (weights == nullptr) return "its weights are not constant";
  if (weights->rank() != 2 || weights->num_elements() == 0) return "its weights are no matrix";
  const auto is_finite = [](float v) { return std::isfinite(v); };
  return std::ranges::all_of(weights->data<float>(), is_finite) ? "" : "its weights are not finite";
}

}  // namespace

std::vector<QuantizationLayer> WeightLayers(const Program& program) {
  std::vector<QuantizationLayer> layers = QuantizationLayers(program);
  for (QuantizationLayer& layer : layers) layer.obstacle = ObstacleOf(program, layer.op);
  return layers;
}

Tensor WeightsOf(const Program& program, const QuantizationLayer& layer) {
  const WeightSource w = SourceOf(program, layer.op);
  if (!w.turned) return *w.tensor;
  const int64_t columns = w.tensor->dim(0), depth = w.tensor->dim(1);
  Tensor turned(ElementType::kF32, {depth, columns});
  const float* from = w.tensor->data<float>().data();
  float* to = turned.mutable_data<float>().data();
  for (int64_t n = 0; n < columns; ++n) {
    for (int64_t k = 0; k < depth; ++k) to[k * columns + n] = from[n * depth + k];
  }
  return turned;
}

/// Weights of products become small integers, with what makes numbers of them again.
class QuantizeWeightsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    const WeightQuantization w =
        Has("weights") ? Get<WeightQuantization>("weights") : FromOptions(graph.program());
    for (const QuantizationLayer& layer : WeightLayers(graph.program())) {
      const auto found = w.layers.find(layer.name);
      if (found == w.layers.end()) continue;
      Rewrite(layer, found->second, w.form.block);
      Count("layers");
    }
  }

 private:
  WeightQuantization FromOptions(const Program& program) const {
    WeightQuantization w{
        .form = {option_int("bits"), option_int("block"), option_bool("symmetric")}, .layers = {}};
    w.form.Check();
    for (const QuantizationLayer& layer :
         SelectLayers(WeightLayers(program), option_list("ops"), option_list("exclude"))) {
      w.layers[layer.name] = QuantizeByBlocks(WeightsOf(program, layer), w.form);
    }
    return w;
  }

  void Rewrite(const QuantizationLayer& layer, const BlockedWeights& w, int64_t block) {
    const Value matrix = SourceOf(rewriter_->program(), layer.op).matrix;
    const Value before = layer.op->operand(kWeights);
    const std::string name = ParameterBase(matrix, "weights");
    rewriter_->SetInsertionPoint(layer.op);
    rewriter_->set_location(Location::Name(rewriter_->context(), StrCat(name, "_dequantize")));
    const auto parameter = [&](const char* what, const Tensor& tensor) {
      return tensor.is_defined() ? rewriter_->Parameter(StrCat(name, what), tensor) : Value();
    };
    const Value integers = parameter("_quantized", w.integers);
    const Value scales = parameter("_scale", w.scales);
    const Value zeros = parameter("_zero_point", w.zeros);
    const Value numbers = nn::DequantizeLinearOp::Create(*rewriter_, integers, scales, zeros,
                                                         {.axis = 0, .block_size = block})
                              .y();
    rewriter_->SetOperand(layer.op, kWeights, numbers);
    const bool is_matmul = layer.op->isa<nn::MatmulOp>();
    rewriter_->SetAttribute(layer.op,
                            is_matmul ? nn::MatmulOp::kTransposeYAttr : nn::GemmOp::kTransBAttr,
                            rewriter_->Attr(false));
    Operation* maker = before.defining_op();
    if (maker != nullptr && maker->isa<nn::TransposeOp>() && before.use_empty()) {
      rewriter_->Erase(maker);
    }
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(quantize_weights, QuantizeWeightsPass)
    .Doc("makes integers of 4 or 8 bits of the weights of products, by blocks of the depth")
    .Details(
        "A dequantize_linear with a scale, and a zero point unless `symmetric`, for each block "
        "makes numbers of them again; what is multiplied stays f32. `lathe quantize --weights` "
        "rounds weights by what they are multiplied by, and tells the pass by its attribute "
        "`weights`.")
    .Option("bits", PassOption::Kind::kInt, "4", "4 or 8")
    .Option("block", PassOption::Kind::kInt, "32", "weights with a scale of their own")
    .Option("symmetric", PassOption::Kind::kBool, "false", "about zero, without zero points")
    .Option("ops", PassOption::Kind::kStrings, "[matmul, gemm]", "kinds of layers")
    .Option("exclude", PassOption::Kind::kStrings, "[]", "names of layers that stay as they are");

}  // namespace lathe
