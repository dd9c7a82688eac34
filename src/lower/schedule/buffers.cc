#include <algorithm>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/schedule.h"
#include "lathe/support/error.h"
#include "src/lower/schedule/touched.h"

namespace lathe::schedule {
namespace {

ElementType ElementOf(Value memory) { return memory.type().cast<AnyTensorType>().element(); }

// Iterations of a parallel loop around this one that store in a memory outside of both.
bool OthersStore(const Operation* loop, Value memory) {
  for (const Operation* p = ParallelAround(loop); p != nullptr; p = ParallelAround(p)) {
    if (IsInside(memory.defining_op(), p)) return false;
    if (StoresIn(const_cast<Operation*>(p), memory)) return true;
  }
  return false;
}

std::string WhyNotRead(const Operation* loop, Value memory, Leaves& leaves, Touched& touched) {
  if (loop->name() != loop::ForOp::kName) return StrCat(loop->name(), " is not a loop");
  if (std::string why = FindTouched(loop, Scope::kWholeLoop, memory, leaves, touched);
      !why.empty()) {
    return why;
  }
  if (!touched.stores.empty()) return "the loop stores in that memory";
  return OthersStore(loop, memory) ? "a parallel loop around it stores in that memory" : "";
}

std::string WhyNotWrite(const Operation* loop, Value memory, Leaves& leaves, Touched& touched,
                        bool& fills) {
  if (loop->name() != loop::ForOp::kName) return StrCat(loop->name(), " is not a loop");
  if (std::string why = FindTouched(loop, Scope::kWholeLoop, memory, leaves, touched);
      !why.empty()) {
    return why;
  }
  if (touched.stores.empty()) return "the loop does not store in that memory";
  const bool covers = Covers(loop, Scope::kWholeLoop, touched, leaves);
  fills = !covers || !touched.loads.empty();
  if (!covers && OthersStore(loop, memory)) {
    return "other iterations of a parallel loop may store between the elements that it stores";
  }
  return "";
}

}  // namespace

std::string WhyNotCacheRead(const Operation* loop, Value memory) {
  Leaves leaves;
  Touched touched;
  return WhyNotRead(loop, memory, leaves, touched);
}

Cache CacheRead(Operation* loop, Value memory) {
  Leaves leaves;
  Touched touched;
  const std::string why = WhyNotRead(loop, memory, leaves, touched);
  if (!why.empty()) Refuse(loop, "cache_read", why);
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  const Box& box = touched.box;
  Cache cache{AllocBox(b, box, ElementOf(memory)), nullptr};
  const std::vector<Dim> zero(box.begin.size(), 0);
  cache.copy = CopyBox(b, leaves, box.extent, memory, box.begin, cache.memory, zero);
  for (Operation* load : touched.loads) Redirect(load, cache.memory, box.begin, leaves);
  return cache;
}

std::string WhyNotCacheWrite(const Operation* loop, Value memory) {
  Leaves leaves;
  Touched touched;
  bool fills = false;
  return WhyNotWrite(loop, memory, leaves, touched, fills);
}

Cache CacheWrite(Operation* loop, Value memory) {
  Leaves leaves;
  Touched touched;
  bool fills = false;
  const std::string why = WhyNotWrite(loop, memory, leaves, touched, fills);
  if (!why.empty()) Refuse(loop, "cache_write", why);
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  const Box& box = touched.box;
  Cache cache{AllocBox(b, box, ElementOf(memory)), nullptr};
  const std::vector<Dim> zero(box.begin.size(), 0);
  if (fills) CopyBox(b, leaves, box.extent, memory, box.begin, cache.memory, zero);
  for (Operation* load : touched.loads) Redirect(load, cache.memory, box.begin, leaves);
  for (Operation* store : touched.stores) Redirect(store, cache.memory, box.begin, leaves);
  Builder after = Builder::After(loop);
  after.set_location(loop->location());
  cache.copy = CopyBox(after, leaves, box.extent, cache.memory, zero, memory, box.begin);
  return cache;
}

std::vector<Value> MemoriesOf(const Operation* loop) {
  std::vector<Value> memories;
  for (OpWalker w(loop->region(0).front()); Operation* op = w.Next();) {
    if (!op->isa<loop::LoadOp>() && !op->isa<loop::StoreInplaceOp>()) continue;
    const Value memory = op->operand(0);
    if (IsInside(memory.defining_op(), loop) || std::ranges::count(memories, memory) != 0) continue;
    memories.push_back(memory);
  }
  return memories;
}

}  // namespace lathe::schedule
