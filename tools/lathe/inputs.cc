#include "tools/lathe/inputs.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "lathe/driver/input_sizes.h"
#include "lathe/driver/model_file.h"
#include "lathe/driver/value_files.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/picture.h"

namespace lathe::command {
namespace {

std::string ListPorts(const std::vector<InputPort>& ports) {
  std::string text;
  for (const InputPort& p : ports)
    text += StrCat(text.empty() ? "" : ", ", "'", p.name, "' ", p.type.ToString());
  return text;
}

// What `--input` gives an input.
struct Source {
  std::string text;                       // a value, or where a file is
  std::shared_ptr<const ValueFile> file;  // that has it by its name; or null
};

std::vector<std::string> NamesOf(const std::vector<InputPort>& ports) {
  std::vector<std::string> names;
  for (const InputPort& p : ports) names.push_back(p.name);
  return names;
}

Error NoSuchInput(const std::string& name, const std::string& model,
                  const std::vector<InputPort>& ports) {
  Error error(ErrorCode::kNotFound, "run/input-name",
              StrCat("the model has no input '", name, "'"));
  error.At(model).Note(StrCat("its inputs: ", ListPorts(ports)));
  if (const std::string near = DidYouMean(name, NamesOf(ports)); !near.empty()) error.Hint(near);
  return error;
}

// What the options give to each input, by name.
class Sources {
 public:
  Sources(const std::string& model, const std::vector<InputPort>& ports)
      : model_(model), ports_(ports), names_(NamesOf(ports)) {}

  void Add(const std::string& text) {
    const bool has_name = text.find('=') != std::string::npos;
    if (!has_name && ports_.size() == 1) return Set(names_[0], {text, nullptr});
    if (!has_name && IsValueFile(text)) {
      if (const std::shared_ptr<const ValueFile> file = OpenValueFile(text)) {
        return AddFile(text, file);
      }
    }
    if (!has_name) throw NoName(text);
    auto [name, value] = SplitAssignment("--input", text);
    if (std::ranges::find(names_, name) == names_.end()) throw NoSuchInput(name, model_, ports_);
    Set(name, {std::move(value), nullptr});
  }

  const Source* Find(const std::string& name) const {
    const auto found = sources_.find(name);
    return found == sources_.end() ? nullptr : &found->second;
  }

 private:
  UsageError NoName(const std::string& text) const {
    const std::string inputs = ListPorts(ports_);
    return UsageError(StrCat("--input takes NAME=VALUE, not '", text, "'"),
                      StrCat("the inputs of the model: ", inputs.empty() ? "none" : inputs));
  }

  void Set(const std::string& name, Source source) {
    if (!sources_.emplace(name, std::move(source)).second) {
      throw UsageError(StrCat("input '", name, "' is given twice"));
    }
  }

  // A file may hold more than the model takes, such as labels.
  void AddFile(const std::string& path, const std::shared_ptr<const ValueFile>& file) {
    const std::vector<std::string> found = file->names();
    std::string others;
    for (const std::string& name : found) {
      if (std::ranges::find(names_, name) != names_.end()) {
        Set(name, {path, file});
      } else {
        others += StrCat(others.empty() ? "'" : ", '", name, "'");
      }
    }
    if (std::ranges::none_of(found, [&](const std::string& name) { return Find(name); })) {
      throw NoSuchInput(found.empty() ? path : found[0], model_, ports_).Note(StrCat("in ", path));
    }
    if (!others.empty()) Words(StrCat("note: ", path, ": no inputs of the model: ", others, "\n"));
  }

  const std::string& model_;
  const std::vector<InputPort>& ports_;
  std::vector<std::string> names_;
  std::map<std::string, Source> sources_;
};

bool IsFile(const std::string& text) { return IsValueFile(text) || FileExists(text); }

// Lists in lists, or text in quotes.
bool IsJson(const std::string& text) {
  return !IsFile(text) && !text.empty() &&
         std::string_view("[{\"").find(text[0]) != std::string::npos;
}

// A number, a truth value, or text for an input of strings: it fills the shape.
bool IsElement(const std::string& text, Type type) {
  constexpr std::array<std::string_view, 5> kWords = {"true", "false", "True", "False", "null"};
  if (IsFile(text) || IsJson(text)) return false;
  if (ParseDouble(text) || std::ranges::find(kWords, text) != kWords.end()) return true;
  const auto tensor = type.dyn_cast<AnyTensorType>();
  return tensor && tensor.element() == ElementType::kString;
}

RtValue CastTo(RtValue value, Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  if (!tensor || !value.is_tensor() || value.tensor().element_type() == tensor.element()) {
    return value;
  }
  return Cast(value.tensor(), tensor.element());
}

std::vector<Port> PlainPorts(const std::vector<InputPort>& ports) {
  std::vector<Port> plain;
  for (const InputPort& port : ports) {
    plain.emplace_back().name = port.name;
    const auto tensor = port.type.dyn_cast<AnyTensorType>();
    if (tensor) plain.back().dims.assign(tensor.dims().begin(), tensor.dims().end());
  }
  return plain;
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

InputPort PortOf(std::string name, ElementType element, const std::vector<Dim>& dims,
                 IrContext& context) {
  return {std::move(name), VTensorType::Get(context, SymShape(dims), element)};
}

}  // namespace

train::DataOptions DataOptionsFor(const std::vector<InputPort>& ports, const ImageOptions& image) {
  train::DataOptions options{.image = image};
  for (const InputPort& port : ports) {
    const auto type = port.type.dyn_cast<AnyTensorType>();
    if (!type || !IsFloat(type.element())) continue;
    options.picture = port.name;
    options.picture_type = port.type;
    break;
  }
  return options;
}

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

void InputOptions::AddTo(CLI::App& app, bool random_by_default) {
  app.add_option(
         "--input,-i", given,
         "value of an input: a file (.npy, .npz, .safetensors, .pb, .csv, .json, .png, .jpg, "
         ".bmp), "
         "a folder or pattern of files as a batch, a number, which fills the shape, or a list such "
         "as [1,2]; without a name for the one input, or a file that has the names")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  app.add_flag("--cast", cast, "convert files to the element types of the inputs");
  random = random_by_default;
  if (!random)
    app.add_flag("--random", random,
                 "seeded random data for inputs without a value; integers are 0 and 1");
  app.add_option("--seed", seed, "seed of random inputs and random ops")
      ->check(CountBetween(0, UINT64_MAX))
      ->capture_default_str();
  app.add_option(
         "--normalize", normalize,
         "pixels v in 0..255 become: unit v/255; imagenet (v/255-mean)/deviation with the usual "
         "constants; signed v/127.5-1; raw v")
      ->check(CLI::IsMember({"unit", "imagenet", "signed", "raw"}))
      ->capture_default_str();
  app.add_flag("--bgr", bgr, "feed pictures blue channel first");
  app.add_flag("--show", show, "draw picture inputs in the terminal");
}

std::vector<std::string> InputOptions::Files() const {
  std::vector<std::string> files;
  for (const std::string& text : given) {
    const std::string path = text.substr(text.find('=') + 1);
    if (!IsFile(path)) continue;
    const std::vector<std::string> found = FilesAt(path);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

namespace {

RtValue ReadFrom(const Source& source, const InputPort& port, const InputOptions& o) {
  ImageOptions image = ImageOptions::Named(o.normalize);
  image.bgr = o.bgr;
  LoadedValue loaded;
  if (source.file) {
    loaded.value = source.file->Get(port.name, port.type);
  } else {
    loaded = LoadInput(port.name, source.text, port.type, image);
  }
  if (!loaded.remark.empty()) Words(loaded.remark + "\n");
  if (o.show && loaded.picture) Draw(stdout, PictureToText(*loaded.picture, UseColor(1)));
  return o.cast ? CastTo(std::move(loaded.value), port.type) : std::move(loaded.value);
}

// Those that have a shape of their own; the others are none.
NamedValues ReadShaped(const InputOptions& o, const Sources& sources,
                       const std::vector<InputPort>& ports) {
  NamedValues values;
  for (const InputPort& port : ports) {
    RtValue& value = values.emplace_back(port.name, RtValue()).second;
    const Source* source = sources.Find(port.name);
    if (source == nullptr || (!source->file && IsElement(source->text, port.type))) continue;
    const bool json = !source->file && IsJson(source->text);
    value = json ? ParseValue(port.name, source->text, port.type, {}) : ReadFrom(*source, port, o);
  }
  return values;
}

RtValue RandomFor(const InputPort& port, const std::string& model,
                  std::span<const Dim::Binding> sizes, uint64_t seed, uint64_t stream) {
  try {
    return RandomInput(port.type, sizes, seed, stream);
  } catch (Error& error) {
    error.At(StrCat(model, ": input '", port.name, "'"));
    throw;
  }
}

Error Missing(const InputPort& port, const std::string& model) {
  return Error(ErrorCode::kInvalidArgument, "run/input-missing",
               StrCat("input '", port.name, "' of type ", port.type.ToString(), " has no value"))
      .At(model)
      .Hint(StrCat("give --input ", port.name, "=FILE, or --random for seeded random data"));
}

}  // namespace

NamedValues InputOptions::Load(const ModelOptions& model,
                               const std::vector<InputPort>& ports) const {
  const bool compiled = DetectModelFormat(model.path) == ModelFormat::kExecutable;
  const bool sized = !model.dims.empty() || !model.shapes.empty();
  if (compiled && sized && !random) {
    throw UsageError("an executable has its sizes: those of random inputs need --random, too");
  }
  Sources sources(model.path, ports);
  for (const std::string& text : given) sources.Add(text);
  NamedValues values = ReadShaped(*this, sources, ports);
  std::vector<Dim::Binding> extents;
  if (compiled) extents = GivenSizes(model, ports);
  // What has a shape decides sizes that nobody has given.
  const std::vector<Dim::Binding> sizes = BindSymbols(PlainPorts(ports), values);
  extents.insert(extents.end(), sizes.begin(), sizes.end());
  for (const InputPort& port : ports) AddUsualSizes(port.type, extents);
  for (size_t i = 0; i < ports.size(); ++i) {
    const InputPort& port = ports[i];
    const Source* source = sources.Find(port.name);
    if (!values[i].second.is_none()) continue;
    if (source == nullptr && !random) throw Missing(port, model.path);
    values[i].second = source != nullptr ? ParseValue(port.name, source->text, port.type, extents)
                                         : RandomFor(port, model.path, extents, seed, i);
  }
  return values;
}

}  // namespace lathe::command
