#include "src/driver/fusion_boundaries.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/group.h"
#include "lathe/lower/fusion.h"
#include "lathe/pass/pass_manager.h"
#include "src/driver/compiled_program.h"
#include "src/driver/external_functions.h"

namespace lathe {
namespace {

// Counts equal boundaries.
class Counter {
 public:
  void Add(const FusionRefusal& r, size_t times = 1) {
    const std::string into = r.into == nullptr ? "" : std::string(r.into->name());
    counts_[{std::string(r.op->name()), into, r.why}] += times;
  }
  std::vector<FusionBoundary> Take() const {
    std::vector<FusionBoundary> all;
    for (const auto& [key, count] : counts_) {
      const auto& [op, into, why] = key;
      all.push_back({op, into, why, count});
    }
    std::ranges::stable_sort(all, std::greater<>(), &FusionBoundary::count);
    return all;
  }

 private:
  std::map<std::tuple<std::string, std::string, std::string>, size_t> counts_;
};

const Operation* GroupOf(const Operation* op) {
  const Operation* parent = op == nullptr ? nullptr : op->parent_op();
  return parent != nullptr && parent->isa<builtin::GroupOp>() ? parent : nullptr;
}

// Before groups become calls, which are in their order: the names of operations and groups.
using Names = std::unordered_map<const Operation*, std::string>;  // looked up, never iterated

void Run(Program& program, const char* pass) {
  PassManager manager;
  manager.Add(pass);
  manager.Run(program);
}

}  // namespace

FusionBoundaries FindFusionBoundaries(const Program& source, const CompileOptions& options) {
  Program program = source.Clone();
  OptimizeFor(options, program);
  MarkExternal(program, options);
  FusionPlan plan = PlanFusion(program.block(), {.explain = true});
  Run(program, "graph_fuse_partition");
  Program compiled = program.Clone();
  Run(compiled, "graph_fuse_compile");
  std::vector<std::string> functions;
  for (Operation& op : *compiled.block()) {
    if (const auto call = op.dyn_cast<builtin::CallOp>()) functions.emplace_back(call.callee());
  }
  Names names;
  size_t next = 0;
  for (const Operation& op : *program.block()) {
    if (op.isa<builtin::GroupOp>() || op.isa<builtin::CallOp>()) names[&op] = functions.at(next++);
  }
  Counter all;
  std::map<std::string, Counter> ends, begins;
  for (const FusionRefusal& r : plan.refusals) {
    all.Add(r);
    const Operation *from = GroupOf(r.op), *into = GroupOf(r.into);
    if (from != nullptr) ends[names.at(from)].Add(r);
    if (into != nullptr) begins[names.at(into)].Add(r);
  }
  FusionBoundaries found{all.Take(), {}, {}};
  for (const auto& [name, counter] : ends) found.ends[name] = counter.Take();
  for (const auto& [name, counter] : begins) found.begins[name] = counter.Take();
  return found;
}

}  // namespace lathe
