#include "lathe/driver/reduce.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include "python/src/model.h"
#include "python/src/views.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// What the predicate raises is no Error of ours: it ends the reduction.
bool Fails(const Holder& holder, const nb::object& predicate, const FailingCase& candidate) {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  const auto shown = std::make_shared<ProgramHolder>(holder->context, candidate.program.Clone());
  const int fails = PyObject_IsTrue(predicate(shown).ptr());
  if (fails < 0) throw nb::python_error();
  return fails == 1;
}

Holder ReduceProgram(const Holder& holder, const nb::object& predicate, int64_t max_runs) {
  if (max_runs < 0) throw nb::value_error("max_runs is negative");
  const FailingCase failing{CloneOf(*holder, Gil::kHeld)};
  ReducedCase r = Reduce(failing, [&](const FailingCase& c) { return Fails(holder, predicate, c); },
                         {.max_runs = max_runs});
  return std::make_shared<ProgramHolder>(holder->context, std::move(r.smallest.program));
}

}  // namespace

void BindReduce(nb::module_& m) {
  m.def("reduce", ReduceProgram, nb::arg("program"), nb::arg("fails"), nb::kw_only(),
        nb::arg("max_runs") = 0,
        nb::sig("def reduce(program: Program, fails: collections.abc.Callable[[Program], object], "
                "*, max_runs: int = 0) -> Program"),
        "The smallest program that can be found of one that fails, as `lathe reduce` does it.\n\n"
        "`fails(candidate)` says whether a candidate fails in the way that is looked for; what it "
        "raises ends the\nreduction. It runs at most `max_runs` times; 0: as often as it takes. "
        "`program` stays as it is.\nRaises InvalidArgumentError (reduce/no-failure) if `program` "
        "does not fail.");
}

}  // namespace lathe::python
