#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include "lathe/ir/op.h"

namespace lathe {

/// Given to `Learned`: which operands of a layer are its own, rather than data that flows through.
class LearnedContext {
 public:
  /// An operand that holds a state, the result that is its next value, and whether the op, with
  /// these attributes, changes it.
  struct Held {
    size_t operand;
    size_t result;
    bool changes;
  };
  LearnedContext(OpInfo op, DictionaryAttribute attributes) : op_(op), attributes_(attributes) {}

  /// The value of a bool attribute, or its default.
  bool Flag(const char* name) const;
  void Weights(std::initializer_list<size_t> operands) { weights_ = operands; }
  void State(size_t operand, size_t result, bool changes) {
    states_.push_back({operand, result, changes});
  }
  bool IsWeight(size_t operand) const;
  std::span<const Held> states() const { return states_; }

 private:
  OpInfo op_;
  DictionaryAttribute attributes_;
  std::vector<size_t> weights_;
  std::vector<Held> states_;
};

/// Layers: ops some of whose operands a front end makes by itself.
///   static void Learned(LearnedContext& c);
class LearnedInterface : public OpInterface<LearnedInterface> {
 public:
  struct Concept {
    void (*learned)(LearnedContext&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Learned} {}
  };
  using OpInterface::OpInterface;
};

}  // namespace lathe
