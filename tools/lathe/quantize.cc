#include "lathe/driver/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lathe/driver/model_file.h"
#include "lathe/ir/verify.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/printable.h"
#include "lathe/train/data.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"

namespace lathe::command {
namespace {

struct QuantizeArguments {
  ModelOptions model;
  OutputOptions outputs;
  QuantizeOptions quantize;
  std::string weights,
      rounding = "nearest";  // weights: of that type alone; empty: activations, too
  WeightForm form;
  std::vector<std::string> data;
  int64_t samples = 0;
  std::string normalize = "unit", method = "min-max";
  std::optional<double> max_error;
  std::string output;
  bool json = false;
};

void CheckFiles(const QuantizeArguments& o) {
  const std::string extension = FileExtension(o.output);
  if (extension != ".onnx" && extension != ".lathe") {
    throw UsageError(
        StrCat("-o ", o.output, ": the quantized model is written as .onnx or .lathe"));
  }
  std::vector<std::string> inputs = o.model.Files();
  for (std::string& file : DataFilesOf(o.model.path)) inputs.push_back(std::move(file));
  for (const std::string& source : o.data) inputs.push_back(source.substr(source.find('=') + 1));
  o.outputs.Check(ModelFiles(o.output), inputs);
}

std::string ErrorText(double error) { return fmt::format("{:.2e}", error); }

void PrintReport(const QuantizationReport& report) {
  size_t width = 5;
  for (const LayerReport& layer : report.layers) {
    width = std::max(width, PrintableLine(layer.name).size());
  }
  const auto cell = [](const std::optional<double>& error) {
    return error ? ErrorText(*error) : std::string("-");
  };
  const auto column = [&](const char* name, std::optional<double> LayerReport::* error) {
    const bool is_shown = std::ranges::any_of(
        report.layers, [&](const auto& layer) { return (layer.*error).has_value(); });
    const auto text = [=](const LayerReport* layer) {
      if (!is_shown) return std::string();
      return fmt::format("  {:>8}", layer == nullptr ? name : cell(layer->*error));
    };
    return text;
  };
  const auto nearest = column("nearest", &LayerReport::nearest_error);
  const auto loss = column("output", &LayerReport::output_error);
  Out(fmt::format("{:<{}}  {:<6}  {:>8}{}{}\n", "layer", width, "kind", "error", nearest(nullptr),
                  loss(nullptr)));
  for (const LayerReport& layer : report.layers) {
    Out(fmt::format("{:<{}}  {:<6}  {:>8}{}{}{}\n", PrintableLine(layer.name), width, layer.kind,
                    cell(layer.error), nearest(&layer), loss(&layer),
                    layer.why_not.empty() ? "" : StrCat("  f32: ", layer.why_not)));
  }
  for (const OutputReport& output : report.outputs) {
    Out(StrCat("output ", PrintableLine(output.name), "  ", ErrorText(output.error), "\n"));
  }
  const std::string runs =
      report.runs > 0 ? StrCat("; ", report.runs, " runs of data") : "; errors are of the weights";
  Out(StrCat(report.quantized(), " of ", report.layers.size(), " layers quantized", runs, "\n"));
}

void PrintJson(const QuantizationReport& report, const std::string& path) {
  auto layers = nlohmann::ordered_json::array(), outputs = nlohmann::ordered_json::array();
  for (const LayerReport& layer : report.layers) {
    nlohmann::ordered_json& entry = layers.emplace_back();
    entry = {{"name", layer.name}, {"kind", layer.kind}, {"quantized", layer.why_not.empty()}};
    if (layer.error) entry["error"] = *layer.error;
    if (layer.nearest_error) entry["nearest_error"] = *layer.nearest_error;
    if (layer.output_error) entry["output_error"] = *layer.output_error;
    if (!layer.why_not.empty()) entry["why_not"] = layer.why_not;
  }
  for (const OutputReport& output : report.outputs) {
    outputs.push_back({{"name", output.name}, {"error", output.error}});
  }
  const nlohmann::ordered_json json{{"file", path},
                                    {"runs", report.runs},
                                    {"quantized", report.quantized()},
                                    {"layers", layers},
                                    {"outputs", outputs}};
  Out(JsonText(json, 2) + "\n");
}

void Show(Progress& bar, size_t& stage, const std::string& what) {
  constexpr size_t kStages = 6;  // at least; of --max-error there are more
  bar.Update(stage, std::max(stage + 1, kStages), what);
  ++stage;
}

// By `data`, or null.
QuantizationReport QuantizeAll(const QuantizeArguments& o, Program& program,
                               const CalibrationData* data) {
  Progress bar("quantize");
  size_t stage = 0;
  QuantizeOptions options = o.quantize;
  options.method = CalibrationMethodNamed(o.method);
  options.max_error = o.max_error;
  options.progress = [&](const std::string& what) { Show(bar, stage, what); };
  if (o.weights.empty()) return Quantize(program, *data, options);
  WeightOptions weights{.form = o.form,
                        .rounding = WeightRoundingNamed(o.rounding),
                        .exclude = options.exclude,
                        .max_error = o.max_error,
                        .compile = options.compile,
                        .progress = options.progress};
  weights.form.bits = o.weights == "i4" ? 4 : 8;
  weights.form.symmetric = options.symmetric;
  const QuantizeOptions usual;
  if (options.kinds != usual.kinds) weights.kinds = options.kinds;
  return QuantizeWeights(program, data, weights);
}

void CheckUsage(const QuantizeArguments& o, const CLI::App& app) {
  const auto is_given = [&](const char* name) { return app.get_option(name)->count() > 0; };
  if (o.weights.empty()) {
    if (o.data.empty()) throw UsageError("--data is required, unless --weights is given");
    for (const char* name : {"--block", "--rounding"}) {
      if (is_given(name)) throw UsageError(StrCat(name, " is for --weights"));
    }
    return;
  }
  for (const char* name : {"--method", "--percentile", "--per-tensor"}) {
    if (is_given(name)) throw UsageError(StrCat(name, " is not for weights alone"));
  }
}

int QuantizeModel(const QuantizeArguments& o) {
  CheckFiles(o);
  const ImageOptions image = ImageOptions::Named(o.normalize);
  IrContext context;
  Program program = o.model.Load(context);
  CalibrationData runs;
  std::shared_ptr<const train::DataSet> data;
  if (!o.data.empty()) {
    data = train::OpenData(o.data, DataOptionsFor(InputsOf(program), image));
    runs = [&](std::span<const Port> inputs, const auto& use) {
      train::ForEachBatch(*data, inputs, o.samples, image, use);
    };
  }
  QuantizationReport report;
  try {
    report = QuantizeAll(o, program, runs ? &runs : nullptr);
  } catch (Error& error) {
    if (error.where().empty()) error.At(o.model.path);
    throw;
  }
  VerifyOrThrow(program);
  SaveModel(program, o.output);
  Words(StrCat("wrote ", o.output, "\n"));
  o.json ? PrintJson(report, o.output) : PrintReport(report);
  return kFine;
}

void AddCalibrationOptions(CLI::App& app, QuantizeArguments& o) {
  app.add_option("--data", o.data,
                 "calibration data: .npz, .safetensors, NAME=FILE (.npy, IDX), or a folder of "
                 "pictures by class; required, unless --weights is given")
      ->allow_extra_args(false)
      ->type_name("SOURCE");
  app.add_option("--samples", o.samples, "how many samples of the data, from the first; 0: all")
      ->check(CountBetween(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--normalize", o.normalize,
                 "pixels (u8) to floats: unit, imagenet, signed or raw, as `lathe run` does")
      ->capture_default_str();
  app.add_option("--method", o.method, "ranges of values by min-max, percentile or entropy")
      ->capture_default_str();
  app.add_option("--percentile", o.quantize.percentile,
                 "how many percent of the numbers of a value are in its range")
      ->check(NumberBetween(50, 100))
      ->capture_default_str();
}

}  // namespace

Run AddQuantize(CLI::App& app) {
  auto o = std::make_shared<QuantizeArguments>();
  o->model.AddTo(app);
  AddCalibrationOptions(app, *o);
  app.add_flag("--per-tensor", o->quantize.per_tensor,
               "one scale for all weights of a layer, not one per output channel");
  app.add_flag(
      "--symmetric", o->quantize.symmetric,
      "activations as i8 about zero, not as u8 with a zero point; with --weights: weights");
  app.add_option("--weights", o->weights, "the weights of products alone, as i4 or i8, by blocks")
      ->check(CLI::IsMember({"i4", "i8"}))
      ->type_name("TYPE");
  app.add_option("--block", o->form.block, "weights with a scale of their own, along the depth")
      ->capture_default_str();
  app.add_option("--rounding", o->rounding,
                 "of weights: nearest, or calibrated by what they are multiplied by")
      ->capture_default_str();
  app.add_option("--ops", o->quantize.kinds, "the kinds of layers: conv, matmul, gemm")
      ->delimiter(',')
      ->type_name("KIND,...");
  app.add_option("--exclude", o->quantize.exclude,
                 "layers that stay f32, by their names; * and ? stand for any characters")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--max-error", o->max_error,
                 "leave layers that lose most in f32, until no output has a larger relative error")
      ->check(NumberBetween(0, 1e9))
      ->type_name("E");
  app.add_option("--output,-o", o->output, "FILE.onnx or FILE.lathe")
      ->type_name("FILE")
      ->required();
  app.add_flag("--json", o->json, "machine-readable output");
  o->outputs.AddTo(app);
  AddCompileOptions(app, o->quantize.compile);
  return [o, &app] {
    CheckUsage(*o, app);
    return QuantizeModel(*o);
  };
}

}  // namespace lathe::command
