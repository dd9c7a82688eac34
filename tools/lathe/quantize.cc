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

struct Options {
  ModelOptions model;
  OutputOptions outputs;
  QuantizeOptions quantize;
  std::vector<std::string> data;
  int64_t samples = 0;
  std::string normalize = "unit", method = "min-max";
  std::optional<double> max_error;
  std::string output;
  bool json = false;
};

void CheckFiles(const Options& o) {
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
  const bool has_losses = std::ranges::any_of(
      report.layers, [](const LayerReport& layer) { return layer.output_error.has_value(); });
  Out(fmt::format("{:<{}}  {:<6}  {:>8}{}\n", "layer", width, "kind", "error",
                  has_losses ? "    output" : ""));
  for (const LayerReport& layer : report.layers) {
    Out(fmt::format("{:<{}}  {:<6}  {:>8}{}{}\n", PrintableLine(layer.name), width, layer.kind,
                    cell(layer.error),
                    has_losses ? fmt::format("  {:>8}", cell(layer.output_error)) : "",
                    layer.why_not.empty() ? "" : StrCat("  f32: ", layer.why_not)));
  }
  for (const OutputReport& output : report.outputs) {
    Out(StrCat("output ", PrintableLine(output.name), "  ", ErrorText(output.error), "\n"));
  }
  Out(StrCat(report.quantized(), " of ", report.layers.size(), " layers quantized; ", report.runs,
             " runs of data\n"));
}

void PrintJson(const QuantizationReport& report, const std::string& path) {
  auto layers = nlohmann::ordered_json::array(), outputs = nlohmann::ordered_json::array();
  for (const LayerReport& layer : report.layers) {
    nlohmann::ordered_json& entry = layers.emplace_back();
    entry = {{"name", layer.name}, {"kind", layer.kind}, {"quantized", layer.why_not.empty()}};
    if (layer.error) entry["error"] = *layer.error;
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

int QuantizeModel(const Options& o) {
  CheckFiles(o);
  QuantizeOptions options = o.quantize;
  options.method = CalibrationMethodNamed(o.method);
  options.max_error = o.max_error;
  const ImageOptions image = ImageOptions::Named(o.normalize);
  IrContext context;
  Program program = o.model.Load(context);
  const auto data = train::OpenData(o.data, DataOptionsFor(InputsOf(program), image));
  Progress bar("quantize");
  size_t stage = 0;
  options.progress = [&](const std::string& what) {
    constexpr size_t kStages = 6;  // at least; of --max-error there are more
    bar.Update(stage, std::max(stage + 1, kStages), what);
    ++stage;
  };
  const CalibrationData runs = [&](std::span<const Port> inputs, const auto& use) {
    train::ForEachBatch(*data, inputs, o.samples, image, use);
  };
  QuantizationReport report;
  try {
    report = Quantize(program, runs, options);
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

void AddCalibrationOptions(CLI::App& app, Options& o) {
  app.add_option("--data", o.data,
                 "calibration data: .npz, .safetensors, NAME=FILE (.npy, IDX), or a folder of "
                 "pictures by class")
      ->required()
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
      ->check(CLI::Range(50.0, 100.0))
      ->capture_default_str();
}

}  // namespace

Run AddQuantize(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->model.AddTo(app);
  AddCalibrationOptions(app, *o);
  app.add_flag("--per-tensor", o->quantize.per_tensor,
               "one scale for all weights of a layer, not one per output channel");
  app.add_flag("--symmetric", o->quantize.symmetric,
               "activations as i8 about zero, not as u8 with a zero point");
  app.add_option("--ops", o->quantize.kinds, "the kinds of layers: conv, matmul, gemm")
      ->delimiter(',')
      ->type_name("KIND,...");
  app.add_option("--exclude", o->quantize.exclude,
                 "layers that stay f32, by their names; * and ? stand for any characters")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--max-error", o->max_error,
                 "leave layers that lose most in f32, until no output has a larger relative error")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("E");
  app.add_option("--output,-o", o->output, "FILE.onnx or FILE.lathe")
      ->type_name("FILE")
      ->required();
  app.add_flag("--json", o->json, "machine-readable output");
  o->outputs.AddTo(app);
  AddCompileOptions(app, o->quantize.compile);
  return [o] { return QuantizeModel(*o); };
}

}  // namespace lathe::command
