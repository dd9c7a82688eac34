#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/program.h"
#include "lathe/support/random.h"

namespace lathe::testing {

/// Grows networks of layers as exporters write them: convolutions, normalizations and activations
/// in their many spellings, attention, residuals, parallel layers and what stands between them.
/// This is what fusions look for; operands of plain random programs hardly ever fit.
class LayerGrower {
 public:
  LayerGrower(IrContext& context, uint64_t seed) : context_(context), random_(seed) {}
  Program Grow(int layers);

 private:
  using Attributes = std::vector<NamedAttribute>;
  using Layer = Value (LayerGrower::*)(Value);

  size_t Pick(size_t count);
  bool Coin() { return Pick(2) == 0; }
  Value Op(std::string_view name, const std::vector<Value>& operands,
           const Attributes& attributes = {});
  Value Constant(const Tensor& value);
  Value Scalar(double value);
  Value Ints(const std::vector<int64_t>& values);
  /// A constant or a parameter, uniform in [low, high).
  Value Weights(const Shape& shape, double low = -1, double high = 1);
  NamedAttribute List(std::string_view name, const std::vector<int64_t>& values);
  Value Either(std::string_view op, Value a, Value b);  ///< of a commutative op, either order
  static Shape ShapeOf(Value v);

  Value Activation(Value x);
  Value HardSwish(Value x);
  Value Residual(Value x);
  Value Nothing(Value x);
  Value Affine(Value x);
  Value Reused(Value x);
  Value Stateful(Value x);

  Value Conv(Value x);
  Value ConvNorm(Value x);
  Value BatchNorm(Value x);
  Value Pool(Value x);
  Value ParallelConvs(Value x);
  Value ChannelsLast(Value x);

  Value Dense(Value x);
  Value ParallelDense(Value x);
  Value LayerNorm(Value x);
  Value Gelu(Value x);
  Value Softmax(Value x);
  Value Attention(Value x);
  Value Heads(Value x);
  Value SliceAndJoin(Value x);

  IrContext& context_;
  RandomStream random_;
  Program* program_ = nullptr;
  std::unique_ptr<ShapeInferencer> facts_;
  std::unique_ptr<Builder> b_;
  std::vector<Value> values_;  ///< results of layers so far
  size_t ops_ = 0;
};

}  // namespace lathe::testing
