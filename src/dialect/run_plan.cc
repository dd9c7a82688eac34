#include "src/dialect/run_plan.h"

#include "lathe/dialect/nn/io.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/interfaces.h"
#include "lathe/support/error.h"

namespace lathe {

// Walks the program once in order, with its own stack. The last user of a slot in the block where
// the slot is defined is known when the walk ends: it is the op that was open at that block's
// depth.
class RunPlan::Maker {
 public:
  Maker(RunPlan& plan, const Program& program) : plan_(plan), functions_(program) {}

  void Make(Block* top) {
    (void)functions_.CalleesFirst();  // refuses recursion also where nothing was verified
    Open(top);
    while (!open_.empty()) {
      Frame& f = open_.back();
      if (f.region_owner != nullptr) {
        if (NextRegion()) continue;
        f.region_owner = nullptr;
      }
      if (f.next == nullptr) {
        open_.pop_back();
        continue;
      }
      Operation* op = f.next;
      f.next = op->next();
      Add(op);
    }
    AddDrops();
    for (const Call& call : calls_) {
      plan_.blocks_[call.block].steps[call.step].callee =
          static_cast<uint32_t>(plan_.block_index_.at(call.body));
    }
  }

 private:
  struct Frame {
    size_t block;
    Operation* next;
    Operation* region_owner = nullptr;  // its regions are being walked
    size_t region = 0;
  };
  // Where a slot is defined and last used: steps of one block.
  struct Life {
    size_t block;
    size_t depth;
    size_t last_step;
    const Operation* feed = nullptr;  // the program input that is kept here
    bool written = false;
  };
  struct Home {
    uint32_t slot;
    uint32_t indices;  // of a view
  };

  void Open(Block* block) {
    const size_t index = plan_.blocks_.size();
    plan_.block_index_.emplace(block, index);
    plan_.blocks_.emplace_back();
    open_.push_back({index, block->front()});
    for (size_t i = 0; i < block->num_arguments(); ++i) {
      plan_.blocks_[index].arguments.push_back(NewSlot(block->argument(i)));
    }
  }

  bool NextRegion() {
    Frame& f = open_.back();
    while (f.region < f.region_owner->num_regions()) {
      Block* block = f.region_owner->region(f.region++).front();
      if (block == nullptr) continue;
      Open(block);
      return true;
    }
    return false;
  }

  uint32_t NewSlot(Value value) {
    const Frame& f = open_.back();
    const size_t steps = plan_.blocks_[f.block].steps.size();
    lives_.push_back({f.block, open_.size() - 1, steps == 0 ? 0 : steps - 1});
    home_of_[value] = {plan_.num_slots_, kNone};
    return plan_.num_slots_++;
  }

  Home HomeOf(const Operation* op, Value value) const {
    const auto at = home_of_.find(value);
    LATHE_CHECK(at != home_of_.end(), op->Describe(), " reads a value that is not computed before");
    return at->second;
  }

  void Push(Home home) {
    plan_.slots_.push_back(home.slot);
    plan_.indices_.push_back(home.indices);
  }

  void Use(Home home) {
    UseSlot(home.slot);
    if (home.indices != kNone) UseSlot(home.indices);
  }

  void UseSlot(uint32_t slot) {
    Life& life = lives_[slot];
    life.last_step = plan_.blocks_[open_[life.depth].block].steps.size() - 1;
  }

  struct Call {
    size_t block;
    size_t step;
    const Block* body;
  };

  void AddCall(const Operation* op, size_t step) {
    const Operation* callee = functions_.Callee(op);
    const Block* body = callee == nullptr ? nullptr : FunctionTable::Body(callee);
    LATHE_CHECK(body != nullptr, op->Describe(), " calls no function");
    calls_.push_back({open_.back().block, step, body});
  }

  void EnterRegions(Operation* op) {
    open_.back().region_owner = op;
    open_.back().region = 0;
  }

  void Add(Operation* op) {
    if (functions_.IsFunction(op)) return EnterRegions(op);  // runs when it is called
    BlockPlan& block = plan_.blocks_[open_.back().block];
    const bool terminator = op->HasTrait<Terminator>();
    if (functions_.IsCall(op)) {
      AddCall(op, block.steps.size());
    } else if (!terminator && !op->HasInterface<EvalInterface>()) {
      NoEval(op);
    }
    block.has_terminator |= terminator;
    const auto operands = static_cast<uint32_t>(plan_.slots_.size());
    block.steps.push_back(
        {op, operands, operands + static_cast<uint32_t>(op->num_operands()), 0, 0, kNone});
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value value = op->operand(i);
      const Home home = value ? HomeOf(op, value) : Home{kNone, kNone};
      if (value) Use(home);
      Push(home);
    }
    AddResults(op, operands);
    if (op->num_regions() > 0) EnterRegions(op);
  }

  void AddResults(Operation* op, uint32_t operands) {
    const bool has_first = op->num_operands() > 0 && op->operand(0);
    const Home first =
        has_first ? Home{plan_.slots_[operands], plan_.indices_[operands]} : Home{kNone, kNone};
    const bool writes = op->HasTrait<Inplace>() && has_first;
    if (writes) lives_[first.slot].written = true;
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value result = op->result(i);
      if (i == 0 && writes) {
        home_of_[result] = first;
      } else if (i == 0 && IsMutableView(op)) {
        const uint32_t indices = NewSlot(result);
        home_of_[result] = {first.slot, indices};
      } else {
        NewSlot(result);
        if (result.type().isa<TensorType>() && op->isa<nn::FeedOp>()) lives_.back().feed = op;
      }
      Push(home_of_.at(result));
    }
  }

  void AddDrops() {
    std::vector<std::vector<std::vector<uint32_t>>> by_step(plan_.blocks_.size());
    for (size_t b = 0; b < by_step.size(); ++b) by_step[b].resize(plan_.blocks_[b].steps.size());
    for (uint32_t slot = 0; slot < lives_.size(); ++slot) {
      const Life& life = lives_[slot];
      if (life.feed != nullptr && life.written) {  // needed until the end
        plan_.written_inputs_.push_back({life.feed, slot});
        continue;
      }
      if (!by_step[life.block].empty()) by_step[life.block][life.last_step].push_back(slot);
    }
    for (size_t b = 0; b < by_step.size(); ++b) {
      for (size_t s = 0; s < by_step[b].size(); ++s) {
        Step& step = plan_.blocks_[b].steps[s];
        step.drops = static_cast<uint32_t>(plan_.drops_.size());
        plan_.drops_.insert(plan_.drops_.end(), by_step[b][s].begin(), by_step[b][s].end());
        step.drops_end = static_cast<uint32_t>(plan_.drops_.size());
      }
    }
  }

  [[noreturn]] static void NoEval(const Operation* op) {
    throw Error(ErrorCode::kUnsupported, "run/no-eval",
                StrCat("the interpreter cannot run ", op->name(), ": it has no Eval"))
        .At(op->location().ToString(*op->context()));
  }

  RunPlan& plan_;
  FunctionTable functions_;
  std::vector<Call> calls_;
  std::vector<Frame> open_;
  std::vector<Life> lives_;
  std::unordered_map<Value, Home> home_of_;  // looked up, never iterated
};

bool RunPlan::IsMutableView(const Operation* op) {
  return op->HasTrait<ViewLike>() && op->num_operands() > 0 && op->operand(0) &&
         op->operand(0).type().isa<TensorType>() && op->num_results() > 0;
}

RunPlan::RunPlan(const Program& program) { Maker(*this, program).Make(program.block()); }

}  // namespace lathe
