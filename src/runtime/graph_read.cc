#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "lathe/support/error.h"
#include "src/runtime/graph_format.h"

namespace lathe::runtime::graph {
namespace {

using nlohmann::json;
using Place = PlanValue::Place;

constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kIndex = std::numeric_limits<uint32_t>::max() - 1;
constexpr size_t kMaxDimsText = 65536;

Error Fault(const std::string& what) { return {ErrorCode::kParse, "artifact/graph", what}; }

json Parse(const std::string& text) {
  constexpr int kMaxDepth = 8;
  try {
    return json::parse(text, [](int depth, json::parse_event_t, json&) {
      if (depth > kMaxDepth) throw Fault("it is nested too deeply");
      return true;
    });
  } catch (const json::exception&) {
    throw Fault("this is not JSON");
  }
}

const json& Member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Fault(StrCat("'", key, "' is missing"));
  return *found;
}

const json& ListOf(const json& object, const char* key) {
  const json& list = Member(object, key);
  if (!list.is_array()) throw Fault(StrCat("'", key, "' is not a list"));
  return list;
}

const std::string& TextOf(const json& value, const char* what) {
  if (!value.is_string()) throw Fault(StrCat("'", what, "' is not text"));
  return value.get_ref<const std::string&>();
}

uint64_t NumberOf(const json& value, uint64_t most, const char* what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > most) {
    throw Fault(StrCat("'", what, "' is not a number from 0 on, or too large"));
  }
  return value.get<uint64_t>();
}

// Text between commas.
std::vector<Dim> DimsOf(const std::string& text, const char* what) {
  if (text.size() > kMaxDimsText) throw Fault(StrCat("'", what, "' is too long"));
  std::vector<Dim> dims;
  try {
    for (std::string_view rest = text; !rest.empty();) {
      if (!dims.empty() && rest.front() != ',') throw Fault("a comma is missing");
      if (!dims.empty()) rest.remove_prefix(1);
      dims.push_back(Dim::ParsePrefix(rest));
    }
  } catch (const Error& error) {
    throw Fault(StrCat("'", what, "' ", Quote(text), ": ", error.message()));
  }
  return dims;
}

Dim DimOf(const std::string& text, const char* what) {
  const std::vector<Dim> dims = DimsOf(text, what);
  if (dims.size() != 1) throw Fault(StrCat("'", what, "' is not a single dim"));
  return dims[0];
}

// Where a reader is, for its errors.
template <class F>
auto At(const std::string& place, F&& f) {
  try {
    return f();
  } catch (Error& error) {
    if (error.where().empty()) error.At(place);
    throw;
  }
}

class Reader {
 public:
  explicit Reader(const json& graph) : graph_(graph), attrs_(Attributes(graph)) {}

  Content Read() {
    CheckVersion();
    content_.target = TextOf(Attribute("target", "str"), "target");
    plan_.precision = TextOf(Attribute("precision", "str"), "precision");
    content_.library = TextOf(Attribute("library", "str"), "library");
    At("attrs", [&] {
      ReadStorages();
      ReadRows();
      ReadValues();
      ReadSymbols();
      ReadConstraints();
      ReadMetadata();
    });
    const json& nodes = ListOf(graph_, "nodes");
    for (size_t i = 0; i < nodes.size(); ++i) {
      At(StrCat("node ", i), [&] { ReadNode(nodes[i], i); });
    }
    CheckArguments();
    ReadHeads();
    if (content_.parameters.size() != counts_[static_cast<size_t>(Place::kConstant)]) {
      throw Fault("a storage of a parameter has no node");
    }
    plan_.constants.resize(content_.parameters.size());
    return std::move(content_);
  }

 private:
  static const json& Attributes(const json& graph) {
    if (!graph.is_object()) throw Fault("this is not a graph");
    const json& attrs = Member(graph, "attrs");
    if (!attrs.is_object()) throw Fault("'attrs' is not an object");
    return attrs;
  }

  // ["list_int", [...]]
  const json& Attribute(const char* key, const char* sort) const {
    const json& typed = Member(attrs_, key);
    if (!typed.is_array() || typed.size() != 2 || typed[0] != sort) {
      throw Fault(StrCat("'", key, "' is not a pair of '", sort, "' and a value"));
    }
    return typed[1];
  }
  const json& ListAttribute(const char* key, const char* sort) const {
    const json& list = Attribute(key, sort);
    if (!list.is_array()) throw Fault(StrCat("'", key, "' is not a list"));
    return list;
  }
  const json& ListAttribute(const char* key, const char* sort, size_t size) const {
    const json& list = ListAttribute(key, sort);
    if (list.size() == size) return list;
    throw Fault(StrCat("'", key, "' has ", list.size(), " items; there should be ", size));
  }

  void CheckVersion() const {
    if (!attrs_.contains("lathe_version")) {
      throw Fault("this is a graph, but not of a compiled program of Lathe")
          .Hint("`lathe compile MODEL -o FILE.json` makes one");
    }
    const uint64_t version = NumberOf(Attribute("lathe_version", "int"), kAny, "lathe_version");
    if (version == kVersion) return;
    throw Error(
        ErrorCode::kUnsupported, "artifact/graph",
        StrCat("the graph has version ", version, "; this library reads version ", kVersion))
        .Hint("compile the model with the Lathe that the library belongs to");
  }

  void ReadStorages() {
    for (const json& place : ListAttribute("storage_place", "list_str")) {
      const std::string& name = TextOf(place, "storage_place");
      const auto found = std::find(kPlaceNames.begin(), kPlaceNames.end(), name);
      if (found == kPlaceNames.end()) throw Fault(StrCat("unknown place '", name, "'"));
      const auto p = static_cast<size_t>(found - kPlaceNames.begin());
      places_.push_back({static_cast<Place>(p), counts_[p]++});
    }
    const size_t count = counts_[static_cast<size_t>(Place::kArena)];
    const json& bytes = ListAttribute("arena_bytes", "list_str", count);
    const json& begins = ListAttribute("arena_begin", "list_int", count);
    const json& ends = ListAttribute("arena_end", "list_int", count);
    const json& offsets = ListAttribute("arena_offset", "list_int", count);
    for (size_t i = 0; i < count; ++i) {
      const std::vector<Dim> size = DimsOf(TextOf(bytes[i], "arena_bytes"), "arena_bytes");
      if (size.size() != 1) throw Fault("'arena_bytes' is not a number");
      plan_.storages.push_back({size[0],
                                static_cast<uint32_t>(NumberOf(begins[i], kIndex, "arena_begin")),
                                static_cast<uint32_t>(NumberOf(ends[i], kIndex, "arena_end")),
                                NumberOf(offsets[i], kAny, "arena_offset")});
    }
  }

  // Which entries a node has.
  void ReadRows() {
    const json& rows = ListOf(graph_, "node_row_ptr");
    if (rows.size() != ListOf(graph_, "nodes").size() + 1 || rows[0] != 0) {
      throw Fault("'node_row_ptr' does not fit to the nodes");
    }
    for (const json& row : rows) {
      rows_.push_back(NumberOf(row, kIndex, "node_row_ptr"));
      if (rows_.size() > 1 && rows_.back() < rows_[rows_.size() - 2]) {
        throw Fault("'node_row_ptr' does not ascend");
      }
    }
  }

  void ReadValues() {
    const size_t count = rows_.back();
    const json& shapes = ListAttribute("shape", "list_shape", count);
    const json& types = ListAttribute("dltype", "list_str", count);
    const json& ids = ListAttribute("storage_id", "list_int", count);
    const json& offsets = ListAttribute("offset", "list_int", count);
    const bool symbolic = attrs_.contains("dims");
    const json& dims = symbolic ? ListAttribute("dims", "list_str", count) : shapes;
    for (size_t i = 0; i < count; ++i) {
      PlanValue value;
      const std::string& type = TextOf(types[i], "dltype");
      const auto element = ParseDataType(type);
      if (!element) throw Fault(StrCat("unknown type '", type, "'"));
      value.element = *element;
      value.dims = ShapeOf(shapes[i]);
      if (symbolic) Refine(value.dims, TextOf(dims[i], "dims"));
      const uint64_t id = NumberOf(ids[i], kIndex, "storage_id");
      if (id >= places_.size()) throw Fault(StrCat("unknown storage ", id));
      value.place = places_[id].first;
      value.index = places_[id].second;
      value.offset = NumberOf(offsets[i], kAny, "offset");
      plan_.values.push_back(std::move(value));
    }
  }

  // Unknown where inputs decide.
  static std::vector<Dim> ShapeOf(const json& list) {
    if (!list.is_array()) throw Fault("'shape' holds something but shapes");
    std::vector<Dim> dims;
    for (const json& extent : list) {
      const bool decided = extent != -1;
      const uint64_t most = std::numeric_limits<int64_t>::max();
      dims.push_back(decided ? Dim(static_cast<int64_t>(NumberOf(extent, most, "shape"))) : Dim());
    }
    return dims;
  }

  static void Refine(std::vector<Dim>& shape, const std::string& text) {
    std::vector<Dim> dims = DimsOf(text, "dims");
    const bool fits = std::equal(
        shape.begin(), shape.end(), dims.begin(), dims.end(),
        [](const Dim& a, const Dim& b) { return a.is_constant() ? a == b : !b.is_constant(); });
    if (!fits) throw Fault(StrCat("'shape' and 'dims' ", Quote(text), " contradict each other"));
    shape = std::move(dims);
  }

  void ReadMetadata() {
    if (!attrs_.contains("metadata")) return;
    const json& texts = ListAttribute("metadata", "list_str");
    const json& names = ListAttribute("metadata_names", "list_str", texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      plan_.metadata.push_back({TextOf(names[i], "metadata_names"), TextOf(texts[i], "metadata")});
    }
  }

  void ReadSymbols() {
    const json& names = ListAttribute("symbols", "list_str");
    const json& inputs = ListAttribute("symbol_input", "list_int", names.size());
    const json& axes = ListAttribute("symbol_axis", "list_int", names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      plan_.symbols.push_back({TextOf(names[i], "symbols"),
                               static_cast<uint32_t>(NumberOf(inputs[i], kIndex, "symbol_input")),
                               static_cast<uint32_t>(NumberOf(axes[i], kIndex, "symbol_axis"))});
    }
  }

  void ReadConstraints() {
    for (const json& item : ListAttribute("constraints", "list_object")) {
      if (!item.is_object()) throw Fault("a constraint is not an object");
      const std::string& name = TextOf(Member(item, "kind"), "kind");
      const auto kind = std::find(kConditionNames.begin(), kConditionNames.end(), name);
      if (kind == kConditionNames.end()) {
        throw Fault(StrCat("unknown kind of constraint '", name, "'"));
      }
      const json& sizes = ListOf(item, "sizes");
      if (sizes.size() != 2) throw Fault("a constraint is about two sizes");
      PlanConstraint c;
      c.condition = {static_cast<SizeCondition::Kind>(kind - kConditionNames.begin()),
                     DimOf(TextOf(sizes[0], "sizes"), "sizes"),
                     DimOf(TextOf(sizes[1], "sizes"), "sizes")};
      c.id = TextOf(Member(item, "id"), "id");
      c.message = TextOf(Member(item, "message"), "message");
      c.origin = TextOf(Member(item, "origin"), "origin");
      c.hint = TextOf(Member(item, "hint"), "hint");
      for (const json& note : ListOf(item, "notes")) c.notes.push_back(TextOf(note, "notes"));
      plan_.constraints.push_back(std::move(c));
    }
  }

  // [node, output, version] of one of the first `limit` nodes.
  uint32_t EntryOf(const json& reference, size_t limit) const {
    if (!reference.is_array() || reference.size() < 2) {
      throw Fault("an input is not a list of node, output and version");
    }
    const uint64_t node = NumberOf(reference[0], kIndex, "inputs");
    const uint64_t index = NumberOf(reference[1], kIndex, "inputs");
    if (node >= limit) throw Fault(StrCat("it reads node ", node, ", which is not before it"));
    if (index >= rows_[node + 1] - rows_[node]) {
      throw Fault(StrCat("node ", node, " has no output ", index));
    }
    return static_cast<uint32_t>(rows_[node] + index);
  }

  void ReadNode(const json& node, size_t i) {
    if (!node.is_object()) throw Fault("it is not an object");
    const std::string& op = TextOf(Member(node, "op"), "op");
    const std::string& name = TextOf(Member(node, "name"), "name");
    if (op == "null") return ReadArgument(name, i);
    if (op != "tvm_op") throw Fault(StrCat("unknown kind of node '", op, "'"));
    ReadCall(node, i);
  }

  void ReadArgument(const std::string& name, size_t i) {
    if (rows_[i + 1] - rows_[i] != 1) throw Fault("an argument has one output");
    const auto entry = static_cast<uint32_t>(rows_[i]);
    const PlanValue& value = plan_.values[entry];
    arguments_.push_back(i);
    if (value.place == Place::kInput) {
      plan_.inputs.push_back({name, entry});
      return;
    }
    const bool is_static = std::all_of(value.dims.begin(), value.dims.end(),
                                       [](const Dim& d) { return d.is_constant(); });
    const size_t index = content_.parameters.size();
    const bool is_next = value.place == Place::kVariable ? value.index == plan_.variables.size()
                                                         : value.index == index;
    const bool is_parameter = value.place == Place::kConstant || value.place == Place::kVariable;
    if (!is_parameter || !is_next || value.offset != 0 || !is_static) {
      throw Fault(StrCat("argument '", name, "' is neither an input nor the next parameter"));
    }
    if (value.place == Place::kVariable) plan_.variables.push_back({static_cast<uint32_t>(index)});
    content_.parameters.push_back(value);
    plan_.constant_names.push_back(name);
  }

  void ReadCall(const json& node, size_t i) {
    const json& attrs = Member(node, "attrs");
    if (!attrs.is_object()) throw Fault("'attrs' is not an object");
    const std::string& function = TextOf(Member(attrs, "func_name"), "func_name");
    const json& inputs = ListOf(node, "inputs");
    PlanStep step;
    for (const json& input : inputs) step.values.push_back(EntryOf(input, i));
    step.reads = static_cast<uint32_t>(step.values.size());
    for (uint64_t e = rows_[i]; e < rows_[i + 1]; ++e) {
      step.values.push_back(static_cast<uint32_t>(e));
    }
    CheckCount(attrs, "num_inputs", step.reads);
    CheckCount(attrs, "num_outputs", step.values.size() - step.reads);
    if (function == kNop) return;
    step.label = OptionalText(attrs, "label");
    step.origin = OptionalText(attrs, "origin");
    step.checks = OptionalText(attrs, "checks") == "1";
    step.flops = OptionalDim(attrs, "flops");
    step.bytes = OptionalDim(attrs, "bytes");
    if (function != kCopy) step.kernel = KernelOf(function);
    plan_.steps.push_back(std::move(step));
  }

  static void CheckCount(const json& attrs, const char* key, size_t count) {
    if (TextOf(Member(attrs, key), key) != StrCat(count)) {
      throw Fault(StrCat("'", key, "' is not ", count));
    }
  }

  static std::string OptionalText(const json& attrs, const char* key) {
    return attrs.contains(key) ? TextOf(attrs[key], key) : std::string();
  }

  static Dim OptionalDim(const json& attrs, const char* key) {
    return attrs.contains(key) ? DimOf(TextOf(attrs[key], key), key) : Dim();
  }

  uint32_t KernelOf(const std::string& function) {
    const auto next = static_cast<uint32_t>(content_.kernels.size());
    const auto [found, fresh] = kernel_of_.emplace(function, next);
    if (fresh) content_.kernels.push_back(function);
    return found->second;
  }

  void CheckArguments() const {
    const json& list = ListOf(graph_, "arg_nodes");
    const bool same = std::equal(list.begin(), list.end(), arguments_.begin(), arguments_.end(),
                                 [](const json& a, size_t b) { return a == b; });
    if (!same) throw Fault("'arg_nodes' are not the nodes of kind 'null'");
  }

  void ReadHeads() {
    const json& heads = ListOf(graph_, "heads");
    const json& names = ListAttribute("output_names", "list_str", heads.size());
    for (size_t i = 0; i < heads.size(); ++i) {
      At(StrCat("head ", i), [&] {
        plan_.outputs.push_back(
            {TextOf(names[i], "output_names"), EntryOf(heads[i], rows_.size() - 1)});
      });
    }
  }

  const json& graph_;
  const json& attrs_;
  Content content_;
  Plan& plan_ = content_.plan;
  std::vector<std::pair<Place, uint32_t>> places_;  // by storage id: place and index there
  std::array<uint32_t, kPlaceNames.size()> counts_ = {};
  std::vector<uint64_t> rows_;
  std::vector<size_t> arguments_;
  std::map<std::string, uint32_t, std::less<>> kernel_of_;
};

}  // namespace

Content Read(const std::string& text) {
  const json graph = Parse(text);
  return Reader(graph).Read();
}

}  // namespace lathe::runtime::graph
