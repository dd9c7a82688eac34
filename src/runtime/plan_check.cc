#include "src/runtime/plan_check.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <string_view>

#include "lathe/support/element_type.h"
#include "lathe/support/kernel.h"
#include "src/runtime/placement.h"

namespace lathe::runtime {
namespace {

using Place = PlanValue::Place;

constexpr size_t kMaxRank = 64;

class Checker {
 public:
  Checker(const Plan& plan, size_t num_kernels) : plan_(plan), num_kernels_(num_kernels) {}

  void Run() {
    CheckPorts(plan_.inputs, Place::kInput, "input");
    CheckPorts(plan_.outputs, Place::kOutput, "output");
    CheckSymbols();
    for (size_t i = 0; i < plan_.constraints.size(); ++i) CheckConstraint(i);
    for (size_t i = 0; i < plan_.constants.size(); ++i) CheckConstant(i);
    CheckConstantNames();
    for (size_t i = 0; i < plan_.variables.size(); ++i) CheckVariable(i);
    for (size_t i = 0; i < plan_.values.size(); ++i) CheckValue(i);
    for (size_t i = 0; i < plan_.storages.size(); ++i) CheckStorage(i);
    CheckOverlaps();
    for (size_t i = 0; i < plan_.steps.size(); ++i) CheckStep(i);
    CheckUpdates();
    for (const PlanSymbol& symbol : plan_.symbols) {
      if (symbol.is_computed()) unbound_.insert(symbol.name);
    }
    for (size_t i = 0; i < plan_.steps.size() && !unbound_.empty(); ++i) CheckPlaced(i);
    if (!unbound_.empty()) {
      throw PlanError("plan/symbol", "no step computes dim ", *unbound_.begin());
    }
  }

 private:
  void CheckPorts(std::span<const PlanPort> ports, Place place, const char* what) {
    std::vector<std::string_view> names;
    for (size_t i = 0; i < ports.size(); ++i) {
      const PlanPort& port = ports[i];
      if (port.value >= plan_.values.size()) {
        throw PlanError("plan/port", what, " '", port.name, "' is value ", port.value, " of ",
                        plan_.values.size());
      }
      const PlanValue& value = plan_.values[port.value];
      names.push_back(port.name);
      if (value.is_object()) continue;
      if (value.place != place || value.index != i || value.offset != 0) {
        throw PlanError("plan/port", what, " '", port.name,
                        "' is a value that lies elsewhere than in the caller's memory");
      }
    }
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      throw PlanError("plan/port", "two ", what, "s are called '", *twice, "'");
  }

  void CheckSymbols() {
    bool computed = false;
    for (const PlanSymbol& symbol : plan_.symbols) {
      names_.push_back(symbol.name);
      if (computed && !symbol.is_computed()) {
        throw PlanError("plan/symbol", "dim ", symbol.name,
                        " of an input comes after computed ones");
      }
      computed = symbol.is_computed();
      if (computed) continue;
      if (symbol.input >= plan_.inputs.size()) {
        throw PlanError("plan/symbol", "dim ", symbol.name, " comes from input ", symbol.input,
                        " of ", plan_.inputs.size());
      }
      const PlanPort& input = plan_.inputs[symbol.input];
      const std::vector<Dim>& dims = plan_.values[input.value].dims;
      if (symbol.axis >= dims.size() || !dims[symbol.axis].is_symbol() ||
          dims[symbol.axis].symbol_name() != symbol.name) {
        throw PlanError("plan/symbol", "axis ", symbol.axis, " of input '", input.name,
                        "' is not dim ", symbol.name);
      }
    }
    std::sort(names_.begin(), names_.end());
    const auto twice = std::adjacent_find(names_.begin(), names_.end());
    if (twice != names_.end()) throw PlanError("plan/symbol", "dim ", *twice, " is declared twice");
  }

  // Constants must not be negative; other dims are looked at when the symbols are known.
  void CheckDim(const Dim& dim, const char* what, size_t index) const {
    if (dim.is_unknown() || (dim.is_constant() && dim.value() < 0)) {
      throw PlanError("plan/dim", what, " ", index, " has dim ", dim.ToString());
    }
    CheckNames(dim, what, index);
  }

  void CheckNames(const Dim& dim, const char* what, size_t index) const {
    if (dim.is_constant()) return;
    std::vector<std::string> used;
    dim.CollectSymbols(used);
    for (const std::string& name : used) {
      if (!std::binary_search(names_.begin(), names_.end(), name)) {
        throw PlanError("plan/dim", what, " ", index, " has dim ", dim.ToString(), ", but ", name,
                        " is not a symbol of the plan");
      }
    }
  }

  void CheckConstraint(size_t i) {
    const SizeCondition& c = plan_.constraints[i].condition;
    if (c.kind > SizeCondition::Kind::kBroadcastTo) {
      throw PlanError("plan/constraint", "constraint ", i,
                      " is of no kind: ", static_cast<int>(c.kind));
    }
    for (const Dim* dim : {&c.a, &c.b}) {
      if (dim->is_unknown()) throw PlanError("plan/constraint", "constraint ", i, " has dim ?");
      CheckNames(*dim, "constraint", i);
    }
  }

  void CheckConstant(size_t i) {
    if (BitWidth(plan_.constants[i].element_type()) == 0) {
      throw PlanError("plan/constant", "constant ", i, " has elements of type ",
                      Name(plan_.constants[i].element_type()));
    }
  }

  void CheckConstantNames() const {
    if (plan_.constant_names.empty()) return;
    if (plan_.constant_names.size() != plan_.constants.size()) {
      throw PlanError("plan/constant", "there are ", plan_.constant_names.size(), " names for ",
                      plan_.constants.size(), " constants");
    }
    std::vector<std::string_view> names(plan_.constant_names.begin(), plan_.constant_names.end());
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return;
    throw PlanError("plan/constant", "two constants are called '", *twice, "'");
  }

  void CheckVariable(size_t i) const {
    const uint32_t initial = plan_.variables[i].initial;
    if (initial >= plan_.constants.size()) {
      throw PlanError("plan/variable", "variable ", i, " begins as constant ", initial, " of ",
                      plan_.constants.size());
    }
    if (plan_.constant_names.empty()) {
      throw PlanError("plan/variable", "variable ", i, " has no name");
    }
    if (i > 0 && plan_.variables[i - 1].initial >= initial) {
      throw PlanError("plan/variable", "variable ", i, " is not in the order of the constants");
    }
  }

  // A run writes all variables or none.
  void CheckUpdates() const {
    const auto writes = [&](const PlanStep& step) { return WritesVariable(plan_, step); };
    const auto first = std::ranges::find_if(plan_.steps, writes);
    for (auto step = first; step != plan_.steps.end(); ++step) {
      const bool may_fail = step->is_control() || step->checks;
      if (may_fail) {
        throw StepError(static_cast<size_t>(step - plan_.steps.begin()),
                        "it may fail, or lead elsewhere, after a variable has been written");
      }
    }
  }

  size_t NumHolders(Place place) const {
    switch (place) {
      case Place::kInput:
        return plan_.inputs.size();
      case Place::kOutput:
        return plan_.outputs.size();
      case Place::kConstant:
        return plan_.constants.size();
      case Place::kArena:
        return plan_.storages.size();
      case Place::kVariable:
        return plan_.variables.size();
      case Place::kObject:
        return plan_.num_objects;
    }
    throw PlanError("plan/value", "there is no place ", static_cast<int>(place));
  }

  void CheckValue(size_t i) {
    const PlanValue& value = plan_.values[i];
    if (value.is_object()) return CheckObject(i);
    if (BitWidth(value.element) == 0 || value.dims.size() > kMaxRank) {
      throw PlanError("plan/value", "value ", i, " has elements of type ", Name(value.element),
                      " and ", value.dims.size(), " dims");
    }
    if (value.index >= NumHolders(value.place)) {
      throw PlanError("plan/value", "value ", i, " lies in number ", value.index, " of ",
                      NumHolders(value.place));
    }
    if (value.offset % AlignmentOf(value.element) != 0) {
      throw PlanError("plan/value", "value ", i, " of type ", Name(value.element),
                      " lies at offset ", value.offset);
    }
    for (const Dim& dim : value.dims) CheckDim(dim, "value", i);
  }

  void CheckObject(size_t i) const {
    const PlanValue& value = plan_.values[i];
    if (value.index >= plan_.num_objects || value.dims.size() > kMaxRank || value.offset != 0) {
      throw PlanError("plan/value", "value ", i, " is object ", value.index, " of ",
                      plan_.num_objects);
    }
    for (const Dim& dim : value.dims) {
      if (!dim.is_unknown()) CheckDim(dim, "value", i);
    }
  }

  void CheckStorage(size_t i) {
    const PlanStorage& storage = plan_.storages[i];
    CheckDim(storage.bytes, "storage", i);
    if (storage.begin > storage.end || storage.end >= plan_.steps.size()) {
      throw PlanError("plan/storage", "storage ", i, " lives from step ", storage.begin, " to ",
                      storage.end, " of ", plan_.steps.size());
    }
    if (!storage.bytes.is_constant()) return;
    const auto bytes = static_cast<uint64_t>(storage.bytes.value());
    constexpr uint64_t kMost = uint64_t{1} << 62;
    if (storage.offset % kStorageAlignment != 0 || storage.offset > kMost || bytes > kMost) {
      throw PlanError("plan/storage", "storage ", i, " of ", bytes, " bytes lies at offset ",
                      storage.offset);
    }
  }

  // Goes over the steps; what is alive is kept in the order of offsets.
  void CheckOverlaps() {
    std::vector<uint32_t> begins;
    for (uint32_t i = 0; i < plan_.storages.size(); ++i) {
      const Dim& bytes = plan_.storages[i].bytes;
      if (bytes.is_constant() && bytes.value() > 0) begins.push_back(i);
    }
    std::vector<uint32_t> ends = begins;
    const auto& all = plan_.storages;
    std::stable_sort(begins.begin(), begins.end(),
                     [&](uint32_t a, uint32_t b) { return all[a].begin < all[b].begin; });
    std::stable_sort(ends.begin(), ends.end(),
                     [&](uint32_t a, uint32_t b) { return all[a].end < all[b].end; });
    std::map<uint64_t, uint32_t> alive;
    auto ended = ends.begin();
    for (const uint32_t i : begins) {
      for (; all[*ended].end < all[i].begin; ++ended) alive.erase(all[*ended].offset);
      const auto [at, fresh] = alive.emplace(all[i].offset, i);
      if (!fresh) throw Overlap(at->second, i);
      if (at != alive.begin()) ExpectBefore(std::prev(at)->second, i);
      if (std::next(at) != alive.end()) ExpectBefore(i, std::next(at)->second);
    }
  }

  void ExpectBefore(uint32_t a, uint32_t b) const {
    const PlanStorage& s = plan_.storages[a];
    if (s.offset + static_cast<uint64_t>(s.bytes.value()) > plan_.storages[b].offset) {
      throw Overlap(a, b);
    }
  }

  static Error Overlap(uint32_t a, uint32_t b) {
    return PlanError("plan/overlap", "storages ", a, " and ", b,
                     " are alive at one step and overlap");
  }

  Error StepError(size_t i, const std::string& message) const {
    return PlanError("plan/step", message).At(StrCat("step ", i, ": ", plan_.steps[i].label));
  }

  void CheckStep(size_t i) const {
    const PlanStep& step = plan_.steps[i];
    if (step.is_control()) return CheckControl(i);
    const bool calls = step.function != kNone;
    const bool copies = step.kernel == kNone && !calls;
    if (calls && (step.kernel != kNone || step.function >= plan_.functions.size())) {
      throw StepError(
          i, StrCat("function ", step.function, " of ", plan_.functions.size(), " does not exist"));
    }
    if (!calls && !copies && step.kernel >= num_kernels_) {
      throw StepError(i, StrCat("there is no kernel ", step.kernel, " of ", num_kernels_));
    }
    if (step.reads > step.values.size() ||
        (copies && (step.values.size() != 2 || step.reads != 1))) {
      throw StepError(i, StrCat("it reads ", step.reads, " of ", step.values.size(), " values"));
    }
    for (size_t k = 0; k < step.values.size(); ++k) CheckUse(i, k);
    CheckTakes(i);
    if (!calls && !copies) CheckReadsTensors(i);
    if (step.checks && (copies || !HoldsStatus(step))) {
      throw StepError(i, "there is no memory for what it checks");
    }
  }

  // How many values steps of a kind take, and how many of these are only read.
  static std::pair<size_t, size_t> NumValues(PlanStep::Kind kind) {
    switch (kind) {
      case PlanStep::Kind::kBranch:
        return {1, 1};
      case PlanStep::Kind::kBelow:
        return {2, 2};
      case PlanStep::Kind::kCount:
      case PlanStep::Kind::kList:
      case PlanStep::Kind::kStack:
        return {1, 0};
      case PlanStep::Kind::kPutRow:
        return {3, 2};
      case PlanStep::Kind::kBind:
      case PlanStep::Kind::kBindAxis:
        return {1, 1};
      default:
        return {0, 0};
    }
  }

  void CheckControl(size_t i) const {
    const PlanStep& step = plan_.steps[i];
    const auto [values, reads] = NumValues(step.kind);
    if (step.kind > PlanStep::Kind::kStack || step.kernel != kNone || step.function != kNone ||
        step.checks || !step.takes.empty() || step.values.size() != values || step.reads != reads) {
      throw StepError(i, StrCat("it is of no kind: ", static_cast<int>(step.kind)));
    }
    for (size_t k = 0; k < values; ++k) CheckUse(i, k);
    switch (step.kind) {
      case PlanStep::Kind::kBranch:
        CheckOne(i, 0, ElementType::kBool);
        return CheckForwards(i);
      case PlanStep::Kind::kJump:
        return CheckForwards(i);
      case PlanStep::Kind::kBelow:
        CheckOne(i, 0, ElementType::kI64);
        CheckOne(i, 1, ElementType::kI64);
        return CheckForwards(i);
      case PlanStep::Kind::kCount:
        ExpectMemory(i);
        return CheckOne(i, 0, ElementType::kI64);
      case PlanStep::Kind::kPutRow:
        if (!ValueOf(i, 2).is_object()) ExpectMemory(i);
        return CheckOne(i, 1, ElementType::kI64);
      case PlanStep::Kind::kList:
      case PlanStep::Kind::kStack:
        if (ValueOf(i, 0).is_object()) return;
        throw StepError(i, "its list is not an object");
      case PlanStep::Kind::kRepeat:
        return CheckLoop(i);
      case PlanStep::Kind::kBind:
        CheckOne(i, 0, ElementType::kI64);
        return CheckBound(i);
      case PlanStep::Kind::kResize:
        CheckDim(step.size, "step", i);
        return CheckBound(i);
      case PlanStep::Kind::kGrow:
        CheckDim(step.size, "step", i);
        CheckBound(i);
        return CheckGrows(i);
      case PlanStep::Kind::kBindAxis:
        if (!step.size.is_constant() || !ValueOf(i, 0).is_object()) {
          throw StepError(i, "it binds no axis of an object");
        }
        return CheckBound(i);
      default:
        return CheckRequired(i);
    }
  }

  const PlanValue& ValueOf(size_t i, size_t k) const {
    return plan_.values[plan_.steps[i].values[k]];
  }

  void ExpectMemory(size_t i) const {
    for (size_t k = 0; k < plan_.steps[i].values.size(); ++k) {
      if (ValueOf(i, k).is_object()) {
        throw StepError(i, StrCat("value ", plan_.steps[i].values[k], " is an object"));
      }
    }
  }

  // A kernel reads objects that are tensors of one type, and writes none.
  void CheckReadsTensors(size_t i) const {
    const PlanStep& step = plan_.steps[i];
    for (size_t k = 0; k < step.values.size(); ++k) {
      const PlanValue& value = ValueOf(i, k);
      if (!value.is_object()) continue;
      const bool is_tensor =
          BitWidth(value.element) != 0 && std::ranges::none_of(value.dims, &Dim::is_unknown);
      if (k >= step.reads || !is_tensor) {
        throw StepError(i, StrCat("its kernel uses value ", step.values[k], ", an object"));
      }
    }
  }

  void CheckTakes(size_t i) const {
    const PlanStep& step = plan_.steps[i];
    for (const uint32_t k : step.takes) {
      if (k < step.reads && ValueOf(i, k).is_object()) continue;
      throw StepError(i,
                      StrCat("it takes value ", k, " of ", step.reads, ", which is not an object"));
    }
  }

  void CheckForwards(size_t i) const {
    const PlanStep& step = plan_.steps[i];
    if (step.target > i && step.target <= plan_.steps.size()) return;
    throw StepError(
        i, StrCat("step ", step.target, " of ", plan_.steps.size(), " cannot come after it"));
  }

  // What is there before the loop and in it is there in each round.
  void CheckLoop(size_t i) const {
    const uint32_t first = plan_.steps[i].target;
    if (first >= i) throw StepError(i, StrCat("step ", first, " is not before it"));
    for (size_t s = 0; s < plan_.storages.size(); ++s) {
      const PlanStorage& storage = plan_.storages[s];
      if (storage.begin >= first || storage.end < first || storage.end >= i) continue;
      throw StepError(i, StrCat("storage ", s, " lives from step ", storage.begin, " to ",
                                storage.end, ", within the loop from step ", first));
    }
  }

  void CheckRequired(size_t i) const {
    const uint32_t target = plan_.steps[i].target;
    const bool exists = target < plan_.constraints.size();
    if (exists && plan_.constraints[target].is_conditional) return;
    throw StepError(i, StrCat("constraint ", target, " of ", plan_.constraints.size(),
                              exists ? " is not conditional" : " does not exist"));
  }

  void CheckBound(size_t i) const {
    const uint32_t target = plan_.steps[i].target;
    if (target < plan_.symbols.size() && plan_.symbols[target].is_computed()) return;
    throw StepError(i, StrCat("symbol ", target, " of ", plan_.symbols.size(), " is not computed"));
  }

  // It lies where it has been, at the front of an arena of its own.
  void CheckGrows(size_t i) const {
    const PlanSymbol& symbol = plan_.symbols[plan_.steps[i].target];
    size_t count = 0;
    for (const PlanStorage& storage : plan_.storages) {
      std::vector<std::string> used;
      storage.bytes.CollectSymbols(used);
      count += std::ranges::find(used, symbol.name) == used.end() ? 0 : 1;
    }
    if (count > 1) throw StepError(i, StrCat(count, " storages are made of dim ", symbol.name));
  }

  // What a step uses is placed: the symbols that it is made of are bound before it.
  void CheckPlaced(size_t i) {
    const PlanStep& step = plan_.steps[i];
    for (const uint32_t v : step.values) {
      std::vector<std::string> used;
      const PlanValue& value = plan_.values[v];
      for (const Dim& dim : PlacedDims(value)) dim.CollectSymbols(used);
      if (value.place == Place::kArena) plan_.storages[value.index].bytes.CollectSymbols(used);
      CheckComputed(i, used, StrCat("uses value ", v));
    }
    const bool resizes = step.is_resize();
    if (resizes) {
      std::vector<std::string> used;
      step.size.CollectSymbols(used);
      CheckComputed(i, used, "reads its size");
    }
    const bool binds = step.kind == PlanStep::Kind::kBind || step.kind == PlanStep::Kind::kBindAxis;
    if (resizes || binds) {
      unbound_.erase(plan_.symbols[step.target].name);
    }
  }

  void CheckComputed(size_t i, std::span<const std::string> used, const std::string& what) const {
    const auto is_open = [&](const std::string& name) { return unbound_.contains(name); };
    const auto open = std::ranges::find_if(used, is_open);
    if (open == used.end()) return;
    throw StepError(i, StrCat("it ", what, " before dim ", *open, " is computed"));
  }

  void CheckOne(size_t i, size_t k, ElementType element) const {
    const uint32_t index = plan_.steps[i].values[k];
    const PlanValue& value = plan_.values[index];
    const bool is_one = value.is_object() || std::ranges::all_of(value.dims, [](const Dim& d) {
                          return d.IsConstant(1);
                        });
    if (is_one && value.element == element) return;
    throw StepError(i, StrCat("value ", index, " is not one ", Name(element)));
  }

  bool HoldsStatus(const PlanStep& step) const {
    if (step.values.size() < 2 || step.reads == step.values.size()) return false;
    const PlanValue& value = plan_.values[step.values.back()];
    constexpr auto kBytes = static_cast<int64_t>(sizeof(KernelStatus));
    return value.place == Place::kArena && value.element == ElementType::kU8 &&
           value.dims.size() == 1 && value.dims[0].IsConstant(kBytes) &&
           value.offset % alignof(KernelStatus) == 0;
  }

  void CheckUse(size_t i, size_t k) const {
    const PlanStep& step = plan_.steps[i];
    if (step.values[k] >= plan_.values.size()) {
      throw StepError(i, StrCat("there is no value ", step.values[k]));
    }
    const PlanValue& value = plan_.values[step.values[k]];
    const bool written = k >= step.reads;
    if (written && (value.place == Place::kInput || value.place == Place::kConstant)) {
      throw StepError(i, StrCat("it writes value ", step.values[k], ", which is ",
                                value.place == Place::kInput ? "an input" : "a constant"));
    }
    if (value.place != Place::kArena) return;
    const PlanStorage& storage = plan_.storages[value.index];
    if (i < storage.begin || i > storage.end) {
      throw StepError(i, StrCat("it uses value ", step.values[k], ", whose storage ", value.index,
                                " lives from step ", storage.begin, " to ", storage.end));
    }
  }

  const Plan& plan_;
  const size_t num_kernels_;
  std::vector<std::string> names_;  // of symbols, sorted
  std::set<std::string> unbound_;   // computed ones, while going over the steps
};

}  // namespace

bool WritesVariable(const Plan& plan, const PlanStep& step) {
  const auto is_variable = [&](uint32_t v) { return plan.values[v].place == Place::kVariable; };
  return std::ranges::any_of(step.values | std::views::drop(step.reads), is_variable);
}

void CheckPlan(const Plan& plan, size_t num_kernels) { Checker(plan, num_kernels).Run(); }

}  // namespace lathe::runtime
