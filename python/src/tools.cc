#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "lathe/driver/extract.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/driver/pass_checks.h"
#include "lathe/driver/program_difference.h"
#include "lathe/driver/value_difference.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"
#include "python/src/interrupts.h"
#include "python/src/model.h"
#include "python/src/named_values.h"
#include "python/src/timeouts.h"
#include "python/src/values.h"
#include "python/src/views.h"

namespace nb = nanobind;

// What the command's tools do, for programs and arrays of Python.
namespace lathe::python {
namespace {

// What `change` makes of a copy.
template <class Change>
Holder Changed(const Holder& holder, Change&& change) {
  return WithoutLock([&] {
    Program program = CloneOf(*holder, Gil::kReleased);
    change(program);
    VerifyOrThrow(program);
    return std::make_shared<ProgramHolder>(holder->context, std::move(program));
  });
}

Holder Extracted(const Holder& holder, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs) {
  return Changed(holder, [&](Program& program) { Extract(program, inputs, outputs); });
}

Holder Fetching(const Holder& holder, const std::vector<std::string>& names) {
  return Changed(holder, [&](Program& program) { FetchValues(program, names); });
}

nb::dict Interpreted(const Holder& holder, nb::handle inputs, std::optional<double> timeout) {
  const NamedValues given = ValuesFor(InputsOf(*holder), DictOf(inputs, "inputs"));
  return DictOf(WithoutLock([&] {
    Program program = CloneOf(*holder, Gil::kReleased);
    PassManager manager;
    manager.Add("random_state");  // it draws what a compiled program draws
    manager.Run(program);
    return RunUnder({.seconds = SecondsOf(timeout)},
                    [&] { return Interpreter(program).Run(given); });
  }));
}

std::vector<ProgramDifference> DifferentPrograms(const Holder& a, const Holder& b) {
  return WithoutLock([&] {
    const Program first = CloneOf(*a, Gil::kReleased), second = CloneOf(*b, Gil::kReleased);
    return ComparePrograms(first, second);
  });
}

NamedValues ResultsOf(nb::handle results) {
  NamedValues values;
  for (const auto& [key, value] : DictOf(results, "results")) {
    const auto name = nb::cast<std::string>(nb::str(key));
    const bool is_list = nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value);
    values.emplace_back(
        name, ValueOf(value, ElementType::kUndefined, is_list, StrCat("result '", name, "'")));
  }
  return values;
}

std::vector<ValueDifference> DifferentValues(nb::handle a, nb::handle b, double rtol, double atol) {
  const NamedValues first = ResultsOf(a), second = ResultsOf(b);
  return WithoutLock([&] { return CompareValues(first, second, rtol, atol); });
}

std::pair<double, double> UsualTolerance(const Holder& holder, const std::string& precision) {
  const ReadLock lock(*holder);
  const Tolerance usual = ToleranceOf(holder->program(), PrecisionNamed(precision));
  return {usual.rtol, usual.atol};
}

nb::dict Sampled(const Holder& holder, const std::map<std::string, int64_t>& dims, uint64_t seed) {
  return DictOf(
      WithoutLock([&] { return SampleInputs(SpecializedCopy(*holder, dims), {}, seed); }));
}

void BindDifferences(nb::module_& m) {
  nb::class_<ProgramDifference>(m, "ProgramDifference", "What one of two programs has alone.")
      .def_ro("what", &ProgramDifference::what,
              "'input', 'output', 'parameter', 'operation', 'operand' or 'type'.")
      .def_ro("a", &ProgramDifference::a, "In the first; '' if it has nothing there.")
      .def_ro("b", &ProgramDifference::b, "In the second; '' if it has nothing there.")
      .def("__repr__", [](const ProgramDifference& d) {
        return StrCat("<lathe.ProgramDifference ", d.what, ": '", d.a, "' and '", d.b, "'>");
      });
  nb::class_<ValueDifference>(m, "ValueDifference", "How two results of one name differ.")
      .def_ro("name", &ValueDifference::name)
      .def_ro("type", &ValueDifference::type, "Of the first, such as 'f32[2,3]'.")
      .def_ro("mismatch", &ValueDifference::mismatch,
              "Types or shapes that differ, or that one is missing; '' otherwise.")
      .def_ro("max_abs", &ValueDifference::max_abs, "Largest |a - b|.")
      .def_ro("max_rel", &ValueDifference::max_rel, "Largest |a - b| / |b|.")
      .def_ro("elements", &ValueDifference::elements, "That were compared.")
      .def_ro("beyond", &ValueDifference::beyond, "Elements that do not agree.")
      .def_ro("place", &ValueDifference::first_place, "Index of the first of them: '[0,3]'.")
      .def_ro("a", &ValueDifference::first_a, "That element.")
      .def_ro("b", &ValueDifference::first_b, "That element of the second.")
      .def_prop_ro("agrees", &ValueDifference::agrees)
      .def("__repr__", [](const ValueDifference& d) {
        return StrCat("<lathe.ValueDifference ", d.name, d.agrees() ? ": agrees>" : ": differs>");
      });
}

}  // namespace

void BindTools(nb::module_& m) {
  BindDifferences(m);
  m.def("_extract", Extracted, nb::arg("program"), nb::arg("inputs"), nb::arg("outputs"));
  m.def("_fetching", Fetching, nb::arg("program"), nb::arg("names"));
  m.def("_interpret", Interpreted, nb::arg("program"), nb::arg("inputs"),
        nb::arg("timeout").none() = nb::none());
  m.def("_different_programs", DifferentPrograms, nb::arg("a"), nb::arg("b"));
  m.def("_different_values", DifferentValues, nb::arg("a"), nb::arg("b"), nb::arg("rtol"),
        nb::arg("atol"));
  m.def(
      "_read_results", [](const std::string& path) { return DictOf(ReadResults(path)); },
      nb::arg("path"));
  m.def("_usual_tolerance", UsualTolerance, nb::arg("program"), nb::arg("precision"));
  m.def("_sampled", Sampled, nb::arg("program"), nb::arg("dims"), nb::arg("seed"));
}

}  // namespace lathe::python
