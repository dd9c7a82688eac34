#include "python/src/model.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <tuple>

#include "lathe/dialect/all.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/driver/model_file.h"
#include "lathe/driver/value_files.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/metadata.h"
#include "lathe/ir/verify.h"
#include "python/src/interrupts.h"
#include "python/src/lent.h"
#include "python/src/ports.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// A callable that gives the bytes of external data, or None.
std::function<std::shared_ptr<Buffer>(const std::string&)> ExternalData(nb::handle give) {
  if (give.is_none()) return nullptr;
  return [give](const std::string& location) -> std::shared_ptr<Buffer> {
    const nb::gil_scoped_acquire acquire;
    const nb::object bytes = give(location);
    return bytes.is_none() ? nullptr : BufferOf(bytes);
  };
}

// As OnnxImportOptions; `initializers` are arrays by name.
struct ImportArguments {
  bool strict;
  nb::handle external;
  bool separate_dims;
  std::vector<std::string> initializers_as_inputs;
  nb::dict initializers;
};

OnnxImportOptions OptionsOf(const ImportArguments& arguments) {
  OnnxImportOptions options{.strict = arguments.strict,
                            .separate_dims = arguments.separate_dims,
                            .initializers_as_inputs = arguments.initializers_as_inputs,
                            .external = ExternalData(arguments.external)};
  for (const auto& [key, value] : arguments.initializers) {
    const auto name = nb::cast<std::string>(key);
    ArrayInput array(value, ElementType::kUndefined, StrCat("initializer '", name, "'"));
    options.initializers.emplace_back(name, std::move(array).ToTensor());
  }
  return options;
}

template <class Import>
ModelHandle LoadWith(const std::string& name, const ImportArguments& arguments, Import import) {
  ModelHandle model{.holder = nullptr, .name = name};
  OnnxImportOptions options = OptionsOf(arguments);
  WithoutLock([&] {
    model.warnings.clear();
    options.warn = [&](const Error& warning) { model.warnings.push_back(warning); };
    auto context = NewContext();
    Program program =
        WhileDoing(StrCat("loading ", name), [&] { return import(*context, options); });
    VerifyOrThrow(program);
    model.holder = std::make_shared<ProgramHolder>(std::move(context), std::move(program));
  });
  return model;
}

ModelHandle LoadPath(const std::string& path, const ImportArguments& arguments) {
  return LoadWith(path, arguments, [&](IrContext& context, const OnnxImportOptions& onnx) {
    return LoadModel(context, path, onnx);
  });
}

ModelHandle LoadBytes(nb::handle bytes, const ImportArguments& arguments) {
  const std::shared_ptr<Buffer> buffer = BufferOf(bytes);
  const std::string name = "model in memory";
  return LoadWith(name, arguments, [&](IrContext& context, const OnnxImportOptions& onnx) {
    return ImportOnnx(context, buffer, name, "", onnx);
  });
}

nb::dict MetadataDict(const ModelHandle& model) {
  nb::dict dict;
  const ReadLock lock(*model.holder);
  for (const auto& [name, value] : MetadataOf(model.holder->program())) {
    dict[nb::str(name.c_str(), name.size())] = nb::str(value.c_str(), value.size());
  }
  return dict;
}

std::vector<std::pair<std::string, std::string>> Warnings(const ModelHandle& model) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const Error& w : model.warnings) {
    texts.emplace_back(w.id(),
                       w.where().empty() ? w.message() : StrCat(w.where(), ": ", w.message()));
  }
  return texts;
}

using State = std::tuple<std::shared_ptr<ProgramHolder>, std::string,
                         std::vector<std::pair<std::string, std::string>>>;

void MakeOfState(ModelHandle& self, const State& state) {
  const auto& [holder, name, warnings] = state;
  auto* model = new (&self) ModelHandle{.holder = holder, .name = name};
  for (const auto& [id, text] : warnings) {
    model->warnings.emplace_back(ErrorCode::kInvalidArgument, id, text);
  }
}

const Operation* FeedNamed(const Program& program, const std::string& name) {
  std::vector<std::string> names;
  for (const Operation* op : program.feeds()) {
    names.emplace_back(op->attribute("name").cast<StrAttribute>().value());
    if (names.back() == name) return op;
  }
  Error error(ErrorCode::kNotFound, "run/input-name",
              StrCat("the model has no input '", name, "'"));
  if (const std::string hint = DidYouMean(name, names); !hint.empty()) error.Hint(hint);
  throw error;
}

nb::object ReadInput(const ModelHandle& model, const std::string& name, nb::handle path,
                     const std::string& normalize) {
  const auto file = PathOf(path);
  const RtValue value = WithoutLock([&] {
    const ReadLock lock(*model.holder, Gil::kReleased);
    const Operation* feed = FeedNamed(model.holder->program(), name);
    return LoadInput(name, file, feed->result(0).type(), ImageOptions::Named(normalize)).value;
  });
  return ObjectOf(value);
}

nb::dict RandomInputs(const ModelHandle& model, uint64_t seed,
                      const std::map<std::string, int64_t>& dims) {
  nb::dict inputs;
  const std::vector<Dim::Binding> bindings(dims.begin(), dims.end());
  uint64_t stream = 0;
  const ReadLock lock(*model.holder);
  for (const Operation* op : model.holder->program().feeds()) {
    const RtValue value = RandomInput(op->result(0).type(), bindings, seed, stream++);
    inputs[nb::cast(op->attribute("name").cast<StrAttribute>().value())] = ObjectOf(value);
  }
  return inputs;
}

}  // namespace

namespace {

// Contexts that live, for those who meet one without its owner.
struct Living {
  std::mutex mutex;
  std::unordered_map<const IrContext*, std::weak_ptr<IrContext>> contexts;
};
// Never freed: contexts may die when the process ends.
Living& TheLiving() {
  static auto* living = new Living;
  return *living;
}

void Forget(IrContext* context) {
  {
    const std::lock_guard lock(TheLiving().mutex);
    TheLiving().contexts.erase(context);
  }
  delete context;
}

}  // namespace

std::shared_ptr<IrContext> NewContext() {
  std::shared_ptr<IrContext> context(new IrContext, Forget);
  LoadAllDialects(*context);
  LoadPythonOps(*context);
  const std::lock_guard lock(TheLiving().mutex);
  TheLiving().contexts[context.get()] = context;
  return context;
}

std::shared_ptr<IrContext> OwnerOf(const IrContext& context) {
  const std::lock_guard lock(TheLiving().mutex);
  const auto at = TheLiving().contexts.find(&context);
  LATHE_CHECK(at != TheLiving().contexts.end(), "the context is none of the package's");
  return at->second.lock();
}

namespace {

struct Shared {
  std::mutex mutex;
  std::shared_ptr<IrContext> context;
};
Shared& TheShared() {
  static Shared shared;
  return shared;
}

}  // namespace

std::shared_ptr<IrContext> SharedContext() {
  const std::lock_guard lock(TheShared().mutex);
  if (TheShared().context == nullptr) TheShared().context = NewContext();
  return TheShared().context;
}

void RenewSharedContext() {
  const std::lock_guard lock(TheShared().mutex);
  TheShared().context = nullptr;
}

ProgramHolder::ProgramHolder() : context(NewContext()), own(*context) {}

namespace {

void CheckUsable(const ProgramHolder& holder) {
  if (!holder.ended) return;
  throw Error(ErrorCode::kInvalidArgument, "program/changed",
              "the function that the program was lent to has ended");
}

void CheckNotWriting(const ProgramHolder& holder) {
  if (holder.writer.load() != std::this_thread::get_id()) return;
  throw Error(ErrorCode::kInvalidArgument, "program/busy",
              "the program is being changed by the operation that called this function");
}

template <class Lock>
Lock Locked(const ProgramHolder& holder, Gil gil) {
  CheckNotWriting(holder);
  Lock lock(holder.mutex, std::try_to_lock);
  if (!lock.owns_lock() && gil == Gil::kReleased) lock.lock();
  if (!lock.owns_lock()) {
    const nb::gil_scoped_release release;
    lock.lock();
  }
  CheckUsable(holder);
  return lock;
}

}  // namespace

ReadLock::ReadLock(const ProgramHolder& holder, Gil gil)
    : lock_(Locked<std::shared_lock<std::shared_mutex>>(holder, gil)) {}

WriteLock::WriteLock(const ProgramHolder& holder, Gil gil)
    : holder_(holder), lock_(Locked<std::unique_lock<std::shared_mutex>>(holder, gil)) {
  holder_.writer = std::this_thread::get_id();
}

Program CloneOf(const ProgramHolder& holder, Gil gil) {
  const ReadLock lock(holder, gil);
  return holder.program().Clone();
}

Program SpecializedCopy(const ProgramHolder& holder, const std::map<std::string, int64_t>& dims) {
  Program program = CloneOf(holder, Gil::kReleased);
  if (!dims.empty()) SpecializeShapes(program, {.symbols = {dims.begin(), dims.end()}});
  return program;
}

void BindModel(nb::module_& m) {
  nb::class_<ModelHandle>(m, "Model",
                          "A program with its weights, as a file gives it; see lathe.load.")
      .def(
          "__init__",
          [](ModelHandle* self, nb::handle source, bool strict, nb::handle external,
             bool separate_dims, const std::vector<std::string>& initializers_as_inputs,
             const nb::dict& initializers) {
            const ImportArguments arguments{strict, external, separate_dims, initializers_as_inputs,
                                            initializers};
            new (self) ModelHandle(nb::isinstance<nb::str>(source)
                                       ? LoadPath(nb::cast<std::string>(source), arguments)
                                       : LoadBytes(source, arguments));
          },
          nb::arg("source"), nb::kw_only(), nb::arg("strict") = false,
          nb::arg("external_data").none() = nb::none(), nb::arg("separate_dims") = false,
          nb::arg("initializers_as_inputs") = std::vector<std::string>(),
          nb::arg("initializers") = nb::dict(),
          nb::sig(
              "def __init__(self, source: str | bytes | bytearray | memoryview, *, strict: bool = "
              "False, external_data: collections.abc.Callable[[str], typing.Any] | None = None, "
              "separate_dims: bool = False, initializers_as_inputs: "
              "collections.abc.Sequence[str] = ..., initializers: dict[str, typing.Any] = ...) -> "
              "None"),
          "A path, or the bytes of an ONNX model, which are not copied.\n\nseparate_dims: sizes "
          "that inputs give one name need not be one. initializers_as_inputs: inputs that have an "
          "initializer and are to be inputs all the same. initializers: arrays to take for "
          "initializers.")
      .def_prop_ro(
          "inputs",
          [](const ModelHandle& model) {
            const ReadLock lock(*model.holder);
            return InputsOf(model.holder->program());
          },
          "In the order of the program.")
      .def_prop_ro(
          "outputs",
          [](const ModelHandle& model) {
            const ReadLock lock(*model.holder);
            return OutputsOf(model.holder->program());
          },
          "In the order of the program.")
      .def_prop_ro("metadata", MetadataDict, nb::sig("def metadata(self) -> dict[str, str]"),
                   "What the model says of itself: producer_name, doc_string, metadata_props.KEY, "
                   "...")
      .def_ro("name", &ModelHandle::name, "The path that it was loaded from.")
      .def_ro("program", &ModelHandle::holder,
              "The program; what passes change there, they change in the model.")
      .def(
          "read_input", ReadInput, nb::arg("name"), nb::arg("path"), nb::kw_only(),
          nb::arg("normalize") = "unit",
          nb::sig("def read_input(self, name: str, path: str | os.PathLike[str], *, normalize: str "
                  "= 'unit') -> typing.Any"),
          "An input from a file: .npy, .npz, .pb, or a picture (.png, .jpg), scaled to the height "
          "and width of the input and cropped in the middle. `normalize` is of pictures: 'unit' (v "
          "/ 255), 'imagenet', 'signed' (v / 127.5 - 1) or 'raw'. Raises NotFoundError, "
          "MissingFileError, ParseError.")
      .def("random_inputs", RandomInputs, nb::arg("seed") = 0, nb::kw_only(),
           nb::arg("dims") = std::map<std::string, int64_t>(),
           nb::sig("def random_inputs(self, seed: int = 0, *, dims: collections.abc.Mapping[str, "
                   "int] = ...) -> dict[str, typing.Any]"),
           "Inputs to try the model with, by name; symbolic dims are what `dims` says, else 1. "
           "Integers are 0 and 1, so that they index any table.")
      .def_prop_ro("warnings", Warnings,
                   "What the file says and does not hold: (id, message). Logged by lathe.load.")
      .def(
          "__getstate__",
          [](const ModelHandle& model) { return State(model.holder, model.name, Warnings(model)); })
      .def("__setstate__", MakeOfState)
      .def("__repr__",
           [](const ModelHandle& model) { return StrCat("<lathe.Model ", model.name, ">"); });
}

}  // namespace lathe::python
