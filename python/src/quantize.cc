#include "lathe/driver/quantize.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "lathe/ir/verify.h"
#include "python/src/interrupts.h"
#include "python/src/model.h"
#include "python/src/named_values.h"
#include "python/src/reports.h"
#include "python/src/views.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

using Names = std::vector<std::string>;
using Quantized = std::pair<Holder, QuantizationReport>;

// The inputs of the runs that an iterable of Python gives, from its beginning each time.
CalibrationData DataOf(nb::handle runs, const std::vector<PortInfo>& ports) {
  return [runs, &ports](std::span<const Port>, const auto& use) {
    const nb::gil_scoped_acquire acquire;
    for (const nb::handle run : nb::iter(runs)) {
      const NamedValues inputs = ValuesFor(ports, DictOf(run, "the inputs of a run"));
      const nb::gil_scoped_release release;
      use(inputs);
    }
  };
}

// `quantize` of a copy and of the data, which may be None.
template <class Change>
Quantized QuantizedCopy(const Holder& holder, nb::handle runs, Change&& quantize) {
  const std::vector<PortInfo> ports = InputsOf(*holder);
  const CalibrationData data = runs.is_none() ? CalibrationData() : DataOf(runs, ports);
  return WithoutLock([&] {
    Program program = CloneOf(*holder, Gil::kReleased);
    QuantizationReport report = quantize(program, data);
    VerifyOrThrow(program);
    return Quantized(std::make_shared<ProgramHolder>(holder->context, std::move(program)),
                     std::move(report));
  });
}

Quantized QuantizeProgram(const Holder& holder, nb::handle runs, const std::string& method,
                          double percentile, bool per_tensor, bool symmetric, const Names& ops,
                          const Names& exclude, std::optional<double> max_error, int threads,
                          nb::handle progress) {
  QuantizeOptions options{.method = CalibrationMethodNamed(method),
                          .percentile = percentile,
                          .per_tensor = per_tensor,
                          .symmetric = symmetric,
                          .kinds = ops,
                          .exclude = exclude,
                          .max_error = max_error,
                          .progress = ReportTo<const std::string&>(progress)};
  options.compile.threads = threads;
  return QuantizedCopy(holder, runs, [&](Program& program, const CalibrationData& data) {
    return Quantize(program, data, options);
  });
}

Quantized QuantizeProgramWeights(const Holder& holder, nb::handle runs, int64_t bits, int64_t block,
                                 bool symmetric, const std::string& rounding, const Names& ops,
                                 const Names& exclude, std::optional<double> max_error, int threads,
                                 nb::handle progress) {
  WeightOptions options{.form = {.bits = bits, .block = block, .symmetric = symmetric},
                        .rounding = WeightRoundingNamed(rounding),
                        .kinds = ops,
                        .exclude = exclude,
                        .max_error = max_error,
                        .progress = ReportTo<const std::string&>(progress)};
  options.compile.threads = threads;
  return QuantizedCopy(holder, runs, [&](Program& program, const CalibrationData& data) {
    return QuantizeWeights(program, data ? &data : nullptr, options);
  });
}

std::vector<std::pair<std::string, double>> OutputErrors(const QuantizationReport& report) {
  std::vector<std::pair<std::string, double>> errors;
  for (const OutputReport& output : report.outputs) errors.emplace_back(output.name, output.error);
  return errors;
}

}  // namespace

void BindQuantize(nb::module_& m) {
  nb::class_<LayerReport>(m, "LayerReport", "A layer of a model that was quantized.")
      .def_ro("name", &LayerReport::name)
      .def_ro("kind", &LayerReport::kind, "'conv', 'matmul' or 'gemm'.")
      .def_ro("why_not", &LayerReport::why_not, "Why it stays f32; '' if it is quantized.")
      .def_ro("error", &LayerReport::error,
              "Relative RMS error of its result if it alone is quantized; None if it cannot be.")
      .def_ro("nearest_error", &LayerReport::nearest_error,
              "The same with weights rounded to the nearest, where they are rounded otherwise.")
      .def_ro("output_error", &LayerReport::output_error,
              "The largest error of an output if this layer alone is quantized; measured where all "
              "together are beyond max_error.")
      .def("__repr__", [](const LayerReport& layer) {
        return StrCat("<lathe.LayerReport ", layer.name, layer.why_not.empty() ? "" : ": f32", ">");
      });
  nb::class_<QuantizationReport>(m, "QuantizationReport")
      .def_ro("layers", &QuantizationReport::layers)
      .def_prop_ro("outputs", OutputErrors)
      .def_ro("runs", &QuantizationReport::runs);
  m.def("_quantize", QuantizeProgram, nb::arg("program"), nb::arg("data"), nb::arg("method"),
        nb::arg("percentile"), nb::arg("per_tensor"), nb::arg("symmetric"), nb::arg("ops"),
        nb::arg("exclude"), nb::arg("max_error").none(), nb::arg("threads"),
        nb::arg("progress").none());
  m.def("_quantize_weights", QuantizeProgramWeights, nb::arg("program"), nb::arg("data").none(),
        nb::arg("bits"), nb::arg("block"), nb::arg("symmetric"), nb::arg("rounding"),
        nb::arg("ops"), nb::arg("exclude"), nb::arg("max_error").none(), nb::arg("threads"),
        nb::arg("progress").none());
}

}  // namespace lathe::python
