#include <deque>
#include <set>
#include <string>
#include <unordered_map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/transform/multi_devices.h"
#include "src/transform/rank_values.h"

namespace lathe {

namespace {

int64_t PlaceOf(const Operation* op) {
  const auto place = op->attribute(kPlaceAttr).dyn_cast<IntAttribute>();
  return place ? place.value() : -1;
}

/// Runs the block as an executor does that starts an op once what it reads is there, without
/// computing anything.
class ReadinessCheck {
 public:
  explicit ReadinessCheck(Graph& graph) : graph_(graph) {}

  /// All ops, in an order in which they became ready. Throws multi/stuck.
  std::vector<Operation*> Run() {
    AddEdges();
    std::deque<Operation*> ready;
    for (Operation& op : *graph_.block()) {
      if (waits_[&op] == 0) ready.push_back(&op);
    }
    std::vector<Operation*> done;
    while (!ready.empty()) {
      Operation* op = ready.front();
      ready.pop_front();
      done.push_back(op);
      for (Operation* next : next_[op]) {
        if (--waits_[next] == 0) ready.push_back(next);
      }
    }
    if (done.size() != waits_.size()) ThrowStuck();
    return done;
  }

 private:
  void AddEdges() {
    std::unordered_map<int64_t, Operation*> effects;  // the last with effects, by place
    for (Operation& op : *graph_.block()) {
      waits_[&op];
      for (size_t i = 0; i < op.num_operands(); ++i) {
        Operation* maker = op.operand(i) ? op.operand(i).defining_op() : nullptr;
        if (maker != nullptr && maker->block() == graph_.block()) Add(maker, &op);
      }
      if (!op.HasTrait<SideEffect>() || IsCollective(&op)) continue;
      Operation*& last = effects[PlaceOf(&op)];
      if (last != nullptr) Add(last, &op);
      last = &op;
    }
  }

  void Add(Operation* before, Operation* after) {
    next_[before].push_back(after);
    ++waits_[after];
  }

  [[noreturn]] void ThrowStuck() {
    Error error(ErrorCode::kVerify, "multi/stuck", "some operations can never become ready");
    for (Operation* op : graph_.FindCircle()) error.Note(StrCat(op->Describe(), " is in a circle"));
    throw error;
  }

  Graph& graph_;
  // Looked up, never iterated.
  std::unordered_map<const Operation*, size_t> waits_;
  std::unordered_map<const Operation*, std::vector<Operation*>> next_;
};

void CheckPlaces(Graph& graph) {
  for (Operation& op : *graph.block()) {
    const int64_t place = PlaceOf(&op);
    if (place < 0 || IsCollective(&op)) continue;
    for (size_t i = 0; i < op.num_operands(); ++i) {
      const Operation* maker = op.operand(i) ? op.operand(i).defining_op() : nullptr;
      if (maker == nullptr || IsCollective(maker)) continue;
      const int64_t from = PlaceOf(maker);
      if (from < 0 || from == place) continue;
      throw Error(ErrorCode::kVerify, "multi/place",
                  StrCat(op.Describe(), " on place ", place, " reads what ", maker->Describe(),
                         " makes on place ", from))
          .Hint("only collectives join places");
    }
  }
}

/// Each collective must wait, however indirectly, for the one before it: else two ranks may issue
/// them in different orders, and each wait for the other. One walk: of each op the last collective
/// that it waits for, which is the one that waits for all before.
int64_t CheckCollectiveOrder(const std::vector<Operation*>& ops, const CollectiveFinder& finder) {
  std::unordered_map<const Operation*, int64_t> last;  // look-up only
  std::vector<const Operation*> collectives;
  for (Operation* op : ops) {
    int64_t latest = -1;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Operation* maker = op->operand(i) ? op->operand(i).defining_op() : nullptr;
      if (const auto at = last.find(maker); at != last.end()) latest = std::max(latest, at->second);
    }
    if (finder.Holds(op)) {
      const auto count = static_cast<int64_t>(collectives.size());
      if (latest != count - 1) {
        throw Error(
            ErrorCode::kVerify, "multi/collective-order",
            StrCat("nothing orders ", op->Describe(), " and ", collectives.back()->Describe(),
                   ": ranks may issue them in different orders"))
            .Hint("the pass all_reduce_deps orders collectives");
      }
      latest = count;
      collectives.push_back(op);
    }
    last[op] = latest;
  }
  return static_cast<int64_t>(collectives.size());
}

/// A rank that does not run a collective leaves the others waiting for it.
void CheckConditions(const Program& program, const RankValues& values,
                     const CollectiveFinder& finder) {
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    const bool is_leaf = op->num_regions() == 0;
    if (op->isa<builtin::FuncOp>()) w.SkipRegions();
    if (!is_leaf || !finder.Holds(op)) continue;
    for (Operation* around = op->parent_op(); around != nullptr && around->parent_op() != nullptr;
         around = around->parent_op()) {
      if (!values.RunsApart(around)) continue;
      throw Error(ErrorCode::kVerify, "multi/conditional-collective",
                  StrCat(op->Describe(), " is a collective in ", around->Describe(),
                         ", which ranks may decide differently: one would wait for the others"))
          .Hint("decide by what all ranks share: constants, parameters, results of all_reduce");
    }
  }
}

/// The parameter as the program had it before it was copied for places: "w" of "w@1".
std::string BaseName(const Operation* op, std::string_view name) {
  const std::string suffix = StrCat("@", PlaceOf(op));
  if (PlaceOf(op) > 0 && name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return std::string(name);
}

std::set<std::string> ParametersWithGradient(const Program& program) {
  std::set<std::string> names;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const auto name = op->result(i).property(kGradOf).dyn_cast<StrAttribute>();
      if (name) names.emplace(name.value());
    }
  }
  return names;
}

[[noreturn]] void ThrowNotReduced(const Operation* set, const std::string& name) {
  throw Error(ErrorCode::kVerify, "multi/not-reduced",
              StrCat("parameter '", name, "' is set to what each rank computes of its own data"))
      .At(set->Describe())
      .Hint(
          "reduce its gradient over the ranks: multi_devices_pass does, where append_backward "
          "has marked it (grad_of)");
}

/// Ranks that update a parameter by gradients of their own data train apart from one another.
/// Statistics may differ; without collectives nothing can be trained together, mark or no mark.
int64_t CheckUpdates(const Program& program, const RankValues& values, bool has_collectives) {
  const std::set<std::string> trained = ParametersWithGradient(program);
  int64_t shared = 0;
  Operation* unmarked = nullptr;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    auto set = op->dyn_cast<builtin::SetParameterOp>();
    if (!set) continue;
    if (!values.MayDiffer(set.value())) {
      ++shared;
    } else if (trained.contains(BaseName(op, set.name()))) {
      ThrowNotReduced(op, BaseName(op, set.name()));
    } else if (const auto type = set.value().type().dyn_cast<AnyTensorType>();
               unmarked == nullptr && type && IsFloat(type.element())) {
      unmarked = op;
    }
  }
  if (unmarked != nullptr && !has_collectives) {
    ThrowNotReduced(unmarked, BaseName(unmarked, unmarked->cast<builtin::SetParameterOp>().name()));
  }
  return shared;
}

bool HasSeveralPlaces(const Program& program) {
  for (const Operation& op : *program.block()) {
    if (PlaceOf(&op) > 0) return true;
  }
  return false;
}

}  // namespace

class MultiDevicesCheckPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const std::vector<Operation*> ready = ReadinessCheck(graph).Run();
    CheckPlaces(graph);
    Count("operations that become ready", static_cast<int64_t>(ready.size()));
    const CollectiveFinder finder(graph.program());
    const int64_t collectives = CheckCollectiveOrder(ready, finder);
    Count("collectives in one order", collectives);
    const bool is_one_rank = option_int("nranks") == 1 && !HasSeveralPlaces(graph.program());
    if (collectives == 0 && is_one_rank) return;
    const RankValues values(graph.program());
    CheckConditions(graph.program(), values, finder);
    Count("parameters that all ranks set alike",
          CheckUpdates(graph.program(), values, collectives > 0));
  }
};

REGISTER_PASS(multi_devices_check_pass, MultiDevicesCheckPass)
    .Doc("proves that every op can become ready and that ranks issue the same collectives in order")
    .Details(
        "Runs the program as an executor does that starts each op once its operands are there. "
        "multi/stuck: operations wait for one another; multi/place: an op reads what another place "
        "makes; multi/collective-order: nothing orders two collectives; "
        "multi/conditional-collective: a "
        "collective in a region that ranks may decide on differently, so that one would wait for "
        "ever; multi/not-reduced: a parameter is trained by what each rank computes of its own "
        "data. Changes nothing.")
    .Option("nranks", PassOption::Kind::kInt, "1", "processes that will run the program together")
    .AtLeast(1);

}  // namespace lathe
