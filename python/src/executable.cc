#include "lathe/driver/executable.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>

#include "lathe/pass/pass_manager.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/processors.h"
#include "python/src/interrupts.h"
#include "python/src/model.h"
#include "python/src/named_values.h"
#include "python/src/numpy.h"
#include "python/src/ports.h"
#include "python/src/reports.h"
#include "python/src/timeouts.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

struct ExecutableHandle {
  ExecutableHandle(Executable e, std::vector<PortInfo> in, std::vector<PortInfo> out, int n);

  Executable executable;
  std::vector<PortInfo> inputs, outputs;
  std::vector<nb::object> input_names, output_names;  // interned
  /// Runs on the memory of arrays; otherwise on tensors by name.
  bool on_arrays;
  int threads;
};

// A Python string that dictionaries find without comparing.
nb::object Interned(const std::string& text) {
  PyObject* name = PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  PyUnicode_InternInPlace(&name);
  return nb::steal(name);
}

std::vector<nb::object> NamesOf(const std::vector<PortInfo>& ports) {
  std::vector<nb::object> names;
  for (const PortInfo& port : ports) names.push_back(Interned(port.name));
  return names;
}

bool LiesInArrays(const PortInfo& port) {
  return port.kind == "tensor" && port.element != ElementType::kUndefined &&
         port.element != ElementType::kString && !IsSubByte(port.element);
}

ExecutableHandle::ExecutableHandle(Executable e, std::vector<PortInfo> in,
                                   std::vector<PortInfo> out, int n)
    : executable(std::move(e)),
      inputs(std::move(in)),
      outputs(std::move(out)),
      input_names(NamesOf(inputs)),
      output_names(NamesOf(outputs)),
      on_arrays(executable.executor() != nullptr && std::ranges::all_of(inputs, LiesInArrays) &&
                std::ranges::all_of(outputs, LiesInArrays)),
      threads(n > 0 ? n : UsableCores()) {}

// A misspelled pass would have no effect, silently.
void CheckPassNames(const CompileOptions& options) {
  for (const auto* names : {&options.disabled, &options.enabled}) {
    for (const std::string& name : *names) {
      if (name != kFastMath) (void)PassRegistry::Global().Find(name);
    }
  }
}

void Compile(ExecutableHandle* self, const std::shared_ptr<ProgramHolder>& holder,
             const CompileOptions& options, const std::map<std::string, int64_t>& dims) {
  std::vector<PortInfo> inputs, outputs;
  auto executable = WithoutLock([&] {
    CheckPassNames(options);
    const Program program = SpecializedCopy(*holder, dims);
    inputs = InputsOf(program);
    outputs = OutputsOf(program);
    return std::make_unique<Executable>(program, options, holder->context);
  });
  new (self) ExecutableHandle(std::move(*executable), std::move(inputs), std::move(outputs),
                              options.threads);
}

void LoadFile(ExecutableHandle* self, const std::string& path, int threads, uint64_t max_bytes) {
  auto executable = WithoutLock([&] {
    return std::make_unique<Executable>(
        Executable::Load(path, {.threads = threads, .max_bytes = max_bytes}));
  });
  std::vector<PortInfo> inputs = PortsOf(executable->inputs());
  std::vector<PortInfo> outputs = PortsOf(executable->outputs());
  new (self)
      ExecutableHandle(std::move(*executable), std::move(inputs), std::move(outputs), threads);
}

// What a dictionary has under a key; null if it has nothing.
nb::object ItemOf(const nb::dict& dict, const nb::object& key) {
#ifdef Py_GIL_DISABLED  // another thread may change it meanwhile
  PyObject* item = nullptr;
  if (PyDict_GetItemRef(dict.ptr(), key.ptr(), &item) < 0) throw nb::python_error();
  return nb::steal(item);
#else
  return nb::borrow(PyDict_GetItemWithError(dict.ptr(), key.ptr()));
#endif
}

// One run: arguments by port, in order.
class Call {
 public:
  Call(const ExecutableHandle& e, const runtime::RunOptions& options, nb::handle given_outputs)
      : e_(e), options_(options), given_(e.outputs.size()) {
    if (!given_outputs.is_none()) TakeOutputs(given_outputs);
  }

  /// In order; a null one is missing.
  std::vector<nb::object> Run(std::span<const nb::object> arguments) {
    is_torch_ = !arguments.empty() && std::ranges::all_of(arguments, IsTorchArgument);
    return e_.on_arrays ? RunOnArrays(arguments) : RunOnValues(arguments);
  }

 private:
  static bool IsTorchArgument(nb::handle argument) {
    return argument.is_valid() && !IsArray(argument) && IsTorch(argument);
  }

  void TakeOutputs(nb::handle outputs) {
    size_t taken = 0;
    const auto dict = nb::borrow<nb::dict>(outputs);
    for (size_t i = 0; i < e_.outputs.size(); ++i) {
      given_[i] = ItemOf(dict, e_.output_names[i]);
      taken += given_[i].is_valid() ? 1 : 0;
    }
    if (taken < dict.size()) throw UnknownOutput(dict);
  }

  Error UnknownOutput(const nb::dict& dict) const {
    std::vector<std::string> names;
    for (const PortInfo& port : e_.outputs) names.push_back(port.name);
    for (const auto& [key, value] : dict) {
      const auto name = nb::cast<std::string>(nb::str(key));
      if (std::ranges::find(names, name) != names.end()) continue;
      Error error(ErrorCode::kNotFound, "run/output-name",
                  StrCat("the program has no output '", name, "'"));
      if (const std::string hint = DidYouMean(name, names); !hint.empty()) error.Hint(hint);
      return error;
    }
    return {ErrorCode::kInvalidArgument, "run/output-name", "an output is named twice"};
  }

  std::string OutputName(size_t i) const { return StrCat("output '", e_.outputs[i].name, "'"); }

  std::vector<nb::object> RunOnArrays(std::span<const nb::object> arguments) {
    std::vector<ArrayInput> inputs;
    std::vector<runtime::InputView> views;
    inputs.reserve(arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      inputs.emplace_back(arguments[i], e_.inputs[i].element, InputName(e_.inputs[i]));
      views.push_back(inputs.back().view());
    }
    results_.resize(e_.outputs.size());
    const runtime::OutputMemory memory = [this](size_t i, std::span<const int64_t> shape,
                                                uint64_t) { return MemoryFor(i, shape); };
    WithoutLock([&] { e_.executable.executor()->RunInto(views, memory, options_); });
    for (size_t i = 0; i < results_.size(); ++i) {
      if (given_[i].is_valid()) continue;
      results_[i] = is_torch_ ? ToTorch(results_[i], i)
                              : Shown(std::move(results_[i]), e_.outputs[i].element);
    }
    return std::move(results_);
  }

  runtime::OutputView MemoryFor(size_t i, std::span<const int64_t> shape) {
    const nb::gil_scoped_acquire acquire;
    const ElementType element = e_.outputs[i].element;
    if (given_[i].is_valid()) {
      results_[i] = given_[i];
      return MemoryOf(given_[i], element, shape, OutputName(i));
    }
    results_[i] = EmptyArray(element, shape);
    return MemoryOf(results_[i]);
  }

  nb::object ToTorch(nb::handle array, size_t i) const {
    return nb::module_::import_("lathe._torch")
        .attr("tensor_of")(array, DtypeName(e_.outputs[i].element));
  }

  std::vector<nb::object> RunOnValues(std::span<const nb::object> arguments) {
    NamedValues values;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const PortInfo& port = e_.inputs[i];
      values.emplace_back(port.name,
                          ValueOf(arguments[i], port.element, port.is_list(), InputName(port)));
    }
    const NamedValues outputs = WithoutLock([&] { return e_.executable.Run(values, options_); });
    std::vector<nb::object> results;
    for (size_t i = 0; i < e_.outputs.size(); ++i) {
      const RtValue& value = outputs[i].second;
      nb::object result = ObjectOf(value);
      if (given_[i].is_valid()) {
        const Tensor& tensor = value.tensor();
        (void)MemoryOf(given_[i], tensor.element_type(), tensor.shape(), OutputName(i));
        given_[i][nb::ellipsis()] = IsTorch(given_[i]) ? ToTorch(result, i) : result;
        result = given_[i];
      } else if (is_torch_ && value.is_tensor() && e_.outputs[i].element != ElementType::kString) {
        result = ToTorch(result, i);
      }
      results.push_back(std::move(result));
    }
    return results;
  }

  const ExecutableHandle& e_;
  const runtime::RunOptions& options_;
  std::vector<nb::object> given_, results_;  // by output
  bool is_torch_ = false;
};

// Raises what is wrong with the names of inputs.
[[noreturn]] void ThrowMismatch(const ExecutableHandle& e, const nb::dict& given) {
  (void)e.executable.Run(ValuesFor(e.inputs, given));
  LATHE_CHECK(false, "the inputs have the right names");
}

runtime::RunOptions OptionsOf(std::optional<double> timeout, const CancelToken* cancel) {
  return {.cancel = cancel, .timeout_seconds = SecondsOf(timeout)};
}

std::vector<nb::object> RunNamed(const ExecutableHandle& e, const nb::dict& given, nb::handle out,
                                 const runtime::RunOptions& options) {
  std::vector<nb::object> arguments;
  arguments.reserve(e.inputs.size());
  for (const nb::object& name : e.input_names) arguments.push_back(ItemOf(given, name));
  const bool all = std::ranges::all_of(arguments, [](const auto& a) { return a.is_valid(); });
  if (!all || given.size() != arguments.size()) ThrowMismatch(e, given);
  return Call(e, options, out).Run(arguments);
}

nb::dict Run(const ExecutableHandle& e, nb::handle inputs, nb::handle out,
             std::optional<double> timeout, const CancelToken* cancel) {
  const nb::object outputs = out.is_none() ? nb::none() : nb::object(DictOf(out, "outputs"));
  std::vector<nb::object> results =
      RunNamed(e, DictOf(inputs, "inputs"), outputs, OptionsOf(timeout, cancel));
  nb::dict named;
  for (size_t i = 0; i < results.size(); ++i) named[e.output_names[i]] = std::move(results[i]);
  return named;
}

nb::object CallWith(const ExecutableHandle& e, const nb::args& args, const nb::kwargs& kwargs) {
  if (args.size() > e.inputs.size()) {
    throw Error(ErrorCode::kInvalidArgument, "run/input-count",
                StrCat(args.size(), " inputs are given; the program has ", e.inputs.size()));
  }
  nb::dict given = nb::borrow<nb::dict>(kwargs);
  for (size_t i = 0; i < args.size(); ++i) {
    if (given.contains(e.input_names[i])) {
      throw Error(ErrorCode::kInvalidArgument, "run/input-twice",
                  StrCat("input '", e.inputs[i].name, "' is given twice"));
    }
    given[e.input_names[i]] = args[i];
  }
  std::vector<nb::object> results = RunNamed(e, given, nb::none(), {});
  if (results.size() == 1) return std::move(results[0]);
  nb::list all;
  for (nb::object& result : results) all.append(std::move(result));
  return nb::tuple(all);
}

void Save(const ExecutableHandle& e, const std::string& path) {
  WithoutLock([&] { e.executable.Save(path); });
}

struct ProfiledStep {
  std::string label, origin;
  double ms = 0;
  std::optional<double> gflop;
  double gigabytes = 0;
};

struct ProfileData {
  std::vector<ProfiledStep> steps;  ///< in the order in which they ran, means over runs
  std::string trace;
  int runs = 0;
};

ProfileData DataOf(const runtime::Profile& profile, const runtime::Plan& plan, int runs) {
  ProfileData data{.steps = {}, .trace = profile.ChromeTrace(plan), .runs = runs};
  std::map<uint32_t, size_t> row_of;
  for (const runtime::Profile::Event& event : profile.events()) {
    const runtime::PlanStep& step = plan.steps[event.step];
    const auto [at, is_new] = row_of.emplace(event.step, data.steps.size());
    if (is_new) data.steps.push_back({.label = step.label, .origin = step.origin, .gflop = 0});
    ProfiledStep& row = data.steps[at->second];
    row.ms += static_cast<double>(event.end_ns - event.begin_ns) * 1e-6 / runs;
    row.gigabytes += event.bytes * 1e-9 / runs;
    if (event.flops < 0) row.gflop.reset();
    if (row.gflop) *row.gflop += event.flops * 1e-9 / runs;
  }
  return data;
}

ProfileData Profiled(const ExecutableHandle& e, nb::handle inputs, int runs) {
  const runtime::Executor* executor = e.executable.executor();
  if (executor == nullptr) {
    Error error(ErrorCode::kUnsupported, "profile/no-plan",
                "the interpreter goes through this program, so it has no steps");
    for (const std::string& why : e.executable.obstacles()) error.Note(why);
    throw error;
  }
  if (runs < 1)
    throw Error(ErrorCode::kInvalidArgument, "profile/runs", "a profile is of at least one run");
  const nb::dict given = DictOf(inputs, "inputs");
  RunNamed(e, given, nb::none(), {});  // compulsory misses are not what runs cost
  runtime::Profile profile;
  for (int i = 0; i < runs; ++i) RunNamed(e, given, nb::none(), {.profile = &profile});
  return DataOf(profile, executor->plan(), runs);
}

std::optional<double> Billions(const Dim& work) {
  if (!work.is_constant()) return std::nullopt;
  return static_cast<double>(work.value()) * 1e-9;
}

void BindReports(nb::module_& m) {
  nb::class_<CompiledFunctionInfo>(m, "Kernel", "Operations that one kernel computes.")
      .def_ro("operations", &CompiledFunctionInfo::operations, "Such as 'conv relu'.")
      .def_ro("calls", &CompiledFunctionInfo::calls, "In the program.")
      .def_ro("strategy", &CompiledFunctionInfo::strategy,
              "What made its loops; '' if it has no machine code.")
      .def_ro("why_not", &CompiledFunctionInfo::why_not,
              "Strategy by strategy, if it has no machine code.")
      .def_ro("candidates", &CompiledFunctionInfo::candidates,
              "A line for each strategy that was asked; '' if it came from the cache.")
      .def_prop_ro(
          "gflop", [](const CompiledFunctionInfo& f) { return Billions(f.flops); },
          "Of a call; None if it depends on sizes that inputs decide.")
      .def_prop_ro(
          "gigabytes", [](const CompiledFunctionInfo& f) { return Billions(f.bytes); },
          "That a call reads and writes at least; None as of gflop.")
      .def("__repr__", [](const CompiledFunctionInfo& f) {
        return StrCat("<lathe.Kernel ", f.operations, ">");
      });
  nb::class_<ProfiledStep>(m, "ProfiledStep", "A step of a run; means over the runs.")
      .def_ro("label", &ProfiledStep::label, "Such as 'conv relu'.")
      .def_ro("origin", &ProfiledStep::origin, "Nodes of the model that it computes.")
      .def_ro("ms", &ProfiledStep::ms)
      .def_ro("gflop", &ProfiledStep::gflop, "None if it is not known.")
      .def_ro("gigabytes", &ProfiledStep::gigabytes);
  nb::class_<ProfileData>(m, "ProfileData")
      .def_ro("steps", &ProfileData::steps)
      .def_ro("trace", &ProfileData::trace)
      .def_ro("runs", &ProfileData::runs);
}

void InitFromProgram(ExecutableHandle* self, const std::shared_ptr<ProgramHolder>& program,
                     const std::string& target, int threads, int level, const std::string& cache,
                     const std::map<std::string, int64_t>& dims, bool strict, uint64_t max_bytes,
                     std::optional<double> timeout, const std::vector<std::string>& disable,
                     const std::vector<std::string>& enable, const std::string& external,
                     const std::string& records, const std::string& precision,
                     nb::handle progress) {
  Compile(self, program,
          {.target = target,
           .cache = cache,
           .level = level,
           .precision = PrecisionNamed(precision),
           .disabled = disable,
           .enabled = enable,
           .threads = threads,
           .records = records,
           .external = external,
           .strict = strict,
           .max_bytes = max_bytes,
           .timeout_seconds = SecondsOf(timeout),
           .progress = ReportTo<size_t, size_t>(progress)},
          dims);
}

}  // namespace

const Executable& ExecutableOf(nb::handle object) {
  if (!nb::isinstance<ExecutableHandle>(object)) {
    throw Error(ErrorCode::kType, "type/python", "this is not a lathe.Executable");
  }
  return nb::cast<const ExecutableHandle&>(object).executable;
}

void BindExecutable(nb::module_& m) {
  BindReports(m);
  nb::class_<CancelToken>(m, "CancelToken", "Ends a run early, from any thread.")
      .def(nb::init<>())
      .def("cancel", &CancelToken::Cancel, "Runs that have it end with CancelledError.")
      .def("reset", &CancelToken::Reset, "Takes that back, for later runs.")
      .def_prop_ro("cancelled", &CancelToken::cancelled);
  nb::class_<ExecutableHandle>(m, "Executable")
      .def("__init__", &InitFromProgram, nb::arg("program"), nb::kw_only(), nb::arg("target") = "",
           nb::arg("threads") = 0, nb::arg("level") = 2, nb::arg("cache") = "",
           nb::arg("dims") = std::map<std::string, int64_t>(), nb::arg("strict") = false,
           nb::arg("max_bytes") = 0, nb::arg("timeout").none() = nb::none(),
           nb::arg("disable") = std::vector<std::string>(),
           nb::arg("enable") = std::vector<std::string>(), nb::arg("external") = "",
           nb::arg("records") = "", nb::arg("precision") = "f32",
           nb::arg("progress").none() = nb::none())
      .def("__init__", &LoadFile, nb::arg("path"), nb::kw_only(), nb::arg("threads") = 0,
           nb::arg("max_bytes") = 0)
      .def_ro("inputs", &ExecutableHandle::inputs, "In the order of the program.")
      .def_ro("outputs", &ExecutableHandle::outputs, "In the order of the program.")
      .def_ro("threads", &ExecutableHandle::threads, "For parallel loops.")
      .def("run", Run, nb::arg("inputs"), nb::arg("out").none() = nb::none(), nb::kw_only(),
           nb::arg("timeout").none() = nb::none(), nb::arg("cancel").none() = nb::none(),
           nb::sig("def run(self, inputs: collections.abc.Mapping[str, typing.Any], out: "
                   "collections.abc.Mapping[str, typing.Any] | None = None, "
                   "*, timeout: float | None = None, cancel: CancelToken | None = None) -> "
                   "dict[str, typing.Any]"),
           "Outputs by name.\n\nAn input is whatever has __dlpack__, the buffer protocol or "
           "__array__; it is not copied if it is row-major and aligned. A list is a sequence, None "
           "an absent optional. Outputs are numpy arrays, or torch tensors if all inputs are; what "
           "`out` has of them, arrays or tensors, is written into. `timeout` is in "
           "seconds.\n\nRaises "
           "InvalidArgumentError, NotFoundError, ElementTypeError, ShapeError, which name the "
           "input; TimeLimitError, CancelledError, MemoryLimitError.")
      .def("__call__", CallWith,
           nb::sig("def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any"),
           "Inputs in order, or by name: the output, or a tuple of several.")
      .def("save", Save, nb::arg("path"))
      .def("_profile", Profiled, nb::arg("inputs"), nb::arg("runs"))
      .def_prop_ro("_kernels", [](const ExecutableHandle& e) { return e.executable.functions(); })
      .def_prop_ro("_interpreted",
                   [](const ExecutableHandle& e) { return e.executable.interpreted(); })
      .def_prop_ro("_obstacles", [](const ExecutableHandle& e) { return e.executable.obstacles(); })
      .def_prop_ro("_code_target",
                   [](const ExecutableHandle& e) {
                     const runtime::Executor* executor = e.executable.executor();
                     return executor == nullptr ? "" : executor->plan().code.target;
                   })
      .def_prop_ro(
          "can_save", [](const ExecutableHandle& e) { return e.executable.CanSave(); },
          "Whether all of it is compiled.")
      .def("__repr__", [](const ExecutableHandle& e) {
        return StrCat("<lathe.Executable of ", e.inputs.size(), " inputs, ", e.outputs.size(),
                      " outputs>");
      });
}

}  // namespace lathe::python
