#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "lathe/ir/op_def.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "python/src/attributes.h"
#include "python/src/model.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// What declarations of ops are to Python: enough to bind arguments and to write a docstring.
struct Parameter {
  std::string name;
  std::string type;  // type variable or element type; of an attribute, what it takes
  bool optional, variadic;
  std::string default_text, doc;
};

struct Schema {
  std::string name, summary, description;
  std::vector<Parameter> operands, attributes;
  std::vector<std::string> results;
  bool has_regions;
};

std::string TypeText(const OpDef& def, const TypeRule& rule) {
  if (rule.kind == TypeRule::Kind::kVariable) return def.type_sets[rule.index].name;
  if (rule.kind == TypeRule::Kind::kElement) return std::string(Name(rule.element));
  return "";
}

Schema SchemaOf(const OpDef& def) {
  Schema schema{def.name, def.summary, def.description, {}, {}, {}, !def.regions.empty()};
  for (const ValueDef& v : def.operands) {
    schema.operands.push_back({v.name, TypeText(def, v.type), v.optional, v.variadic, "", v.doc});
  }
  for (const AttrDef& a : def.attributes) {
    const bool has_default = a.default_text != nullptr;
    schema.attributes.push_back({a.name, Describe(a.kind), a.optional || has_default, false,
                                 has_default ? a.default_text : "", a.doc});
  }
  for (const ValueDef& v : def.results) schema.results.emplace_back(v.name);
  return schema;
}

std::vector<Schema> ListOps() {
  const std::shared_ptr<IrContext> context = NewContext();
  std::vector<Schema> all;
  for (const OpInfo op : context->ops()) {
    if (op.def() != nullptr) all.push_back(SchemaOf(*op.def()));
  }
  return all;
}

}  // namespace

void BindOpTable(nb::module_& m) {
  nb::class_<Parameter>(m, "OpParameter", "An operand or an attribute of an operator.")
      .def_ro("name", &Parameter::name)
      .def_ro("type", &Parameter::type,
              "Of an operand its type variable or element type; of an attribute what it takes.")
      .def_ro("optional", &Parameter::optional)
      .def_ro("variadic", &Parameter::variadic, "It takes all operands that are left.")
      .def_ro("default", &Parameter::default_text, "As text; '' if there is none.")
      .def_ro("doc", &Parameter::doc);
  nb::class_<Schema>(m, "OpInfo", "The declaration of an operator.")
      .def_ro("name", &Schema::name, "Such as 'nn.conv'.")
      .def_ro("summary", &Schema::summary)
      .def_ro("description", &Schema::description)
      .def_ro("operands", &Schema::operands)
      .def_ro("attributes", &Schema::attributes)
      .def_ro("results", &Schema::results, "Names.")
      .def_ro("has_regions", &Schema::has_regions)
      .def("__repr__", [](const Schema& s) { return "<lathe.OpInfo " + s.name + ">"; });
  m.def(
      "did_you_mean",
      [](const std::string& name, const std::vector<std::string>& known) {
        return DidYouMean(name, known);
      },
      nb::arg("name"), nb::arg("known"), "A hint with the nearest names; '' if none is near.");
  m.def("list_ops", ListOps, "All operators, sorted by name.");
}

}  // namespace lathe::python
