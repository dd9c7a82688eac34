#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/driver/quantize.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/transform/weight_quantization.h"
#include "src/dialect/nn/term.h"
#include "src/driver/layer_quantizer.h"

namespace lathe {
namespace {

constexpr size_t kMostGramBytes = size_t{1} << 30;  // that runs gather at once

class WeightQuantizer : LayerQuantizer {
 public:
  WeightQuantizer(Program& program, const CalibrationData* data, const WeightOptions& options)
      : LayerQuantizer(
            program, data,
            {options.kinds, options.exclude, options.max_error, options.compile, options.progress}),
        options_(options) {}

  QuantizationReport Run() {
    CheckOptions();
    CheckNotQuantized();
    Apply(program_, kPrepare);
    Select(WeightLayers(program_));
    weights_.form = options_.form;
    data_ == nullptr ? Round(selected_, {}) : RoundByData();
    Program quantized = Choose();
    Apply(quantized, "dead_code");
    QuantizationReport report = Report();
    if (options_.rounding != WeightRounding::kNearest) AddNearestErrors(report);
    program_ = std::move(quantized);
    return report;
  }

 private:
  using Layers = std::vector<QuantizationLayer>;
  using Grams = std::unordered_map<Value, Tensor>;  // looked up only

  void CheckOptions() const {
    options_.form.Check();
    const bool by_data = options_.rounding != WeightRounding::kNearest || options_.max_error;
    if (data_ != nullptr || !by_data) return;
    throw Error(ErrorCode::kInvalidArgument, "quantize/no-data",
                options_.max_error ? "the error of outputs is known for data only"
                                   : "weights are rounded by what they are multiplied by")
        .Hint("give --data with samples of what the model will see");
  }

  Program WithQuantization(const Layers& layers) const override {
    WeightQuantization w{.form = weights_.form, .layers = {}};
    for (const QuantizationLayer& layer : layers) {
      w.layers[layer.name] = weights_.layers.at(layer.name);
    }
    Program program = program_.Clone();
    auto pass = PassRegistry::Global().Make("quantize_weights");
    pass->Set("weights", std::move(w));
    PassManager manager;
    manager.Add(std::move(pass));
    manager.Run(program);
    return program;
  }

  void Round(const Layers& layers, const Grams& grams) {
    for (const QuantizationLayer& layer : layers) {
      Begin(StrCat("rounding ", layer.name));
      const auto gram = grams.find(InputOf(layer));
      const Tensor* known = gram == grams.end() ? nullptr : &gram->second;
      BlockedWeights w =
          QuantizeByBlocks(WeightsOf(program_, layer), options_.form, options_.rounding, known);
      errors_[layer.name] = w.error;
      weights_.layers[layer.name] = std::move(w);
    }
  }

  // As many layers at once as memory has room for.
  void RoundByData() {
    Layers together;
    size_t bytes = 0;
    for (size_t i = 0; i < selected_.size(); ++i) {
      together.push_back(selected_[i]);
      const auto depth = static_cast<size_t>(DepthOf(selected_[i]));
      bytes += depth * depth * sizeof(double);
      if (bytes < kMostGramBytes && i + 1 < selected_.size()) continue;
      Round(together, GramsOf(together));
      together.clear();
      bytes = 0;
    }
  }

  static Value InputOf(const QuantizationLayer& layer) { return layer.op->operand(0); }
  static int64_t DepthOf(const QuantizationLayer& layer) {
    const bool turned = layer.op->isa<nn::MatmulOp>() ? nn::MatmulOp(layer.op).transpose_y()
                                                      : nn::GemmOp(layer.op).transB();
    return TensorOf(layer.op->operand(1)).dims()[turned ? 1 : 0].value();
  }
  static bool IsTurned(const QuantizationLayer& layer) {
    return layer.op->isa<nn::MatmulOp>() ? nn::MatmulOp(layer.op).transpose_x()
                                         : nn::GemmOp(layer.op).transA();
  }

  // X^T X of what the layers multiply, over the data, by their inputs.
  Grams GramsOf(const Layers& layers) {
    Program fetching = program_.Clone();
    const std::vector<Value> ours = ResultsOf(program_), theirs = ResultsOf(fetching);
    std::unordered_map<Value, Value> copy;  // looked up only
    for (size_t i = 0; i < ours.size(); ++i) copy.emplace(ours[i], theirs[i]);
    for (Operation* fetch : fetching.fetches()) fetch->Erase();
    std::vector<Value> inputs;
    for (const QuantizationLayer& layer : layers) {
      if (std::ranges::find(inputs, InputOf(layer)) != inputs.end()) continue;
      inputs.push_back(InputOf(layer));
      Builder b = Builder::AtEnd(fetching.block());
      const Value x = copy.at(InputOf(layer));
      FetchValue(fetching, StrCat("gram ", inputs.size() - 1),
                 GramOf(b, x, DepthOf(layer), IsTurned(layer)));
    }
    Begin("compiling for calibration");
    const Executable executable(fetching, choice_.compile);
    std::vector<std::vector<double>> sums(inputs.size());
    Begin("calibrating");
    ForEachRun(executable, [&](const NamedValues&, const NamedValues& values) {
      for (size_t i = 0; i < values.size(); ++i) Add(values[i].second.tensor(), sums[i]);
    });
    Grams grams;
    for (size_t i = 0; i < inputs.size(); ++i) {
      CheckFinite(sums[i], inputs[i], layers);
      const auto depth = static_cast<int64_t>(std::llround(std::sqrt(sums[i].size())));
      grams.emplace(inputs[i], Tensor::Of<double>({depth, depth}, sums[i]));
    }
    return grams;
  }

  static Value GramOf(Builder& b, Value x, int64_t depth, bool turned) {
    nn::Term rows(b, x);
    if (turned) rows = nn::Term(b, nn::TransposeOp::Create(b, x, {}).transposed());
    const Tensor shape = Tensor::Of<int64_t>({2}, std::vector<int64_t>{-1, depth});
    rows = rows.Call(nn::kReshape, {builtin::ConstantOp::Create(b, {.value = shape}).result()});
    return nn::MatmulOp::Create(b, rows, rows, {.transpose_x = true}).z();
  }

  static void Add(const Tensor& gram, std::vector<double>& sum) {
    const std::span<const float> values = gram.data<float>();
    sum.resize(values.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(values[i]);
  }

  static void CheckFinite(const std::vector<double>& sums, Value input, const Layers& layers) {
    if (std::ranges::all_of(sums, [](double v) { return std::isfinite(v); })) return;
    const auto layer =
        std::ranges::find_if(layers, [&](const auto& l) { return InputOf(l) == input; });
    throw Error(ErrorCode::kInvalidArgument, "quantize/data",
                StrCat("what layer '", layer->name, "' multiplies on the data is not finite"))
        .Hint("leave the layer out by --exclude, or take other data");
  }

  void AddNearestErrors(QuantizationReport& report) const {
    for (LayerReport& layer : report.layers) {
      const auto found = weights_.layers.find(layer.name);
      if (found != weights_.layers.end()) layer.nearest_error = found->second.nearest_error;
    }
  }

  WeightOptions options_;
  WeightQuantization weights_;
};

}  // namespace

WeightRounding WeightRoundingNamed(const std::string& name) {
  if (name == "nearest") return WeightRounding::kNearest;
  if (name == "calibrated") return WeightRounding::kCalibrated;
  throw Error(ErrorCode::kNotFound, "quantize/rounding",
              StrCat("there is no rounding '", name, "'"))
      .Hint("weights are rounded nearest or calibrated");
}

QuantizationReport QuantizeWeights(Program& program, const CalibrationData* data,
                                   const WeightOptions& options) {
  return WeightQuantizer(program, data, options).Run();
}

}  // namespace lathe
