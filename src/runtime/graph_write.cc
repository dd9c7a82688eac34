#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lathe/support/error.h"
#include "src/runtime/graph_format.h"

namespace lathe::runtime::graph {
namespace {

using Json = nlohmann::ordered_json;
using Place = PlanValue::Place;

std::string Dump(const Json& json) {
  try {
    return json.dump();
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kInvalidArgument, "artifact/name",
                "a name in this program is not UTF-8, so no graph of it can be written");
  }
}

// Bytes of what has one size; nothing of what depends on symbols.
std::optional<uint64_t> BytesOf(const PlanValue& value) {
  uint64_t count = 1;
  for (const Dim& dim : value.dims) {
    if (!dim.is_constant()) return std::nullopt;
    count *= static_cast<uint64_t>(dim.value());
  }
  return StorageBytes(value.element, count);
}

bool IsWhole(const PlanValue& value, const Tensor& constant) {
  const Shape& shape = constant.shape();
  return value.offset == 0 && value.element == constant.element_type() &&
         std::equal(value.dims.begin(), value.dims.end(), shape.begin(), shape.end(),
                    [](const Dim& dim, int64_t extent) { return dim.IsConstant(extent); });
}

class Writer {
 public:
  Writer(const Plan& plan, const std::vector<std::string>& parameters,
         const std::vector<std::string>& kernels)
      : plan_(plan), parameters_(parameters), kernels_(kernels), values_(plan.values) {
    const std::array<size_t, kPlaceNames.size()> counts = {
        plan.inputs.size(), plan.outputs.size(), plan.constants.size(), plan.storages.size(),
        plan.variables.size()};
    for (size_t p = 0; p < counts.size(); ++p) {
      first_id_[p] = places_.size();
      for (size_t i = 0; i < counts[p]; ++i) places_.push_back(kPlaceNames[p]);
    }
    entries_in_.resize(places_.size());
    for (uint32_t i = 0; i < plan.constants.size(); ++i) {
      const Tensor& t = plan.constants[i];
      values_.push_back(
          {t.element_type(), {t.shape().begin(), t.shape().end()}, Place::kConstant, i, 0});
    }
    for (uint32_t i = 0; i < plan.variables.size(); ++i) {
      PlanValue& whole = values_[ConstantValue(plan.variables[i].initial)];
      whole.place = Place::kVariable;
      whole.index = i;
    }
    entry_of_.assign(values_.size(), kNone);
  }

  std::string Write(uint64_t library) {
    for (const PlanPort& port : plan_.inputs) AddArgument(port.value, port.name);
    for (size_t i = 0; i < parameters_.size(); ++i) AddArgument(ConstantValue(i), parameters_[i]);
    for (const PlanStep& step : plan_.steps) AddStep(step);
    Json heads = Json::array();
    for (const PlanPort& port : plan_.outputs) heads.push_back(Reference(EntryOf(port.value)));
    std::string out = "{\n\"nodes\": [";
    for (size_t i = 0; i < nodes_.size(); ++i) {
      out += StrCat(i == 0 ? "\n  " : ",\n  ", Dump(nodes_[i]));
    }
    out += StrCat("\n],\n\"arg_nodes\": ", Dump(arguments_), ",\n\"heads\": ", Dump(heads),
                  ",\n\"node_row_ptr\": ", Dump(rows_), ",\n\"attrs\": {");
    const Json attributes = Attributes(library);
    const char* separator = "\n  ";
    for (const auto& [key, value] : attributes.items()) {
      out += StrCat(separator, "\"", key, "\": ", Dump(value));
      separator = ",\n  ";
    }
    return out + "\n}\n}\n";
  }

 private:
  // Output `index` of a node.
  struct Entry {
    size_t node, index;
    uint32_t value;
  };

  uint32_t ConstantValue(size_t constant) const {
    return static_cast<uint32_t>(plan_.values.size() + constant);
  }
  size_t StorageOf(const PlanValue& value) const {
    return first_id_[static_cast<size_t>(value.place)] + value.index;
  }
  Json Reference(uint32_t entry) const {
    return Json::array({entries_[entry].node, entries_[entry].index, 0});
  }

  std::string Fresh(const std::string& base) {
    std::string name = base;
    for (size_t& i = suffixes_[base]; !taken_.insert(name).second;) name = StrCat(base, "_", ++i);
    return name;
  }

  // The value is the next output of the node that is being made.
  void AddEntry(uint32_t value, size_t index) {
    entry_of_[value] = static_cast<uint32_t>(entries_.size());
    entries_.push_back({nodes_.size(), index, value});
  }
  void AddNode(Json node) {
    nodes_.push_back(std::move(node));
    rows_.push_back(entries_.size());
  }

  void AddArgument(uint32_t value, const std::string& name) {
    taken_.insert(name);
    arguments_.push_back(nodes_.size());
    AddEntry(value, 0);
    entries_in_[StorageOf(values_[value])].push_back(entry_of_[value]);
    AddNode({{"op", "null"}, {"name", name}, {"inputs", Json::array()}});
  }

  // Attributes of calls are text.
  static Json CallAttributes(std::string_view function, size_t inputs, size_t outputs) {
    return {{"func_name", function},
            {"num_inputs", StrCat(inputs)},
            {"num_outputs", StrCat(outputs)},
            {"flatten_data", "0"}};
  }

  void AddStep(const PlanStep& step) {
    Json inputs = Json::array();
    for (size_t i = 0; i < step.reads; ++i) inputs.push_back(Reference(EntryOf(step.values[i])));
    const size_t num_outputs = step.values.size() - step.reads;
    const std::string function = step.kernel == kNone ? std::string(kCopy) : kernels_[step.kernel];
    Json attributes = CallAttributes(function, step.reads, num_outputs);
    attributes["label"] = step.label;
    if (!step.origin.empty()) attributes["origin"] = step.origin;
    if (step.checks) attributes["checks"] = "1";
    if (!step.flops.is_unknown()) attributes["flops"] = step.flops.ToString();
    if (!step.bytes.is_unknown()) attributes["bytes"] = step.bytes.ToString();
    for (size_t i = 0; i < num_outputs; ++i) {
      const uint32_t value = step.values[step.reads + i];
      AddEntry(value, i);
      entries_in_[StorageOf(values_[value])].push_back(entry_of_[value]);
    }
    AddNode({{"op", "tvm_op"},
             {"name", Fresh(step.kernel == kNone ? "copy" : function)},
             {"attrs", std::move(attributes)},
             {"inputs", std::move(inputs)}});
  }

  uint32_t EntryOf(uint32_t value) {
    if (entry_of_[value] != kNone) return entry_of_[value];
    const PlanValue& v = values_[value];
    if (const auto constant = UnchangedIn(v)) return entry_of_[ConstantValue(*constant)];
    AddView(value);
    return entry_of_[value];
  }

  // The constant that a value is all of, or its variable if nothing has written that yet.
  std::optional<uint32_t> UnchangedIn(const PlanValue& v) const {
    if (v.place != Place::kConstant && v.place != Place::kVariable) return std::nullopt;
    const bool constant = v.place == Place::kConstant;
    if (!constant && entries_in_[StorageOf(v)].size() > 1) return std::nullopt;
    const uint32_t index = constant ? v.index : plan_.variables[v.index].initial;
    return IsWhole(v, plan_.constants[index]) ? std::optional(index) : std::nullopt;
  }

  // Another name for memory that nodes before have written: those of the last ones that it takes to
  // fill it.
  void AddView(uint32_t value) {
    const PlanValue& v = values_[value];
    const std::optional<uint64_t> bytes = BytesOf(v);
    const std::vector<uint32_t>& entries = entries_in_[StorageOf(v)];
    std::vector<uint32_t> sources;
    for (size_t i = entries.size(); i-- > 0;) {
      const PlanValue& from = values_[entries_[entries[i]].value];
      const std::optional<uint64_t> size = BytesOf(from);
      if (bytes && size && (from.offset + *size <= v.offset || v.offset + *bytes <= from.offset)) {
        continue;
      }
      sources.push_back(entries[i]);
      const bool covers =
          bytes && size && from.offset <= v.offset && v.offset + *bytes <= from.offset + *size;
      if (covers) break;
    }
    Json inputs = Json::array();
    for (size_t i = sources.size(); i-- > 0;) inputs.push_back(Reference(sources[i]));
    AddEntry(value, 0);
    AddNode({{"op", "tvm_op"},
             {"name", Fresh("nop")},
             {"attrs", CallAttributes(kNop, inputs.size(), 1)},
             {"inputs", std::move(inputs)}});
  }

  // What an attribute is, as the format spells it, and the attribute.
  static Json Typed(const char* sort, Json value) { return Json::array({sort, std::move(value)}); }

  Json Attributes(uint64_t library) const {
    Json attrs;
    attrs["lathe_version"] = Typed("int", kVersion);
    attrs["target"] = Typed("str", plan_.code.target);
    attrs["precision"] = Typed("str", plan_.precision);
    attrs["library"] = Typed("str", StrCat(library));
    Json names = Json::array();
    for (const PlanPort& port : plan_.outputs) names.push_back(port.name);
    attrs["output_names"] = Typed("list_str", std::move(names));
    AddSymbols(attrs);
    AddConstraints(attrs);
    AddEntries(attrs);
    AddStorages(attrs);
    AddMetadata(attrs);
    return attrs;
  }

  void AddMetadata(Json& attrs) const {
    if (plan_.metadata.empty()) return;
    Json names = Json::array(), texts = Json::array();
    for (const PlanText& entry : plan_.metadata) {
      names.push_back(entry.name);
      texts.push_back(entry.text);
    }
    attrs["metadata_names"] = Typed("list_str", std::move(names));
    attrs["metadata"] = Typed("list_str", std::move(texts));
  }

  void AddSymbols(Json& attrs) const {
    Json names = Json::array(), inputs = Json::array(), axes = Json::array();
    for (const PlanSymbol& symbol : plan_.symbols) {
      names.push_back(symbol.name);
      inputs.push_back(symbol.input);
      axes.push_back(symbol.axis);
    }
    attrs["symbols"] = Typed("list_str", std::move(names));
    attrs["symbol_input"] = Typed("list_int", std::move(inputs));
    attrs["symbol_axis"] = Typed("list_int", std::move(axes));
  }

  void AddConstraints(Json& attrs) const {
    Json list = Json::array();
    for (const PlanConstraint& c : plan_.constraints) {
      const SizeCondition& condition = c.condition;
      list.push_back({{"kind", kConditionNames[static_cast<size_t>(condition.kind)]},
                      {"sizes", {condition.a.ToString(), condition.b.ToString()}},
                      {"id", c.id},
                      {"message", c.message},
                      {"origin", c.origin},
                      {"hint", c.hint},
                      {"notes", c.notes}});
    }
    attrs["constraints"] = Typed("list_object", std::move(list));
  }

  void AddEntries(Json& attrs) const {
    Json shapes = Json::array(), types = Json::array(), ids = Json::array(),
         offsets = Json::array(), all_dims = Json::array();
    for (const Entry& entry : entries_) {
      const PlanValue& v = values_[entry.value];
      Json shape = Json::array();
      std::string dims;
      for (const Dim& dim : v.dims) {
        shape.push_back(dim.is_constant() ? dim.value() : -1);
        dims += StrCat(dims.empty() ? "" : ",", dim.ToString());
      }
      shapes.push_back(std::move(shape));
      all_dims.push_back(std::move(dims));
      types.push_back(DataTypeName(v.element));
      ids.push_back(StorageOf(v));
      offsets.push_back(v.offset);
    }
    attrs["shape"] = Typed("list_shape", std::move(shapes));
    attrs["dltype"] = Typed("list_str", std::move(types));
    attrs["storage_id"] = Typed("list_int", std::move(ids));
    attrs["offset"] = Typed("list_int", std::move(offsets));
    if (!plan_.symbols.empty()) attrs["dims"] = Typed("list_str", std::move(all_dims));
  }

  void AddStorages(Json& attrs) const {
    Json places = Json::array(), bytes = Json::array(), begins = Json::array(),
         ends = Json::array(), offsets = Json::array();
    for (const std::string_view place : places_) places.push_back(place);
    for (const PlanStorage& storage : plan_.storages) {
      bytes.push_back(storage.bytes.ToString());
      begins.push_back(storage.begin);
      ends.push_back(storage.end);
      offsets.push_back(storage.offset);
    }
    attrs["storage_place"] = Typed("list_str", std::move(places));
    attrs["arena_bytes"] = Typed("list_str", std::move(bytes));
    attrs["arena_begin"] = Typed("list_int", std::move(begins));
    attrs["arena_end"] = Typed("list_int", std::move(ends));
    attrs["arena_offset"] = Typed("list_int", std::move(offsets));
  }

  const Plan& plan_;
  const std::vector<std::string>& parameters_;
  const std::vector<std::string>& kernels_;
  std::vector<PlanValue> values_;  // of the plan, then each constant as a whole
  std::array<size_t, kPlaceNames.size()> first_id_ = {};
  std::vector<std::string_view> places_;           // by storage id
  std::vector<std::vector<uint32_t>> entries_in_;  // by storage id; views are none
  std::vector<uint32_t> entry_of_;                 // by value: the last one
  std::vector<Entry> entries_;
  std::vector<Json> nodes_;
  Json arguments_ = Json::array(), rows_ = Json::array({0});
  std::set<std::string, std::less<>> taken_;
  std::map<std::string, size_t> suffixes_;
};

}  // namespace

std::string Write(const Plan& plan, const std::vector<std::string>& parameters,
                  const std::vector<std::string>& kernels, uint64_t library) {
  const bool evaluates = plan.num_objects > 0 || !plan.functions.empty();
  if (evaluates || std::ranges::any_of(plan.steps, &PlanStep::is_control)) {
    throw Error(ErrorCode::kUnsupported, "artifact/branch",
                StrCat("a graph (.json) cannot hold a program with ",
                       evaluates ? "operations without code" : "branches"))
        .Hint("save it as one file (.lx)");
  }
  return Writer(plan, parameters, kernels).Write(library);
}

}  // namespace lathe::runtime::graph
