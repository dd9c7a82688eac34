#pragma once

#include <limits>
#include <string>
#include <vector>

#include "lathe/ir/program.h"

/// What the pass `insert_quantization` is told, and how it sees a program.
namespace lathe {

/// The numbers that a value takes; unknown until one is known.
struct ValueRange {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  bool is_known() const { return least <= most; }
};

/// A convolution or a product of matrices, outside of branches and loops.
struct QuantizationLayer {
  std::string name;      ///< of its node in the file, else "conv_3"; of one layer only
  std::string kind;      ///< "conv", "matmul" or "gemm"
  Operation* op;         ///< operand 0: its input, 1: its weights, 2, if any: its bias
  std::string obstacle;  ///< why it cannot be quantized; empty: it can
};

/// In program order.
std::vector<QuantizationLayer> QuantizationLayers(const Program& program);

/// Those of the layers that are of one of these kinds, match no pattern of `exclude` (`*` and `?`)
/// and have no obstacle. Errors: quantize/ops, quantize/exclude for what is not a kind or matches
/// no layer.
std::vector<QuantizationLayer> SelectLayers(const std::vector<QuantizationLayer>& layers,
                                            const std::vector<std::string>& kinds,
                                            const std::vector<std::string>& exclude);

/// An operation on integers, or between them and numbers, that a quantized program has; null if
/// there is none.
const Operation* QuantizedOperation(const Program& program);

/// Results of the operations outside of branches and loops, in program order: the same values, in
/// the same order, in a clone.
std::vector<Value> ResultsOf(const Program& program);

/// Which of ResultsOf become integers when `layers` are quantized: what they read, what
/// convolutions give, and what lies between layers and moves, joins or adds such values.
std::vector<bool> QuantizedResults(const Program& program,
                                   const std::vector<QuantizationLayer>& layers);

/// Outputs that `compare` adds for a layer are its name and one of these.
inline constexpr const char* kExactSuffix = "@f32";
inline constexpr const char* kQuantizedSuffix = "@quantized";

/// The attribute "quantization" of the pass.
struct QuantizationOptions {
  bool per_tensor = false;  ///< one scale for all weights of a layer, not one per output channel
  bool symmetric = false;   ///< activations i8 about zero, not u8 with a zero point
  std::vector<std::string> layers = {};  ///< names of QuantizationLayers
  std::vector<ValueRange> ranges = {};   ///< of each of ResultsOf; unknown: it stays f32
  /// Leaves the program as it is and adds two outputs for each layer: its result, and what it would
  /// be if its input, weights and bias alone were quantized.
  bool compare = false;
};

}  // namespace lathe
