#include "lathe/dialect/size_constraints.h"

#include <unordered_map>

#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/block.h"
#include "lathe/ir/op_error.h"
#include "lathe/support/hash.h"

namespace lathe {
namespace {

SymShape ShapeOf(Type type) {
  const auto tensor = type ? type.dyn_cast<AnyTensorType>() : AnyTensorType();
  return tensor ? tensor.shape() : SymShape::Unranked();
}

void AssumeNotNegative(const SymShape& shape) {
  for (const Dim& dim : shape.dims) {
    Assume(SizeCondition::AtLeast(dim, 0), "shape/negative-dim",
           [&] { return StrCat("an extent of the result would be negative: ", shape.ToString()); });
  }
}

void AssumeDeclared(const SymShape& declared, const SymShape& inferred) {
  if (declared.rank() != inferred.rank()) return;
  for (size_t i = 0; i < declared.rank(); ++i) {
    Assume(SizeCondition::Equal(declared.dims[i], inferred.dims[i]), "verify/inferred", [&] {
      return StrCat("a result is declared as ", declared.ToString(),
                    ", but its operands and attributes make it ", inferred.ToString());
    });
  }
}

std::vector<Type> TypesOf(const Operation* op) {
  std::vector<Type> types;
  for (size_t i = 0; i < op->num_results(); ++i) types.push_back(op->result(i).type());
  return types;
}

class Finder {
 public:
  explicit Finder(Program& program) : program_(program), inferencer_(&program.parameters()) {}

  std::vector<SizeConstraint> Find() {
    for (Operation& op : *program_.block()) {
      if (op.num_regions() == 0) Visit(&op);
    }
    return std::move(found_);
  }

 private:
  void Visit(Operation* op) {
    const std::vector<Type> declared = TypesOf(op);
    std::vector<SizeAssumption> assumptions;
    {
      const AssumptionScope scope(assumptions);
      inferencer_.Visit(op);
      for (size_t i = 0; i < declared.size(); ++i) {
        const SymShape inferred = ShapeOf(op->result(i).type());
        AssumeNotNegative(inferred);
        AssumeDeclared(ShapeOf(declared[i]), inferred);
        if (declared[i]) op->result(i).set_type(declared[i]);
      }
    }
    for (SizeAssumption& assumption : assumptions) Add(op, std::move(assumption));
  }

  void Add(const Operation* op, SizeAssumption assumption) {
    const SizeCondition& c = assumption.condition;
    const uint64_t hash = HashCombine(c.a.Hash(), c.b.Hash());
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      if (found_[it->second].condition == c) return;
    }
    by_hash_.emplace(hash, found_.size());
    found_.push_back(
        {c, ErrorAt(op, std::move(assumption.id), assumption.message, std::move(assumption.hint))});
  }

  Program& program_;
  ShapeInferencer inferencer_;
  std::vector<SizeConstraint> found_;
  std::unordered_multimap<uint64_t, size_t> by_hash_;  // looked up, never iterated
};

}  // namespace

std::vector<SizeConstraint> FindSizeConstraints(Program& program) { return Finder(program).Find(); }

}  // namespace lathe
