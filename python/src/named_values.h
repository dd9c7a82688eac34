#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "python/src/model.h"
#include "python/src/ports.h"

namespace lathe::python {

/// The dict that a mapping is, or a copy of it. `what` names it in messages, as "inputs". Errors:
/// type/python.
nanobind::dict DictOf(nanobind::handle mapping, const char* what);

/// Of a program that is locked meanwhile.
std::vector<PortInfo> InputsOf(const ProgramHolder& holder);

/// "input 'x'", for messages.
std::string InputName(const PortInfo& port);

/// Values by name, each as its port has it. A name that no port has keeps an empty tensor, for
/// whoever says what the names are. Errors: type/python.
NamedValues ValuesFor(std::span<const PortInfo> ports, const nanobind::dict& given);

/// The other way, copies.
nanobind::dict DictOf(const NamedValues& values);

}  // namespace lathe::python
