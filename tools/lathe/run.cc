#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/dialect/interpreter.h"
#include "lathe/driver/value_files.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/picture.h"
#include "tools/lathe/command.h"

namespace lathe::command {

namespace {

struct RunOptions {
  ModelOptions model;
  std::vector<std::string> inputs;
  std::vector<std::string> dims;
  std::string output_dir;
  std::string labels;
  std::string normalize = "unit";
  bool bgr = false;
  bool random = false;
  bool show = false;
  bool json = false;
  uint64_t seed = 0;
  uint64_t max_steps = InterpreterOptions().max_steps;
  uint64_t max_memory_mb = 0;
  int64_t top = 0;
};

struct Port {
  std::string name;
  Type type;
};

std::vector<Port> InputsOf(const Program& program) {
  std::vector<Port> ports;
  for (Operation* feed : program.feeds()) {
    ports.push_back({std::string(feed->attribute("name").cast<StrAttribute>().value()),
                     feed->result(0).type()});
  }
  return ports;
}

std::string ListPorts(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& p : ports)
    text += StrCat(text.empty() ? "" : ", ", "'", p.name, "' ", p.type.ToString());
  return text;
}

/// Input name -> file, from `--input NAME=FILE`, or `--input FILE` when the model has one input.
std::map<std::string, std::string> FilesByInput(const RunOptions& o,
                                                const std::vector<Port>& ports) {
  std::map<std::string, std::string> files;
  std::vector<std::string> names;
  for (const Port& p : ports) names.push_back(p.name);
  for (const std::string& text : o.inputs) {
    const bool only_file = text.find('=') == std::string::npos && ports.size() == 1;
    auto [name, file] = only_file ? std::pair(names[0], text) : SplitAssignment("--input", text);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      Error error(ErrorCode::kNotFound, "run/unknown-input",
                  StrCat("the model has no input '", name, "'"));
      error.At(o.model.path).Note(StrCat("its inputs: ", ListPorts(ports)));
      if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
      throw error;
    }
    if (!files.emplace(name, file).second) {
      throw UsageError(StrCat("input '", name, "' is given twice"));
    }
  }
  return files;
}

std::vector<Dim::Binding> ParseDims(const std::vector<std::string>& texts) {
  std::vector<Dim::Binding> bindings;
  for (const std::string& text : texts) {
    auto [name, value] = SplitAssignment("--dim", text);
    const auto extent = ParseInt(value);
    if (!extent || *extent < 0)
      throw UsageError(StrCat("--dim ", name, " takes a size, not '", value, "'"));
    bindings.emplace_back(name, *extent);
  }
  return bindings;
}

NamedValues LoadInputs(const RunOptions& o, const std::vector<Port>& ports) {
  const auto files = FilesByInput(o, ports);
  const std::vector<Dim::Binding> dims = ParseDims(o.dims);
  ImageOptions image = ImageOptions::Named(o.normalize);
  image.bgr = o.bgr;
  NamedValues values;
  for (size_t i = 0; i < ports.size(); ++i) {
    const Port& port = ports[i];
    if (const auto file = files.find(port.name); file != files.end()) {
      LoadedValue loaded = LoadInput(port.name, file->second, port.type, image);
      if (!loaded.remark.empty()) Words(loaded.remark + "\n");
      if (o.show && loaded.picture) Out(PictureToText(*loaded.picture, UseColour(1)));
      values.emplace_back(port.name, std::move(loaded.value));
    } else if (o.random) {
      values.emplace_back(port.name, RandomInput(port.type, dims, o.seed, i));
    } else {
      throw Error(ErrorCode::kInvalidArgument, "run/missing-input",
                  StrCat("input '", port.name, "' of type ", port.type.ToString(), " has no value"))
          .At(o.model.path)
          .Hint(StrCat("give --input ", port.name, "=FILE, or --random for seeded random data"));
    }
  }
  return values;
}

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

std::string Fixed(double value) {
  char text[64];
  const bool plain = value == 0 || (std::fabs(value) >= 1e-4 && std::fabs(value) < 1e6);
  snprintf(text, sizeof(text), plain ? "%.4f" : "%.4g", value);
  return text;
}

void PrintTop(const std::string& name, const Tensor& scores, int64_t k,
              const std::vector<std::string>& labels) {
  const auto rows = TopK(scores, k);
  for (size_t r = 0; r < rows.size(); ++r) {
    Out(rows.size() == 1 ? StrCat(name, "\n") : StrCat(name, " row ", r, "\n"));
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

void PrintOutputs(const RunOptions& o, const NamedValues& outputs) {
  const std::vector<std::string> labels = ReadLabels(o.labels);
  auto json = nlohmann::ordered_json::array();
  for (const auto& [name, value] : outputs) {
    nlohmann::ordered_json entry{{"name", name}};
    if (value.is_tensor()) entry["type"] = value.tensor().TypeString();
    if (!o.output_dir.empty()) {
      const auto paths = SaveOutput(o.output_dir, name, value);
      entry["files"] = paths;
      for (const std::string& path : paths) Words(StrCat("wrote ", path, "\n"));
    }
    if (o.top > 0 && CanRank(value)) {
      if (o.json) {
        entry["top"] = TopJson(value.tensor(), o.top, labels);
      } else {
        PrintTop(name, value.tensor(), o.top, labels);
      }
    } else if (o.output_dir.empty() && !o.json) {
      const std::string type = value.is_tensor() ? value.tensor().TypeString() : value.KindName();
      Out(StrCat(name, " ", type, " ", value.ToString(16), "\n"));
    }
    json.push_back(std::move(entry));
  }
  if (o.json)
    Out(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

NamedValues Execute(const RunOptions& o, Program& program, const NamedValues& inputs,
                    const InterpreterOptions& options) {
  try {
    return Interpreter(program, options).Run(inputs);
  } catch (Error& error) {
    if (error.where().empty()) error.At(o.model.path);
    if (error.id().starts_with("run/input")) {
      error.Hint(StrCat("`lathe inspect ", o.model.path, "` shows what it takes"));
    }
    throw;
  }
}

int RunModel(const RunOptions& o) {
  if (!o.random && !o.dims.empty())
    throw UsageError("--dim sizes random inputs: give --random too");
  IrContext context;
  Program program = o.model.Load(context);
  const NamedValues inputs = LoadInputs(o, InputsOf(program));
  InterpreterOptions options;
  options.verify = false;  // Load has
  options.seed = o.seed;
  options.max_steps = o.max_steps;
  options.max_bytes = o.max_memory_mb << 20;
  PrintOutputs(o, Execute(o, program, inputs, options));
  return kFine;
}

}  // namespace

Run AddRun(CLI::App& app) {
  auto o = std::make_shared<RunOptions>();
  o->model.AddTo(app);
  app.add_option(
         "--input,-i", o->inputs,
         "value of an input: .npy, .npz, .pb (TensorProto), .png or .jpg; the name may be left "
         "out when there is one input")
      ->type_name("NAME=FILE");
  app.add_flag("--random", o->random, "seeded random data for inputs without a file");
  app.add_option("--seed", o->seed, "seed of random inputs and random ops")->capture_default_str();
  app.add_option("--max-steps", o->max_steps, "ops that may run, those in loops counted each time")
      ->capture_default_str();
  app.add_option("--max-memory-mb", o->max_memory_mb,
                 "of values alive at once (0: four fifths of the machine's)")
      ->capture_default_str();
  app.add_option("--dim", o->dims, "size of a symbolic dim for random inputs (default 1)")
      ->type_name("NAME=N");
  app.add_option("--output-dir,-o", o->output_dir, "write each output there as NAME.npy")
      ->type_name("DIR");
  app.add_option("--top", o->top, "show the K best classes of each output row")->type_name("K");
  app.add_option("--labels", o->labels, "class names, one a line, for --top")->type_name("FILE");
  app.add_option(
         "--normalize", o->normalize,
         "pixels v in 0..255 become: unit v/255; imagenet (v/255-mean)/deviation with the usual "
         "constants; signed v/127.5-1; raw v")
      ->capture_default_str();
  app.add_flag("--bgr", o->bgr, "feed pictures blue channel first");
  app.add_flag("--show", o->show, "draw picture inputs in the terminal");
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return RunModel(*o); };
}

}  // namespace lathe::command
