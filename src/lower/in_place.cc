#include "src/lower/in_place.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/lower/schedule/leaves.h"
#include "src/lower/schedule/touched.h"

// A load and a store are looked at where they meet: in the iterations of the loops that both are
// in. Each touches elements of a box; along one axis, or along all of them taken as one, the boxes
// of any two iterations must lie apart where the store comes first. Iterations of a parallel loop
// never store the same elements: it is enough if each stores those that it loads.
namespace lathe::lower {
namespace {

using schedule::BaseMemory;
using schedule::CounterOf;
using schedule::Leaves;
using Loops = std::vector<const Operation*>;  // outermost first

// Where an access begins along an axis, and how many elements it spans from there; by how much the
// next iteration of the loop just around begins later.
struct Range {
  Dim begin, width;  // unknown: anything
  Dim step = {};     // unknown: not always the same
};

struct Lanes {
  int64_t count = 1, stride = 1, axis = -1;
  bool operator==(const Lanes&) const = default;
};

struct Access {
  const Operation* op;
  Lanes lanes;
  Value live;
  Loops loops;                // around it
  std::vector<Dim> dims;      // of the memory as it is accessed
  std::vector<Range> ranges;  // per axis, then with all axes as one
  /// A load whose elements are stored behind it in the same iteration of all loops.
  bool is_stored = false;
  /// By axis and first loop (Judge::Spread): each access meets many others.
  mutable std::map<std::pair<size_t, size_t>, Range> spreads{};
};

bool AtLeast(const Dim& a, const Dim& b) {
  const Dim difference = a - b;
  return !difference.is_unknown() && difference.LowerBound().value_or(-1) >= 0;
}

bool KnowsDims(const Access& a) { return std::ranges::none_of(a.dims, &Dim::is_unknown); }

class Accesses {
 public:
  explicit Accesses(Leaves& leaves) : leaves_(leaves) {}

  /// Loads of an argument, or stores in a result's memory, through views; nothing if there are
  /// others than this knows.
  std::optional<std::vector<Access>> Of(Value memory, bool stores) {
    std::vector<Access> found;
    std::vector<Value> views{memory};
    for (size_t i = 0; i < views.size(); ++i) {
      for (const OpOperand use : views[i].uses()) {
        Operation* op = use.owner();
        if (op->isa<loop::DimOp>() || op->isa<loop::PrefetchOp>()) continue;
        const bool is_view =
            op->num_results() == 1 && BaseMemory(op->result(0)) == BaseMemory(memory);
        if (is_view) {
          views.push_back(op->result(0));
          continue;
        }
        if (op->isa<loop::StoreInplaceOp>() && op->operand(0) == views[i]) {
          if (!stores || !op->result(0).use_empty()) return std::nullopt;
          found.push_back(StoreOf(op));
        } else if (op->isa<loop::LoadOp>() || op->isa<loop::GatherOp>()) {
          if (!stores) found.push_back(LoadOf(op));
        } else if (!op->HasTrait<Terminator>()) {
          return std::nullopt;
        }
      }
    }
    return found;
  }

  /// How often a loop runs.
  const Dim& ExtentOf(const Operation* loop) { return TripsOf(loop).extent; }
  /// Whether it runs once or not at all, which is known only when it runs.
  bool IsChoice(const Operation* loop) { return TripsOf(loop).is_choice; }

  /// Extents that loops read from memory are the dims of its type.
  Dim WithExtents(const Dim& expr) const {
    return expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
      const Value leaf = leaves_.Leaf(name);
      Operation* op = leaf ? leaf.defining_op() : nullptr;
      if (op == nullptr || !op->isa<loop::DimOp>()) return std::nullopt;
      const auto axis = static_cast<size_t>(loop::DimOp(op).axis());
      const Dim dim = Named(TensorOf(op->operand(0)).dims()[axis]);
      return dim.is_unknown() ? std::nullopt : std::optional(dim);
    });
  }

 private:
  Access LoadOf(Operation* op) {
    if (op->isa<loop::GatherOp>()) return Made(op, loop::GatherOp::kIndices, {}, {});
    const loop::LoadOp load(op);
    const Lanes lanes{std::max<int64_t>(load.lanes(), 1), load.stride(), load.axis()};
    return Made(op, loop::LoadOp::kIndices, lanes, load.live());
  }
  Access StoreOf(Operation* op) {
    const loop::StoreInplaceOp store(op);
    const AnyTensorType value = TensorOf(store.value());
    const int64_t count = value.rank() == 1 ? value.dims()[0].value() : 1;
    return Made(op, loop::StoreInplaceOp::kIndices, {count, store.stride(), store.axis()},
                store.live());
  }

  Access Made(Operation* op, size_t first, Lanes lanes, Value live) {
    std::vector<Dim> dims = DimsOf(op->operand(0));
    const size_t rank = dims.size();
    if (lanes.axis < 0) lanes.axis = static_cast<int64_t>(rank) - 1;
    Access access{op, lanes, live, LoopsAround(op), std::move(dims), {}};
    Range all{0, 1};
    Dim step = 1;
    for (size_t a = rank; a-- > 0; step = step * access.dims[a]) {
      const bool along = a == static_cast<size_t>(lanes.axis);
      const Dim spread = along ? (lanes.count - 1) * lanes.stride : 0;
      const bool is_one = access.dims[a].IsConstant(1);  // there is only one index
      const Range range{is_one ? Dim(0) : IndexOf(op->operand(first + a)), spread + 1};
      all = {all.begin + range.begin * step, all.width + spread * step};
      access.ranges.insert(access.ranges.begin(), range);
    }
    access.ranges.push_back(all);
    return access;
  }

  static Loops LoopsAround(const Operation* op) {
    Loops loops;
    for (op = op->parent_op(); op != nullptr && op->isa<loop::ForOp>(); op = op->parent_op()) {
      loops.insert(loops.begin(), op);
    }
    return loops;
  }

  // Vectors of indices may be any.
  Dim IndexOf(Value index) {
    return TensorOf(index).rank() == 0 ? WithExtents(leaves_.Of(index)) : Dim();
  }

  static std::vector<Dim> DimsOf(Value memory) {
    std::vector<Dim> dims;
    for (const Dim& d : TensorOf(memory).dims()) dims.push_back(Named(d));
    return dims;
  }
  // A dim of a type: its symbols are not those of leaves.
  static Dim Named(const Dim& dim) {
    return dim.Substitute(
        [](std::string_view name) { return std::optional(Dim::Symbol(StrCat("dim ", name))); });
  }

  struct Trips {
    Dim extent;
    bool is_choice = false;
  };

  const Trips& TripsOf(const Operation* loop) {
    const auto [at, is_new] = trips_.try_emplace(loop);
    if (is_new) {
      const Dim extent = WithExtents(schedule::ExtentOf(loop, leaves_));
      at->second = {extent, !extent.is_constant() && extent.UpperBound().value_or(2) <= 1};
    }
    return at->second;
  }

  Leaves& leaves_;
  std::unordered_map<const Operation*, Trips> trips_;  // looked up, never iterated
};

// What is proven of differences between indices, each once: the rows of a tile are so many apart,
// whichever two they are.
class Differences {
 public:
  /// Whether the difference is not negative where each of `runs` is at least 1: then a multiple of
  /// how much it is more may be taken from it.
  bool IsNatural(const Dim& difference, const std::vector<Dim>& runs) {
    if (difference.is_unknown()) return false;
    if (difference.LowerBound().value_or(-1) >= 0) return true;
    if (runs.empty()) return false;
    const auto [at, is_new] = proven_.try_emplace(Key{difference, runs}, false);
    if (is_new) at->second = IsNaturalByRuns(difference, runs);
    return at->second;
  }

 private:
  struct Key {
    Dim difference;
    std::vector<Dim> runs;
    bool operator==(const Key&) const = default;
  };
  struct HashOf {
    size_t operator()(const Key& key) const {
      uint64_t hash = key.difference.Hash();
      for (const Dim& run : key.runs) hash = hash * 31 + run.Hash();
      return hash;
    }
  };

  static bool IsNaturalByRuns(const Dim& difference, const std::vector<Dim>& runs) {
    constexpr int64_t kMost = 16;  // rows of a tile
    return std::ranges::any_of(runs, [&](const Dim& run) {
      const Dim more = run - 1;
      Dim rest = difference;
      for (int64_t times = 1; times <= kMost; ++times) {
        rest -= more;
        if (!rest.is_unknown() && rest.LowerBound().value_or(-1) >= 0) return true;
      }
      return false;
    });
  }

  std::unordered_map<Key, bool, HashOf> proven_;  // looked up, never iterated
};

bool StoresWhatIsLoaded(const Access& store, const Access& load) {
  if (store.op->block() != load.op->block() || !load.op->IsBefore(store.op)) return false;
  if (store.dims != load.dims || !KnowsDims(load) || store.lanes != load.lanes) return false;
  if (store.live && store.live != load.live) return false;
  for (size_t i = 0; i < load.ranges.size(); ++i) {
    const Dim& begin = load.ranges[i].begin;
    if (begin.is_unknown() || !(begin == store.ranges[i].begin)) return false;
  }
  return true;
}

// Whether the stores of a result leave alone what the loads of an argument are still to read.
class Judge {
 public:
  Judge(Leaves& leaves, Accesses& accesses) : leaves_(leaves), accesses_(accesses) {}

  bool AllApart(std::vector<Access>& loads, const std::vector<Access>& stores) {
    return std::ranges::all_of(loads, [&](Access& load) {
      const auto stored = [&](const Access& s) { return StoresWhatIsLoaded(s, load); };
      load.is_stored = std::ranges::any_of(stores, stored);
      return std::ranges::all_of(stores, [&](const Access& s) { return Apart(load, s); });
    });
  }

 private:
  bool Apart(const Access& load, const Access& store) {
    size_t shared = 0;
    while (shared < load.loops.size() && shared < store.loops.size() &&
           load.loops[shared] == store.loops[shared]) {
      ++shared;
    }
    if (StoreComesFirst(load, store, shared) && !AreExclusive(load, store, shared) &&
        !ApartInOneIteration(load, store, shared)) {
      return false;
    }
    for (size_t k = 0; k < shared; ++k) {
      if (!ApartInIterations(load, store, k)) return false;
    }
    return true;
  }

  // In the block in which both are, or the loops around them that they do not share.
  static bool StoreComesFirst(const Access& load, const Access& store, size_t shared) {
    const auto at = [&](const Access& a) {
      return a.loops.size() > shared ? a.loops[shared] : a.op;
    };
    return at(store)->IsBefore(at(load));
  }

  // Of the loops around them one does not run: they are a choice.
  bool AreExclusive(const Access& load, const Access& store, size_t shared) {
    if (load.loops.size() == shared || store.loops.size() == shared) return false;
    const Dim both =
        accesses_.ExtentOf(load.loops[shared]) + accesses_.ExtentOf(store.loops[shared]);
    return !both.is_unknown() && both.UpperBound().value_or(2) <= 1;
  }

  bool ApartInOneIteration(const Access& load, const Access& store, size_t shared) {
    const std::vector<Dim> runs = ChoicesOf({&load, &store}, shared);
    return AnyAxis(load, store, shared, [&](const Range& l, const Range& s) {
      const Dim distance = l.begin - s.begin;
      return differences_.IsNatural(distance - s.width, runs) ||
             differences_.IsNatural(Dim(0) - distance - l.width, runs);
    });
  }

  // How often loops run that run once or not at all, where the accesses are not in the same ones.
  std::vector<Dim> ChoicesOf(std::initializer_list<const Access*> accesses, size_t first) {
    std::vector<Dim> runs;
    for (const Access* access : accesses) {
      for (size_t i = first; i < access->loops.size(); ++i) {
        const Operation* loop = access->loops[i];
        if (accesses_.IsChoice(loop)) runs.push_back(accesses_.ExtentOf(loop));
      }
    }
    return runs;
  }

  // Iterations c of the load and c' of the store, of loop number k, the loops around it being in
  // the same iteration: c' < c, or where iterations run at once, any two.
  bool ApartInIterations(const Access& load, const Access& store, size_t k) {
    const Operation* loop = load.loops[k];
    const auto most = accesses_.ExtentOf(loop).UpperBound();
    if (most.value_or(2) <= 1) return true;
    const auto apart = [&](int64_t sign) {  // of c - c'
      return AnyAxis(load, store, k + 1, [&](const Range& l, const Range& s) {
        if (l.step.is_unknown() || !(l.step == s.step)) return false;
        const Dim distance = l.begin - s.begin, step = Dim(sign) * l.step;
        return (AtLeast(step, 0) && AtLeast(distance + step, s.width)) ||
               (AtLeast(0, step) && AtLeast(0, distance + step + l.width));
      });
    };
    const bool parallel = loop::ForOp(loop).parallel();
    // No iteration stores what another one does.
    if (parallel && load.is_stored) return true;
    return apart(1) && (!parallel || apart(-1));
  }

  // Of the ranges that the accesses have while the first `shared` loops stay where they are.
  template <class F>
  bool AnyAxis(const Access& load, const Access& store, size_t shared, F&& apart) {
    const bool same_axes = load.dims == store.dims && KnowsDims(load);
    for (size_t a = 0; a < load.ranges.size(); ++a) {
      const bool is_all = a + 1 == load.ranges.size();
      if (!is_all && !same_axes) continue;
      const Range& l = Spread(load, a, shared);
      const Range& s = Spread(store, is_all ? store.ranges.size() - 1 : a, shared);
      const bool known = !l.begin.is_unknown() && !s.begin.is_unknown() && !l.width.is_unknown() &&
                         !s.width.is_unknown();
      if (known && apart(l, s)) return true;
    }
    return false;
  }

  // Over all iterations of the loops from number `first` on. Begin: of leaves outside of these.
  const Range& Spread(const Access& access, size_t axis, size_t first) {
    const auto [at, is_new] = access.spreads.try_emplace({axis, first});
    if (is_new) {
      at->second = FindSpread(access, axis, first);
      if (first > 0) at->second.step = StepOf(at->second.begin, access.loops[first - 1]);
    }
    return at->second;
  }

  // By how much an index grows from one iteration of a loop to the next.
  Dim StepOf(const Dim& begin, const Operation* loop) {
    const Value counter = CounterOf(loop);
    if (begin.is_unknown()) return {};
    const Dim slope = leaves_.Slope(begin, counter);
    const bool is_fixed = !slope.is_unknown() && IsOutside(slope, loop) &&
                          IsOutside(leaves_.Replace(begin, counter, 0), loop);
    return is_fixed ? slope : Dim();
  }

  Range FindSpread(const Access& access, size_t axis, size_t first) {
    Range range = access.ranges[axis];
    for (size_t i = access.loops.size(); i-- > first;) {
      const Value counter = CounterOf(access.loops[i]);
      if (!leaves_.Reads(range.begin, counter)) continue;
      const Dim slope = leaves_.Slope(range.begin, counter);
      const Dim last = accesses_.ExtentOf(access.loops[i]) - 1;
      const bool up = AtLeast(slope, 0);
      if (!up && !AtLeast(0, slope)) return {};
      range.begin = leaves_.Replace(range.begin, counter, up ? Dim(0) : last);
      range.width += (up ? slope : Dim(0) - slope) * last;
    }
    for (size_t i = first; i < access.loops.size(); ++i) {
      if (!IsOutside(range.begin, access.loops[i])) return {};
    }
    return range;
  }

  // Whether an expression is the same in all iterations of a loop.
  bool IsOutside(const Dim& expr, const Operation* loop) const {
    return std::ranges::none_of(leaves_.In(expr), [&](Value leaf) {
      if (!leaf) return false;  // a dim of a type
      const Operation* owner =
          leaf.is_block_argument() ? leaf.argument_block()->parent_op() : leaf.defining_op();
      return schedule::IsInside(owner, loop);
    });
  }

  Leaves& leaves_;
  Accesses& accesses_;
  Differences differences_;
};

bool AreAsLarge(AnyTensorType a, AnyTensorType b) {
  return a.has_rank() && b.has_rank() && BitWidth(a.element()) == BitWidth(b.element()) &&
         ProvablyEqual(a.shape().NumElements(), b.shape().NumElements());
}

}  // namespace

std::vector<std::pair<size_t, size_t>> InPlacePairs(const Block& loops,
                                                    const std::vector<bool>& constant) {
  Leaves leaves(true);
  Accesses accesses(leaves);
  Judge judge(leaves, accesses);
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t r = 0; r < loops.back()->num_operands(); ++r) {
    const Value result = BaseMemory(loops.back()->operand(r));
    std::optional<std::vector<Access>> stores;
    for (size_t a = 0; a < loops.num_arguments(); ++a) {
      const Value argument = loops.argument(a);
      const bool is_constant = a < constant.size() && constant[a];
      if (is_constant || !AreAsLarge(TensorOf(argument), TensorOf(result))) continue;
      if (!stores) stores = accesses.Of(result, true);
      if (!stores) break;
      auto loads = accesses.Of(argument, false);
      if (loads && judge.AllApart(*loads, *stores)) pairs.emplace_back(a, r);
    }
  }
  return pairs;
}

}  // namespace lathe::lower
