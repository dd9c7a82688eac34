#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>

#include "lathe/driver/model_file.h"
#include "lathe/driver/pass_report.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/file.h"
#include "lathe/support/safetensors.h"
#include "lathe/transform/keep_constraints.h"
#include "python/src/attributes.h"
#include "python/src/interrupts.h"
#include "python/src/lent.h"
#include "python/src/model.h"
#include "python/src/ports.h"
#include "python/src/values.h"
#include "python/src/views.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// Who lends a program holds on to its blocks.
void CheckOwn(const ProgramHolder& holder) {
  if (holder.lent == nullptr) return;
  throw Error(ErrorCode::kInvalidArgument, "program/lent",
              "passes cannot run on the program of a pass that runs")
      .Hint("run them before or after it, or on program.clone()");
}

}  // namespace

void ChangeCopy(const Holder& holder, const std::function<void(Program&)>& change) {
  // Freed with the interpreter's lock, which those have who look at operations of it.
  std::unique_ptr<Program> copy;
  WithoutLock([&] {
    uint64_t version = 0;
    {
      const ReadLock reading(*holder, Gil::kReleased);
      version = holder->version;
      copy = std::make_unique<Program>(holder->program().Clone());
    }
    change(*copy);
    const WriteLock writing(*holder, Gil::kReleased);
    CheckOwn(*holder);
    if (holder->version != version) {
      throw Error(ErrorCode::kInvalidArgument, "program/changed",
                  "another thread has changed the program");
    }
    std::swap(holder->own, *copy);
    Replaced(*holder);
  });
}

namespace {

// All operations, those in regions behind the one that holds them.
std::vector<OpView> OperationsIn(const Holder& holder, Block* block) {
  std::vector<OpView> all;
  for (OpWalker w(block); Operation* op = w.Next();) all.push_back(ViewOf(holder, op));
  return all;
}

std::vector<OpView> OperationsOf(const Holder& holder) {
  const ReadLock lock(*holder);
  return OperationsIn(holder, holder->program().block());
}

std::string TextOf(const Holder& holder, bool locations) {
  const ReadLock lock(*holder);
  return Print(holder->program(), {.locations = locations});
}

Holder Parse(const std::string& text, const std::string& name) {
  return WithoutLock([&] {
    auto holder = std::make_shared<ProgramHolder>();
    holder->program() = ParseProgram(*holder->context, text, {.file_name = name});
    VerifyOrThrow(holder->program());
    return holder;
  });
}

Holder Cloned(const Holder& holder) {
  return std::make_shared<ProgramHolder>(holder->context, CloneOf(*holder, Gil::kHeld));
}

void RunPasses(const Holder& holder, const std::string& pipeline, int level, bool verify_each,
               const std::vector<std::string>& disable, const std::vector<std::string>& enable) {
  ChangeCopy(holder, [&](Program& program) {
    PassManager manager(
        {.verify_each = verify_each, .disabled = disable, .level = level, .enabled = enable});
    manager.Add(pipeline);
    const auto kept = std::make_shared<KeptConstraints>(program);
    manager.AddInstrumentation(kept);
    manager.Run(program);
    VerifyOrThrow(program, {.after = pipeline});
    kept->Finish(program);
    kept->State(program);
  });
}

nb::bytes ToOnnx(const Holder& holder, nb::handle path) {
  const std::string file = path.is_none() ? "" : PathOf(path);
  const std::string bytes = WithoutLock([&] {
    const ReadLock lock(*holder, Gil::kReleased);
    if (file.empty()) return SerializeOnnx(holder->program());
    ExportOnnx(holder->program(), file);
    return ReadFile(file);
  });
  return nb::bytes(bytes.data(), bytes.size());
}

void Save(const Holder& holder, nb::handle path) {
  const std::string file = PathOf(path);
  WithoutLock([&] {
    const ReadLock lock(*holder, Gil::kReleased);
    SaveModel(holder->program(), file);
  });
}

// What a pickle holds: the text of a program, and its parameters as safetensors.
using State = std::pair<nb::bytes, nb::bytes>;

State StateOf(const Holder& holder) {
  std::string text, weights;
  WithoutLock([&] {
    const ReadLock lock(*holder, Gil::kReleased);
    SafeTensors parameters;
    for (const auto& [name, variable] : holder->program().parameters()) {
      parameters.tensors.emplace_back(name.value(), variable.data);
    }
    text = Print(holder->program());
    weights = SerializeSafeTensors(parameters);
  });
  return {nb::bytes(text.data(), text.size()), nb::bytes(weights.data(), weights.size())};
}

void MakeOfState(ProgramHolder& self, const State& state) {
  const std::string_view text(state.first.c_str(), state.first.size());
  const std::shared_ptr<Buffer> weights = BufferOf(state.second);
  WithoutLock([&] {
    auto context = NewContext();
    Program program =
        ParseProgram(*context, text, {.file_name = "pickle", .file_locations = false});
    for (auto& [name, tensor] : ParseSafeTensors(weights, "pickle").tensors) {
      program.parameters().Insert(StrAttribute::Get(*context, name), {std::move(tensor), false});
    }
    program.RefreshMutability();
    VerifyOrThrow(program);
    new (&self) ProgramHolder(std::move(context), std::move(program));
  });
}

nb::dict Attributes(const OpView& op) {
  nb::dict dict;
  const auto reading = op.get();
  for (const NamedAttribute& entry : reading.item->attributes().entries()) {
    dict[nb::cast(entry.name.value())] = AttributeObject(entry.value);
  }
  return dict;
}

std::vector<std::optional<ValueView>> Operands(const OpView& op) {
  std::vector<std::optional<ValueView>> values;
  const auto reading = op.get();
  for (size_t i = 0; i < reading.item->num_operands(); ++i) {
    const Value value = reading.item->operand(i);
    values.push_back(value ? std::optional(ViewOf(op.holder, value)) : std::nullopt);
  }
  return values;
}

std::vector<ValueView> Results(const OpView& op) {
  std::vector<ValueView> values;
  const auto reading = op.get();
  for (size_t i = 0; i < reading.item->num_results(); ++i) {
    values.push_back(ViewOf(op.holder, reading.item->result(i)));
  }
  return values;
}

std::vector<std::vector<OpView>> Regions(const OpView& op) {
  std::vector<std::vector<OpView>> regions;
  const auto reading = op.get();
  for (const Region& region : reading.item->regions()) {
    regions.emplace_back();
    for (const Block& block : region) {
      for (Operation& inner : block) regions.back().push_back(ViewOf(op.holder, &inner));
    }
  }
  return regions;
}

nb::object ShapeOf(const ValueView& value) {
  const auto reading = value.get();
  const auto tensor = TensorOrNull(reading.item);
  if (!tensor || !tensor.has_rank()) return nb::none();
  nb::list shape;
  for (const Dim& dim : tensor.dims()) shape.append(DimObject(dim));
  return nb::tuple(shape);
}

std::string DtypeOf(const ValueView& value) {
  const auto reading = value.get();
  const auto tensor = TensorOrNull(reading.item);
  return tensor ? DtypeName(tensor.element()) : "";
}

std::optional<OpView> Producer(const ValueView& value) {
  const auto reading = value.get();
  Operation* op = reading.item.defining_op();
  return op == nullptr ? std::nullopt : std::optional(ViewOf(value.holder, op));
}

Holder ProgramOf(const ValueView& value) {
  if (!value.holder->hidden) return value.holder;
  throw Error(ErrorCode::kInvalidArgument, "program/lent",
              "the operation is lent to be looked at, without its program");
}

std::vector<OpView> Users(const ValueView& value) {
  std::vector<OpView> users;
  const auto reading = value.get();
  for (const OpOperand use : reading.item.uses()) {
    users.push_back(ViewOf(value.holder, use.owner()));
  }
  std::ranges::reverse(users);  // oldest first
  return users;
}

nb::dict Parameters(const Holder& holder) {
  nb::dict dict;
  const ReadLock lock(*holder);
  for (const ParameterMap::Entry& entry : holder->program().parameters()) {
    dict[nb::cast(entry.name.value())] = ObjectOf(RtValue(entry.variable.data));
  }
  return dict;
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '"' ? "&quot;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

// For notebooks: the graph as the reports of passes draw it, in a frame of its own.
std::string Html(const Holder& holder) {
  const std::string page = WithoutLock([&] {
    Program program = CloneOf(*holder, Gil::kReleased);
    PassReport report("program");
    const std::unique_ptr<Pass> none = PassRegistry::Global().Make("canonicalize");
    report.BeforePass(*none, program);
    report.AfterPass(*none, program);
    return report.ToHtml();
  });
  return StrCat("<iframe width=\"100%\" height=\"600\" srcdoc=\"", Escaped(page), "\"></iframe>");
}

std::vector<PassEntry> ListPasses() {
  std::vector<PassEntry> all = PassEntries();
  for (const NamedPipeline& p : NamedPipelines()) all.push_back({p.name, p.doc});
  return all;
}

void BindOperation(nb::module_& m) {
  nb::class_<OpView>(m, "Operation",
                     "An operation of a program; valid until the program is changed.")
      .def_prop_ro(
          "name", [](const OpView& op) { return std::string(op.get().item->name()); },
          "Such as 'nn.conv'.")
      .def_prop_ro("attributes", Attributes,
                   nb::sig("def attributes(self) -> dict[str, typing.Any]"),
                   "By name: bool, int, float, str, arrays, lists of these; others as text.")
      .def_prop_ro("operands", Operands, "Values, or None for absent optional ones.")
      .def_prop_ro("results", Results, "Values that it defines.")
      .def_prop_ro("regions", Regions, "Of each region its operations; [] for most.")
      .def_prop_ro(
          "location",
          [](const OpView& op) { return op.get().item->location().ToString(*op.holder->context); },
          "Where it comes from: a node of a file, or a line of text.")
      .def(
          "__eq__", [](const OpView& a, const OpView& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const OpView& op) { return std::hash<const void*>()(op.item); })
      .def("__repr__",
           [](const OpView& op) {
             return StrCat("<lathe.Operation ", op.get().item->ToString(), ">");
           })
      .def("__str__", [](const OpView& op) { return op.get().item->ToString(); });
  nb::class_<ValueView> value(m, "Value",
                              "What an operation computes; valid until the program is changed. "
                              "`x + 1`, `x @ w` and so on build operations of nn.");
  BindArithmetic(value);
  value
      .def_prop_ro(
          "type", [](const ValueView& v) { return v.get().item.type().ToString(); },
          "As the text of programs has it.")
      .def_prop_ro("dtype", DtypeOf, "Of a tensor, as Port.dtype; else ''.")
      .def_prop_ro("shape", ShapeOf,
                   nb::sig("def shape(self) -> tuple[int | str | None, ...] | None"),
                   "Of a tensor, as Port.shape.")
      .def_prop_ro("producer", Producer, "The operation; None for an argument of a region.")
      .def_prop_ro("program", ProgramOf, "The program that it is of.")
      .def_prop_ro("users", Users, "Operations that read it; twice if they do twice.")
      .def(
          "__eq__", [](const ValueView& a, const ValueView& b) { return a == b; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const ValueView& v) { return std::hash<Value>()(v.item); })
      .def("__repr__", [](const ValueView& v) {
        return StrCat("<lathe.Value ", v.get().item.type().ToString(), ">");
      });
}

}  // namespace

void BindProgram(nb::module_& m) {
  BindOperation(m);
  nb::class_<ProgramHolder> program(m, "Program",
                                    "A graph of operations with its weights. Any number of threads "
                                    "may read it while none changes "
                                    "it.");
  BindBuild(m, program);
  program.def(nb::init<>(), "An empty one; input, output, parameter and operators build it.")
      .def_static("parse", Parse, nb::arg("text"), nb::arg("name") = "<text>",
                  "The program of a text. Raises ParseError, VerifyError, ShapeError.")
      .def("to_text", TextOf, nb::kw_only(), nb::arg("locations") = false,
           "The text, which parse reads; weights are named, not contained.")
      .def("__str__", [](const Holder& holder) { return TextOf(holder, false); })
      .def("__repr__",
           [](const Holder& holder) {
             return StrCat("<lathe.Program of ", OperationsOf(holder).size(), " operations>");
           })
      .def("__len__", [](const Holder& holder) { return OperationsOf(holder).size(); })
      .def(
          "__iter__", [](const Holder& holder) { return nb::iter(nb::cast(OperationsOf(holder))); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[Operation]"))
      .def_prop_ro("operations", OperationsOf,
                   "In program order; those in regions behind the one that holds them.")
      .def_prop_ro("parameters", Parameters,
                   nb::sig("def parameters(self) -> dict[str, numpy.typing.NDArray[typing.Any]]"),
                   "Copies of the weights by name.")
      .def("clone", Cloned, "A copy that shares the weights.")
      .def("__copy__", Cloned)
      .def(
          "__deepcopy__", [](const Holder& holder, nb::handle) { return Cloned(holder); },
          nb::arg("memo"), nb::sig("def __deepcopy__(self, memo: typing.Any) -> Program"))
      .def("__getstate__", StateOf)
      .def("__setstate__", MakeOfState)
      .def("run_passes", RunPasses, nb::arg("pipeline"), nb::kw_only(), nb::arg("level") = 2,
           nb::arg("verify_each") = false, nb::arg("disable") = std::vector<std::string>(),
           nb::arg("enable") = std::vector<std::string>(),
           "Runs passes and named pipelines, such as 'canonicalize,cse' or 'inference', in place; "
           "see list_passes. On an error the program is as before.")
      .def("save", Save, nb::arg("path"),
           nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
           "Writes .onnx, or .lathe: text, with the weights beside it in "
           "'<path>.weights.safetensors'; lathe.load reads both. Raises InvalidArgumentError "
           "(another "
           "ending), UnsupportedError, FileError.")
      .def("to_onnx", ToOnnx, nb::arg("path").none() = nb::none(),
           nb::sig("def to_onnx(self, path: str | os.PathLike[str] | None = None) -> bytes"),
           "The bytes of an ONNX model, which are written to `path`, too; weights that do not fit "
           "are beside it then. Raises UnsupportedError, with each op that has no counterpart.")
      .def("_repr_html_", Html);
  nb::class_<PassEntry>(m, "PassInfo", "A pass or a named pipeline.")
      .def_ro("name", &PassEntry::name)
      .def_ro("doc", &PassEntry::doc)
      .def("__repr__", [](const PassEntry& p) { return StrCat("<lathe.PassInfo ", p.name, ">"); });
  m.def("list_passes", ListPasses, "All passes, then all named pipelines.");
}

}  // namespace lathe::python
