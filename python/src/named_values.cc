#include "python/src/named_values.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {

nb::dict DictOf(nb::handle mapping, const char* what) {
  if (PyDict_Check(mapping.ptr())) return nb::borrow<nb::dict>(mapping);
  if (!nb::hasattr(mapping, "keys")) {
    throw Error(ErrorCode::kType, "type/python",
                StrCat(what, " are arrays by name, such as a dict, not a ",
                       nb::cast<std::string>(mapping.type().attr("__name__"))));
  }
  nb::dict dict;
  if (PyDict_Update(dict.ptr(), mapping.ptr()) != 0) throw nb::python_error();
  return dict;
}

std::vector<PortInfo> InputsOf(const ProgramHolder& holder) {
  const ReadLock lock(holder);
  return InputsOf(holder.program());
}

std::string InputName(const PortInfo& port) { return StrCat("input '", port.name, "'"); }

NamedValues ValuesFor(std::span<const PortInfo> ports, const nb::dict& given) {
  NamedValues values;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(nb::str(key));
    const auto port = std::ranges::find(ports, name, &PortInfo::name);
    values.emplace_back(name, port == ports.end() ? RtValue(Tensor(ElementType::kF32, {0}))
                                                  : ValueOf(value, port->element, port->is_list(),
                                                            InputName(*port)));
  }
  return values;
}

nb::dict DictOf(const NamedValues& values) {
  nb::dict named;
  for (const auto& [name, value] : values) named[nb::cast(name)] = ObjectOf(value);
  return named;
}

}  // namespace lathe::python
