#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/ir/program.h"
#include "lathe/transform/weight_quantization.h"

/// Models whose layers multiply bytes, made of models that multiply floats.
namespace lathe {

/// How the range of a value follows from what it was in runs.
enum class CalibrationMethod : uint8_t {
  kMinMax,      ///< the least and the greatest number
  kPercentile,  ///< without as large a part of the numbers at either end
  kEntropy,     ///< that of which bytes tell most: the least KL divergence
};
/// "min-max", "percentile" or "entropy". Errors: quantize/method.
CalibrationMethod CalibrationMethodNamed(const std::string& name);

/// Calls `use` with the values of `inputs` for a run, again and again. It is called several times
/// and gives the same runs each time.
using CalibrationData = std::function<void(std::span<const Port> inputs,
                                           const std::function<void(const NamedValues&)>& use)>;

struct QuantizeOptions {
  CalibrationMethod method = CalibrationMethod::kMinMax;
  double percentile = 99.99;  ///< of the numbers that are within the range, in (0, 100]
  bool per_tensor = false;    ///< one scale for all weights of a layer, not one per output channel
  bool symmetric = false;     ///< activations i8 about zero, not u8 with a zero point
  std::vector<std::string> kinds = {"conv", "matmul", "gemm"};  ///< of layers
  std::vector<std::string> exclude = {};  ///< layers that stay f32; `*` and `?` in names
  /// The layers that alone cost an output most are left in f32, one after the other, until no
  /// output has a larger relative RMS error.
  std::optional<double> max_error = {};
  CompileOptions compile = {};  ///< of the runs
  /// Called when something begins that takes time, with what it is.
  std::function<void(const std::string& what)> progress = {};
};

/// Weights alone become integers.
struct WeightOptions {
  WeightForm form = {};
  WeightRounding rounding = WeightRounding::kNearest;
  std::vector<std::string> kinds = {"matmul", "gemm"};  ///< of layers
  std::vector<std::string> exclude = {};                ///< as QuantizeOptions
  std::optional<double> max_error = {};                 ///< as QuantizeOptions; needs data
  CompileOptions compile = {};
  std::function<void(const std::string& what)> progress = {};
};
/// "nearest" or "calibrated". Errors: quantize/rounding.
WeightRounding WeightRoundingNamed(const std::string& name);

/// A convolution or a product of matrices of the model.
struct LayerReport {
  std::string name, kind;
  std::string why_not;  ///< why it stays f32; empty: it is quantized
  /// Relative RMS error of its result, before activations, over the data, if its input, weights
  /// and bias alone are quantized. Of layers that can be and were asked for.
  std::optional<double> error;
  /// The error with weights rounded to the nearest numbers, where they are rounded otherwise.
  std::optional<double> nearest_error = {};
  /// The largest error of an output if this layer alone is quantized: where all together are beyond
  /// QuantizeOptions::max_error.
  std::optional<double> output_error;
};

/// An output of floats, and its relative RMS error over the data.
struct OutputReport {
  std::string name;
  double error = 0;
};

struct QuantizationReport {
  std::vector<LayerReport> layers;
  std::vector<OutputReport> outputs;
  int64_t runs = 0;  ///< that the data gave

  int64_t quantized() const;  ///< layers
};

/// Quantizes `program`, which must be one for inference: layers and what lies between them are
/// surrounded by quantize_linear and dequantize_linear (pass insert_quantization), with ranges that
/// the values have on the data; batch norms are folded before. Relative RMS error: the root of the
/// sum of squared differences over that of squared values of f32.
///
/// Errors: quantize/quantized (it has operations on integers already), quantize/nothing,
/// quantize/ops, quantize/exclude, quantize/data (no runs), quantize/max-error (with every layer
/// alone the error is larger), those of compilation, of runs and of `data`.
QuantizationReport Quantize(Program& program, const CalibrationData& data,
                            const QuantizeOptions& options = {});

/// Makes integers of 4 or 8 bits, by blocks, of the weights of products (pass quantize_weights);
/// what is multiplied stays f32. `data` may be null: then errors are those of the weights, and no
/// outputs are reported. With it the error of a layer is that of its products, from what is
/// multiplied on the data.
///
/// Errors: those of Quantize; quantize/bits, quantize/block; quantize/no-data (rounding by data, or
/// a largest error, without data).
QuantizationReport QuantizeWeights(Program& program, const CalibrationData* data,
                                   const WeightOptions& options = {});

}  // namespace lathe
