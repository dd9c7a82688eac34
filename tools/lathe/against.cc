#include "tools/lathe/against.h"

#include <algorithm>
#include <cmath>

#include "lathe/driver/model_file.h"
#include "lathe/driver/pass_checks.h"
#include "lathe/driver/value_difference.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/printable.h"
#include "tools/lathe/onnxruntime_run.h"
#include "tools/lathe/value_report.h"

namespace lathe::command {
namespace {

constexpr const char* kOnnxRuntime = "onnxruntime";

// An ONNX file as it is; anything else as the ONNX model that Lathe makes of it.
OnnxRuntimeResult RunElsewhere(const AgainstOptions& o, const ModelOptions& model,
                               const Program& program, const NamedValues& inputs) {
  const std::string python = PythonFor(o.python);
  if (DetectModelFormat(model.path) == ModelFormat::kOnnx) {
    return RunOnnxRuntime(python, model.path, inputs);
  }
  const TemporaryFolder folder;
  const std::string exported = folder.path() + "/model.onnx";
  SaveModel(program, exported);
  return RunOnnxRuntime(python, exported, inputs);
}

NamedValues RunCompiled(const Program& program, const CompileOptions& compile,
                        const NamedValues& inputs) {
  Progress progress("compiling");
  return Executable(program, Shown(compile, progress)).Run(inputs);
}

// "onnxruntime" misspelled is a file that is not there.
void CheckReference(const std::string& reference) {
  if (reference == kOnnxRuntime || FileExists(reference) || IsDirectory(reference)) return;
  const std::vector<std::string> known = {kOnnxRuntime};
  throw UsageError(
      StrCat("--against takes onnxruntime or a file of results, not '", reference, "'"),
      DidYouMean(reference, known));
}

// Of the outputs alone: a file may hold inputs, too.
NamedValues ResultsFor(const NamedValues& outputs, const std::string& path) {
  NamedValues results = ReadResults(path);
  if (IsDirectory(path)) RestoreNames(results, outputs);
  if (results.size() == 1 && outputs.size() == 1) return results;
  std::erase_if(results, [&](const auto& r) { return Find(outputs, r.first) == nullptr; });
  return results;
}

}  // namespace

void AgainstOptions::AddTo(CLI::App& app) {
  CLI::Option* against =
      app.add_option("--against", reference,
                     "compare with onnxruntime, run by Python, or with results: .npz, .npy, "
                     ".safetensors, a folder of .npy")
          ->type_name("onnxruntime|FILE");
  app.add_option("--python", python,
                 "that has onnxruntime (default: .venv/bin/python, else python3)")
      ->type_name("FILE")
      ->needs(against);
  app.add_option("--rtol", rtol,
                 "results agree where |a - b| <= atol + rtol * |b| (default: by type)")
      ->check(NumberBetween(0, HUGE_VAL))
      ->needs(against);
  app.add_option("--atol", atol)->check(NumberBetween(0, HUGE_VAL))->needs(against);
}

int CheckAgainst(const AgainstOptions& o, const ModelOptions& model, const InputOptions& inputs,
                 const CompileOptions& compile, bool json) {
  CheckReference(o.reference);
  IrContext context;
  const Program program = model.Load(context);
  const NamedValues values = inputs.Load(model, InputsOf(program));
  const Tolerance usual = ToleranceOf(program, compile.precision);
  const NamedValues outputs = RunCompiled(program, compile, values);
  std::string name = o.reference;
  NamedValues wanted;
  if (o.reference == kOnnxRuntime) {
    OnnxRuntimeResult result = RunElsewhere(o, model, program, values);
    name += " " + result.version;
    wanted = std::move(result.outputs);
  } else {
    wanted = ResultsFor(outputs, o.reference);
  }
  const auto differences =
      CompareValues(outputs, wanted, o.rtol.value_or(usual.rtol), o.atol.value_or(usual.atol));
  const bool agrees = AllAgree(differences);
  if (json) {
    const nlohmann::ordered_json document = {
        {"against", name}, {"agrees", agrees}, {"outputs", DifferenceJson(differences)}};
    Out(JsonText(document, 2) + "\n");
  } else {
    const auto same = std::ranges::count_if(differences, &ValueDifference::agrees);
    Out(DifferenceText(differences));
    Out(StrCat(same, " of ", differences.size(), " outputs agree with ", name, "\n"));
  }
  return agrees ? kFine : kCheckFailed;
}

}  // namespace lathe::command
