#include "src/lower/contiguous.h"

#include <queue>

#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "src/lower/dataflow.h"

namespace lathe {

namespace {

class Sorter {
 public:
  Sorter(Block* block, std::span<const std::vector<Operation*>> groups)
      : block_(block), flow_(block), unit_(flow_.size()), members_(flow_.size()) {
    for (uint32_t id = 0; id < flow_.size(); ++id) unit_[id] = id;
    for (const std::vector<Operation*>& group : groups) {
      const uint32_t root = flow_.id(group.back());
      for (const Operation* op : group) unit_[flow_.id(op)] = root;
    }
    for (uint32_t id = 0; id < flow_.size(); ++id) members_[unit_[id]].push_back(id);
    FindEdges();
  }

  void Run() {
    std::vector<uint32_t> last(flow_.size(), 0);
    uint32_t position = 0;
    for (const uint32_t id : flow_.program_order()) last[unit_[id]] = position++;
    using Entry = std::pair<uint32_t, uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (uint32_t id = 0; id < flow_.size(); ++id) {
      if (unit_[id] == id && waits_[id] == 0) ready.emplace(last[id], id);
    }
    size_t placed = 0;
    while (!ready.empty()) {
      const uint32_t next = ready.top().second;
      ready.pop();
      placed += members_[next].size();
      for (const uint32_t id : members_[next]) {
        flow_.op(id)->MoveToEnd(block_);
        for (const uint32_t to : after_[id]) {
          if (--waits_[to] == 0) ready.emplace(last[to], to);
        }
      }
    }
    LATHE_CHECK(placed == flow_.size(), "the groups form a cycle");
  }

 private:
  void FindEdges() {
    after_.resize(flow_.size());
    waits_.assign(flow_.size(), 0);
    const auto add = [&](uint32_t from, uint32_t to) {
      if (unit_[from] == unit_[to]) return;
      after_[from].push_back(unit_[to]);
      ++waits_[unit_[to]];
    };
    for (uint32_t id = 0; id < flow_.size(); ++id) {
      for (const Dataflow::Use& use : flow_.uses(id)) add(id, use.user);
    }
    const auto keep_order = [&](auto&& is_of_kind) {
      uint32_t before = Dataflow::kNone;
      for (const uint32_t id : flow_.program_order()) {
        if (!is_of_kind(flow_.op(id))) continue;
        if (before != Dataflow::kNone) add(before, id);
        before = id;
      }
    };
    keep_order([](const Operation* op) { return op->num_results() == 0; });
    keep_order([](const Operation* op) {
      return op->num_results() > 0 && op->num_operands() == 0 && !op->HasTrait<ConstantLike>();
    });
  }

  Block* block_;
  Dataflow flow_;
  std::vector<uint32_t> unit_;
  std::vector<std::vector<uint32_t>> members_, after_;
  std::vector<uint32_t> waits_;
};

}  // namespace

void MakeContiguous(Block* block, std::span<const std::vector<Operation*>> groups) {
  Sorter(block, groups).Run();
}

}  // namespace lathe
