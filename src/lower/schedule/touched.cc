#include "src/lower/schedule/touched.h"

#include <algorithm>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/loop/tile.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe::schedule {
namespace {

bool IsStore(const Operation* op) { return op->name() == loop::StoreInplaceOp::kName; }
bool IsLoad(const Operation* op) { return op->name() == loop::LoadOp::kName; }

size_t FirstIndex(const Operation* access) {
  return IsStore(access) ? loop::StoreInplaceOp::kIndices : loop::LoadOp::kIndices;
}

// Elements of an access, how far apart, and along which axis.
struct Lanes {
  int64_t count = 1;
  int64_t stride = 1;
  size_t axis = 0;
};

Lanes LanesOf(Operation* access) {
  const size_t rank = access->num_operands() - FirstIndex(access);
  Lanes lanes;
  int64_t axis = -1;
  if (IsStore(access)) {
    const loop::StoreInplaceOp store(access);
    const auto type = store.value().type().cast<AnyTensorType>();
    if (type.rank() == 1) lanes.count = type.dims()[0].value();
    lanes.stride = store.stride();
    axis = store.axis();
  } else {
    const loop::LoadOp load(access);
    lanes.count = std::max<int64_t>(load.lanes(), 1);
    lanes.stride = load.stride();
    axis = load.axis();
  }
  lanes.axis = axis < 0 ? rank - 1 : static_cast<size_t>(axis);
  return lanes;
}

bool HasLive(const Operation* access) {
  return static_cast<bool>(
      access->operand(IsStore(access) ? loop::StoreInplaceOp::kLive : loop::LoadOp::kLive));
}

class Finder {
 public:
  Finder(const Operation* loop, Scope scope, Value memory, Leaves& leaves, Touched& touched)
      : loop_(loop), scope_(scope), memory_(memory), leaves_(leaves), touched_(touched) {}

  std::string Run() {
    if (IsInside(memory_.defining_op(), loop_)) return "the memory is the loop's own";
    for (OpWalker w(loop_->region(0).front()); Operation* op = w.Next();) {
      if (std::string why = Visit(op); !why.empty()) return why;
    }
    return touched_.box.begin.empty() ? "the loop does not touch that memory" : "";
  }

 private:
  std::string Visit(Operation* op) {
    bool touches = false;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      touches = touches || (v && BaseMemory(v) == BaseMemory(memory_));
    }
    if (!touches || op->isa<loop::PrefetchOp>() || op->isa<loop::DimOp>()) return "";
    if ((!IsLoad(op) && !IsStore(op)) || op->operand(0) != memory_) {
      return StrCat(op->name(), " reaches the memory in another way");
    }
    if (HasLive(op)) return "some lanes of an access are not live";
    if (IsStore(op) && !op->result(0).use_empty()) return "what a store gives is used";
    for (const Operation* at = op->parent_op(); at != nullptr; at = at->parent_op()) {
      if (at == loop_ && scope_ == Scope::kIteration) break;
      if (std::string why = WhyNotCounted(at); !why.empty()) return why;
      if (at == loop_) break;
    }
    (IsStore(op) ? touched_.stores : touched_.loads).push_back(op);
    return AddBox(op);
  }

  // Only then does the least index that could be occur, and the greatest.
  static std::string WhyNotCounted(const Operation* at) {
    if (at->name() != loop::ForOp::kName) return StrCat("there is ", at->name());
    const auto extent = loop::ForOp(at).extent();
    if (!extent) return "a loop around an access is not of constant extent";
    return *extent > 0 ? "" : "a loop around an access never runs";
  }

  std::string AddBox(Operation* op) {
    Box box;
    const size_t first = FirstIndex(op);
    const Lanes lanes = LanesOf(op);
    for (size_t i = first; i < op->num_operands(); ++i) {
      Dim begin = leaves_.Of(op->operand(i));
      int64_t spread = i - first == lanes.axis ? (lanes.count - 1) * lanes.stride : 0;
      if (std::string why = Bound(begin, spread); !why.empty()) return why;
      box.begin.push_back(begin);
      box.extent.push_back(spread + 1);
    }
    if (box.begin.empty()) return "the memory is one element";
    return Join(box);
  }

  // The least value of an index in the iterations that are looked at, and how far it goes from it.
  std::string Bound(Dim& begin, int64_t& spread) {
    for (const Value leaf : leaves_.In(begin)) {
      if (!IsWithin(leaf)) continue;
      const Operation* owner =
          leaf.is_block_argument() ? leaf.argument_block()->parent_op() : leaf.defining_op();
      if (!leaf.is_block_argument() || leaf != CounterOf(owner)) {
        return "an index is not made of counters of loops";
      }
      const Dim slope = leaves_.Slope(begin, leaf);
      if (!slope.is_constant()) return "how many elements are touched is not constant";
      const int64_t last = *loop::ForOp(owner).extent() - 1;
      begin = leaves_.Replace(begin, leaf, slope.value() < 0 ? last : 0);
      spread += std::abs(slope.value()) * last;
    }
    return begin.is_unknown() ? "an index is too large" : "";
  }

  bool IsWithin(Value leaf) const {
    const Operation* op =
        leaf.is_block_argument() ? leaf.argument_block()->parent_op() : leaf.defining_op();
    if (scope_ == Scope::kIteration && leaf == CounterOf(loop_)) return false;
    return IsInside(op, loop_);
  }

  std::string Join(const Box& box) {
    Box& all = touched_.box;
    if (all.begin.empty()) {
      all = box;
      return "";
    }
    for (size_t a = 0; a < box.begin.size(); ++a) {
      const Dim distance = box.begin[a] - all.begin[a];
      if (!distance.is_constant())
        return "places that it touches are not a constant distance apart";
      const int64_t d = distance.value();
      const int64_t end = std::max(all.extent[a], d + box.extent[a]);
      if (d < 0) all.begin[a] = box.begin[a];
      all.extent[a] = end - std::min<int64_t>(d, 0);
    }
    return "";
  }

  const Operation* loop_;
  Scope scope_;
  Value memory_;
  Leaves& leaves_;
  Touched& touched_;
};

}  // namespace

bool IsInside(const Operation* op, const Operation* loop) {
  while (op != nullptr && op != loop) op = op->parent_op();
  return op != nullptr && op == loop;
}

const Operation* ParallelAround(const Operation* op) {
  for (op = op->parent_op(); op != nullptr; op = op->parent_op()) {
    if (op->name() == loop::ForOp::kName && loop::ForOp(op).parallel()) {
      return op;
    }
  }
  return nullptr;
}

bool StoresIn(Operation* op, Value memory) {
  for (OpWalker w(op); Operation* inner = w.Next();) {
    const bool stores = IsStore(inner) || inner->name() == loop::TileStoreInplaceOp::kName;
    if (stores && BaseMemory(inner->operand(0)) == BaseMemory(memory)) return true;
  }
  return false;
}

std::string FindTouched(const Operation* loop, Scope scope, Value memory, Leaves& leaves,
                        Touched& touched) {
  return Finder(loop, scope, memory, leaves, touched).Run();
}

// The counters of each axis must count it like digits, each counter on one axis only.
bool Covers(const Operation* loop, Scope scope, const Touched& touched, Leaves& leaves) {
  if (touched.stores.size() != 1) return false;
  Operation* store = touched.stores[0];
  const Lanes lanes = LanesOf(store);
  const size_t first = FirstIndex(store);
  std::vector<Value> seen;
  for (size_t i = first; i < store->num_operands(); ++i) {
    std::vector<std::pair<int64_t, int64_t>> digits;  // step, how many
    if (i - first == lanes.axis) digits.emplace_back(lanes.stride, lanes.count);
    const Dim index = leaves.Of(store->operand(i));
    for (const Value leaf : leaves.In(index)) {
      const Operation* owner =
          leaf.is_block_argument() ? leaf.argument_block()->parent_op() : leaf.defining_op();
      const bool is_outside =
          !IsInside(owner, loop) || (scope == Scope::kIteration && leaf == CounterOf(loop));
      if (is_outside) continue;
      if (std::ranges::count(seen, leaf) != 0) return false;
      seen.push_back(leaf);
      digits.emplace_back(leaves.Slope(index, leaf).value(), *loop::ForOp(owner).extent());
    }
    std::ranges::sort(digits);
    int64_t step = 1;
    for (const auto& [slope, count] : digits) {
      if (slope < 0 || slope > step) return false;
      step = std::max(step, slope * (count - 1) + step);
    }
    if (step < touched.box.extent[i - first]) return false;
  }
  return true;
}

Value AllocBox(Builder& b, const Box& box, ElementType element) {
  std::vector<Dim> dims(box.extent.begin(), box.extent.end());
  const Type type = TensorType::Get(b.context(), SymShape(dims), element);
  return loop::AllocOp::Create(b, {}, {&type, 1}).memory();
}

Operation* CopyBox(Builder& b, Leaves& leaves, const std::vector<int64_t>& extent, Value from,
                   const std::vector<Dim>& from_begin, Value to, const std::vector<Dim>& to_begin) {
  std::vector<Operation*> loops;
  std::vector<Dim> counters;
  Builder at = b;
  for (const int64_t n : extent) {
    if (n == 1) {
      counters.emplace_back(0);
      continue;
    }
    loops.push_back(MakeLoop(at, leaves, n));
    counters.push_back(leaves.SymbolOf(CounterOf(loops.back())));
    at.SetInsertionPointToEnd(loops.back()->region(0).front());
  }
  const auto indices = [&](const std::vector<Dim>& begin) {
    std::vector<Value> values;
    for (size_t a = 0; a < begin.size(); ++a) {
      values.push_back(leaves.Emit(at, begin[a] + counters[a]));
    }
    return values;
  };
  const std::vector<Value> read = indices(from_begin), written = indices(to_begin);
  const Value v = loop::LoadOp::Create(at, from, {}, read, {}).value();
  loop::StoreInplaceOp::Create(at, to, v, {}, written);
  for (size_t i = loops.size(); i-- > 0;) EndLoop(loops[i]);
  return loops.empty() ? nullptr : loops[0];
}

namespace {

// Indices that nobody reads any more.
void EraseDead(Value index) {
  Operation* op = index.defining_op();
  while (op != nullptr && op->name() == loop::IndexOp::kName && op->use_empty()) {
    const Value next = op->num_operands() > 0 ? op->operand(0) : Value();
    op->Erase();
    op = next ? next.defining_op() : nullptr;
  }
}

}  // namespace

void Redirect(Operation* access, Value to, const std::vector<Dim>& begin, Leaves& leaves) {
  const size_t first = FirstIndex(access);
  Builder b = Builder::Before(access);
  b.set_location(access->location());
  for (size_t a = 0; a < begin.size(); ++a) {
    const Value old = access->operand(first + a);
    const Dim index = leaves.Of(old) - begin[a];
    access->set_operand(first + a, leaves.Emit(b, index));
    EraseDead(old);
  }
  access->set_operand(0, to);
  if (IsStore(access)) access->result(0).set_type(to.type());
}

}  // namespace lathe::schedule
