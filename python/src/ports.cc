#include "python/src/ports.h"

#include <nanobind/stl/string.h>

#include "lathe/support/text.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

const char* KindOf(Type type) {
  if (type.isa<ListType>()) return "list";
  if (type.isa<OptionalType>()) return "optional";
  if (type.isa<DictType>()) return "dict";
  return "tensor";
}

// The tensor within lists and optionals, of a dict that of its values.
AnyTensorType TensorWithin(Type type) {
  while (const auto container = type.dyn_cast<ContainerType>()) {
    if (container.elements().empty()) return {};
    type = container.elements().back();
  }
  return type.dyn_cast<AnyTensorType>();
}

PortInfo InfoOf(const Operation* op, Value value) {
  PortInfo port{.name = std::string(op->attribute("name").cast<StrAttribute>().value()),
                .kind = KindOf(value.type()),
                .dims = {},
                .type = value.type().ToString()};
  const AnyTensorType tensor = TensorWithin(value.type());
  if (!tensor) return port;
  port.element = tensor.element();
  if (tensor.has_rank() && port.kind == "tensor") {
    port.dims.emplace(tensor.dims().begin(), tensor.dims().end());
  }
  return port;
}

nb::object ShapeObject(const PortInfo& port) {
  if (!port.dims) return nb::none();
  nb::list shape;
  for (const Dim& dim : *port.dims) shape.append(DimObject(dim));
  return nb::tuple(shape);
}

std::string Shown(const PortInfo& port) {
  return StrCat("<lathe.Port ", port.name, ": ", port.type, ">");
}

}  // namespace

std::vector<PortInfo> InputsOf(const Program& program) {
  std::vector<PortInfo> ports;
  for (const Operation* op : program.feeds()) ports.push_back(InfoOf(op, op->result(0)));
  return ports;
}

std::vector<PortInfo> OutputsOf(const Program& program) {
  std::vector<PortInfo> ports;
  for (const Operation* op : program.fetches()) ports.push_back(InfoOf(op, op->operand(0)));
  return ports;
}

std::vector<PortInfo> PortsOf(const std::vector<Port>& ports) {
  std::vector<PortInfo> infos;
  for (const Port& port : ports) {
    const std::string dims = SymShape(port.dims).ToString();
    infos.push_back({.name = port.name,
                     .element = port.element,
                     .dims = port.dims,
                     .type = StrCat("v_tensor<", dims, ", ", Name(port.element), ">")});
  }
  return infos;
}

std::string DtypeName(ElementType element) {
  return element == ElementType::kString ? "str" : std::string(Name(element));
}

nb::object DimObject(const Dim& dim) {
  if (dim.is_constant()) return nb::int_(dim.value());
  if (dim.is_unknown()) return nb::none();
  const std::string text = dim.is_symbol() ? std::string(dim.symbol_name()) : dim.ToString();
  return nb::str(text.c_str(), text.size());
}

void BindPorts(nb::module_& m) {
  nb::class_<PortInfo>(m, "Port", "An input or an output of a model or an executable.")
      .def_ro("name", &PortInfo::name, "Its name.")
      .def_ro("kind", &PortInfo::kind, "'tensor', 'list', 'optional' or 'dict'.")
      .def_prop_ro(
          "dtype", [](const PortInfo& p) { return DtypeName(p.element); },
          "Element type of the tensors in it: 'f32', 'i64', 'str', 'bool', 'bf16', ...")
      .def_prop_ro(
          "shape", ShapeObject, nb::sig("def shape(self) -> tuple[int | str | None, ...] | None"),
          "Per axis a size, the name or expression of a symbolic one, or None if nothing is "
          "known of it. None if the rank is unknown.")
      .def_ro("type", &PortInfo::type, "The type as the text of programs has it.")
      .def("__repr__", Shown);
}

}  // namespace lathe::python
