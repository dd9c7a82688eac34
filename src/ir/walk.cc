#include "lathe/ir/walk.h"

namespace lathe {

OpWalker::OpWalker(Operation* root) : root_(root) {}
OpWalker::OpWalker(Block* block) { Push(block); }

void OpWalker::Push(Block* block) { stack_.push_back({block->front(), block, 0, nullptr}); }

void OpWalker::SkipRegions() { pending_ = nullptr; }

Operation* OpWalker::Next() {
  if (root_ != nullptr) return pending_ = std::exchange(root_, nullptr);
  if (pending_ != nullptr) {
    Operation* op = std::exchange(pending_, nullptr);
    for (size_t r = op->num_regions(); r-- > 0;) {
      for (Block* b = op->region(r).back(); b != nullptr; b = b->prev()) Push(b);
    }
  }
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    if (top.next == nullptr) {
      stack_.pop_back();
      continue;
    }
    Operation* op = top.next;
    top.next = op->next();
    if (op->num_regions() != 0) pending_ = op;
    return op;
  }
  return nullptr;
}

namespace {

/// An operation whose regions are being visited: `next` is the next one inside.
struct OpenOp {
  Operation* op;
  size_t region = 0;
  Block* block = nullptr;
  Operation* next = nullptr;

  /// The next operation directly inside, or null when all are done.
  Operation* Advance() {
    while (next == nullptr) {
      block = block != nullptr ? block->next() : nullptr;
      while (block == nullptr) {
        if (region == op->num_regions()) return nullptr;
        block = op->region(region++).front();
      }
      next = block->front();
    }
    return std::exchange(next, next->next());
  }
};

}  // namespace

void WalkPostOrder(Operation* root, const std::function<void(Operation*)>& fn) {
  std::vector<OpenOp> stack{{root}};
  while (!stack.empty()) {
    if (Operation* inner = stack.back().Advance()) {
      stack.push_back({inner});
    } else {
      Operation* done = stack.back().op;
      stack.pop_back();
      fn(done);
    }
  }
}

Value IrMapping::Lookup(Value from) const {
  auto at = values_.find(from);
  return at == values_.end() ? from : at->second;
}

namespace {

/// Copies `op` without the contents of its regions.
Operation* CloneShell(const Operation* op, IrMapping& mapping) {
  std::vector<Value> operands;
  std::vector<Type> types;
  for (const detail::OpOperandImpl& o : op->operands()) {
    operands.push_back(o.value == nullptr ? Value() : mapping.Lookup(Value(o.value)));
  }
  for (size_t i = 0; i < op->num_results(); ++i) types.push_back(op->result(i).type());
  Operation* copy = Operation::Create(
      {op->info(), operands, types, op->attributes(), op->num_regions(), op->location()});
  for (size_t i = 0; i < op->num_results(); ++i) mapping.Map(op->result(i), copy->result(i));
  return copy;
}

}  // namespace

Operation* Clone(const Operation* op, IrMapping& mapping) {
  struct Pair {
    const Region* from;
    Region* to;
  };
  Operation* root = CloneShell(op, mapping);
  std::vector<Pair> todo;
  auto push_regions = [&todo](const Operation* from, Operation* to) {
    for (size_t r = from->num_regions(); r-- > 0;)
      todo.push_back({&from->region(r), &to->region(r)});
  };
  push_regions(op, root);
  while (!todo.empty()) {
    const Pair pair = todo.back();
    todo.pop_back();
    for (const Block& from : *pair.from) {
      Block* to = pair.to->AddBlock();
      for (size_t i = 0; i < from.num_arguments(); ++i) {
        mapping.Map(from.argument(i), to->AddArgument(from.argument(i).type()));
      }
      for (const Operation& inner : from) {
        Operation* copy = CloneShell(&inner, mapping);
        to->PushBack(copy);
        push_regions(&inner, copy);
      }
    }
  }
  return root;
}

}  // namespace lathe
