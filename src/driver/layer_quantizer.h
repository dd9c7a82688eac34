#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lathe/driver/quantize.h"
#include "lathe/support/error.h"
#include "lathe/transform/quantization.h"

namespace lathe {

/// What ways to quantize layers share: which layers there are, what all of them cost the outputs,
/// and which ones stay as they are, so that the error is not too large.
class LayerQuantizer {
 protected:
  struct Choice {
    std::vector<std::string> kinds, exclude;
    std::optional<double> max_error;
    CompileOptions compile;
    std::function<void(const std::string& what)> progress;
  };

  /// `data`: null if there is none.
  LayerQuantizer(Program& program, const CalibrationData* data, Choice choice);
  virtual ~LayerQuantizer() = default;

  /// What shows layers with constant weights; operations keep their names.
  static constexpr const char* kPrepare =
      "inline,lift_parameters,maximize_value_semantics,infer_shape,compute_in_f32,one_spelling,"
      "conv_bn_fuse,simplify,"
      "simplify_inference{keep_used=true},precompute_prune,conv_bias_fuse,simplify";

  /// The program with these layers quantized.
  virtual Program WithQuantization(const std::vector<QuantizationLayer>& layers) const = 0;

  static void Apply(Program& program, std::string_view passes);
  void Begin(const std::string& what) const;
  void CheckNotQuantized() const;
  /// `all` is what the program has.
  void Select(std::vector<QuantizationLayer> all);
  /// Calls `use` with the inputs and the outputs of each run.
  void ForEachRun(const Executable& executable,
                  const std::function<void(const NamedValues&, const NamedValues&)>& use);
  /// Quantizes; without the layers that would lose too much.
  Program Choose();
  QuantizationReport Report() const;
  Error NothingToQuantize() const;

  Program& program_;
  const CalibrationData* data_;
  Choice choice_;
  std::vector<QuantizationLayer> all_, selected_, kept_;  // kept: those that are quantized
  std::map<std::string, double> errors_, losses_;         // by the name of the layer

 private:
  std::string WhyNot(const QuantizationLayer& layer) const;
  std::vector<OutputReport> OutputErrors(const Program& quantized);
  void MeasureLosses();
  Error NoLayerFits() const;

  std::vector<OutputReport> outputs_;
  std::optional<Executable> exact_;
  int64_t runs_ = 0;
};

}  // namespace lathe
