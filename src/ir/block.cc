#include "lathe/ir/block.h"

#include <algorithm>
#include <limits>

#include "lathe/ir/operation.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"

namespace lathe {

using detail::BlockArgumentImpl;
using detail::ValueImpl;

namespace {

/// Room left between neighbors, so that an insertion mostly finds a number.
constexpr uint32_t kOrderStride = 64;

void DropUses(Value value) {
  while (!value.use_empty()) (*value.uses().begin()).Set(Value());
}

}  // namespace

// ---- arguments ----

Value Block::AddArgument(Type type) {
  arguments_.push_back(
      new BlockArgumentImpl{{type, ValueImpl::kBlockArgument}, this, arguments_.size()});
  return Value(arguments_.back());
}

void Block::EraseArgument(size_t i) {
  LATHE_CHECK(argument(i).use_empty(), "a block argument is erased while it has uses");
  delete arguments_[i];
  arguments_.erase(arguments_.begin() + static_cast<std::ptrdiff_t>(i));
  for (; i < arguments_.size(); ++i) arguments_[i]->index = i;
}

// ---- operations ----

Operation* Block::parent_op() const { return region_ == nullptr ? nullptr : region_->parent_op(); }

void Block::InsertBefore(Operation* before, Operation* op) {
  LATHE_CHECK(op->block_ == nullptr, op->name(), " is in a block already");
  Operation* after = before == nullptr ? last_ : before->prev_;
  op->block_ = this;
  op->prev_ = after;
  op->next_ = before;
  (after == nullptr ? first_ : after->next_) = op;
  (before == nullptr ? last_ : before->prev_) = op;
  if (!ordered_) return;
  // 0 where there is no room, or none known of: the number is found when somebody asks.
  const uint32_t low = after == nullptr ? 0 : after->order_;
  op->order_ = 0;
  if (after != nullptr && low == 0) return;
  if (before == nullptr) {
    ordered_ = low < std::numeric_limits<uint32_t>::max() - kOrderStride;
    op->order_ = low + kOrderStride;
  } else if (before->order_ > low + 1) {
    op->order_ = low + (before->order_ - low) / 2;
  }
}

void Block::Unlink(Operation* op) {
  (op->prev_ == nullptr ? first_ : op->prev_->next_) = op->next_;
  (op->next_ == nullptr ? last_ : op->next_->prev_) = op->prev_;
  op->prev_ = op->next_ = nullptr;
  op->block_ = nullptr;
}

Operation* Block::terminator() const {
  return last_ != nullptr && last_->HasTrait<Terminator>() ? last_ : nullptr;
}

void Block::Renumber() {
  uint64_t count = 1;
  for (const Operation* op = first_; op != nullptr; op = op->next_) ++count;
  const auto stride = static_cast<uint32_t>(
      std::clamp<uint64_t>(std::numeric_limits<uint32_t>::max() / count, 1, kOrderStride));
  uint32_t order = 0;
  for (Operation* op = first_; op != nullptr; op = op->next_) op->order_ = order += stride;
  ordered_ = true;
}

Block::~Block() {
  for (Operation* op = first_; op != nullptr; op = op->next_) {
    for (detail::OpOperandImpl& o : op->operands()) o.Unlink();
  }
  while (first_ != nullptr) {
    Operation* op = last_;
    for (size_t i = 0; i < op->num_results(); ++i) DropUses(op->result(i));
    Unlink(op);
    op->Destroy();
  }
  for (BlockArgumentImpl* a : arguments_) {
    DropUses(Value(a));
    delete a;
  }
}

// ---- regions ----

Region::~Region() { Clear(); }

size_t Region::NumBlocks() const {
  size_t count = 0;
  for (Block* b = first_; b != nullptr; b = b->next()) ++count;
  return count;
}

Block* Region::AddBlock() {
  PushBack(new Block());
  return last_;
}

void Region::PushBack(Block* block) {
  LATHE_CHECK(block->region_ == nullptr, "the block is in a region already");
  block->region_ = this;
  block->prev_ = last_;
  block->next_ = nullptr;
  (last_ == nullptr ? first_ : last_->next_) = block;
  last_ = block;
}

Block* Region::Remove(Block* block) {
  (block->prev_ == nullptr ? first_ : block->prev_->next_) = block->next_;
  (block->next_ == nullptr ? last_ : block->next_->prev_) = block->prev_;
  block->region_ = nullptr;
  block->prev_ = block->next_ = nullptr;
  return block;
}

void Region::TakeBody(Region& other) {
  while (!other.empty()) PushBack(other.Remove(other.front()));
}

/// Nested blocks are taken out first, outermost to innermost, and freed in reverse, so that the
/// depth of nesting never becomes depth of calls.
void Region::Clear() {
  std::vector<Block*> blocks;
  auto take = [&blocks](Region& region) {
    while (!region.empty()) blocks.push_back(region.Remove(region.front()));
  };
  take(*this);
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (Operation& op : *blocks[i]) {
      for (detail::OpOperandImpl& o : op.operands()) o.Unlink();
      for (Region& r : op.regions()) take(r);
    }
  }
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) delete *it;
}

}  // namespace lathe
