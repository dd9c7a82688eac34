#include "lathe/driver/quantize.h"

#include <algorithm>
#include <map>

#include "lathe/driver/intermediate_values.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/transform/quantization.h"
#include "src/driver/calibration.h"
#include "src/driver/layer_quantizer.h"
#include "src/driver/squared_error.h"

namespace lathe {
namespace {

constexpr size_t kUnsignedLevels = 256, kSignedLevels = 128;  // of absolute values

class Quantizer : LayerQuantizer {
 public:
  Quantizer(Program& program, const CalibrationData& data, const QuantizeOptions& options)
      : LayerQuantizer(
            program, &data,
            {options.kinds, options.exclude, options.max_error, options.compile, options.progress}),
        options_(options) {}

  QuantizationReport Run() {
    CheckNotQuantized();
    Apply(program_, kPrepare);
    Select(QuantizationLayers(program_));
    Calibrate();
    CompareLayers();
    Program quantized = Choose();
    Apply(quantized, "dead_code");
    QuantizationReport report = Report();
    program_ = std::move(quantized);
    return report;
  }

 private:
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
    const Executable executable(fetching, choice_.compile);
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

  Program WithQuantization(const std::vector<QuantizationLayer>& layers) const override {
    return WithQuantization(layers, /*compare=*/false);
  }
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
    const Executable executable(program, choice_.compile);
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

  QuantizeOptions options_;
  std::vector<ValueRange> ranges_;
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
