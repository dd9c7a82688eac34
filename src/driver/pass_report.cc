#include "lathe/driver/pass_report.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/ir/op_def.h"
#include "lathe/ir/walk.h"
#include "lathe/support/clock.h"
#include "lathe/support/file.h"
#include "lathe/support/hash.h"
#include "lathe/support/printable.h"
#include "lathe/support/text.h"
#include "src/driver/pass_report_page.h"

namespace lathe {

namespace {

using Json = nlohmann::json;

/// Longer texts of attributes and locations are cut.
constexpr size_t kMaxText = 300;
/// Tensors with more elements are shown by their type only.
constexpr int64_t kMaxElements = 16;

/// Numbers texts in order of first appearance.
class Numbering {
 public:
  size_t Of(const std::string& text) {
    const auto [at, is_new] = numbers_.try_emplace(Printable(text), numbers_.size());
    if (is_new) texts_.push_back(&at->first);
    return at->second;
  }
  const std::vector<const std::string*>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<const std::string*> texts_;
};

std::string Cut(std::string text) {
  if (text.size() <= kMaxText) return text;
  size_t end = kMaxText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + " ...";
}

std::string AttributeText(Attribute attribute) {
  if (const auto tensor = attribute.dyn_cast<TensorAttribute>()) {
    const Tensor& value = tensor.value();
    if (value.num_elements() > kMaxElements && value.raw() != nullptr) {
      return StrCat("tensor of ", value.num_elements(), " elements, ",
                    HumanBytes(value.byte_size()), ", hash ",
                    HashBytes(value.raw(), value.byte_size()) >> 32U);
    }
  }
  return Cut(attribute.ToString());
}

std::string LocationText(Location location, IrContext& context) {
  return location.is_unknown() ? "" : Cut(location.ToString(context));
}

/// The region of its parent that holds `op`.
size_t RegionNumber(const Operation* op) {
  const Operation* parent = op->parent_op();
  size_t number = 0;
  while (number < parent->num_regions() && &parent->region(number) != op->block()->region()) {
    ++number;
  }
  return number;
}

}  // namespace

struct PassReport::Impl {
  /// What one op is apart from its place in the graph, as numbers of texts: name, location,
  /// attributes, types of results, types of block arguments, and of an op with regions their names
  /// and the number of arguments of each.
  std::string RecordOf(const Operation* op);
  Json RegionsOf(const Operation* op);
  Json Snapshot(const Program& program);
  void Finish(const Pass& pass, Program& program, bool changed, const std::string& error);
  Json ToJson() const;

  std::string title;
  double start = 0;
  bool open = false;   // a pass is running
  size_t num_ops = 0;  // of the last snapshot
  Numbering strings, records;
  std::vector<Json> graphs;
  Json passes = Json::array();
};

std::string PassReport::Impl::RecordOf(const Operation* op) {
  Json attributes = Json::array(), types = Json::array(), arguments = Json::array();
  for (const NamedAttribute& a : op->attributes().entries()) {
    attributes.push_back(strings.Of(std::string(a.name.value())));
    attributes.push_back(strings.Of(AttributeText(a.value)));
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    types.push_back(strings.Of(op->result(i).type().ToString()));
  }
  for (Region& region : op->regions()) {
    for (const Block& block : region) {
      for (size_t i = 0; i < block.num_arguments(); ++i) {
        arguments.push_back(strings.Of(block.argument(i).type().ToString()));
      }
    }
  }
  Json record{strings.Of(std::string(op->name())),
              strings.Of(LocationText(op->location(), *op->context())), std::move(attributes),
              std::move(types), std::move(arguments)};
  if (op->num_regions() > 0) record.push_back(RegionsOf(op));
  return record.dump();
}

/// [name, number of arguments] of each region.
Json PassReport::Impl::RegionsOf(const Operation* op) {
  Json regions = Json::array();
  const OpDef* def = op->info().def();
  for (size_t i = 0; i < op->num_regions(); ++i) {
    const bool named = def != nullptr && i < def->regions.size();
    size_t arguments = 0;
    for (const Block& block : op->region(i)) arguments += block.num_arguments();
    regions.push_back(
        {strings.Of(named ? std::string(def->regions[i].name) : StrCat("region ", i)), arguments});
  }
  return regions;
}

/// {n: record of each op in program order, i: operands of each as numbers of values, p: the op
/// around each, or -1, r: the number of its region there}. Values are numbered in order: results of
/// an op, then its block arguments.
Json PassReport::Impl::Snapshot(const Program& program) {
  std::unordered_map<const Operation*, int64_t> ops;  // look-up only
  std::unordered_map<Value, int64_t> values;
  const auto define = [&](Value v) { values.emplace(v, static_cast<int64_t>(values.size())); };
  Json nodes = Json::array(), inputs = Json::array(), parents = Json::array();
  Json region_numbers = Json::array();
  bool nested = false;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    const auto parent = ops.find(op->parent_op());
    parents.push_back(parent == ops.end() ? -1 : parent->second);
    nested |= parent != ops.end();
    region_numbers.push_back(parent == ops.end() ? 0 : RegionNumber(op));
    ops.emplace(op, static_cast<int64_t>(ops.size()));
    nodes.push_back(records.Of(RecordOf(op)));
    for (size_t i = 0; i < op->num_results(); ++i) define(op->result(i));
    for (Region& region : op->regions()) {
      for (const Block& block : region) {
        for (size_t i = 0; i < block.num_arguments(); ++i) define(block.argument(i));
      }
    }
    Json operands = Json::array();
    for (const detail::OpOperandImpl& o : op->operands()) {
      const auto at = o.value == nullptr ? values.end() : values.find(Value(o.value));
      operands.push_back(at == values.end() ? -1 : at->second);
    }
    inputs.push_back(std::move(operands));
  }
  num_ops = ops.size();
  Json graph{{"n", std::move(nodes)}, {"i", std::move(inputs)}};
  if (nested) {
    graph["p"] = std::move(parents);
    graph["r"] = std::move(region_numbers);
  }
  return graph;
}

void PassReport::Impl::Finish(const Pass& pass, Program& program, bool changed,
                              const std::string& error) {
  const double seconds = SecondsNow() - start;
  open = false;
  const size_t ops_before = num_ops, before = graphs.size() - 1;
  if (changed) {
    Json after = Snapshot(program);
    if (after != graphs.back()) graphs.push_back(std::move(after));
  }
  Json statistics = Json::object();
  for (const auto& [name, count] : pass.statistics()) {
    if (count != 0) statistics[name] = count;
  }
  passes.push_back({{"name", pass.name()},
                    {"text", pass.ToText()},
                    {"ms", static_cast<double>(static_cast<int64_t>(seconds * 1e6)) / 1e3},
                    {"before", before},
                    {"after", graphs.size() - 1},
                    {"ops", {ops_before, num_ops}},
                    {"stats", std::move(statistics)}});
  if (!error.empty()) passes.back()["error"] = error;
}

Json PassReport::Impl::ToJson() const {
  Json data{{"title", title}, {"passes", passes}, {"graphs", graphs}};
  Json& texts = data["strings"] = Json::array();
  for (const std::string* text : strings.texts()) texts.push_back(*text);
  Json& all = data["records"] = Json::array();
  for (const std::string* text : records.texts()) all.push_back(Json::parse(*text));
  return data;
}

/// Remarks come in the order of the passes; each run of them belongs to the next pass of that name,
/// one that changed something if they say so.
void PassReport::SetRemarks(const std::vector<Remark>& remarks) {
  size_t at = 0;
  for (Json& pass : impl_->passes) {
    if (at == remarks.size()) return;
    const auto& name = pass["name"].get_ref<const std::string&>();
    size_t end = at;
    bool applied = false;
    for (; end < remarks.size() && remarks[end].pass == name; ++end) {
      applied |= remarks[end].kind == Remark::Kind::kApplied;
    }
    if (end == at || (applied && pass["before"] == pass["after"])) continue;
    Json list = Json::array();
    for (; at < end; ++at) {
      const Remark& r = remarks[at];
      list.push_back({static_cast<int>(r.kind), impl_->strings.Of(Cut(r.message)),
                      impl_->strings.Of(Cut(r.where))});
    }
    pass["remarks"] = std::move(list);
  }
}

PassReport::PassReport(std::string title) : impl_(std::make_unique<Impl>()) {
  impl_->title = PrintableLine(title);
}
PassReport::~PassReport() = default;

void PassReport::BeforePass(const Pass&, Program& program) {
  if (impl_->graphs.empty()) impl_->graphs.push_back(impl_->Snapshot(program));
  impl_->open = true;
  impl_->start = SecondsNow();
}

void PassReport::AfterPass(const Pass& pass, Program& program) {
  impl_->Finish(pass, program, pass.changed(), "");
}

void PassReport::AfterFailure(const Pass& pass, Program& program, const Error& error) {
  if (impl_->open) return impl_->Finish(pass, program, true, error.message());
  impl_->passes.back()["error"] = error.message();  // a check after the pass
}

/// Inside a script element `</` and `<!` would end or change it; JSON has another way to write '<'.
std::string PassReport::ToHtml() const {
  const ReportPage page = GetReportPage();
  std::string html(page.before);
  for (const char c : JsonText(impl_->ToJson())) {
    if (c == '<') {
      html += "\\u003c";
    } else {
      html += c;
    }
  }
  html += page.after;
  return html;
}

std::string PassReport::PathIn(const std::string& folder) { return folder + "/report.html"; }

void PassReport::Write(const std::string& folder) const {
  MakeDirectory(folder);
  WriteFile(PathIn(folder), ToHtml());
}

}  // namespace lathe
