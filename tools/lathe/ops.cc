#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/dialect/all.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/op_def.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "lathe/support/printable.h"
#include "tools/lathe/command.h"

namespace lathe::command {
namespace {

using Json = nlohmann::ordered_json;

struct OpsArguments {
  std::vector<std::string> names;
  std::vector<std::string> plugins;
  bool markdown = false;
  bool json = false;
};

// ---- what is known of an op ----

struct Field {
  std::string name, type, notes, doc;
};

struct OpReference {
  std::string name, summary, description;
  std::vector<Field> inputs, attributes, outputs, regions;
  std::vector<std::pair<std::string, std::string>> type_sets;  ///< "T", "f16, f32"
  std::vector<std::pair<std::string, std::string>> facts;      ///< "fusion", "broadcast"
};

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += StrCat(text.empty() ? "" : ", ", word);
  return text;
}

std::string TypeText(const OpDef& def, const TypeRule& rule) {
  switch (rule.kind) {
    case TypeRule::Kind::kAny:
      return "any";
    case TypeRule::Kind::kTensor:
      return "tensor";
    case TypeRule::Kind::kVariable:
      return def.type_sets[rule.index].name;
    case TypeRule::Kind::kElement:
      return std::string(Name(rule.element));
    case TypeRule::Kind::kFromAttr:
      return StrCat("as `", def.attributes[rule.index].name, "` says");
    case TypeRule::Kind::kList:
      return StrCat("list<", TypeText(def, *rule.inner), ">");
    case TypeRule::Kind::kOptional:
      return StrCat("optional<", TypeText(def, *rule.inner), ">");
    case TypeRule::Kind::kToken:
      return "token";
  }
  return "";
}

const char* TypeText(AttrKind kind) {
  static constexpr const char* kNames[] = {"bool",  "i64",  "f64",    "str",   "i64[]", "f64[]",
                                           "str[]", "type", "tensor", "array", "dict",  "any"};
  return kNames[static_cast<size_t>(kind)];
}

Field FieldOf(const OpDef& def, const ValueDef& v) {
  std::vector<std::string> notes;
  if (v.optional) notes.emplace_back("optional");
  if (v.variadic) notes.push_back(StrCat("any number, at least ", v.min_count));
  if (v.heterogeneous) notes.emplace_back("of any types");
  return {v.name, TypeText(def, v.type), Joined(notes), v.doc};
}

Field FieldOf(const AttrDef& a) {
  std::vector<std::string> notes;
  if (a.default_text != nullptr) {
    notes.push_back(StrCat("default ", a.default_text));
  } else {
    notes.emplace_back(a.optional ? "optional" : "required");
  }
  if (a.has_min) notes.push_back(StrCat("at least ", a.min));
  if (!a.one_of.empty())
    notes.push_back("one of " + Joined(std::vector<std::string>(a.one_of.begin(), a.one_of.end())));
  return {a.name, TypeText(a.kind), Joined(notes), a.doc};
}

std::string OnnxName(const OpDef& def) {
  const std::string domain = def.onnx_domain;
  return (domain.empty() ? "" : domain + ".") + def.onnx_name;
}

// In-place ops are listed with the op that they are a form of.
bool IsTwin(OpInfo op) { return op.HasTrait<Inplace>() && op.name().ends_with('_'); }

void AddFacts(OpReference& r, OpInfo op, const IrContext& context) {
  const OpDef& def = *op.def();
  if (def.onnx_name != nullptr) {
    r.facts.emplace_back("ONNX", StrCat(OnnxName(def), ", as of opset ", def.onnx_since));
  }
  const bool has_gradient = op.GetInterface<GradInterface>() != nullptr;
  const bool has_parts = op.GetInterface<DecomposeInterface>() != nullptr;
  if (has_gradient) r.facts.emplace_back("gradient", "its own");
  if (has_parts && !has_gradient) r.facts.emplace_back("gradient", "that of what it is made of");
  if (op.HasTrait<Random>()) r.facts.emplace_back("random", "yes");
  if (context.FindOp(std::string(op.name()) + "_")) {
    r.facts.emplace_back("in place", std::string(op.name()) + "_");
  }
}

OpReference ReferenceOf(OpInfo op, const IrContext& context) {
  const OpDef& def = *op.def();
  OpReference r{def.name, def.summary, def.description, {}, {}, {}, {}, {}, {}};
  for (const ValueDef& v : def.operands) r.inputs.push_back(FieldOf(def, v));
  for (const AttrDef& a : def.attributes) r.attributes.push_back(FieldOf(a));
  for (const ValueDef& v : def.results) r.outputs.push_back(FieldOf(def, v));
  for (const RegionDef& region : def.regions)
    r.regions.push_back({region.name, "", "", region.doc});
  for (const TypeSetDef& set : def.type_sets) {
    std::vector<std::string> elements;
    for (const ElementType e : set.elements) elements.emplace_back(Name(e));
    r.type_sets.emplace_back(set.name, Joined(elements));
  }
  AddFacts(r, op, context);
  return r;
}

// Declared ops in order of name, without in-place twins.
std::vector<OpInfo> DeclaredOps(const IrContext& context) {
  std::vector<OpInfo> ops;
  for (const OpInfo op : context.ops()) {
    if (op.def() != nullptr && !IsTwin(op)) ops.push_back(op);
  }
  return ops;
}

// "nn.conv", "conv", or the name of ONNX, "Conv".
std::vector<OpInfo> OpsNamed(const std::vector<OpInfo>& all, const std::string& name) {
  std::vector<OpInfo> found;
  std::vector<std::string> known;
  for (const OpInfo op : all) {
    const std::string_view full = op.name();
    const std::string onnx = op.def()->onnx_name == nullptr ? "" : OnnxName(*op.def());
    if (full == name || full.substr(full.find('.') + 1) == name || onnx == name) {
      found.push_back(op);
    }
    known.emplace_back(full);
    if (!onnx.empty()) known.push_back(onnx);
  }
  if (!found.empty()) return found;
  Error error(ErrorCode::kNotFound, "ir/unknown-op", StrCat("unknown op '", name, "'"));
  if (const std::string hint = DidYouMean(name, known); !hint.empty()) error.Hint(hint);
  throw std::move(error.Hint("`lathe ops` lists them"));
}

// ---- as text ----

void AddFields(std::string& text, const char* title, const std::vector<Field>& fields) {
  if (fields.empty()) return;
  text += StrCat(title, "\n");
  for (const Field& f : fields) {
    text += "  " + f.name;
    for (const std::string* part : {&f.type, &f.notes}) {
      if (!part->empty()) text += StrCat("  ", *part);
    }
    text += f.doc.empty() ? "\n" : StrCat("\n      ", f.doc, "\n");
  }
}

std::string TextOf(const OpReference& r) {
  std::string text = StrCat(r.name, "\n  ", r.summary, "\n");
  if (!r.description.empty()) text += StrCat("\n", r.description, "\n\n");
  AddFields(text, "inputs", r.inputs);
  AddFields(text, "attributes", r.attributes);
  AddFields(text, "outputs", r.outputs);
  AddFields(text, "regions", r.regions);
  for (const auto& [name, elements] : r.type_sets) text += StrCat(name, ": ", elements, "\n");
  for (const auto& [what, fact] : r.facts) text += StrCat(what, ": ", fact, "\n");
  return text;
}

std::string ListOf(const std::vector<OpInfo>& ops) {
  std::string text;
  for (const OpInfo op : ops) text += StrCat(op.name(), "\n    ", op.def()->summary, "\n");
  return text;
}

// ---- as the page docs/ops.md ----

constexpr const char* kPageHead =
    "# Ops\n\n"
    "Every op of Lathe, written from the declarations by the command above; `lathe ops NAME` "
    "explains one, also by its name in ONNX.\nHow programs are written: [ir.md](ir.md). Ops of "
    "one's own: [plugins.md](plugins.md).\n";

// Inside a table cell a bar or the end of a line would end it.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return cell;
}

void AddTable(std::string& page, const char* title, const std::vector<Field>& fields) {
  if (fields.empty()) return;
  page += StrCat("\n| ", title, " | type | | |\n|---|---|---|---|\n");
  for (const Field& f : fields) {
    page += StrCat("| `", f.name, "` | ", Cell(f.type), " | ", Cell(f.notes), " | ", Cell(f.doc),
                   " |\n");
  }
}

std::string Section(const OpReference& r) {
  std::string page = StrCat("\n### ", r.name, "\n\n", r.summary, "\n");
  if (!r.description.empty()) page += StrCat("\n", r.description, "\n");
  AddTable(page, "input", r.inputs);
  AddTable(page, "attribute", r.attributes);
  AddTable(page, "output", r.outputs);
  AddTable(page, "region", r.regions);
  page += "\n";
  for (const auto& [name, elements] : r.type_sets)
    page += StrCat("- `", name, "`: ", elements, "\n");
  for (const auto& [what, fact] : r.facts) page += StrCat("- ", what, ": ", fact, "\n");
  return page;
}

std::string_view DialectOf(OpInfo op) { return op.name().substr(0, op.name().find('.')); }

std::string PageOf(const std::vector<OpInfo>& ops, const IrContext& context) {
  std::string page = kPageHead, sections;
  std::string_view dialect;
  for (const OpInfo op : ops) {
    if (DialectOf(op) != dialect) {
      dialect = DialectOf(op);
      page += StrCat("\n## Dialect ", dialect, "\n\n| op | what it does |\n|---|---|\n");
    }
    page += StrCat("| `", op.name(), "` | ", Cell(op.def()->summary), " |\n");
    sections += Section(ReferenceOf(op, context));
  }
  return StrCat(page, "\n## All ops\n", sections);
}

// ---- as JSON ----

Json JsonOf(const std::vector<Field>& fields) {
  Json list = Json::array();
  for (const Field& f : fields) {
    list.push_back({{"name", f.name}, {"type", f.type}, {"notes", f.notes}, {"doc", f.doc}});
  }
  return list;
}

Json JsonOf(const OpReference& r, OpInfo op) {
  Json json = {{"name", r.name},
               {"summary", r.summary},
               {"description", r.description},
               {"inputs", JsonOf(r.inputs)},
               {"attributes", JsonOf(r.attributes)},
               {"outputs", JsonOf(r.outputs)},
               {"regions", JsonOf(r.regions)},
               {"types", Json::object()},
               {"has_gradient_of_its_own", op.GetInterface<GradInterface>() != nullptr},
               {"has_decomposition", op.GetInterface<DecomposeInterface>() != nullptr}};
  for (const auto& [name, elements] : r.type_sets) json["types"][name] = elements;
  if (op.def()->onnx_name != nullptr) {
    json["onnx"] = {{"name", op.def()->onnx_name},
                    {"domain", op.def()->onnx_domain},
                    {"opset", op.def()->onnx_since}};
  }
  return json;
}

int ShowOps(const OpsArguments& o) {
  IrContext context;
  LoadAllDialects(context);
  for (const std::string& plugin : o.plugins) context.LoadPlugin(plugin);
  const std::vector<OpInfo> all = DeclaredOps(context);
  std::vector<OpInfo> ops = o.names.empty() ? all : std::vector<OpInfo>();
  for (const std::string& name : o.names) {
    for (const OpInfo op : OpsNamed(all, name)) ops.push_back(op);
  }
  if (o.json) {
    Json json = Json::array();
    for (const OpInfo op : ops) json.push_back(JsonOf(ReferenceOf(op, context), op));
    Out(JsonText(json, 2) + "\n");
  } else if (o.markdown) {
    Out(PageOf(ops, context));
  } else if (o.names.empty()) {
    Out(ListOf(ops));
  } else {
    for (const OpInfo op : ops) Out(TextOf(ReferenceOf(op, context)));
  }
  return kFine;
}

}  // namespace

Run AddOps(CLI::App& app) {
  auto o = std::make_shared<OpsArguments>();
  app.add_option("name", o->names,
                 "such as nn.conv, conv, or Conv of ONNX (default: a list of all)");
  app.add_option("--load", o->plugins, "shared library with ops of your own")
      ->allow_extra_args(false)
      ->type_name("LIB");
  app.add_flag("--markdown", o->markdown, "as the page docs/ops.md");
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return ShowOps(*o); };
}

}  // namespace lathe::command
