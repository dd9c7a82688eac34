#include "src/transform/value_table.h"

#include "lathe/ir/traits.h"
#include "lathe/support/hash.h"

namespace lathe {

namespace {

uint64_t Mix(uint64_t seed, const void* p) {
  return (seed ^ reinterpret_cast<uintptr_t>(p)) * 0x9e3779b97f4a7c15U;
}

bool SwapsFirstTwo(const Operation* op) {
  return op->num_operands() >= 2 && op->HasTrait<Commutative>();
}

uint64_t HashOf(const Operation* op) {
  uint64_t h = Mix(Mix(1, op->info().impl()), op->attributes().storage());
  const auto operands = op->operands();
  size_t i = 0;
  if (SwapsFirstTwo(op)) {
    h += Mix(2, operands[0].value) + Mix(2, operands[1].value);
    i = 2;
  }
  for (; i < operands.size(); ++i) h = Mix(h, operands[i].value);
  for (size_t r = 0; r < op->num_results(); ++r) h = Mix(h, op->result(r).type().storage());
  return HashMix(h);
}

bool SameResultTypes(const Operation* a, const Operation* b) {
  if (a->num_results() != b->num_results()) return false;
  for (size_t r = 0; r < a->num_results(); ++r) {
    if (a->result(r).type() != b->result(r).type()) return false;
  }
  return true;
}

bool Equal(const Operation* a, const Operation* b) {
  if (a->info() != b->info() || a->attributes() != b->attributes() ||
      a->num_operands() != b->num_operands() || !SameResultTypes(a, b)) {
    return false;
  }
  size_t i = 0;
  if (SwapsFirstTwo(a)) {
    const bool straight = a->operand(0) == b->operand(0) && a->operand(1) == b->operand(1);
    const bool swapped = a->operand(0) == b->operand(1) && a->operand(1) == b->operand(0);
    if (!straight && !swapped) return false;
    i = 2;
  }
  for (; i < a->num_operands(); ++i) {
    if (a->operand(i) != b->operand(i)) return false;
  }
  return true;
}

}  // namespace

Operation* ValueTable::FindOrInsert(Operation* op) {
  const uint64_t hash = HashOf(op);
  size_t i = hash & (slots_.size() - 1);
  for (; slots_[i].op != nullptr; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].hash == hash && Equal(slots_[i].op, op)) return slots_[i].op;
  }
  slots_[i] = {hash, op};
  inserted_.push_back(slots_[i]);
  if (inserted_.size() * 2 > slots_.size()) Grow();
  return nullptr;
}

/// Entries go in the reverse order of their coming, so that no probe sequence is broken.
void ValueTable::CloseScope(size_t mark) {
  for (; inserted_.size() > mark; inserted_.pop_back()) *Locate(inserted_.back()) = Slot();
}

/// Re-inserts in order of age, which CloseScope relies on.
void ValueTable::Grow() {
  slots_.assign(slots_.size() * 4, Slot());
  for (const Slot& s : inserted_) *Locate({s.hash, nullptr}) = s;
}

/// The slot that holds `wanted.op` (null: the first free one) on the probe sequence of its hash.
ValueTable::Slot* ValueTable::Locate(const Slot& wanted) {
  size_t i = wanted.hash & (slots_.size() - 1);
  while (slots_[i].op != wanted.op) i = (i + 1) & (slots_.size() - 1);
  return &slots_[i];
}

}  // namespace lathe
