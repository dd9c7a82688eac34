#include "lathe/frontend/onnx_interface.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/interrupts.h"
#include "python/src/model.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

OnnxInterface Read(nb::handle source) {
  const bool is_path = nb::isinstance<nb::str>(source);
  const std::string name = is_path ? nb::cast<std::string>(source) : "model in memory";
  const std::shared_ptr<Buffer> bytes = is_path ? Buffer::MapFile(name) : BufferOf(source);
  return WithoutLock([&] { return ReadOnnxInterface(*bytes, name); });
}

}  // namespace

void BindOnnxInterface(nb::module_& m) {
  nb::class_<OnnxDim>(m, "OnnxDim", "A size as a file of ONNX gives it.")
      .def_ro("size", &OnnxDim::size)
      .def_ro("name", &OnnxDim::name, "'' if it has none.")
      .def_ro("denotation", &OnnxDim::denotation, "'' if it has none.");
  nb::class_<OnnxPort>(m, "OnnxPort", "An input or an output as a file of ONNX declares it.")
      .def_ro("name", &OnnxPort::name)
      .def_ro("type", &OnnxPort::type, "Such as 'tensor(f32)'; '' if the file gives none.")
      .def_ro("dims", &OnnxPort::dims, "None if the file does not say.")
      .def_ro("has_initializer", &OnnxPort::has_initializer, "It need not be given.");
  nb::class_<OnnxInterface>(m, "OnnxInterface", "What a file of ONNX says of inputs and outputs.")
      .def_ro("ir_version", &OnnxInterface::ir_version)
      .def_ro("graph_name", &OnnxInterface::graph_name)
      .def_ro("inputs", &OnnxInterface::inputs)
      .def_ro("outputs", &OnnxInterface::outputs);
  m.def(
      "read_onnx_interface", Read, nb::arg("source"),
      nb::sig(
          "def read_onnx_interface(source: str | bytes | bytearray | memoryview) -> OnnxInterface"),
      "Of a path or of bytes. Nothing is inferred. Raises ParseError.");
}

}  // namespace lathe::python
