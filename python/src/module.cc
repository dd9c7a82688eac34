#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "lathe/support/version.h"
#include "python/src/errors.h"
#include "python/src/interrupts.h"
#include "python/src/lent.h"
#include "python/src/model.h"
#include "python/src/ports.h"

// The C++ half of the package lathe; python/lathe is the other.
NB_MODULE(_core, m) {
  // An interpreter that ends may hold objects still, as PyTorch's caches do: no defect of ours.
  nanobind::set_leak_warnings(false);
  lathe::python::RegisterErrors();
  lathe::python::FindMainThread();
  m.attr("version") = std::string(lathe::Version());
  lathe::python::BindPorts(m);
  lathe::python::BindProgram(m);
  lathe::python::BindOpTable(m);
  lathe::python::BindSymbol(m);
  lathe::python::BindPasses(m);
  lathe::python::BindRules(m);
  lathe::python::BindPythonOps(m);
  lathe::python::BindCompilers(m);
  lathe::python::BindModel(m);
  lathe::python::BindOnnxInterface(m);
  lathe::python::BindReduce(m);
  lathe::python::BindExecutable(m);
  lathe::python::BindGenerator(m);
  lathe::python::BindQuantize(m);
  lathe::python::BindTools(m);
  lathe::python::BindTrainer(m);
  lathe::python::BindTune(m);
}
