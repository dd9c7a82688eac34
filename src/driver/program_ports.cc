#include "src/driver/program_ports.h"

#include "lathe/support/text.h"

namespace lathe {
namespace {

Port PortOf(const Operation* op, Value value) {
  Port port{std::string(op->attribute("name").cast<StrAttribute>().value()), {}, {}};
  if (const auto type = value.type().dyn_cast<AnyTensorType>()) {
    port.element = type.element();
    port.dims.assign(type.dims().begin(), type.dims().end());
  }
  return port;
}

}  // namespace

std::vector<Port> InputPorts(const Program& program) {
  std::vector<Port> ports;
  for (const Operation* op : program.feeds()) ports.push_back(PortOf(op, op->result(0)));
  return ports;
}

std::vector<Port> OutputPorts(const Program& program) {
  std::vector<Port> ports;
  for (const Operation* op : program.fetches()) ports.push_back(PortOf(op, op->operand(0)));
  return ports;
}

std::string TypeOf(const Port& port) {
  std::string text;
  for (const Dim& dim : port.dims) text += StrCat(text.empty() ? "" : ",", dim.ToString());
  return StrCat(Name(port.element), "[", text, "]");
}

}  // namespace lathe
