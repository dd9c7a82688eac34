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

// Where an access begins along an axis, and how many elements it spans from there.
struct Range {
  Dim begin, width;  // unknown: anything
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
  Dim ExtentOf(const Operation* loop) {
    const auto [at, is_new] = extents_.try_emplace(loop);
    if (is_new) at->second = WithExtents(schedule::ExtentOf(loop, leaves_));
    return at->second;
  }

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

  Leaves& leaves_;
  std::unordered_map<const Operation*, Dim> extents_;
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
      return IsAtLeast(l.begin, s.begin + s.width, runs) ||
             IsAtLeast(s.begin, l.begin + l.width, runs);
    });
  }

  // How often loops run that run once or not at all, where the accesses are not in the same ones.
  std::vector<Dim> ChoicesOf(std::initializer_list<const Access*> accesses, size_t first) {
    std::vector<Dim> runs;
    for (const Access* access : accesses) {
      for (size_t i = first; i < access->loops.size(); ++i) {
        const Dim extent = accesses_.ExtentOf(access->loops[i]);
        if (!extent.is_constant() && extent.UpperBound().value_or(2) <= 1) runs.push_back(extent);
      }
    }
    return runs;
  }

  // Whether a >= b where each of `runs` is at least 1: then a multiple of how much it is more may
  // be added to b.
  static bool IsAtLeast(const Dim& a, const Dim& b, const std::vector<Dim>& runs) {
    constexpr int64_t kMost = 16;  // rows of a tile
    if (AtLeast(a, b)) return true;
    for (const Dim& run : runs) {
      for (int64_t times = 1; times <= kMost; ++times) {
        if (AtLeast(a + times, b + Dim(times) * run)) return true;
      }
    }
    return false;
  }

  // Iterations c of the load and c' of the store, of loop number k, the loops around it being in
  // the same iteration: c' < c, or where iterations run at once, any two.
  bool ApartInIterations(const Access& load, const Access& store, size_t k) {
    const Operation* loop = load.loops[k];
    const auto most = accesses_.ExtentOf(loop).UpperBound();
    if (most.value_or(2) <= 1) return true;
    const Value counter = CounterOf(loop);
    const auto apart = [&](int64_t sign) {  // of c - c'
      return AnyAxis(load, store, k + 1, [&](const Range& l, const Range& s) {
        const Dim slope = leaves_.Slope(l.begin, counter);
        if (slope.is_unknown() || !(slope == leaves_.Slope(s.begin, counter))) return false;
        const Dim distance = l.begin - s.begin, step = Dim(sign) * slope;
        for (const Dim& begin : {l.begin, s.begin, slope}) {
          if (!IsOutside(leaves_.Replace(begin, counter, 0), loop)) return false;
        }
        return (AtLeast(step, 0) && AtLeast(distance + step, s.width)) ||
               (AtLeast(0, step) && AtLeast(0, distance + step + l.width));
      });
    };
    const bool parallel = loop::ForOp(const_cast<Operation*>(loop)).parallel();
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
      const Range l = Spread(load, a, shared);
      const Range s = Spread(store, is_all ? store.ranges.size() - 1 : a, shared);
      const bool known = !l.begin.is_unknown() && !s.begin.is_unknown() && !l.width.is_unknown() &&
                         !s.width.is_unknown();
      if (known && apart(l, s)) return true;
    }
    return false;
  }

  // Over all iterations of the loops from number `first` on. Begin: of leaves outside of these.
  Range Spread(const Access& access, size_t axis, size_t first) {
    const auto [at, is_new] = access.spreads.try_emplace({axis, first});
    if (is_new) at->second = FindSpread(access, axis, first);
    return at->second;
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
