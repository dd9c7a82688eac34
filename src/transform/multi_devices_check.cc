#include <deque>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/pass/pass.h"
#include "lathe/transform/multi_devices.h"

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
int64_t CheckCollectiveOrder(const std::vector<Operation*>& ops) {
  std::unordered_map<const Operation*, int64_t> last;  // look-up only
  std::vector<const Operation*> collectives;
  for (const Operation* op : ops) {
    int64_t latest = -1;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Operation* maker = op->operand(i) ? op->operand(i).defining_op() : nullptr;
      if (const auto at = last.find(maker); at != last.end()) latest = std::max(latest, at->second);
    }
    if (IsCollective(op)) {
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

}  // namespace

class MultiDevicesCheckPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const std::vector<Operation*> ready = ReadinessCheck(graph).Run();
    CheckPlaces(graph);
    Count("operations that become ready", static_cast<int64_t>(ready.size()));
    Count("collectives in one order", CheckCollectiveOrder(ready));
  }
};

REGISTER_PASS(multi_devices_check_pass, MultiDevicesCheckPass)
    .Doc("proves that every op can become ready and that all ranks issue collectives in one order")
    .Details(
        "Runs the program as an executor does that starts each op once its operands are there. "
        "multi/stuck: operations wait for one another; multi/place: an op reads what another place "
        "makes; multi/collective-order: nothing orders two collectives. Changes nothing.");

}  // namespace lathe
