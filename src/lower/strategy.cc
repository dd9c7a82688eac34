#include "lathe/lower/strategy.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "src/lower/strategies/list.h"

namespace lathe {

namespace {

Dim ExtentOf(Value v, int64_t axis) {
  const auto type = v ? v.type().dyn_cast<AnyTensorType>() : AnyTensorType();
  if (!type || !type.has_rank()) return Dim::Unknown();
  const auto rank = static_cast<int64_t>(type.rank());
  if (axis < -rank || axis >= rank) return Dim::Unknown();
  return type.dims()[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
}

std::string TypeText(Value v) { return v ? v.type().ToString() : "none"; }

std::string Seconds(double seconds) {
  std::string text;
  AppendDouble(text, seconds * 1e3);
  return text + " ms";
}

}  // namespace

Dim OpCall::InputDim(size_t i, int64_t axis) const {
  return i < op->num_operands() ? ExtentOf(op->operand(i), axis) : Dim::Unknown();
}

Dim OpCall::OutputDim(size_t i, int64_t axis) const {
  return i < op->num_results() ? ExtentOf(op->result(i), axis) : Dim::Unknown();
}

std::string OpCall::Workload() const {
  if (!workload.empty()) return workload;
  std::string text = StrCat(op->name(), "(");
  for (size_t i = 0; i < op->num_operands(); ++i) {
    text += StrCat(i == 0 ? "" : ", ", TypeText(op->operand(i)));
  }
  text += ")";
  for (const StrAttribute name : op->info().impl()->attribute_names()) {
    if (const Attribute value = op->attributes().Find(name)) {
      text += StrCat(" ", name.value(), "=", value.ToString());
    }
  }
  return text;
}

OpStrategy& OpStrategy::Add(const Condition& condition, OpImplementation implementation) {
  if (specializations_.empty() || !(specializations_.back().condition == condition)) {
    specializations_.push_back({condition, {}});
  }
  specializations_.back().implementations.push_back(std::move(implementation));
  return *this;
}

// ---- selection ----

namespace {

std::vector<Candidate> Judge(const OpStrategy& strategy, const OpCall& call,
                             const TuningRecords* records) {
  std::vector<Candidate> result;
  const std::string workload = records == nullptr ? "" : call.Workload();
  for (const OpSpecialization& s : strategy.specializations()) {
    const Truth holds = s.condition.Prove();
    for (const OpImplementation& i : s.implementations) {
      Candidate c{&i, s.condition, holds, ""};
      if (holds == Truth::kFalse) {
        c.refused = StrCat("it needs ", s.condition.ToString());
      } else if (i.refuse) {
        c.refused = i.refuse(call);
      }
      if (records != nullptr) c.measured = records->Find(workload, call.target->name, i.name);
      if (c.refused.empty() && i.cost) c.estimated = i.cost(call);
      result.push_back(std::move(c));
    }
  }
  return result;
}

/// Valid candidates, the preferred first.
std::vector<size_t> Rank(const std::vector<Candidate>& candidates) {
  std::vector<size_t> order;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].refused.empty()) order.push_back(i);
  }
  const auto key = [&](size_t i) {
    const Candidate& c = candidates[i];
    return std::tuple(c.measured.value_or(std::numeric_limits<double>::infinity()),
                      -c.implementation->plevel);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

[[noreturn]] void NoImplementation(const OpCall& call, const std::vector<Candidate>& candidates) {
  const std::string_view op = call.op->name();
  Error error(ErrorCode::kUnsupported, "lower/no-implementation",
              StrCat(op, " has no implementation for target '", call.target->name,
                     "' that is valid for all its shapes"));
  error.At(call.op->location().ToString(*call.op->context()));
  for (size_t i = 0; i < call.op->num_operands(); ++i) {
    error.Note(StrCat("operand ", i, ": ", TypeText(call.op->operand(i))));
  }
  for (const Candidate& c : candidates) {
    error.Note(StrCat(c.implementation->name, ": ",
                      c.refused.empty() ? StrCat("it is not known whether ", c.condition.ToString())
                                        : c.refused));
  }
  throw std::move(error);
}

}  // namespace

Selection SelectImplementation(const OpStrategy& strategy, const OpCall& call,
                               const TuningRecords* records) {
  Selection result{Judge(strategy, call, records), {}};
  Condition covered = Condition::Always(false);
  std::set<std::string> served;
  for (const size_t i : Rank(result.candidates)) {
    const Condition& condition = result.candidates[i].condition;
    if (!served.insert(condition.ToString()).second) continue;
    result.dispatch.push_back(i);
    covered = covered || condition;
    if (covered.Prove() == Truth::kTrue) return result;
  }
  NoImplementation(call, result.candidates);
}

const OpImplementation& Selection::Pick(const Dim::Lookup& lookup) const {
  for (const size_t i : dispatch) {
    if (i == dispatch.back() || candidates[i].condition.Evaluate(lookup).value_or(false)) {
      return *candidates[i].implementation;
    }
  }
  LATHE_CHECK(false, "an empty dispatch");
}

std::string Selection::Explain() const {
  std::string text;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& c = candidates[i];
    const auto at = std::find(dispatch.begin(), dispatch.end(), i);
    std::string state = "valid";
    if (!c.refused.empty()) state = "refused: " + c.refused;
    if (at != dispatch.end()) {
      state = "taken";
      if (i != dispatch.back()) state += StrCat(" where ", c.condition.ToString());
    }
    text += StrCat(c.implementation->name, "  plevel ", c.implementation->plevel, "  ", state);
    if (c.measured) text += "  measured " + Seconds(*c.measured);
    if (c.estimated) text += "  estimated " + Seconds(*c.estimated);
    text += "\n";
  }
  return text;
}

// ---- registry ----

TargetKeys TargetKeys::Of(std::string_view target) {
  return {std::string(target), {std::string(target), "cpu"}};
}

StrategyRegistry& StrategyRegistry::Global() {
  static StrategyRegistry registry = [] {
    StrategyRegistry own;
    lower::RegisterLoopStrategies(own);
    return own;
  }();
  return registry;
}

void StrategyRegistry::Register(std::string_view op, std::string_view key, Make make) {
  if (!makers_.emplace(std::pair(std::string(op), std::string(key)), std::move(make)).second) {
    throw Error(ErrorCode::kInvalidArgument, "lower/duplicate-strategy",
                StrCat("there are two strategies of ", op, " for '", key, "'"));
  }
}

const StrategyRegistry::Make* StrategyRegistry::Look(const OpCall& call) const {
  std::vector<std::string> keys = call.target->keys;
  keys.emplace_back("generic");
  for (const std::string& key : keys) {
    const auto at = makers_.find({std::string(call.op->name()), key});
    if (at != makers_.end()) return &at->second;
  }
  return nullptr;
}

OpStrategy StrategyRegistry::Find(const OpCall& call) const {
  if (const Make* make = Look(call)) return (*make)(call);
  std::string keys;
  for (const auto& [key, make] : makers_) {
    if (key.first == call.op->name()) keys += StrCat(keys.empty() ? "" : ", ", key.second);
  }
  throw Error(ErrorCode::kUnsupported, "lower/no-strategy",
              StrCat(call.op->name(), " has no strategy for target '", call.target->name, "'"))
      .At(call.op->location().ToString(*call.op->context()))
      .Note(keys.empty() ? "no target has one" : StrCat("there are strategies for ", keys));
}

}  // namespace lathe
