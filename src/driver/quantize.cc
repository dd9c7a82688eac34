#include "lathe/driver/quantize.h"

#include <algorithm>
#include <map>

#include "lathe/driver/compile_engine.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/transform/quantization.h"
#include "src/driver/calibration.h"
#include "src/driver/squared_error.h"
#include "src/transform/name_pattern.h"

namespace lathe {
namespace {

// What shows layers with constant weights; operations keep their names.
constexpr const char* kPrepare =
    "inline,lift_parameters,maximize_value_semantics,infer_shape,one_spelling,conv_bn_fuse,"
    "simplify,"
    "simplify_inference{keep_used=true},precompute_prune,conv_bias_fuse,simplify";
constexpr size_t kUnsignedLevels = 256, kSignedLevels = 128;  // of absolute values

bool IsFloats(const RtValue& value) {
  return value.is_tensor() && IsFloat(value.tensor().element_type());
}

class Quantizer {
 public:
  Quantizer(Program& program, const CalibrationData& data, const QuantizeOptions& options)
      : program_(program), data_(data), options_(options) {
    if (!options_.compile.engine) {
      options_.compile.engine = std::make_shared<CompileEngine>(options_.compile.cache);
    }
  }

  QuantizationReport Run() {
    CheckNotQuantized();
    Apply(program_, kPrepare);
    all_ = QuantizationLayers(program_);
    selected_ = SelectLayers(all_, options_.kinds, options_.exclude);
    if (selected_.empty()) throw NothingToQuantize();
    Calibrate();
    CompareLayers();
    Program quantized = Choose();
    Apply(quantized, "dead_code");
    QuantizationReport report = Report();
    program_ = std::move(quantized);
    return report;
  }

 private:
  static void Apply(Program& program, std::string_view passes) {
    PassManager manager;
    manager.Add(passes);
    manager.Run(program);
  }

  void Begin(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  void CheckNotQuantized() const {
    const Operation* op = QuantizedOperation(program_);
    if (op == nullptr) return;
    throw Error(ErrorCode::kInvalidArgument, "quantize/quantized",
                StrCat("the model is quantized already: it has ", op->name()))
        .Note(StrCat("at ", op->location().ToString(program_.context())))
        .Hint("quantize the model of floats that it was made of");
  }

  // Of a layer that is not among the selected ones.
  std::string WhyNot(const QuantizationLayer& layer) const {
    if (!layer.obstacle.empty()) return layer.obstacle;
    if (std::ranges::find(options_.kinds, layer.kind) == options_.kinds.end())
      return "not asked for";
    return MatchesAny(layer.name, options_.exclude) ? "excluded" : "its input was never a number";
  }

  Error NothingToQuantize() const {
    Error error(ErrorCode::kInvalidArgument, "quantize/nothing",
                all_.empty() ? "the model has no convolution and no product of matrices outside of "
                               "branches and loops"
                             : "no layer of the model can be quantized");
    constexpr size_t kMostNotes = 5;
    for (size_t i = 0; i < std::min(all_.size(), kMostNotes); ++i) {
      error.Note(StrCat(all_[i].kind, " '", all_[i].name, "': ", WhyNot(all_[i])));
    }
    return error;
  }

  // Calls `use` with the inputs and the outputs of each run.
  void ForEachRun(const Executable& executable,
                  const std::function<void(const NamedValues&, const NamedValues&)>& use) {
    runs_ = 0;
    data_(executable.inputs(), [&](const NamedValues& inputs) {
      ++runs_;
      use(inputs, executable.Run(inputs));
    });
    if (runs_ == 0) {
      throw Error(ErrorCode::kInvalidArgument, "quantize/data",
                  "the calibration data has no samples");
    }
  }

  // ---- ranges ----

  void Calibrate() {
    const std::vector<bool> wanted = QuantizedResults(program_, selected_);
    Program fetching = program_.Clone();
    for (Operation* fetch : fetching.fetches()) fetch->Erase();
    const std::vector<Value> results = ResultsOf(fetching);
    std::vector<size_t> order;  // of the outputs
    for (size_t i = 0; i < results.size(); ++i) {
      if (!wanted[i]) continue;
      FetchValue(fetching, StrCat("value ", i), results[i]);
      order.push_back(i);
    }
    Begin("compiling for calibration");
    const Executable executable(fetching, options_.compile);
    std::vector<RangeRecorder> recorders(order.size());
    Begin("calibrating");
    Record(executable, recorders, &RangeRecorder::See);
    if (options_.method != CalibrationMethod::kMinMax) {
      Begin("counting values");
      Record(executable, recorders, &RangeRecorder::Count);
    }
    ranges_.resize(results.size());
    for (size_t i = 0; i < order.size(); ++i) ranges_[order[i]] = RangeOf(recorders[i]);
  }

  void Record(const Executable& executable, std::vector<RangeRecorder>& recorders,
              void (RangeRecorder::*record)(std::span<const float>)) {
    ForEachRun(executable, [&](const NamedValues&, const NamedValues& values) {
      for (size_t i = 0; i < values.size(); ++i) {
        (recorders[i].*record)(values[i].second.tensor().data<float>());
      }
    });
  }

  ValueRange RangeOf(const RangeRecorder& recorder) const {
    switch (options_.method) {
      case CalibrationMethod::kMinMax:
        return recorder.Seen();
      case CalibrationMethod::kPercentile:
        return recorder.Percentile(options_.percentile);
      case CalibrationMethod::kEntropy:
        break;
    }
    const bool one_sided = !options_.symmetric && recorder.Seen().least >= 0;
    return recorder.Entropy(one_sided ? kUnsignedLevels : kSignedLevels);
  }

  // ---- errors ----

  Program WithQuantization(const std::vector<QuantizationLayer>& layers, bool compare) const {
    QuantizationOptions o{.per_tensor = options_.per_tensor,
                          .symmetric = options_.symmetric,
                          .ranges = ranges_,
                          .compare = compare};
    for (const QuantizationLayer& layer : layers) o.layers.push_back(layer.name);
    Program program = program_.Clone();
    auto pass = PassRegistry::Global().Make("insert_quantization");
    pass->Set("quantization", std::move(o));
    PassManager manager;
    manager.Add(std::move(pass));
    manager.Run(program);
    return program;
  }

  // The error of each layer alone, all in one program.
  void CompareLayers() {
    Begin("compiling for the error of each layer");
    Program program = WithQuantization(selected_, /*compare=*/true);
    std::erase_if(selected_, [&](const QuantizationLayer& layer) {
      return !HasOutput(program, layer.name + kQuantizedSuffix);
    });
    const Executable executable(program, options_.compile);
    std::map<std::string, SquaredError> sums;
    Begin("measuring the error of each layer");
    ForEachRun(executable, [&](const NamedValues&, const NamedValues& values) {
      for (const QuantizationLayer& layer : selected_) {
        sums[layer.name].Add(Find(values, layer.name + kExactSuffix)->tensor(),
                             Find(values, layer.name + kQuantizedSuffix)->tensor());
      }
    });
    for (const auto& [name, sum] : sums) errors_[name] = sum.Relative();
  }

  static bool HasOutput(const Program& program, const std::string& name) {
    return std::ranges::any_of(program.fetches(),
                               [&](const Operation* fetch) { return PortName(fetch) == name; });
  }

  std::vector<OutputReport> OutputErrors(const Program& quantized) {
    if (!exact_) exact_.emplace(program_, options_.compile);
    const Executable executable(quantized, options_.compile);
    std::map<std::string, SquaredError> sums;
    ForEachRun(*exact_, [&](const NamedValues& inputs, const NamedValues& exact) {
      const NamedValues outputs = executable.Run(inputs);
      for (size_t i = 0; i < exact.size(); ++i) {
        if (!IsFloats(exact[i].second)) continue;
        sums[exact[i].first].Add(exact[i].second.tensor(), outputs[i].second.tensor());
      }
    });
    std::vector<OutputReport> reports;
    for (const Port& port : exact_->outputs()) {
      const auto found = sums.find(port.name);
      if (found != sums.end()) reports.push_back({port.name, found->second.Relative()});
    }
    return reports;
  }

  static double Worst(const std::vector<OutputReport>& outputs) {
    double worst = 0;
    for (const OutputReport& output : outputs) worst = std::max(worst, output.error);
    return worst;
  }

  // Quantizes; without the layers that would lose too much.
  Program Choose() {
    kept_ = selected_;
    for (;;) {
      if (kept_.empty()) throw NoLayerFits();
      Begin(StrCat(kept_.size(), " layers of bytes"));
      Program quantized = WithQuantization(kept_, /*compare=*/false);
      outputs_ = OutputErrors(quantized);
      if (!options_.max_error || Worst(outputs_) <= *options_.max_error) return quantized;
      if (losses_.empty()) MeasureLosses();
      const auto loss = [&](const QuantizationLayer& layer) { return losses_.at(layer.name); };
      kept_.erase(std::ranges::max_element(kept_, {}, loss));
    }
  }

  // What each layer alone costs the outputs.
  void MeasureLosses() {
    for (const QuantizationLayer& layer : selected_) {
      Begin(StrCat(layer.name, " alone"));
      losses_[layer.name] = Worst(OutputErrors(WithQuantization({layer}, /*compare=*/false)));
    }
  }

  Error NoLayerFits() const {
    if (!options_.max_error) return NothingToQuantize();
    return Error(ErrorCode::kInvalidArgument, "quantize/max-error",
                 StrCat("no layer can be quantized for an error of at most ", *options_.max_error))
        .Note(StrCat("with the one that loses least alone, the error of an output is ",
                     Worst(outputs_)))
        .Hint("allow a larger --max-error, or take other calibration data");
  }

  QuantizationReport Report() const {
    QuantizationReport report{.layers = {}, .outputs = outputs_, .runs = runs_};
    const auto has = [](const std::vector<QuantizationLayer>& layers, const std::string& name) {
      return std::ranges::find(layers, name, &QuantizationLayer::name) != layers.end();
    };
    for (const QuantizationLayer& layer : all_) {
      LayerReport& r = report.layers.emplace_back(LayerReport{layer.name, layer.kind, "", {}, {}});
      if (has(selected_, layer.name)) {
        r.error = errors_.at(layer.name);
        if (!losses_.empty()) r.output_error = losses_.at(layer.name);
        if (!has(kept_, layer.name)) r.why_not = "it loses too much";
      } else {
        r.why_not = WhyNot(layer);
      }
    }
    return report;
  }

  Program& program_;
  const CalibrationData& data_;
  QuantizeOptions options_;
  std::vector<QuantizationLayer> all_, selected_, kept_;  // kept: those that are quantized
  std::vector<ValueRange> ranges_;
  std::map<std::string, double> errors_, losses_;  // by the name of the layer
  std::vector<OutputReport> outputs_;
  std::optional<Executable> exact_;
  int64_t runs_ = 0;
};

}  // namespace

int64_t QuantizationReport::quantized() const {
  return std::ranges::count_if(layers, [](const LayerReport& r) { return r.why_not.empty(); });
}

QuantizationReport Quantize(Program& program, const CalibrationData& data,
                            const QuantizeOptions& options) {
  return Quantizer(program, data, options).Run();
}

}  // namespace lathe
