#include "src/driver/layer_quantizer.h"

#include <algorithm>

#include "lathe/driver/compile_engine.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/transform/keep_constraints.h"
#include "src/driver/squared_error.h"
#include "src/transform/name_pattern.h"

namespace lathe {
namespace {

bool IsFloats(const RtValue& value) {
  return value.is_tensor() && IsFloat(value.tensor().element_type());
}

double Worst(const std::vector<OutputReport>& outputs) {
  double worst = 0;
  for (const OutputReport& output : outputs) worst = std::max(worst, output.error);
  return worst;
}

}  // namespace

LayerQuantizer::LayerQuantizer(Program& program, const CalibrationData* data, Choice choice)
    : program_(program), data_(data), choice_(std::move(choice)) {
  if (!choice_.compile.engine) {
    choice_.compile.engine = std::make_shared<CompileEngine>(choice_.compile.cache);
  }
}

void LayerQuantizer::Apply(Program& program, std::string_view passes) {
  PassManager manager;
  manager.Add(passes);
  RunAndKeepConstraints(manager, program);
}

void LayerQuantizer::Begin(const std::string& what) const {
  if (choice_.progress) choice_.progress(what);
}

void LayerQuantizer::CheckNotQuantized() const {
  const Operation* op = QuantizedOperation(program_);
  if (op == nullptr) return;
  throw Error(ErrorCode::kInvalidArgument, "quantize/quantized",
              StrCat("the model is quantized already: it has ", op->name()))
      .Note(StrCat("at ", op->location().ToString(program_.context())))
      .Hint("quantize the model of floats that it was made of");
}

void LayerQuantizer::Select(std::vector<QuantizationLayer> all) {
  all_ = std::move(all);
  selected_ = SelectLayers(all_, choice_.kinds, choice_.exclude);
  if (selected_.empty()) throw NothingToQuantize();
}

// Of a layer that is not among the selected ones.
std::string LayerQuantizer::WhyNot(const QuantizationLayer& layer) const {
  if (!layer.obstacle.empty()) return layer.obstacle;
  if (std::ranges::find(choice_.kinds, layer.kind) == choice_.kinds.end()) return "not asked for";
  return MatchesAny(layer.name, choice_.exclude) ? "excluded" : "its input was never a number";
}

Error LayerQuantizer::NothingToQuantize() const {
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

void LayerQuantizer::ForEachRun(
    const Executable& executable,
    const std::function<void(const NamedValues&, const NamedValues&)>& use) {
  runs_ = 0;
  (*data_)(executable.inputs(), [&](const NamedValues& inputs) {
    ++runs_;
    use(inputs, executable.Run(inputs));
  });
  if (runs_ == 0) {
    throw Error(ErrorCode::kInvalidArgument, "quantize/data",
                "the calibration data has no samples");
  }
}

std::vector<OutputReport> LayerQuantizer::OutputErrors(const Program& quantized) {
  if (!exact_) exact_.emplace(program_, choice_.compile);
  const Executable executable(quantized, choice_.compile);
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

Program LayerQuantizer::Choose() {
  kept_ = selected_;
  for (;;) {
    if (kept_.empty()) throw NoLayerFits();
    Begin(StrCat(kept_.size(), " layers of small integers"));
    Program quantized = WithQuantization(kept_);
    if (data_ == nullptr) return quantized;
    outputs_ = OutputErrors(quantized);
    if (!choice_.max_error || Worst(outputs_) <= *choice_.max_error) return quantized;
    if (losses_.empty()) MeasureLosses();
    const auto loss = [&](const QuantizationLayer& layer) { return losses_.at(layer.name); };
    kept_.erase(std::ranges::max_element(kept_, {}, loss));
  }
}

// What each layer alone costs the outputs.
void LayerQuantizer::MeasureLosses() {
  for (const QuantizationLayer& layer : selected_) {
    Begin(StrCat(layer.name, " alone"));
    losses_[layer.name] = Worst(OutputErrors(WithQuantization({layer})));
  }
}

Error LayerQuantizer::NoLayerFits() const {
  if (!choice_.max_error) return NothingToQuantize();
  return Error(ErrorCode::kInvalidArgument, "quantize/max-error",
               StrCat("no layer can be quantized for an error of at most ", *choice_.max_error))
      .Note(StrCat("with the one that loses least alone, the error of an output is ",
                   Worst(outputs_)))
      .Hint("allow a larger --max-error, or take other calibration data");
}

QuantizationReport LayerQuantizer::Report() const {
  QuantizationReport report{.layers = {}, .outputs = outputs_, .runs = runs_};
  const auto has = [](const std::vector<QuantizationLayer>& layers, const std::string& name) {
    return std::ranges::find(layers, name, &QuantizationLayer::name) != layers.end();
  };
  for (const QuantizationLayer& layer : all_) {
    LayerReport& r = report.layers.emplace_back();
    r.name = layer.name;
    r.kind = layer.kind;
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

}  // namespace lathe
