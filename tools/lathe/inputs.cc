#include "tools/lathe/inputs.h"

#include <algorithm>
#include <map>

#include "lathe/driver/value_files.h"
#include "lathe/support/error.h"
#include "lathe/support/picture.h"
#include "tools/lathe/command.h"

namespace lathe::command {
namespace {

std::string ListPorts(const std::vector<InputPort>& ports) {
  std::string text;
  for (const InputPort& p : ports)
    text += StrCat(text.empty() ? "" : ", ", "'", p.name, "' ", p.type.ToString());
  return text;
}

/// Input name -> file, from `--input NAME=FILE`, or `--input FILE` when the model has one input.
std::map<std::string, std::string> FilesByInput(const InputOptions& o, const std::string& model,
                                                const std::vector<InputPort>& ports) {
  std::map<std::string, std::string> files;
  std::vector<std::string> names;
  for (const InputPort& p : ports) names.push_back(p.name);
  for (const std::string& text : o.files) {
    const bool only_file = text.find('=') == std::string::npos && ports.size() == 1;
    auto [name, file] = only_file ? std::pair(names[0], text) : SplitAssignment("--input", text);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      Error error(ErrorCode::kNotFound, "run/unknown-input",
                  StrCat("the model has no input '", name, "'"));
      error.At(model).Note(StrCat("its inputs: ", ListPorts(ports)));
      if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
      throw error;
    }
    if (!files.emplace(name, file).second) {
      throw UsageError(StrCat("input '", name, "' is given twice"));
    }
  }
  return files;
}

std::vector<std::string> SymbolsOf(const std::vector<InputPort>& ports) {
  std::vector<std::string> symbols;
  for (const InputPort& port : ports) {
    const auto tensor = port.type.dyn_cast<AnyTensorType>();
    if (!tensor || !tensor.has_rank()) continue;
    for (const Dim& dim : tensor.dims()) dim.CollectSymbols(symbols);
  }
  return symbols;
}

UsageError NoSuchSymbol(const std::string& name, const std::vector<std::string>& symbols) {
  if (symbols.empty()) {
    return UsageError(StrCat("--dim ", name, ": the inputs of the model have no symbolic dims"));
  }
  std::string list;
  for (const std::string& s : symbols) list += StrCat(list.empty() ? "'" : ", '", s, "'");
  return UsageError(StrCat("--dim ", name, ": the symbolic dims of the model are ", list),
                    DidYouMean(name, symbols));
}

InputPort PortOf(std::string name, ElementType element, const std::vector<Dim>& dims,
                 IrContext& context) {
  return {std::move(name), VTensorType::Get(context, SymShape(dims), element)};
}

}  // namespace

std::vector<InputPort> InputsOf(const Program& program) {
  std::vector<InputPort> ports;
  for (Operation* feed : program.feeds()) {
    ports.push_back({std::string(feed->attribute("name").cast<StrAttribute>().value()),
                     feed->result(0).type()});
  }
  return ports;
}

std::vector<InputPort> InputsOf(const Executable& executable, IrContext& context) {
  std::vector<InputPort> ports;
  for (const Port& port : executable.inputs()) {
    ports.push_back(PortOf(port.name, port.element, port.dims, context));
  }
  return ports;
}

std::vector<InputPort> InputsOf(const runtime::Plan& plan, IrContext& context) {
  std::vector<InputPort> ports;
  for (const runtime::PlanPort& port : plan.inputs) {
    const runtime::PlanValue& value = plan.values[port.value];
    ports.push_back(PortOf(port.name, value.element, value.dims, context));
  }
  return ports;
}

std::vector<Dim::Binding> ParseDims(const std::vector<std::string>& texts,
                                    const std::vector<InputPort>& ports) {
  const std::vector<std::string> symbols = SymbolsOf(ports);
  std::vector<Dim::Binding> bindings;
  for (const std::string& text : texts) {
    auto [name, value] = SplitAssignment("--dim", text);
    if (std::ranges::find(symbols, name) == symbols.end()) throw NoSuchSymbol(name, symbols);
    if (std::ranges::find(bindings, name, &Dim::Binding::first) != bindings.end()) {
      throw UsageError(StrCat("--dim ", name, " is given twice"));
    }
    const auto extent = ParseInt(value);
    if (!extent || *extent < 0)
      throw UsageError(StrCat("--dim ", name, " takes a size of at least 0, not '", value, "'"));
    bindings.emplace_back(name, *extent);
  }
  return bindings;
}

void AddDimOption(CLI::App& app, std::vector<std::string>& dims) {
  app.add_option("--dim", dims, "size of a symbolic dim, for the memory of a run (default 1)")
      ->type_name("NAME=N");
}

void InputOptions::AddTo(CLI::App& app, bool random_by_default) {
  app.add_option(
         "--input,-i", files,
         "value of an input: .npy, .npz, .pb (TensorProto), .png or .jpg; the name may be left "
         "out when there is one input")
      ->type_name("NAME=FILE");
  random = random_by_default;
  if (!random)
    app.add_flag("--random", random,
                 "seeded random data for inputs without a file; integers are 0 and 1");
  app.add_option("--seed", seed, "seed of random inputs and random ops")
      ->check(CountBetween(0, UINT64_MAX))
      ->capture_default_str();
  app.add_option("--dim", dims, "size of a symbolic dim for random inputs (default 1)")
      ->type_name("NAME=N");
  app.add_option(
         "--normalize", normalize,
         "pixels v in 0..255 become: unit v/255; imagenet (v/255-mean)/deviation with the usual "
         "constants; signed v/127.5-1; raw v")
      ->capture_default_str();
  app.add_flag("--bgr", bgr, "feed pictures blue channel first");
  app.add_flag("--show", show, "draw picture inputs in the terminal");
}

NamedValues InputOptions::Load(const std::string& model,
                               const std::vector<InputPort>& ports) const {
  if (!random && !dims.empty()) throw UsageError("--dim sizes random inputs: give --random too");
  const auto given = FilesByInput(*this, model, ports);
  const std::vector<Dim::Binding> extents = ParseDims(dims, ports);
  ImageOptions image = ImageOptions::Named(normalize);
  image.bgr = bgr;
  NamedValues values;
  for (size_t i = 0; i < ports.size(); ++i) {
    const InputPort& port = ports[i];
    if (const auto file = given.find(port.name); file != given.end()) {
      LoadedValue loaded = LoadInput(port.name, file->second, port.type, image);
      if (!loaded.remark.empty()) Words(loaded.remark + "\n");
      if (show && loaded.picture) Draw(stdout, PictureToText(*loaded.picture, UseColour(1)));
      values.emplace_back(port.name, std::move(loaded.value));
    } else if (random) {
      values.emplace_back(port.name, RandomInput(port.type, extents, seed, i));
    } else {
      throw Error(ErrorCode::kInvalidArgument, "run/missing-input",
                  StrCat("input '", port.name, "' of type ", port.type.ToString(), " has no value"))
          .At(model)
          .Hint(StrCat("give --input ", port.name, "=FILE, or --random for seeded random data"));
    }
  }
  return values;
}

}  // namespace lathe::command
