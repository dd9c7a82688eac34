#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/support/tensor.h"
#include "lathe/transform/quantization.h"

/// Weights of products of matrices as small integers, by blocks of the depth: what the pass
/// `quantize_weights` does.
namespace lathe {

struct WeightForm {
  int64_t bits = 4;        ///< 4 or 8
  int64_t block = 32;      ///< weights with a scale of their own; a power of two, 16 or more
  bool symmetric = false;  ///< about zero, not with a zero point

  /// Errors: quantize/bits, quantize/block.
  void Check() const;
};

/// Weights [K, N]: (integers - zeros) * scales, the last two for each block of K.
struct BlockedWeights {
  Tensor integers;           ///< [K, N] of u4 or u8; of i4 or i8, if symmetric
  Tensor scales;             ///< [ceil(K / block), N] of f32
  Tensor zeros;              ///< as scales, of the integers' type; undefined: zero
  double error = 0;          ///< relative RMS error of the products, or of the weights
  double nearest_error = 0;  ///< the same if each weight is rounded to the nearest number
};

/// How weights are rounded.
enum class WeightRounding : uint8_t {
  kNearest,
  /// So that the error of the products is small: what rounding a weight costs is made up for by
  /// those before it [Frantar et al.: GPTQ, 2022; Chen et al.: The Geometry of LLM Quantization:
  /// GPTQ as Babai's Nearest Plane Algorithm, 2025].
  kCalibrated,
};

/// The layers of products by constant weights of f32, transposed or not, by the names that
/// QuantizationLayers gives; others have an obstacle.
std::vector<QuantizationLayer> WeightLayers(const Program& program);
/// The weights [K, N] of such a layer without an obstacle, f32.
Tensor WeightsOf(const Program& program, const QuantizationLayer& layer);

/// `gram`: X^T X [K, K] of f64 of the rows X that the weights are multiplied by; null: not known,
/// so that errors are those of the weights and rounding is to the nearest number.
BlockedWeights QuantizeByBlocks(const Tensor& weights, const WeightForm& form,
                                WeightRounding rounding = WeightRounding::kNearest,
                                const Tensor* gram = nullptr);

/// The attribute "weights" of the pass: of each layer, by its name.
struct WeightQuantization {
  WeightForm form;
  std::map<std::string, BlockedWeights> layers;
};

}  // namespace lathe
