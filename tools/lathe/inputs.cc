#include "tools/lathe/inputs.h"

#include <algorithm>
#include <map>

#include "lathe/driver/model_file.h"
#include "lathe/driver/value_files.h"
#include "lathe/support/error.h"
#include "lathe/support/picture.h"

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
      Error error(ErrorCode::kNotFound, "run/input-name",
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

// "N=1,H=320" as "N=1" and "H=320"; a name may have a comma.
std::vector<std::string> Assignments(const std::vector<std::string>& texts) {
  std::vector<std::string> assignments;
  for (const std::string& text : texts) {
    for (size_t from = 0; from <= text.size();) {
      const size_t equals = text.find('=', from);
      const size_t end =
          equals == std::string::npos ? text.size() : std::min(text.find(',', equals), text.size());
      assignments.push_back(text.substr(from, end - from));
      from = end + 1;
    }
  }
  return assignments;
}

// The sizes of one input, "image=1,3,H,640".
void ReadShape(const std::string& text, const std::vector<InputPort>& ports,
               std::vector<Dim::Binding>& sizes) {
  auto [name, list] = SplitAssignment("--shape", text);
  const auto port = std::ranges::find(ports, name, &InputPort::name);
  const auto fail = [&](std::string_view why) {
    return UsageError(StrCat("--shape ", text, ": ", why),
                      StrCat("its inputs: ", ListPorts(ports)));
  };
  if (port == ports.end()) throw fail(StrCat("the model has no input '", name, "'"));
  const auto type = port->type.dyn_cast<AnyTensorType>();
  std::vector<std::string> entries(1);
  for (const char c : list) {
    if (c == ',') entries.emplace_back();
    if (c != ',') entries.back() += c;
  }
  if (!type || !type.has_rank() || static_cast<size_t>(type.rank()) != entries.size()) {
    throw fail(StrCat("the input is ", port->type.ToString()));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto size = ParseInt(entries[i]);
    if (!size) continue;
    const Dim dim = type.dims()[i];
    const auto known = std::ranges::find_if(sizes, [&](const Dim::Binding& b) {
      return dim.is_symbol() && b.first == dim.symbol_name();
    });
    const bool differs =
        dim.is_constant() ? dim.value() != *size : known != sizes.end() && known->second != *size;
    if (differs || *size < 0 || !(dim.is_constant() || dim.is_symbol())) {
      throw fail(StrCat("axis ", i, " is ", dim.ToString()));
    }
    if (dim.is_symbol() && known == sizes.end()) {
      sizes.emplace_back(std::string(dim.symbol_name()), *size);
    }
  }
}

// Of an axis that no one gives a size: one sample, a picture of 224 by 224, a sequence of 32.
int64_t UsualSize(const AnyTensorType& type, size_t axis) {
  constexpr int64_t kSide = 224, kLength = 32;
  if (axis == 0) return 1;
  const bool is_picture =
      type.rank() == 4 && type.dims()[2].is_symbol() && type.dims()[3].is_symbol();
  return is_picture && axis >= 2 ? kSide : kLength;
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

std::vector<Dim::Binding> GivenSizes(const ModelOptions& model,
                                     const std::vector<InputPort>& ports) {
  const std::vector<std::string> symbols = SymbolsOf(ports);
  std::vector<Dim::Binding> sizes;
  for (const std::string& text : Assignments(model.dims)) {
    auto [name, value] = SplitAssignment("--dim", text);
    if (std::ranges::find(symbols, name) == symbols.end()) throw NoSuchSymbol(name, symbols);
    if (std::ranges::find(sizes, name, &Dim::Binding::first) != sizes.end()) {
      throw UsageError(StrCat("--dim ", name, " is given twice"));
    }
    const auto size = ParseInt(value);
    if (!size || *size < 0)
      throw UsageError(StrCat("--dim ", name, " takes a size of at least 0, not '", value, "'"));
    sizes.emplace_back(name, *size);
  }
  for (const std::string& text : model.shapes) ReadShape(text, ports, sizes);
  return sizes;
}

void AddUsualSizes(const std::vector<InputPort>& ports, std::vector<Dim::Binding>& sizes) {
  for (const InputPort& port : ports) {
    const auto tensor = port.type.dyn_cast<AnyTensorType>();
    if (!tensor || !tensor.has_rank()) continue;
    const auto rank = static_cast<size_t>(tensor.rank());
    for (size_t i = 0; i < rank; ++i) {
      const Dim dim = tensor.dims()[i];
      if (!dim.is_symbol()) continue;
      const std::string name(dim.symbol_name());
      if (std::ranges::find(sizes, name, &Dim::Binding::first) != sizes.end()) continue;
      sizes.emplace_back(name, UsualSize(tensor, i));
    }
  }
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
  app.add_option(
         "--normalize", normalize,
         "pixels v in 0..255 become: unit v/255; imagenet (v/255-mean)/deviation with the usual "
         "constants; signed v/127.5-1; raw v")
      ->capture_default_str();
  app.add_flag("--bgr", bgr, "feed pictures blue channel first");
  app.add_flag("--show", show, "draw picture inputs in the terminal");
}

NamedValues InputOptions::Load(const ModelOptions& model,
                               const std::vector<InputPort>& ports) const {
  const bool compiled = DetectModelFormat(model.path) == ModelFormat::kExecutable;
  const bool sized = !model.dims.empty() || !model.shapes.empty();
  if (compiled && sized && !random) {
    throw UsageError("an executable has its sizes: those of random inputs need --random, too");
  }
  const auto given = FilesByInput(*this, model.path, ports);
  std::vector<Dim::Binding> extents;
  if (compiled) extents = GivenSizes(model, ports);
  AddUsualSizes(ports, extents);
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
      throw Error(ErrorCode::kInvalidArgument, "run/input-missing",
                  StrCat("input '", port.name, "' of type ", port.type.ToString(), " has no value"))
          .At(model.path)
          .Hint(StrCat("give --input ", port.name, "=FILE, or --random for seeded random data"));
    }
  }
  return values;
}

}  // namespace lathe::command
