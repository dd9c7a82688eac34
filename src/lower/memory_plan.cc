#include "lathe/lower/memory_plan.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin_ops.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/dialect/storage_traits.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "lathe/support/pack_blocks.h"

namespace lathe {

namespace {

bool IsMutable(Value value) { return value && value.type().isa<TensorType>(); }

}  // namespace

bool ElementwiseInPlace(const Operation* op, size_t operand) {
  if (KindOf(op) > OpKind::kBroadcast || NeedsWhole(op, operand)) return false;
  if (op->num_results() != 1) return false;
  const auto from = TensorOrNull(op->operand(operand));
  const auto to = TensorOrNull(op->result(0));
  return from && to && from.has_rank() && from.shape() == to.shape() &&
         BitWidth(from.element()) == BitWidth(to.element());
}

/// Fills a plan: first when each value is used last, then which values are one storage, in program
/// order, then where storages lie.
class MemoryPlanner {
 public:
  MemoryPlanner(const Program& program, const MemoryPlanOptions& options, MemoryPlan& plan)
      : program_(program), options_(options), plan_(plan) {}

  void Run() {
    CheckSymbols();
    NumberSteps();
    for (Operation* op : steps_) Visit(op);
    Pack();
  }

 private:
  using Storage = MemoryPlan::Storage;

  // ---- sizes ----

  void CheckSymbols() const {
    if (options_.symbols.empty()) return;
    std::vector<std::string> names;
    for (OpWalker w(program_.block()); Operation* op = w.Next();) {
      for (size_t i = 0; i < op->num_results(); ++i) {
        const auto type = TensorOrNull(op->result(i));
        if (!type) continue;
        for (const Dim& d : type.dims()) d.CollectSymbols(names);
      }
    }
    for (const auto& [symbol, value] : options_.symbols) {
      if (std::find(names.begin(), names.end(), symbol) != names.end()) continue;
      Error error(ErrorCode::kNotFound, "memory/symbol",
                  StrCat("no dim of the program has the symbol '", symbol, "'"));
      if (const std::string near = DidYouMean(symbol, names); !near.empty()) error.Hint(near);
      throw error;
    }
  }

  std::optional<size_t> BytesOf(Value value) const {
    const auto type = TensorOrNull(value);
    if (!type || !type.has_rank() || BitWidth(type.element()) == 0) return std::nullopt;
    size_t count = 1;
    for (const Dim& d : type.dims()) {
      const auto extent = d.Evaluate(options_.symbols);
      if (!extent || *extent < 0) return std::nullopt;
      if (__builtin_mul_overflow(count, static_cast<size_t>(*extent), &count)) return std::nullopt;
    }
    if (count > (~size_t{0} >> 8)) return std::nullopt;
    return StorageBytes(type.element(), count);
  }

  // ---- steps ----

  /// A group is one kernel; a function runs wherever it is called, in memory of its own.
  static bool IsApart(const Operation* op) {
    return op->isa<builtin::GroupOp>() || op->isa<builtin::FuncOp>();
  }

  void NumberSteps() {
    for (OpWalker w(program_.block()); Operation* op = w.Next();) {
      const auto step = static_cast<uint32_t>(steps_.size());
      steps_.push_back(op);
      step_of_[op] = step;
      last_inside_[op] = step;
      if (IsApart(op)) w.SkipRegions();
    }
    for (OpWalker w(program_.block()); Operation* op = w.Next();) {
      if (op->isa<builtin::SetParameterOp>()) written_.insert(op->attribute("name").storage());
    }
    for (size_t i = steps_.size(); i-- > 0;) {  // what is inside comes after
      const auto parent = last_inside_.find(steps_[i]->parent_op());
      if (parent == last_inside_.end()) continue;
      parent->second = std::max(parent->second, last_inside_.at(steps_[i]));
    }
  }

  uint32_t end_of_program() const { return static_cast<uint32_t>(steps_.size()); }

  /// The last step at which `value` itself must hold.
  uint32_t LastUse(Value value, uint32_t made) const {
    uint32_t last = made;
    for (const OpOperand use : value.uses()) {
      Operation* user = use.owner();
      if (user->isa<nn::FetchOp>()) return end_of_program();
      while (user->block() != value.parent_block()) user = user->parent_op();
      last = std::max(last, last_inside_.at(user));
    }
    return last;
  }

  // ---- storages ----

  void VisitArguments(Operation* op, uint32_t step) {
    for (Region& region : op->regions()) {
      for (Block& block : region) {
        for (size_t i = 0; i < block.num_arguments(); ++i) {
          Own(block.argument(i), step, last_inside_.at(op), true);
        }
      }
    }
  }

  void Visit(Operation* op) {
    const uint32_t step = step_of_.at(op);
    if (!IsApart(op)) VisitArguments(op, step);
    const bool outside = IsOutside(op);
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value result = op->result(i);
      const uint32_t last = LastUse(result, last_inside_.at(op));
      if (i == 0 && Join(op, last)) continue;
      if (i == 0 && IsAlias(op)) {
        plan_.dynamic_.push_back(result);  // as is what it shows
        continue;
      }
      Own(result, step, last, !outside);
    }
    KeepWhatEscapes(op);
  }

  /// Feeds, constants, and parameters that nothing sets: somebody else holds them.
  bool IsOutside(const Operation* op) const {
    if (op->isa<nn::FeedOp>() || op->HasTrait<ConstantLike>()) return true;
    return op->isa<builtin::GetParameterOp>() &&
           written_.count(op->attribute("name").storage()) == 0;
  }

  void Own(Value value, uint32_t begin, uint32_t end, bool in_arena) {
    const std::optional<size_t> bytes = BytesOf(value);
    if (!bytes) {
      const Type type = value.type();
      if (!type.isa<TokenType>() && !type.isa<NoneType>()) plan_.dynamic_.push_back(value);
      return;
    }
    plan_.unshared_ += in_arena ? *bytes : 0;
    plan_.storage_of_[value] = static_cast<uint32_t>(plan_.storages_.size());
    plan_.storages_.push_back({in_arena, *bytes, 0, begin, end, {value}});
  }

  Storage* StorageOf(Value value) {
    const uint32_t id = value ? plan_.storage_of(value) : MemoryPlan::kNone;
    return id == MemoryPlan::kNone ? nullptr : &plan_.storages_[id];
  }

  /// Result 0 of `op` lives where an operand lives.
  bool Join(Operation* op, uint32_t last) {
    const Value result = op->result(0);
    const size_t operand = OperandToJoin(op);
    if (operand == op->num_operands()) return false;
    const Value from = op->operand(operand);
    Storage& storage = *StorageOf(from);
    plan_.unshared_ += storage.in_arena ? BytesOf(result).value_or(0) : 0;
    plan_.storage_of_[result] = plan_.storage_of(from);
    storage.values.push_back(result);
    storage.end = std::max(storage.end, last);
    return true;
  }

  /// Result 0 is operand 0 because the program says so.
  static bool IsAlias(const Operation* op) {
    return (op->HasTrait<Inplace>() || op->HasTrait<ViewLike>()) && op->num_operands() > 0 &&
           IsMutable(op->operand(0));
  }

  size_t OperandToJoin(Operation* op) {
    const size_t none = op->num_operands();
    if (none == 0 || op->num_regions() != 0) return none;
    const Value first = op->operand(0);
    if (IsAlias(op)) return StorageOf(first) != nullptr ? 0 : none;
    const std::optional<size_t> bytes = BytesOf(op->result(0));
    if (!options_.share || !bytes || IsMutable(op->result(0))) return none;
    if (op->HasTrait<KeepsBytes>() && StorageOf(first) != nullptr && !IsMutable(first) &&
        BytesOf(first) == bytes) {
      return 0;
    }
    for (size_t i = 0; i < none; ++i) {
      if (MayOverwrite(op, i, *bytes)) return i;
    }
    return none;
  }

  bool MayOverwrite(Operation* op, size_t i, size_t bytes) {
    const Value from = op->operand(i);
    const Storage* storage = StorageOf(from);
    if (storage == nullptr || !storage->in_arena || IsMutable(from)) return false;
    if (storage->end != step_of_.at(op) || storage->bytes != bytes) return false;
    if (InLoopFromOutside(op, *storage) || !options_.in_place(op, i)) return false;
    // Another operand in the same bytes must be read at the element that is written.
    for (size_t k = 0; k < op->num_operands(); ++k) {
      const Value other = op->operand(k);
      if (StorageOf(other) == storage && other.type() != from.type()) return false;
    }
    return true;
  }

  /// What an op in a region overwrites must be made anew each time the region runs.
  static bool InLoopFromOutside(const Operation* op, const Storage& storage) {
    for (const Value v : storage.values) {
      if (v.parent_block() != op->block()) return true;
    }
    return false;
  }

  /// An op of which nothing is known may keep the mutable tensors that it sees.
  void KeepWhatEscapes(Operation* op) {
    if (op->HasTrait<HasValueSemantics>() || op->HasTrait<Inplace>() || op->HasTrait<ViewLike>() ||
        op->isa<nn::FetchOp>()) {
      return;
    }
    for (size_t i = 0; i < op->num_operands(); ++i) {
      if (!IsMutable(op->operand(i))) continue;
      if (Storage* storage = StorageOf(op->operand(i))) storage->end = end_of_program();
    }
  }

  // ---- offsets ----

  void Pack() {
    std::vector<MemoryBlock> blocks;
    for (const Storage& s : plan_.storages_) {
      if (s.in_arena) blocks.push_back({s.bytes, s.begin, s.end});
    }
    plan_.peak_ = PackBlocks(blocks, options_.alignment);
    plan_.lower_bound_ = MaxLiveBytes(blocks, options_.alignment);
    size_t next = 0;
    for (Storage& s : plan_.storages_) {
      if (s.in_arena) s.offset = blocks[next++].offset;
    }
  }

  const Program& program_;
  const MemoryPlanOptions& options_;
  MemoryPlan& plan_;
  std::vector<Operation*> steps_;
  // Looked up, never iterated.
  std::unordered_map<const Operation*, uint32_t> step_of_;
  std::unordered_map<const Operation*, uint32_t> last_inside_;
  std::unordered_set<const void*> written_;  // names of parameters that the program sets
};

MemoryPlan::MemoryPlan(const Program& program, const MemoryPlanOptions& options) {
  MemoryPlanner(program, options, *this).Run();
}

uint32_t MemoryPlan::storage_of(Value value) const {
  const auto at = storage_of_.find(value);
  return at == storage_of_.end() ? kNone : at->second;
}

}  // namespace lathe
