#include "lathe/lower/schedule.h"

#include <algorithm>
#include <numeric>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/loop/tile.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/lower/compute/index_space.h"
#include "src/lower/schedule/leaves.h"
#include "src/lower/schedule/touched.h"

namespace lathe::schedule {
namespace {

Block* BodyOf(const Operation* loop) { return loop->region(0).front(); }

bool IsLoop(const Operation* op) { return op != nullptr && op->name() == loop::ForOp::kName; }

bool CarriesValues(const Operation* loop) { return loop->num_results() > 0; }

bool IsParallel(const Operation* loop) { return loop::ForOp(loop).parallel(); }

std::string WhyNotLoop(const Operation* op) {
  if (op == nullptr) return "there is no loop";
  if (!IsLoop(op)) return StrCat(op->name(), " is not a loop");
  return CarriesValues(op) ? "the loop carries values" : "";
}

// Moves what a body holds, terminator left out, to the end of another block.
void MoveBody(Block* from, Block* to) {
  while (!from->empty() && !from->front()->HasTrait<Terminator>()) from->front()->MoveToEnd(to);
}

void CloneBody(const Block* from, Block* to, IrMapping& mapping) {
  for (Operation& op : *from) {
    if (!op.HasTrait<Terminator>()) to->PushBack(Clone(&op, mapping));
  }
}

}  // namespace

Operation* PerfectlyNested(const Operation* loop) {
  Operation* only = BodyOf(loop)->front();
  if (!IsLoop(only) || only->next() == nullptr) return nullptr;
  return only->next()->HasTrait<Terminator>() ? only : nullptr;
}

// ---- split ----

std::string WhyNotSplit(const Operation* loop, int64_t factor) {
  if (std::string why = WhyNotLoop(loop); !why.empty()) return why;
  return factor > 0 ? "" : StrCat("the factor is ", factor);
}

SplitLoops Split(Operation* loop, int64_t factor) {
  if (const std::string why = WhyNotSplit(loop, factor); !why.empty()) Refuse(loop, "split", why);
  Leaves leaves;
  const Dim extent = ExtentOf(loop, leaves);
  const Dim full = FloorDiv(extent, factor), rest = Mod(extent, factor);
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  SplitLoops made{MakeLoop(b, leaves, full, IsParallel(loop)), nullptr, nullptr};
  Builder inside = Builder::AtEnd(BodyOf(made.outer));
  made.inner = MakeLoop(inside, leaves, factor);
  EndLoop(made.outer);
  if (!rest.IsConstant(0)) {
    made.rest = MakeLoop(b, leaves, rest);
    IrMapping mapping;
    mapping.Map(CounterOf(loop), CounterOf(made.rest));
    CloneBody(BodyOf(loop), BodyOf(made.rest), mapping);
    EndLoop(made.rest);
    const Value counter = CounterOf(made.rest);
    ReplaceCounter(counter, full * factor + leaves.SymbolOf(counter), leaves);
  }
  MoveBody(BodyOf(loop), BodyOf(made.inner));
  EndLoop(made.inner);
  const Dim block = leaves.SymbolOf(CounterOf(made.outer));  // first: the order names the symbols
  const Dim place = block * factor + leaves.SymbolOf(CounterOf(made.inner));
  ReplaceCounter(CounterOf(loop), place, leaves);
  loop->Erase();
  return made;
}

// ---- fuse ----

std::string WhyNotFuse(const Operation* outer) {
  if (std::string why = WhyNotLoop(outer); !why.empty()) return why;
  const Operation* inner = PerfectlyNested(outer);
  if (inner == nullptr) return "its body is not one loop alone";
  return CarriesValues(inner) ? "the inner loop carries values" : "";
}

namespace {

// The extent as it is read where `b` stands.
Dim OutsideOf(Builder& b, const Dim& extent, Leaves& leaves) {
  return extent.is_constant() ? extent : leaves.SymbolOf(leaves.Emit(b, extent));
}

// The extent, computed outside of all loops around `loop` that it does not depend on, so that these
// stay perfectly nested.
Dim FarOutside(Operation* loop, const Dim& extent, Leaves& leaves) {
  const std::vector<Value> read = leaves.In(extent);
  const auto depends_on = [&](const Operation* around) {
    return std::ranges::any_of(read, [&](Value v) {
      return IsInside(v.is_block_argument() ? v.argument_block()->parent_op() : v.defining_op(),
                      around);
    });
  };
  while (IsLoop(loop->parent_op()) && !depends_on(loop->parent_op())) loop = loop->parent_op();
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  return OutsideOf(b, extent, leaves);
}

// The expression over the fused counter of one over both: without division where a step of the
// outer loop is as far as all of the inner one.
Dim FusedIndex(const Dim& expr, Value outer, Value inner, const Dim& width, const Dim& counter,
               Leaves& leaves, bool* divides) {
  const Dim far = leaves.Slope(expr, outer), near = leaves.Slope(expr, inner);
  if (!far.is_unknown() && !near.is_unknown() && far == near * width) {
    return leaves.Replace(leaves.Replace(expr, outer, 0), inner, counter);
  }
  if (divides != nullptr) *divides = true;
  return leaves.Replace(leaves.Replace(expr, outer, FloorDiv(counter, width)), inner,
                        Mod(counter, width));
}

// Each index made of either counter, as an expression; what is not an index reads a counter itself.
std::vector<Dim> IndicesOf(Value outer, Value inner, Leaves& leaves) {
  std::vector<Dim> indices;
  for (const Value counter : {outer, inner}) {
    for (const OpOperand use : counter.uses()) {
      const Operation* user = use.owner();
      const bool is_index = user->name() == loop::IndexOp::kName;
      indices.push_back(is_index ? leaves.Of(user->result(0)) : leaves.SymbolOf(counter));
    }
  }
  return indices;
}

}  // namespace

bool FusesWithoutDivision(const Operation* outer) {
  if (!WhyNotFuse(outer).empty()) return false;
  const Operation* inner = PerfectlyNested(outer);
  Leaves leaves;
  const Dim width = ExtentOf(inner, leaves);
  const Value i = CounterOf(outer), j = CounterOf(inner);
  bool divides = false;
  for (const Dim& index : IndicesOf(i, j, leaves)) {
    const Dim fused = FusedIndex(index, i, j, width, leaves.SymbolOf(i), leaves, &divides);
    if (fused.is_unknown()) return false;
  }
  return !divides;
}

Operation* Fuse(Operation* outer) {
  if (const std::string why = WhyNotFuse(outer); !why.empty()) Refuse(outer, "fuse", why);
  Operation* inner = PerfectlyNested(outer);
  Leaves leaves;
  const Dim width = ExtentOf(inner, leaves);
  const Value i = CounterOf(outer), j = CounterOf(inner);
  Builder b = Builder::Before(outer);
  b.set_location(outer->location());
  const Dim extent = FarOutside(outer, ExtentOf(outer, leaves) * width, leaves);
  Operation* fused = MakeLoop(b, leaves, extent, IsParallel(outer) && IsParallel(inner));
  const Dim counter = leaves.SymbolOf(CounterOf(fused));
  MoveBody(BodyOf(inner), BodyOf(fused));
  EndLoop(fused);
  // Indices of both counters first, then what is left of each.
  std::vector<Operation*> users;
  for (const Value v : {i, j}) {
    for (const OpOperand use : v.uses()) {
      if (use.owner()->name() == loop::IndexOp::kName) users.push_back(use.owner());
    }
  }
  for (Operation* user : users) {
    if (user->use_empty()) continue;
    const Dim old = leaves.Of(user->result(0));
    Builder at = Builder::Before(user);
    const Dim index = FusedIndex(old, i, j, width, counter, leaves, nullptr);
    user->result(0).ReplaceAllUsesWith(leaves.Emit(at, index));
  }
  const bool is_whole = ExtentOf(outer, leaves).IsConstant(1);
  ReplaceCounter(i, is_whole ? Dim(0) : FloorDiv(counter, width), leaves);
  ReplaceCounter(j, is_whole ? counter : Mod(counter, width), leaves);
  outer->Erase();
  return fused;
}

// ---- interchange, tile ----

std::string WhyNotInterchange(const Operation* outer) {
  if (std::string why = WhyNotFuse(outer); !why.empty()) return why;
  Leaves leaves;
  const Dim extent = ExtentOf(PerfectlyNested(outer), leaves);
  if (leaves.Reads(extent, CounterOf(outer))) return "the inner extent depends on the loop";
  for (const Operation* loop : {outer, static_cast<const Operation*>(PerfectlyNested(outer))}) {
    if (IsParallel(loop)) continue;
    if (std::string why = WhyNotParallel(loop); !why.empty()) return why;
  }
  return "";
}

Operation* Interchange(Operation* outer) {
  if (const std::string why = WhyNotInterchange(outer); !why.empty()) {
    Refuse(outer, "interchange", why);
  }
  Operation* inner = PerfectlyNested(outer);
  Leaves leaves;
  Builder b = Builder::Before(outer);
  b.set_location(outer->location());
  // Both extents are computed outside, or the nest would not be perfect any more.
  const Dim rows = OutsideOf(b, ExtentOf(outer, leaves), leaves);
  Operation* first = MakeLoop(b, leaves, ExtentOf(inner, leaves), IsParallel(inner));
  Builder inside = Builder::AtEnd(BodyOf(first));
  Operation* second = MakeLoop(inside, leaves, rows, IsParallel(outer));
  EndLoop(first);
  MoveBody(BodyOf(inner), BodyOf(second));
  EndLoop(second);
  CounterOf(outer).ReplaceAllUsesWith(CounterOf(second));
  CounterOf(inner).ReplaceAllUsesWith(CounterOf(first));
  outer->Erase();
  return first;
}

namespace {

// The inner of two nested loops in blocks, around the outer loop's own.
std::vector<Operation*> BlockInner(Operation* outer, int64_t columns) {
  const SplitLoops split = Split(PerfectlyNested(outer), columns);
  if (split.rest == nullptr) return {Interchange(outer)};
  // The rest needs an outer loop of its own.
  Leaves leaves;
  Builder b = Builder::After(outer);
  Operation* other = MakeLoop(b, leaves, ExtentOf(outer, leaves), IsParallel(outer));
  split.rest->MoveToEnd(BodyOf(other));
  EndLoop(other);
  IrMapping mapping;
  const Value from = CounterOf(outer), to = CounterOf(other);
  std::vector<OpOperand> uses;
  for (const OpOperand use : from.uses()) uses.push_back(use);
  for (const OpOperand use : uses) {
    Operation* at = use.owner();
    while (at != nullptr && at != split.rest) at = at->parent_op();
    if (at == split.rest) use.Set(to);
  }
  return {Interchange(outer), other};
}

}  // namespace

std::vector<Operation*> Tile(Operation* outer, int64_t rows, int64_t columns) {
  if (const std::string why = WhyNotInterchange(outer); !why.empty()) Refuse(outer, "tile", why);
  const SplitLoops split = Split(outer, rows);
  std::vector<Operation*> result{split.outer};
  BlockInner(split.inner, columns);
  if (split.rest != nullptr) {
    const std::vector<Operation*> rests = BlockInner(split.rest, columns);
    result.insert(result.end(), rests.begin(), rests.end());
  }
  return result;
}

// ---- unroll ----

std::string WhyNotUnroll(const Operation* loop) {
  if (std::string why = WhyNotLoop(loop); !why.empty()) return why;
  return loop::ForOp(loop).extent() ? "" : "its extent is not constant";
}

void Unroll(Operation* loop) {
  if (const std::string why = WhyNotUnroll(loop); !why.empty()) Refuse(loop, "unroll", why);
  const int64_t extent = *loop::ForOp(loop).extent();
  Leaves leaves;
  for (int64_t i = 0; i < extent; ++i) {
    Builder b = Builder::Before(loop);
    IrMapping mapping;
    mapping.Map(CounterOf(loop), leaves.Emit(b, i));
    for (Operation& op : *BodyOf(loop)) {
      if (!op.HasTrait<Terminator>()) b.Insert(Clone(&op, mapping));
    }
  }
  loop->Erase();
}

// ---- parallel ----

namespace {

// What is known of integers where an operation runs: the loops around it are not empty.
class Around {
 public:
  Around(const Operation* op, Leaves& leaves) : leaves_(leaves) {
    for (op = op->parent_op(); op != nullptr; op = op->parent_op()) {
      if (!IsLoop(op)) continue;
      const Dim extent = ExtentOf(op, leaves);
      for (const Value leaf : leaves.In(extent)) {
        if (std::ranges::count(positive_, leaf) != 0) continue;
        if (lower::ProvablyAtMost(leaves.Replace(extent, leaf, 0), 0)) positive_.push_back(leaf);
      }
    }
  }
  /// The expression over integers that may be 0, where that is less by one.
  Dim operator()(const Dim& expr) const {
    Dim known = expr;
    for (const Value leaf : positive_) {
      if (leaves_.Reads(known, leaf)) {
        known = leaves_.Replace(known, leaf, leaves_.SymbolOf(leaf) + 1);
      }
    }
    return known;
  }

 private:
  Leaves& leaves_;
  std::vector<Value> positive_;
};

// How the counters of loops within one move an index.
struct Within {
  Dim spread = 0;   // greatest value minus least
  int64_t gcd = 0;  // of the steps; 1 if some is not constant
};

// Nothing if something else within the loop moves it, or by how much is not known.
std::optional<Within> CountersWithin(const Operation* loop, const Dim& expr, Leaves& leaves,
                                     const Around& known) {
  Within within;
  for (const Value leaf : leaves.In(expr)) {
    const Block* block = leaf.is_block_argument() ? leaf.argument_block() : leaf.parent_block();
    const Operation* owner = block->parent_op();
    if (!IsInside(owner, loop) || leaf == CounterOf(loop)) continue;
    if (!leaf.is_block_argument() || !IsLoop(owner) || leaf.index() != 0) return std::nullopt;
    const Dim slope = leaves.Slope(expr, leaf);
    if (slope.is_unknown()) return std::nullopt;
    const bool rises = lower::ProvablyAtMost(0, slope);
    if (!rises && !lower::ProvablyAtMost(slope, 0)) return std::nullopt;
    within.spread += (rises ? slope : Dim(0) - slope) * (known(ExtentOf(owner, leaves)) - 1);
    within.gcd = std::gcd(within.gcd, slope.is_constant() ? slope.value() : 1);
  }
  return within;
}

// Whether iterations of the loop store in different places, along one axis at least: a step is
// farther than all that an iteration writes, or all steps together stay between two steps of the
// loops within.
bool StoresApart(const Operation* loop, const Operation* store, Leaves& leaves) {
  const auto value = store->operand(loop::StoreInplaceOp::kValue).type().cast<AnyTensorType>();
  const Around known(store, leaves);
  const Dim extent = known(ExtentOf(loop, leaves));
  for (size_t i = loop::StoreInplaceOp::kIndices; i < store->num_operands(); ++i) {
    const Dim expr = known(leaves.Of(store->operand(i)));
    const bool is_last = i + 1 == store->num_operands();
    const Dim width = is_last && value.rank() == 1 ? value.dims()[0] : Dim(1);
    const Dim slope = leaves.Slope(expr, CounterOf(loop));
    const auto within = CountersWithin(loop, expr, leaves, known);
    if (slope.is_unknown() || !within) continue;
    const bool rises = lower::ProvablyAtMost(1, slope);
    const Dim step = rises ? slope : Dim(0) - slope;
    if (!lower::ProvablyAtMost(1, step)) continue;
    if (lower::ProvablyAtMost(within->spread + width, step)) return true;
    if (lower::ProvablyAtMost(width, step) &&
        lower::ProvablyAtMost(step * (extent - 1) + width, within->gcd)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string WhyNotParallel(const Operation* loop) {
  if (std::string why = WhyNotLoop(loop); !why.empty()) return why;
  Leaves leaves;
  std::vector<Value> stored, loaded;
  for (OpWalker w(BodyOf(loop)); Operation* op = w.Next();) {
    if (op->isa<loop::ExpectOp>()) return "the first wrong index is told";
    if (op->isa<loop::LoadOp>() || op->isa<loop::GatherOp>() || op->isa<loop::TileLoadOp>()) {
      loaded.push_back(BaseMemory(op->operand(0)));
    }
    const bool is_tile_store = op->isa<loop::TileStoreInplaceOp>();
    if (!op->isa<loop::StoreInplaceOp>() && !is_tile_store) continue;
    const Value memory = BaseMemory(op->operand(loop::StoreInplaceOp::kMemory));
    if (memory.defining_op() != nullptr && IsInside(memory.defining_op(), loop)) continue;
    if (is_tile_store) return "tiles are stored";
    if (!StoresApart(loop, op, leaves)) return "iterations may store in the same place";
    stored.push_back(memory);
  }
  for (const Value memory : stored) {
    for (const Value other : loaded) {
      if (memory == other) return "an iteration may read what another one stores";
    }
  }
  return "";
}

void Parallel(Operation* loop) {
  if (const std::string why = WhyNotParallel(loop); !why.empty()) Refuse(loop, "parallel", why);
  loop->SetAttribute(loop::ForOp::kParallelAttr, BoolAttribute::Get(*loop->context(), true));
}

}  // namespace lathe::schedule
