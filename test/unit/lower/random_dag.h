#pragma once

#include <algorithm>

#include "test/unit/lower/fusion_util.h"

namespace lathe::testing {

/// Programs of ops of all kinds on tensors of up to 4 x 4, every op with a name.
class RandomDag {
 public:
  RandomDag(IrContext& context, uint64_t seed) : net_(context), random_(seed) {
    for (const Shape& shape : {Shape{4, 4}, Shape{4, 4}, Shape{4, 1}, Shape{1, 4}, Shape{}}) {
      values_.push_back(net_.X(shape));
    }
    both_ = {net_.Ints({0}), net_.Ints({1})};
  }

  Net Grow(int ops) {
    for (int i = 0; i < ops; ++i) {
      net_.builder().set_location(Location::Name(net_.builder().context(), StrCat("op", i)));
      values_.push_back(Add());
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].use_empty() || random_.Int(0, 19) == 0) net_.Output(values_[i]);
    }
    return std::move(net_);
  }

 private:
  Value Any() {
    // Mostly recent ones, so that chains and diamonds appear.
    const auto last = static_cast<int64_t>(values_.size()) - 1;
    const int64_t reach = random_.Int(0, 3) == 0 ? last : std::min<int64_t>(last, 4);
    return values_[static_cast<size_t>(last - random_.Int(0, reach))];
  }
  Value Matrix() {
    Value v = Any();
    return net_.Op("add", {v, values_[0]});
  }

  Value Add() {
    static const std::vector<std::string> kUnary = {"tanh", "relu", "sigmoid", "neg"};
    static const std::vector<std::string> kBinary = {"add", "sub", "mul", "max"};
    const auto pick = [&](const std::vector<std::string>& names) {
      return names[static_cast<size_t>(random_.Int(0, static_cast<int64_t>(names.size()) - 1))];
    };
    const int64_t axis = random_.Int(0, 1);
    switch (random_.Int(0, 11)) {
      case 0:
      case 1:
      case 2:
        return net_.Op(pick(kUnary), {Any()});
      case 3:
      case 4:
      case 5:
        return net_.Op(pick(kBinary), {Any(), Any()});
      case 6:
        return net_.Op("reduce_mean", {Matrix(), both_[static_cast<size_t>(axis)]});
      case 7:
        return net_.Op("transpose", {Any()});
      case 8:
        return net_.Op("softmax", {Matrix()}, {net_.Int("axis", axis)});
      case 9:
        return net_.Op("matmul", {Matrix(), Matrix()});
      case 10:
        return net_.Op("cum_sum", {Matrix(), both_[static_cast<size_t>(axis)]});
      default: {
        const Value joined = net_.Op("concat", {Matrix(), Matrix()}, {net_.Int("axis", axis)});
        Operation* parts =
            net_.Many("split", {joined}, {net_.Int("axis", axis), net_.Int("num_outputs", 2)}, 2);
        return net_.Op("mul", {parts->result(0), parts->result(1)});
      }
    }
  }

  Net net_;
  RandomStream random_;
  std::vector<Value> values_;
  std::vector<Value> both_;
};

/// Writes the block's operations in another order in which each still follows what it reads.
inline void Shuffle(Block* block, RandomStream& random) {
  std::vector<Operation*> ready;
  std::unordered_map<const Operation*, size_t> waits;  // looked up, never iterated
  for (Operation& op : *block) {
    size_t inputs = 0;
    for (size_t i = 0; i < op.num_operands(); ++i) {
      inputs += op.operand(i) && op.operand(i).defining_op() != nullptr ? 1 : 0;
    }
    waits[&op] = inputs;
    if (inputs == 0) ready.push_back(&op);
  }
  std::vector<Operation*> order;
  while (!ready.empty()) {
    const auto at = random.Int(0, static_cast<int64_t>(ready.size()) - 1);
    Operation* op = ready[static_cast<size_t>(at)];
    ready.erase(ready.begin() + at);
    order.push_back(op);
    for (size_t r = 0; r < op->num_results(); ++r) {
      for (const OpOperand use : op->result(r).uses()) {
        if (--waits[use.owner()] == 0) ready.push_back(use.owner());
      }
    }
  }
  for (Operation* op : order) op->MoveToEnd(block);
}

}  // namespace lathe::testing
