#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "lathe/ir/value.h"

namespace lathe {

class Region;

/// Iterates an intrusive list of operations or blocks; erasing the current element is allowed
/// after advancing.
template <class Node>
class NodeIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = Node;
  using difference_type = std::ptrdiff_t;
  using pointer = Node*;
  using reference = Node&;
  NodeIterator() = default;
  explicit NodeIterator(Node* at) : at_(at) {}
  Node& operator*() const { return *at_; }
  Node* operator->() const { return at_; }
  NodeIterator& operator++() {
    at_ = at_->next();
    return *this;
  }
  NodeIterator operator++(int) {
    NodeIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const NodeIterator&) const = default;

 private:
  Node* at_ = nullptr;
};

/// A straight-line list of operations with arguments. Structured control flow only: no branches.
class Block {
 public:
  Block() = default;
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Region* region() const { return region_; }
  Operation* parent_op() const;
  Block* prev() const { return prev_; }
  Block* next() const { return next_; }

  // ---- arguments ----
  Value AddArgument(Type type);
  /// Removes an unused argument; later ones are renumbered. O(arguments).
  void EraseArgument(size_t i);
  size_t num_arguments() const { return arguments_.size(); }
  Value argument(size_t i) const { return Value(arguments_[i]); }

  // ---- operations ----
  bool empty() const { return first_ == nullptr; }
  Operation* front() const { return first_; }
  Operation* back() const { return last_; }
  NodeIterator<Operation> begin() const { return NodeIterator<Operation>(first_); }
  NodeIterator<Operation> end() const { return NodeIterator<Operation>(); }
  void PushBack(Operation* op) { InsertBefore(nullptr, op); }
  /// Takes ownership of the detached `op`; a null `before` means the end.
  void InsertBefore(Operation* before, Operation* op);
  /// The last operation if it is a terminator.
  Operation* terminator() const;

  /// True while `op->IsBefore` needs no renumbering.
  bool is_ordered() const { return ordered_; }
  void Renumber();
  /// A scratch word for one algorithm at a time (the verifier's open-scope mark).
  uint32_t mark = 0;

 private:
  friend class Operation;
  friend class Region;
  void Unlink(Operation* op);

  Region* region_ = nullptr;
  Block* prev_ = nullptr;
  Block* next_ = nullptr;
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;
  bool ordered_ = true;
  std::vector<detail::BlockArgumentImpl*> arguments_;
};

/// A list of blocks owned by an operation. Its blocks see every value visible at that operation.
class Region {
 public:
  explicit Region(Operation* parent) : parent_(parent) {}
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  Operation* parent_op() const { return parent_; }
  bool empty() const { return first_ == nullptr; }
  Block* front() const { return first_; }
  Block* back() const { return last_; }
  NodeIterator<Block> begin() const { return NodeIterator<Block>(first_); }
  NodeIterator<Block> end() const { return NodeIterator<Block>(); }
  size_t NumBlocks() const;

  /// Appends a new, empty block.
  Block* AddBlock();
  void PushBack(Block* block);
  /// Unlinks `block` and gives it to the caller.
  Block* Remove(Block* block);
  /// Moves every block of `other` to the end of this region. O(blocks).
  void TakeBody(Region& other);
  /// Destroys all blocks. Uses across them are dropped first; not recursive.
  void Clear();

 private:
  Operation* parent_;
  Block* first_ = nullptr;
  Block* last_ = nullptr;
};

}  // namespace lathe
