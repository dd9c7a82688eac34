#include "lathe/pass/pass.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "lathe/ir/context.h"
#include "lathe/ir/verify.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

constexpr const char* kPassesRun = "passes_run";

const PassOption& OptionOf(const PassInfo* info, std::string_view name) {
  std::vector<std::string> names;
  if (info != nullptr) {
    for (const PassOption& o : info->options) {
      if (o.name == name) return o;
      names.push_back(o.name);
    }
  }
  Error error(ErrorCode::kNotFound, "pass/option",
              StrCat("pass '", info == nullptr ? "?" : info->name, "' has no option '", name, "'"));
  if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
  throw error;
}

bool IsOfKind(PassOption::Kind kind, std::string_view text) {
  switch (kind) {
    case PassOption::Kind::kBool:
      return text == "true" || text == "false";
    case PassOption::Kind::kInt:
      return ParseInt(text).has_value();
    case PassOption::Kind::kFloat:
      return ParseDouble(text).has_value();
    case PassOption::Kind::kString:
    case PassOption::Kind::kStrings:
      return true;
  }
  return false;
}

const char* KindName(PassOption::Kind kind) {
  static constexpr const char* kNames[] = {"true or false", "an integer", "a number", "text",
                                           "a list [a, b]"};
  return kNames[static_cast<size_t>(kind)];
}

void CheckRequirements(const PassInfo& info, const Pass& pass, Graph& graph) {
  const auto fail = [&](const char* id, std::string message) {
    throw Error(ErrorCode::kInvalidArgument, id, std::move(message))
        .At(StrCat("pass '", info.name, "'"));
  };
  for (const std::string& name : info.required_pass_attrs) {
    if (!pass.Has(name))
      fail("pass/missing-attr", StrCat("required pass attribute '", name, "' is not set"));
  }
  for (const std::string& name : info.required_graph_attrs) {
    if (!graph.Has(name)) {
      fail("pass/missing-graph-attr", StrCat("required graph attribute '", name, "' is not set"));
    }
  }
  const auto& run = graph.GetOrInit<std::vector<std::string>>(kPassesRun);
  const auto has_run = [&](const std::string& name) {
    return std::find(run.begin(), run.end(), name) != run.end();
  };
  for (const std::string& name : info.required_passes) {
    if (!has_run(name)) fail("pass/missing-pass", StrCat("pass '", name, "' has to run before it"));
  }
  for (const std::string& name : info.conflicts) {
    if (has_run(name)) fail("pass/conflict", StrCat("it cannot run after pass '", name, "'"));
  }
}

/// The program or, of a block within it, the operation that holds it.
void VerifyGraph(const Graph& graph, const std::string& after) {
  if (graph.block() == graph.program().block()) {
    VerifyOrThrow(graph.program(), {.after = after});
  } else {
    std::vector<Error> errors = Verify(graph.block()->parent_op(), {.after = after});
    if (!errors.empty()) throw std::move(errors.front());
  }
}

}  // namespace

// ---- applying ----

void Pass::Apply(Program& program) {
  Graph graph(program);
  Apply(graph);
}

void Pass::Apply(Graph& graph) {
  static const PassInfo kUnregistered{};
  CheckRequirements(info_ != nullptr ? *info_ : kUnregistered, *this, graph);
  changed_ = false;
  struct Scope {
    Pass& pass;
    ~Scope() { pass.scope_ = nullptr; }
  };
  {
    const Scope scope{*this};
    scope_ = graph.block();
    ApplyImpl(graph);
  }
  graph.GetOrInit<std::vector<std::string>>(kPassesRun).push_back(name_);
  if (changed_ && (context_ == nullptr || context_->verify())) VerifyGraph(graph, name_);
}

void Pass::Count(std::string_view statistic, int64_t n) {
  auto at = statistics_.find(statistic);
  if (at == statistics_.end()) at = statistics_.emplace(std::string(statistic), 0).first;
  at->second += n;
}

void Pass::Note(Remark::Kind kind, const Operation* op, std::string message) {
  if (context_ == nullptr || !context_->wants_remarks()) return;
  context_->AddRemark(
      {kind, name_, op == nullptr ? std::string() : op->Describe(), std::move(message)});
}
void Pass::Applied(const Operation* op, std::string message) {
  Note(Remark::Kind::kApplied, op, std::move(message));
}
void Pass::Missed(const Operation* op, std::string why) {
  Note(Remark::Kind::kMissed, op, std::move(why));
}

// ---- options ----

const std::string& Pass::option(std::string_view option_name) const {
  auto at = options_.find(option_name);
  return at != options_.end() ? at->second : OptionOf(info_, option_name).default_text;
}
bool Pass::option_bool(std::string_view option_name) const { return option(option_name) == "true"; }
int64_t Pass::option_int(std::string_view option_name) const {
  return *ParseInt(option(option_name));
}
double Pass::option_float(std::string_view option_name) const {
  return *ParseDouble(option(option_name));
}

std::vector<std::string> Pass::option_list(std::string_view option_name) const {
  std::string_view text = option(option_name);
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<std::string> items;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (!item.empty()) items.emplace_back(item);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return items;
}

void Pass::SetOption(std::string_view option_name, std::string_view text) {
  const PassOption& o = OptionOf(info_, option_name);
  if (!IsOfKind(o.kind, text)) {
    throw Error(ErrorCode::kInvalidArgument, "pass/option",
                StrCat("option '", option_name, "' takes ", KindName(o.kind), ", not '", text, "'"))
        .At(StrCat("pass '", name_, "'"));
  }
  if (o.kind == PassOption::Kind::kInt && *ParseInt(text) < o.least) {
    throw Error(ErrorCode::kInvalidArgument, "pass/option",
                StrCat("option '", option_name, "' is ", text, "; it must be at least ", o.least))
        .At(StrCat("pass '", name_, "'"));
  }
  options_.insert_or_assign(o.name, std::string(text));
}

std::string Pass::ToText() const {
  std::string text = name_;
  bool first = true;
  for (const auto& [option_name, value] : options_) {
    if (value == OptionOf(info_, option_name).default_text) continue;
    text += StrCat(first ? "{" : ",", option_name, "=", value);
    first = false;
  }
  return first ? text : text + "}";
}

// ---- registry ----

PassRegistry& PassRegistry::Global() {
  static PassRegistry registry;
  return registry;
}

namespace {
/// Plug-ins and Python may register passes while other threads look some up.
std::shared_mutex& RegistryMutex() {
  static std::shared_mutex mutex;
  return mutex;
}
}  // namespace

PassInfo& PassRegistry::Register(std::string name, std::function<std::unique_ptr<Pass>()> make) {
  const std::unique_lock lock(RegistryMutex());
  auto [at, inserted] = passes_.try_emplace(name);
  if (!inserted) duplicates_.push_back(name);
  at->second.name = std::move(name);
  at->second.make = std::move(make);
  return at->second;
}

bool PassRegistry::Has(std::string_view name) const {
  const std::shared_lock lock(RegistryMutex());
  return passes_.find(name) != passes_.end();
}

const PassInfo& PassRegistry::Find(std::string_view name) const {
  const std::shared_lock lock(RegistryMutex());
  if (!duplicates_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "pass/duplicate",
                StrCat("pass '", duplicates_[0], "' is registered twice"));
  }
  auto at = passes_.find(name);
  if (at != passes_.end()) return at->second;
  std::vector<std::string> names;
  for (const auto& [known, info] : passes_) names.push_back(known);
  const std::string near = DidYouMean(name, names);
  throw Error(ErrorCode::kNotFound, "pass/unknown", StrCat("there is no pass '", name, "'"))
      .Hint(near.empty() ? "`lathe opt --list-passes` shows them all" : near);
}

std::unique_ptr<Pass> PassRegistry::Make(std::string_view name) const {
  const PassInfo& info = Find(name);
  std::unique_ptr<Pass> pass = info.make();
  pass->name_ = info.name;
  pass->info_ = &info;
  for (const auto& set_default : info.defaults) set_default(*pass);
  return pass;
}

std::unique_ptr<Pass> PassRegistry::Clone(const Pass& pass) const {
  std::unique_ptr<Pass> copy = Make(pass.name());
  copy->options_ = pass.options_;
  static_cast<AnyAttrs&>(*copy) = static_cast<const AnyAttrs&>(pass);
  return copy;
}

std::vector<const PassInfo*> PassRegistry::All() const {
  const std::shared_lock lock(RegistryMutex());
  std::vector<const PassInfo*> all;
  for (const auto& [name, info] : passes_) all.push_back(&info);
  return all;
}

PassRegistrar& PassRegistrar::Doc(std::string text) {
  info_.doc = std::move(text);
  return *this;
}
PassRegistrar& PassRegistrar::Details(std::string text) {
  info_.details = std::move(text);
  return *this;
}
PassRegistrar& PassRegistrar::RequirePassAttr(std::string name) {
  info_.required_pass_attrs.push_back(std::move(name));
  return *this;
}
PassRegistrar& PassRegistrar::RequireGraphAttr(std::string name) {
  info_.required_graph_attrs.push_back(std::move(name));
  return *this;
}
PassRegistrar& PassRegistrar::RequirePass(std::string name) {
  info_.required_passes.push_back(std::move(name));
  return *this;
}
PassRegistrar& PassRegistrar::ConflictsWith(std::string name) {
  info_.conflicts.push_back(std::move(name));
  return *this;
}
PassRegistrar& PassRegistrar::Option(std::string name, PassOption::Kind kind,
                                     std::string default_text, std::string doc) {
  info_.options.push_back({std::move(name), kind, std::move(default_text), std::move(doc)});
  return *this;
}
PassRegistrar& PassRegistrar::AtLeast(int64_t least) {
  LATHE_CHECK(!info_.options.empty() && info_.options.back().kind == PassOption::Kind::kInt,
              "a minimum is of an integer option");
  info_.options.back().least = least;
  return *this;
}

}  // namespace lathe
