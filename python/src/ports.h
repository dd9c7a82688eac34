#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/ir/program.h"

namespace lathe::python {

/// An input or an output, as Python sees it.
struct PortInfo {
  std::string name;
  std::string kind = "tensor";                    ///< or "list", "optional", "dict"
  ElementType element = ElementType::kUndefined;  ///< of the tensors in it
  std::optional<std::vector<Dim>> dims;           ///< nothing: the rank is unknown, or no tensor
  std::string type;                               ///< as the text form has it

  bool is_list() const { return kind == "list" || type.find("list<") != std::string::npos; }
};

std::vector<PortInfo> InputsOf(const Program& program);
std::vector<PortInfo> OutputsOf(const Program& program);
/// Of tensors alone.
std::vector<PortInfo> PortsOf(const std::vector<Port>& ports);

/// "f32", "i64", "str", "bool", "bf16".
std::string DtypeName(ElementType element);
/// An int, None if it is unknown, else its text: "N", "2*N".
nanobind::object DimObject(const Dim& dim);

void BindPorts(nanobind::module_& m);

}  // namespace lathe::python
