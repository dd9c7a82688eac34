#include "lathe/driver/tune.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/interrupts.h"
#include "python/src/model.h"
#include "python/src/reports.h"
#include "python/src/views.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

using Sizes = std::map<std::string, int64_t>;

std::vector<TunedFunction> TuneProgram(const Holder& holder, const std::string& records,
                                       const Sizes& dims, const Sizes& sizes, size_t trials,
                                       double seconds, const std::string& target, int threads,
                                       int level, const std::string& precision,
                                       nb::handle progress) {
  const TuneOptions options{.compile = {.target = target,
                                        .level = level,
                                        .precision = PrecisionNamed(precision),
                                        .threads = threads},
                            .symbols = {sizes.begin(), sizes.end()},
                            .max_trials = trials,
                            .seconds = seconds};
  const auto report = ReportTo<size_t, size_t, const std::string&, const std::string&>(progress);
  return WithoutLock([&] {
    Sizes named = dims;
    named.insert(sizes.begin(), sizes.end());
    (void)SpecializedCopy(*holder, named);  // unknown names are errors
    std::vector<TunedFunction> functions;
    TuneToFile(SpecializedCopy(*holder, dims), options, records, report,
               [&](const TunedFunction& function, const TuningRecords&) {
                 functions.push_back(function);
               });
    return functions;
  });
}

}  // namespace

void BindTune(nb::module_& m) {
  nb::class_<TunedFunction>(m, "TunedKernel", "What was measured of the ways to compute a kernel.")
      .def_ro("operations", &TunedFunction::operations, "Such as 'matmul add gelu'.")
      .def_ro("calls", &TunedFunction::calls, "In the program.")
      .def_ro("first", &TunedFunction::first, "What is taken without records.")
      .def_ro("best", &TunedFunction::best, "The fastest.")
      .def_ro("first_seconds", &TunedFunction::first_seconds)
      .def_ro("best_seconds", &TunedFunction::best_seconds)
      .def_ro("trials", &TunedFunction::trials)
      .def("__repr__",
           [](const TunedFunction& f) { return StrCat("<lathe.TunedKernel ", f.operations, ">"); });
  m.def("_tune", TuneProgram, nb::arg("program"), nb::arg("records"), nb::arg("dims"),
        nb::arg("sizes"), nb::arg("trials"), nb::arg("seconds"), nb::arg("target"),
        nb::arg("threads"), nb::arg("level"), nb::arg("precision"), nb::arg("progress").none());
}

}  // namespace lathe::python
