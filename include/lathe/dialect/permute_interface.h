#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lathe/ir/interfaces.h"

namespace lathe {

/// Axis i of the permuted tensor is axis perm[i] of the original one.
using Permutation = std::vector<int64_t>;

bool IsIdentity(const Permutation& perm);
Permutation Inverse(const Permutation& perm);
/// First `first`, then `second`.
Permutation Compose(const Permutation& first, const Permutation& second);

/// Given to `Permute`: one operand of an op is to be read permuted. The op answers how it then
/// works: what it needs of its other operands, which constants and attributes change, and how its
/// results are permuted. Nothing is changed; who asked decides.
class PermuteContext {
 public:
  PermuteContext(Operation* op, size_t operand, Permutation perm, ValueFacts& facts)
      : op_(op), operand_(operand), perm_(std::move(perm)), facts_(facts) {}

  // ---- the question ----
  Operation* op() const { return op_; }
  size_t operand() const { return operand_; }
  const Permutation& perm() const { return perm_; }
  const Tensor* Constant(size_t i) const;
  bool HasInput(size_t i) const { return i < op_->num_operands() && op_->operand(i); }
  /// Where axis `axis` (negative: from the back) of the operand comes to stand.
  int64_t NewAxis(int64_t axis) const;
  /// The same for a list, in the order of the list.
  std::vector<int64_t> NewAxes(const std::vector<int64_t>& axes) const;

  // ---- the answer ----
  /// Operand `i` has to be permuted so. One of lower rank gets leading axes of extent 1 before.
  void Operand(size_t i, Permutation perm) { operands_.emplace_back(i, std::move(perm)); }
  void Result(size_t i, Permutation perm) { results_.emplace_back(i, std::move(perm)); }
  /// A constant in the place of operand `i`, which may have been absent.
  void SetConstant(size_t i, Tensor value) { constants_.emplace_back(i, std::move(value)); }
  void SetInts(size_t i, const std::vector<int64_t>& values);
  void SetAttribute(std::string name, Attribute value) {
    attributes_.emplace_back(std::move(name), value);
  }
  void SetAttribute(std::string name, int64_t value);

  // ---- for who asked ----
  const std::vector<std::pair<size_t, Permutation>>& operands() const { return operands_; }
  const std::vector<std::pair<size_t, Permutation>>& results() const { return results_; }
  const std::vector<std::pair<size_t, Tensor>>& constants() const { return constants_; }
  const std::vector<std::pair<std::string, Attribute>>& attributes() const { return attributes_; }

 private:
  Operation* op_;
  size_t operand_;
  Permutation perm_;
  ValueFacts& facts_;
  std::vector<std::pair<size_t, Permutation>> operands_, results_;
  std::vector<std::pair<size_t, Tensor>> constants_;
  std::vector<std::pair<std::string, Attribute>> attributes_;
};

/// How an op commutes with a permutation of the axes of what it reads:
///   static bool Permute(PermuteContext& c);   // false: it does not
/// Ops with the trait Elementwise have it without saying so.
class PermuteInterface : public OpInterface<PermuteInterface> {
 public:
  struct Concept {
    bool (*permute)(PermuteContext&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Permute} {}
  };
  using OpInterface::OpInterface;
  bool Permute(PermuteContext& c) const { return table()->permute(c); }
};

/// Asks the op of the context, by its interface or its trait.
bool AskPermute(PermuteContext& c);

}  // namespace lathe
