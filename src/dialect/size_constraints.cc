#include "lathe/dialect/size_constraints.h"

#include <unordered_map>

#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/block.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/op_error.h"
#include "lathe/ir/walk.h"
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

uint64_t HashOf(const SizeCondition& c) { return HashCombine(c.a.Hash(), c.b.Hash()); }

class Finder {
 public:
  explicit Finder(Program& program) : program_(program), inferencer_(&program.parameters()) {}

  std::vector<SizeConstraint> Find(Block* block) {
    Restart(StatedConstraints(*block));
    for (Operation& op : *block) Visit(&op);
    return std::move(found_);
  }

  std::vector<std::pair<Block*, std::vector<SizeConstraint>>> FindInRegions() {
    std::vector<std::pair<Block*, std::vector<SizeConstraint>>> all;
    std::unordered_map<const Block*, size_t> index;  // looked up, never iterated
    size_t current = ~size_t{0};
    for (OpWalker w(program_.block()); Operation* op = w.Next();) {
      if (op->num_regions() != 0) continue;
      const auto [at, is_new] = index.emplace(op->block(), all.size());
      if (is_new) all.emplace_back(op->block(), StatedConstraints(*op->block()));
      if (at->second != current) {
        if (current < all.size()) all[current].second = std::move(found_);
        current = at->second;
        Restart(std::move(all[current].second));
      }
      VisitOrRefuse(op);
    }
    if (current < all.size()) all[current].second = std::move(found_);
    std::erase_if(all, [&](const auto& entry) { return entry.first == program_.block(); });
    return all;
  }

 private:
  void Restart(std::vector<SizeConstraint> found) {
    found_ = std::move(found);
    by_hash_.clear();
    for (size_t i = 0; i < found_.size(); ++i) by_hash_.emplace(HashOf(found_[i].condition), i);
  }

  void VisitOrRefuse(Operation* op) {
    const std::vector<Type> declared = TypesOf(op);
    try {
      Visit(op);
    } catch (const Error& error) {
      for (size_t i = 0; i < declared.size(); ++i) op->result(i).set_type(declared[i]);
      found_.push_back({SizeCondition::Equal(0, 1), error});
    }
  }

  void Visit(Operation* op) {
    std::vector<SizeAssumption> assumptions;
    try {
      const AssumptionScope scope(assumptions);
      InferAndCompare(op);
    } catch (const Error& error) {
      if (!error.where().empty() || error.code() == ErrorCode::kInternal) throw;
      const std::vector<std::string>& hints = error.hints();
      throw ErrorAt(op, error.id(), error.message(), hints.empty() ? "" : hints.front());
    }
    for (SizeAssumption& assumption : assumptions) Add(op, std::move(assumption));
  }

  void InferAndCompare(Operation* op) {
    const std::vector<Type> declared = TypesOf(op);
    // What is in regions may never run.
    op->num_regions() == 0 ? inferencer_.Visit(op) : InferAndSetTypes(op, inferencer_);
    for (size_t i = 0; i < declared.size(); ++i) {
      const SymShape inferred = ShapeOf(op->result(i).type());
      AssumeNotNegative(inferred);
      AssumeDeclared(ShapeOf(declared[i]), inferred);
      if (declared[i]) op->result(i).set_type(declared[i]);
    }
  }

  void Add(const Operation* op, SizeAssumption assumption) {
    const SizeCondition& c = assumption.condition;
    const uint64_t hash = HashOf(c);
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

std::vector<SizeConstraint> FindSizeConstraints(Program& program) {
  return FindSizeConstraints(program, program.block());
}

std::vector<SizeConstraint> FindSizeConstraints(Program& program, Block* block) {
  return Finder(program).Find(block);
}

std::vector<std::pair<Block*, std::vector<SizeConstraint>>> FindRegionConstraints(
    Program& program) {
  return Finder(program).FindInRegions();
}

}  // namespace lathe
