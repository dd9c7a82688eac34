#include "src/driver/taken_objects.h"

#include <algorithm>
#include <vector>

namespace lathe {
namespace {

using runtime::Plan;
using runtime::PlanStep;

// Which objects are read later, step by step from the end, until nothing changes.
class TakenObjects {
 public:
  explicit TakenObjects(Plan& plan)
      : plan_(plan), before_(plan.steps.size() + 1, Set(plan.num_objects)) {
    for (const runtime::PlanPort& output : plan.outputs) Add(output.value, before_.back());
    for (bool changes = true; changes;) {
      changes = false;
      for (size_t i = plan.steps.size(); i-- > 0;) changes |= Update(i);
    }
  }

  void Mark() {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (!plan_.steps[i].is_control()) Mark(i);
    }
  }

 private:
  using Set = std::vector<bool>;

  void Add(uint32_t value, Set& set) const {
    if (plan_.values[value].is_object()) set[plan_.values[value].index] = true;
  }

  // The list that a row is appended to is read, too.
  static bool Overwrites(const PlanStep& step) {
    return step.kind == PlanStep::Kind::kWork || step.kind == PlanStep::Kind::kList;
  }

  Set After(size_t i) const {
    const PlanStep& step = plan_.steps[i];
    using Kind = PlanStep::Kind;
    const bool jumps = step.kind == Kind::kJump || step.kind == Kind::kRepeat;
    const bool branches = step.kind == Kind::kBranch || step.kind == Kind::kBelow;
    Set after = before_[jumps ? step.target : i + 1];
    if (!branches) return after;
    const Set& other = before_[step.target];
    for (size_t k = 0; k < after.size(); ++k) after[k] = after[k] || other[k];
    return after;
  }

  bool Update(size_t i) {
    const PlanStep& step = plan_.steps[i];
    Set live = After(i);
    for (size_t k = step.reads; k < step.values.size(); ++k) {
      const runtime::PlanValue& value = plan_.values[step.values[k]];
      if (value.is_object()) live[value.index] = !Overwrites(step);
    }
    for (size_t k = 0; k < step.reads; ++k) Add(step.values[k], live);
    if (live == before_[i]) return false;
    before_[i] = std::move(live);
    return true;
  }

  void Mark(size_t i) {
    PlanStep& step = plan_.steps[i];
    Set keeps = After(i);
    for (size_t k = step.reads; k < step.values.size(); ++k) {
      const runtime::PlanValue& value = plan_.values[step.values[k]];
      if (value.is_object()) keeps[value.index] = false;
    }
    for (size_t k = step.reads; k-- > 0;) {
      const runtime::PlanValue& value = plan_.values[step.values[k]];
      if (!value.is_object() || keeps[value.index]) continue;
      step.takes.push_back(static_cast<uint32_t>(k));
      keeps[value.index] = true;  // once
    }
  }

  Plan& plan_;
  std::vector<Set> before_;  // each step, and the end
};

}  // namespace

void MarkTakenObjects(Plan& plan) {
  if (plan.num_objects > 0) TakenObjects(plan).Mark();
}

}  // namespace lathe
