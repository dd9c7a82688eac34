#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "src/frontend/symbol/node.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;
using symbol::NodePtr;

constexpr const char* kNoteKinds[] = {"str", "int", "list_int", "list_str", "list_shape"};
constexpr int64_t kAbsent = -1;

// ---- out ----

std::string Dump(const Json& json) {
  try {
    return json.dump();
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kInvalidArgument, "symbol/text", "a name or attribute is not UTF-8");
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const Symbol& symbol) : symbol_(symbol) {
    nodes_ = symbol::PostOrder(symbol.outputs());
    for (const SymbolNode* node : nodes_) ids_.emplace(node, ids_.size());
  }

  std::string Write(const GraphNotes& notes) {
    std::string out = "{\n\"nodes\": [";
    for (const SymbolNode* node : nodes_) {
      out += StrCat(node == nodes_.front() ? "\n  " : ",\n  ", Dump(ToJson(*node)));
    }
    Json arguments = Json::array();
    Json rows = Json::array({0});
    size_t entries = 0;
    for (const SymbolNode* node : nodes_) {
      if (node->is_variable()) arguments.push_back(ids_.at(node));
      rows.push_back(entries += symbol::NumVisible(*node));
    }
    Json heads = Json::array();
    for (const SymbolEntry& e : symbol_.outputs()) heads.push_back(ToJson(e));
    out += StrCat("\n],\n\"arg_nodes\": ", Dump(arguments), ",\n\"node_row_ptr\": ", Dump(rows),
                  ",\n\"heads\": ", Dump(heads));
    if (!notes.empty()) out += StrCat(",\n\"attrs\": ", Dump(ToJson(notes)));
    return out + "\n}\n";
  }

 private:
  Json ToJson(const SymbolEntry& e) const {
    if (e.node == nullptr) return Json::array({kAbsent, 0, 0});
    return Json::array({ids_.at(e.node.get()), e.index, e.version});
  }

  Json ToJson(const SymbolNode& node) const {
    Json json;
    json["op"] = node.is_variable() ? "null" : std::string(node.op.name());
    json["name"] = node.name;
    if (!node.attrs.empty()) json["attrs"] = node.attrs;
    json["inputs"] = Json::array();
    for (const SymbolEntry& e : node.inputs) json["inputs"].push_back(ToJson(e));
    for (const NodePtr& d : node.control_deps) json["control_deps"].push_back(ids_.at(d.get()));
    return json;
  }

  static Json ToJson(const GraphNotes& notes) {
    Json json;
    for (const auto& [key, note] : notes) {
      Json value = std::visit([](const auto& v) { return Json(v); }, note);
      json[key] = Json::array({kNoteKinds[note.index()], std::move(value)});
    }
    return json;
  }

  const Symbol& symbol_;
  std::vector<SymbolNode*> nodes_;
  std::unordered_map<const SymbolNode*, size_t> ids_;  // look-up only
};

// ---- in ----

[[noreturn]] void Malformed(std::string message) {
  throw Error(ErrorCode::kParse, "parse/symbol-json", std::move(message));
}

GraphNote NoteFrom(const std::string& kind, const Json& value) {
  if (kind == kNoteKinds[0]) return value.get<std::string>();
  if (kind == kNoteKinds[1]) return value.get<int64_t>();
  if (kind == kNoteKinds[2]) return value.get<std::vector<int64_t>>();
  if (kind == kNoteKinds[3]) return value.get<std::vector<std::string>>();
  if (kind == kNoteKinds[4]) return value.get<std::vector<std::vector<int64_t>>>();
  Malformed(StrCat("a note of unknown kind '", kind, "'"));
}

/// Throws for all unknown ops at once.
void CheckOps(IrContext& context, const Json& nodes) {
  std::vector<Error> unknown;
  std::vector<std::string> seen;
  for (const Json& json : nodes) {
    const auto name = json.at("op").get<std::string>();
    if (name == "null" || context.FindOp(name)) continue;
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
    seen.push_back(name);
    try {
      context.GetOrMakeOp(name);
    } catch (Error& error) {
      unknown.push_back(error.At(StrCat("node '", json.at("name").get<std::string>(), "'")));
    }
  }
  if (unknown.empty()) return;
  Error first = unknown.front();
  first.others.assign(unknown.begin() + 1, unknown.end());
  throw first;
}

}  // namespace

/// Builds nodes from JSON, each from those before it.
class SymbolReader {
 public:
  explicit SymbolReader(IrContext& context) : context_(context) {}

  Symbol Read(const Json& json) {
    CheckOps(context_, json.at("nodes"));
    for (const Json& node : json.at("nodes")) nodes_.push_back(ReadNode(node));
    std::vector<SymbolEntry> heads;
    for (const Json& head : json.at("heads")) {
      heads.push_back(ReadEntry(head));
      if (heads.back().node == nullptr) Malformed("a head is absent");
    }
    if (heads.empty()) Malformed("there are no heads");
    return Symbol(std::move(heads));
  }

 private:
  size_t ReadId(const Json& json) const {
    const auto id = json.get<int64_t>();
    if (id < 0 || static_cast<size_t>(id) >= nodes_.size()) {
      Malformed(StrCat("node ", nodes_.size(), " reads node ", id, ", which is not before it"));
    }
    return static_cast<size_t>(id);
  }

  SymbolEntry ReadEntry(const Json& json) {
    if (json.at(0) == kAbsent) return {};
    SymbolEntry e{nodes_[ReadId(json.at(0))], json.at(1).get<uint32_t>(),
                  json.size() > 2 ? json.at(2).get<uint32_t>() : 0};
    const size_t outputs = symbol::NumVisible(*e.node);
    if (e.index >= outputs) {
      Malformed(StrCat(symbol::Describe(*e.node), " has no output ", e.index));
    }
    if (e.node->is_variable()) e.node->version = std::max(e.node->version, e.version);
    return e;
  }

  NodePtr ReadNode(const Json& json) {
    const auto op = json.at("op").get<std::string>();
    auto node =
        std::make_shared<SymbolNode>(context_, OpInfo(), json.at("name").get<std::string>());
    std::map<std::string, std::string> attrs;
    if (json.contains("attrs")) attrs = json.at("attrs").get<decltype(attrs)>();
    if (op != "null") {
      // The functor checks the op and its attributes as it does for a user.
      const Symbol functor = Symbol::CreateFunctor(context_, op, {attrs.begin(), attrs.end()});
      node->op = functor.outputs().front().node->op;
    }
    node->attrs = std::move(attrs);
    for (const Json& e : json.at("inputs")) node->inputs.push_back(ReadEntry(e));
    if (json.contains("control_deps")) {
      for (const Json& d : json.at("control_deps")) {
        node->control_deps.push_back(nodes_[ReadId(d)]);
      }
    }
    if (op != "null") CheckInputs(*node);
    if (op == "null" && !node->inputs.empty()) Malformed("a variable has inputs");
    return node;
  }

  static void CheckInputs(SymbolNode& node) {
    const std::span<const ValueDef> defs = node.op.def()->operands;
    const size_t given = node.inputs.size();
    size_t least = 0;
    for (size_t i = 0; i < defs.size(); ++i) {
      if (!defs[i].optional && !(defs[i].variadic && defs[i].min_count == 0)) least = i + 1;
      if (i < given && node.inputs[i].node == nullptr && !defs[i].optional) {
        Malformed(StrCat(symbol::Describe(node), " lacks its argument '", defs[i].name, "'"));
      }
    }
    const bool open = !defs.empty() && defs.back().variadic;
    node.composed = given != 0 || least == 0;
    if ((given != 0 && given < least) || (given > defs.size() && !open)) {
      Malformed(StrCat(symbol::Describe(node), " cannot have ", given, " inputs"));
    }
  }

  IrContext& context_;
  std::vector<NodePtr> nodes_;
};

std::string SaveJson(const Symbol& symbol, const GraphNotes& notes) {
  return JsonWriter(symbol).Write(notes);
}

LoadedSymbol LoadJson(IrContext& context, std::string_view text) {
  try {
    const Json json = Json::parse(text);
    GraphNotes notes;
    if (json.contains("attrs")) {
      for (const auto& [key, note] : json.at("attrs").items()) {
        notes.emplace(key, NoteFrom(note.at(0).get<std::string>(), note.at(1)));
      }
    }
    return {SymbolReader(context).Read(json), std::move(notes)};
  } catch (const Json::exception& e) {
    Malformed(e.what());
  }
}

}  // namespace lathe
