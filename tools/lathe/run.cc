#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/driver/value_files.h"
#include "lathe/driver/value_statistics.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "lathe/support/printable.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/runnable.h"
#include "tools/lathe/sandboxed.h"
#include "tools/lathe/statistics_text.h"
#include "tools/lathe/value_report.h"

namespace lathe::command {

namespace {

struct RunArguments {
  ModelOptions model;
  RunnableOptions runnable;
  InputOptions inputs;
  OutputOptions outputs;
  std::string output;  // a folder, or a file of tensors by name
  std::string labels;
  bool json = false;
  bool sandbox = false;
  uint64_t max_steps = InterpreterOptions().max_steps;
  int64_t top = 0;
};

std::vector<std::string> ReadLabels(const std::string& path) {
  std::vector<std::string> labels;
  if (path.empty()) return labels;
  const std::string text = ReadFile(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    labels.push_back(std::move(line));
    at = end + 1;
  }
  return labels;
}

std::string Label(const std::vector<std::string>& labels, int64_t index) {
  const auto i = static_cast<size_t>(index);
  return i < labels.size() ? labels[i] : std::string();
}

void PrintTop(const std::string& name, const Tensor& scores, int64_t k,
              const std::vector<std::string>& labels) {
  const auto rows = TopK(scores, k);
  const std::string title = PrintableLine(name);
  for (size_t r = 0; r < rows.size(); ++r) {
    Out(rows.size() == 1 ? StrCat(title, "\n") : StrCat(title, " row ", r, "\n"));
    for (const Scored& s : rows[r]) {
      const std::string index = StrCat(s.index);
      Out(StrCat(std::string(index.size() < 6 ? 6 - index.size() : 0, ' '), index, "  ",
                 Fixed(s.score)));
      const std::string label = Label(labels, s.index);
      Out(label.empty() ? "\n" : StrCat("  ", label, "\n"));
    }
  }
}

nlohmann::ordered_json TopJson(const Tensor& scores, int64_t k,
                               const std::vector<std::string>& labels) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& row : TopK(scores, k)) {
    auto list = nlohmann::ordered_json::array();
    for (const Scored& s : row) {
      nlohmann::ordered_json entry{{"index", s.index}, {"score", s.score}};
      if (const std::string label = Label(labels, s.index); !label.empty()) entry["label"] = label;
      list.push_back(std::move(entry));
    }
    rows.push_back(std::move(list));
  }
  return rows;
}

bool CanRank(const RtValue& value) {
  return value.is_tensor() && value.tensor().rank() > 0 && value.tensor().num_elements() > 0 &&
         !IsComplex(value.tensor().element_type()) &&
         value.tensor().element_type() != ElementType::kString;
}

std::vector<std::string> FilesRead(const RunArguments& o) {
  std::vector<std::string> files = o.model.Files();
  const std::vector<std::string> inputs = o.inputs.Files();
  files.insert(files.end(), inputs.begin(), inputs.end());
  for (const std::string* file : {&o.labels, &o.runnable.parameters, &o.runnable.compile.records}) {
    if (!file->empty()) files.push_back(*file);
  }
  return files;
}

// A tensor alone in a file of its own.
std::vector<std::vector<std::string>> SaveAlone(const RunArguments& o, const NamedValues& outputs) {
  if (outputs.size() != 1 || !outputs[0].second.is_tensor()) {
    throw UsageError(StrCat("--output: ", o.output, " holds one tensor, and the model gives ",
                            outputs.size(), " outputs"),
                     "name a .npz or .safetensors file, or a folder");
  }
  const OutputFile file{o.output, FileKind::kArray};
  o.outputs.Check({&file, 1}, FilesRead(o));
  WriteNpy(o.output, outputs[0].second.tensor());
  Words(StrCat("wrote ", o.output, "\n"));
  return {{o.output}};
}

std::vector<std::vector<std::string>> SaveTogether(const RunArguments& o,
                                                   const NamedValues& outputs) {
  const bool is_npz = FileExtension(o.output) == ".npz";
  const OutputFile file{o.output, is_npz ? FileKind::kArray : FileKind::kWeights};
  o.outputs.Check({&file, 1}, FilesRead(o));
  WriteTensorArchive(o.output, TensorsOf(outputs));
  Words(StrCat("wrote ", o.output, "\n"));
  return std::vector(outputs.size(), std::vector{o.output});
}

// Writes the outputs; the paths of each.
std::vector<std::vector<std::string>> Save(const RunArguments& o, const NamedValues& outputs) {
  std::vector<std::vector<std::string>> paths(outputs.size());
  if (o.output.empty()) return paths;
  if (IsTensorArchive(o.output)) return SaveTogether(o, outputs);
  if (FileExtension(o.output) == ".npy" && !IsDirectory(o.output)) return SaveAlone(o, outputs);
  const auto files = FilesOf(o.output, outputs);
  std::vector<OutputFile> all;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const TensorFile& file : files[i]) {
      paths[i].push_back(file.path);
      all.push_back({file.path, FileKind::kArray});
    }
  }
  o.outputs.Check(all, FilesRead(o));
  MakeDirectory(o.output);
  for (const auto& of_output : files) {
    for (const TensorFile& file : of_output) {
      WriteNpy(file.path, file.tensor);
      Words(StrCat("wrote ", file.path, "\n"));
    }
  }
  return paths;
}

// Its elements, or what they are like if there are more than a line shows.
void PrintValue(const std::string& name, const RtValue& value, bool elements) {
  constexpr int64_t kShown = 16;
  const std::string type = value.is_tensor() ? value.tensor().TypeString() : value.KindName();
  const std::string text = elements ? value.ToString(kShown) : "";
  Out(StrCat(PrintableLine(name), " ", type, text.empty() ? "" : " ", text, "\n"));
  if (!value.is_tensor() || (elements && value.tensor().num_elements() <= kShown)) return;
  if (const auto statistics = StatisticsOf(value.tensor())) {
    Out(StrCat("  ", StatisticsText(*statistics), "\n"));
  }
}

// With its elements, if somebody may want to read them.
nlohmann::ordered_json ValueToJson(const std::string& name, const RtValue& value, bool elements) {
  constexpr int64_t kMost = 1000;
  nlohmann::ordered_json entry{{"name", name}, {"kind", value.KindName()}};
  if (!value.is_tensor()) return entry;
  const Tensor& tensor = value.tensor();
  entry["type"] = tensor.TypeString();
  entry["element_type"] = Name(tensor.element_type());
  entry["shape"] = tensor.shape();
  if (const auto statistics = StatisticsOf(tensor)) AddStatistics(entry, *statistics);
  if (elements && tensor.num_elements() <= kMost) entry["values"] = ElementsJson(tensor);
  return entry;
}

void PrintOutputs(const RunArguments& o, const NamedValues& outputs) {
  const std::vector<std::vector<std::string>> files = Save(o, outputs);
  const std::vector<std::string> labels = ReadLabels(o.labels);
  auto json = nlohmann::ordered_json::array();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [name, value] = outputs[i];
    const bool ranked = o.top > 0 && CanRank(value);
    if (o.json) {
      json.push_back(ValueToJson(name, value, /*elements=*/o.output.empty()));
      if (!o.output.empty()) json.back()["files"] = files[i];
      if (ranked) json.back()["top"] = TopJson(value.tensor(), o.top, labels);
    } else if (ranked) {
      PrintTop(name, value.tensor(), o.top, labels);
    } else {
      PrintValue(name, value, /*elements=*/o.output.empty());
    }
  }
  if (o.json) Out(JsonText(json, 2) + "\n");
}

int RunModel(const RunArguments& o);

int RunModelSandboxed(const RunArguments& o) {
  if (!o.output.empty()) throw UsageError("--sandbox writes no files: not with --output");
  std::vector<std::string> files = o.inputs.Files();
  files.insert(files.end(), {o.labels, o.runnable.parameters});
  std::erase(files, "");
  return RunSandboxed(o.model, o.runnable.compile, files, nullptr,
                      [&](const CompileOptions& compile) {
                        RunArguments inside = o;
                        inside.sandbox = false;
                        inside.runnable.compile = compile;
                        return RunModel(inside);
                      });
}

// Before anything runs: that a folder can be there.
void CheckOutput(const RunArguments& o) {
  const bool is_file = IsTensorArchive(o.output) || FileExtension(o.output) == ".npy";
  if (is_file || o.output.empty() || IsDirectory(o.output)) return;
  if (FileExists(o.output) || IsValueFile(o.output)) {
    throw UsageError(StrCat("--output takes a .npy, .npz or .safetensors file, or a folder, not '",
                            o.output, "'"));
  }
}

int RunModel(const RunArguments& o) {
  if (o.sandbox) return RunModelSandboxed(o);
  CheckOutput(o);
  RunnableOptions options = o.runnable;
  options.compile.interpreter.seed = o.inputs.seed;
  options.compile.interpreter.max_steps = o.max_steps;
  Runnable runnable(o.model, options);
  const NamedValues inputs = o.inputs.Load(o.model, runnable.inputs());
  PrintOutputs(o, runnable.Run(inputs));
  return kFine;
}

}  // namespace

Run AddRun(CLI::App& app) {
  auto o = std::make_shared<RunArguments>();
  o->model.AddTo(app, "a model (.onnx, .lathe) or an executable (.lx, .json)");
  o->inputs.AddTo(app, /*random=*/false);
  o->runnable.AddTo(app);
  app.add_option("--parameters", o->runnable.parameters,
                 "weights (.safetensors) instead of those of an executable, by name")
      ->type_name("FILE");
  app.add_option("--max-steps", o->max_steps,
                 "ops or steps of a plan that may run, those in loops counted each time")
      ->check(CountBetween(1, UINT64_MAX))
      ->capture_default_str();
  app.add_option(
         "--dump", o->runnable.fetched,
         "intermediate values that are outputs, too, by their names in the model; all: each")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option(
         "--output,--output-dir,-o", o->output,
         "write the outputs: to a file (.npz, .safetensors; .npy if there is one), or each to "
         "NAME.npy in a folder")
      ->type_name("FILE|DIR");
  o->outputs.AddTo(app);
  app.add_option("--top", o->top, "show the K best classes of each output row")
      ->check(CountBetween(0, kMostRows))
      ->type_name("K");
  app.add_option("--labels", o->labels, "class names, one a line, for --top")->type_name("FILE");
  AddSandboxOption(app, o->sandbox);
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return RunModel(*o); };
}

}  // namespace lathe::command
