#include "python/src/model.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "lathe/dialect/all.h"
#include "lathe/driver/model_file.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/metadata.h"
#include "lathe/ir/verify.h"
#include "python/src/interrupts.h"
#include "python/src/ports.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

std::shared_ptr<IrContext> NewContext() {
  auto context = std::make_shared<IrContext>();
  LoadAllDialects(*context);
  return context;
}

// A callable that gives the bytes of external data, or None.
std::function<std::shared_ptr<Buffer>(const std::string&)> ExternalData(nb::handle give) {
  if (give.is_none()) return nullptr;
  return [give](const std::string& location) -> std::shared_ptr<Buffer> {
    const nb::gil_scoped_acquire acquire;
    const nb::object bytes = give(location);
    return bytes.is_none() ? nullptr : BufferOf(bytes);
  };
}

template <class Import>
ModelHandle LoadWith(const std::string& name, bool strict, nb::handle external, Import import) {
  ModelHandle model{.holder = nullptr, .name = name};
  OnnxImportOptions options{.strict = strict, .external = ExternalData(external)};
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

ModelHandle LoadPath(const std::string& path, bool strict, nb::handle external) {
  return LoadWith(path, strict, external, [&](IrContext& context, const OnnxImportOptions& onnx) {
    return LoadModel(context, path, onnx);
  });
}

ModelHandle LoadBytes(nb::handle bytes, bool strict, nb::handle external) {
  const std::shared_ptr<Buffer> buffer = BufferOf(bytes);
  const std::string name = "model in memory";
  return LoadWith(name, strict, external, [&](IrContext& context, const OnnxImportOptions& onnx) {
    return ImportOnnx(context, buffer, name, "", onnx);
  });
}

nb::dict MetadataDict(const ModelHandle& model) {
  nb::dict dict;
  const std::shared_lock lock(model.holder->mutex);
  for (const auto& [name, value] : MetadataOf(model.holder->program)) {
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

}  // namespace

ProgramHolder::ProgramHolder() : context(NewContext()), program(*context) {}

void BindModel(nb::module_& m) {
  nb::class_<ModelHandle>(m, "Model",
                          "A program with its weights, as a file gives it; see lathe.load.")
      .def(
          "__init__",
          [](ModelHandle* self, nb::handle source, bool strict, nb::handle external) {
            new (self) ModelHandle(nb::isinstance<nb::str>(source)
                                       ? LoadPath(nb::cast<std::string>(source), strict, external)
                                       : LoadBytes(source, strict, external));
          },
          nb::arg("source"), nb::kw_only(), nb::arg("strict") = false,
          nb::arg("external_data").none() = nb::none(),
          nb::sig(
              "def __init__(self, source: str | collections.abc.Buffer, *, strict: bool = False, "
              "external_data: collections.abc.Callable[[str], collections.abc.Buffer | None] | "
              "None = None) -> None"),
          "A path, or the bytes of an ONNX model, which are not copied.")
      .def_prop_ro(
          "inputs",
          [](const ModelHandle& model) {
            const std::shared_lock lock(model.holder->mutex);
            return InputsOf(model.holder->program);
          },
          "In the order of the program.")
      .def_prop_ro(
          "outputs",
          [](const ModelHandle& model) {
            const std::shared_lock lock(model.holder->mutex);
            return OutputsOf(model.holder->program);
          },
          "In the order of the program.")
      .def_prop_ro("metadata", MetadataDict, nb::sig("def metadata(self) -> dict[str, str]"),
                   "What the model says of itself: producer_name, doc_string, metadata_props.KEY, "
                   "...")
      .def_ro("name", &ModelHandle::name, "The path that it was loaded from.")
      .def_ro("program", &ModelHandle::holder,
              "The program; what passes change there, they change in the model.")
      .def_prop_ro("warnings", Warnings,
                   "What the file says and does not hold: (id, message). Logged by lathe.load.")
      .def("__repr__",
           [](const ModelHandle& model) { return StrCat("<lathe.Model ", model.name, ">"); });
}

}  // namespace lathe::python
