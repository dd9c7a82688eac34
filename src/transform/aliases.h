#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/ir/program.h"
#include "src/transform/containers.h"

namespace lathe {

/// Of type `tensor`: its elements may be written in place.
inline bool IsMutable(Value value) { return value && value.type().isa<TensorType>(); }

/// Which mutable tensors of a program share what they hold. Everything is known from the text: an
/// in-place op gives back its operand, a view shows it, a region's arguments and results are new
/// tensors, a container holds copies. Each value of type `tensor` belongs to the family of a root,
/// the tensor that was made.
class Aliases {
 public:
  /// A root or a view. The result of an in-place op is what the op writes.
  struct Place {
    Value root;
    Value parent;               ///< what is viewed; null for a root
    Operation* view = nullptr;  ///< the op that views it; null for a root
  };
  /// Why a family must stay as it is.
  struct Reason {
    const Operation* op;
    std::string why;
  };

  explicit Aliases(const Program& program);

  /// There is a mutable tensor.
  bool any() const { return !places_.empty(); }
  bool Contains(Value value) const { return same_as_.count(value) != 0; }
  /// The root or view that `value` is.
  Value Canonical(Value value) const { return same_as_.at(value); }
  const Place& place(Value canonical) const { return places_.at(canonical); }
  Value RootOf(Value value) const { return place(Canonical(value)).root; }
  bool is_written(Value root) const { return written_.count(root) != 0; }
  /// Null if everything that happens to the family is known.
  const Reason* kept(Value root) const;
  /// Roots of outside that an op of `region_op`'s regions writes, in program order.
  const std::vector<Value>& WrittenInside(const Operation* region_op) const;
  /// What the op does to its mutable operands is known.
  bool IsKnown(const Operation* op) const;
  /// A list, optional, dict ... of mutable tensors that no op of which nothing is known can reach.
  /// What it holds are copies.
  bool IsKnownContainer(Value value) const;

  /// From now on `to` stands where `from`, a root, stood; `from` stays the name of the root.
  void Rename(Value from, Value to) { same_as_[to] = from; }

 private:
  void Visit(Operation* op, bool in_unknown);
  void KeepOperands(Operation* op, bool in_unknown);
  const Operation* UnknownHolder(const Operation* op) const;
  void AddRoot(Value value);
  void AddWrite(Operation* op);
  void AddView(Operation* op);
  void Keep(Value value, const Operation* op, std::string why);

  Containers containers_;
  // Looked up, never iterated.
  std::unordered_map<Value, Value> same_as_;
  std::unordered_map<Value, Place> places_;
  std::unordered_map<Value, bool> written_;
  std::unordered_map<Value, Reason> kept_;
  std::unordered_map<const Operation*, std::vector<Value>> written_inside_;
};

}  // namespace lathe
