#pragma once

#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lathe/ir/builder.h"
#include "lathe/ir/walk.h"

namespace lathe {

/// Walks one block backwards, from values whose gradients are given to independent ones.
class Backward {
 public:
  /// `depth`: of the regions around the block that is differentiated.
  Backward(Builder& b, std::span<const Value> xs, std::span<const Value> held,
           std::vector<Operation*>& replaced, int depth = 0);

  /// Adds to the gradient of a value.
  void Add(Value to, Value grad);
  /// `block`: the builder's block. Differentiates its operations up to `last`; what is built comes
  /// behind.
  void Run(Block* block, Operation* last);
  /// The same of the operations from `first` to `last` only.
  void Run(Operation* first, Operation* last);
  /// The gradient of an x: zeros if there is none.
  Value Of(Value x);
  /// The gradient of an x, or null.
  Value Find(Value x);

 private:
  // What is added up: products of matrices wait for others, with which they are one product.
  struct Sum {
    Value rest;
    std::vector<Value> products;
  };
  Value Write(Sum& sum);
  void AddAll(Operation* op, std::span<const Value> grads, std::span<const Value> of_operands);
  void MarkDependent(Operation& op);
  bool Reads(Operation& op) const;
  bool Depends(Value value) const { return value && depends_.contains(value); }
  void Visit(Operation* op);
  bool VisitParts(Operation* op, std::span<const Value> grads);
  void VisitIf(Operation* op, std::span<const Value> grads);
  void VisitWhile(Operation* op, std::span<const Value> grads);
  Operation* PushEachStep(Operation* loop);
  Operation* WalkBack(Operation* loop, Operation* pushing, std::span<const Value> grads,
                      std::span<const Value> captured);
  void FillBack(Operation* back, Operation* loop, std::span<const Value> grads,
                std::span<const Value> captured);
  std::vector<Value> DependentCaptures(Operation* op) const;
  std::vector<Value> RegionGradients(Region& region, Builder& b, IrMapping& mapping,
                                     std::span<const std::pair<size_t, Value>> seeds,
                                     std::span<const Value> xs);

  Builder& b_;
  std::vector<Operation*>& replaced_;
  int depth_;
  // Looked up, never iterated.
  std::unordered_set<Value> stops_, depends_;
  std::unordered_map<Value, Sum> grads_;
};

/// Values of outside that operations within the regions of `op` read, each once, in program order.
std::vector<Value> CapturedValues(Operation* op);

/// A tensor of floats.
bool IsDifferentiable(Value value);

}  // namespace lathe
