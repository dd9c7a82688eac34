#include "src/driver/find_constraints.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/dialect/size_constraints.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/op_error.h"
#include "src/transform/data_sizes.h"

namespace lathe {
namespace {

runtime::PlanConstraint Planned(const SizeConstraint& constraint) {
  const Error& error = constraint.error;
  runtime::PlanConstraint planned{.condition = constraint.condition,
                                  .id = error.id(),
                                  .message = error.message(),
                                  .origin = error.where(),
                                  .hint = error.hints().empty() ? "" : error.hints().front(),
                                  .notes = {}};
  for (const Note& note : error.notes()) planned.notes.push_back(note.text);
  return planned;
}

// Extents of results that the program declares and only a run knows.
class DeclaredSizes {
 public:
  DeclaredSizes(Program& program, std::vector<SizeConstraint>& constraints)
      : names_(SymbolNames(program)),
        facts_(&program.parameters()),
        builder_(program.context()),
        constraints_(constraints) {}

  void Visit(Operation* op) {
    std::vector<AnyTensorType> declared;
    for (size_t i = 0; i < op->num_results(); ++i) {
      declared.push_back(op->result(i).type().dyn_cast<AnyTensorType>());
    }
    op->num_regions() == 0 ? facts_.Visit(op) : InferAndSetTypes(op, facts_);
    for (size_t i = 0; i < declared.size(); ++i) {
      if (!declared[i] || !declared[i].has_rank() || op->num_regions() != 0) continue;
      Compare(op, op->result(i), declared[i]);
      op->result(i).set_type(declared[i]);
    }
  }

 private:
  void Compare(Operation* op, Value result, AnyTensorType declared) {
    const auto inferred = result.type().dyn_cast<AnyTensorType>();
    if (!inferred || !inferred.has_rank() || inferred.rank() != declared.rank()) return;
    std::vector<std::string> names(declared.rank());
    bool any = false;
    for (size_t axis = 0; axis < names.size(); ++axis) {
      const Dim& dim = declared.dims()[axis];
      if (!inferred.dims()[axis].is_unknown() || dim.is_unknown()) continue;
      any = true;
      names[axis] = FreshName("declared");
      constraints_.push_back(Constraint(op, declared, Dim::Symbol(names[axis]), dim));
    }
    if (any) Bind(op, result, names);
  }

  static SizeConstraint Constraint(Operation* op, AnyTensorType declared, const Dim& is,
                                   const Dim& dim) {
    return {SizeCondition::Equal(is, dim),
            ErrorAt(op, "run/result-type",
                    StrCat("a result is declared as ", declared.ToString(),
                           ", but the elements of its operands make another shape"))};
  }

  void Bind(Operation* op, Value result, const std::vector<std::string>& names) {
    builder_.SetInsertionPoint(op->next());  // a fetch at the latest
    builder_.set_location(op->location());
    const Value extents = nn::ShapeOp::Create(builder_, result).extents();
    nn::BindSizesOp::Create(builder_, extents, {.names = names});
  }

  std::string FreshName(std::string name) {
    while (!names_.insert(name).second) name += "_";
    return name;
  }

  std::set<std::string> names_;
  ShapeInferencer facts_;
  Builder builder_;
  std::vector<SizeConstraint>& constraints_;
};

}  // namespace

std::vector<runtime::PlanConstraint> PlanConstraintsOf(
    const std::vector<SizeConstraint>& constraints) {
  std::vector<runtime::PlanConstraint> planned;
  for (const SizeConstraint& c : constraints) planned.push_back(Planned(c));
  return planned;
}

std::vector<SizeConstraint> BindDeclaredSizes(Program& program) {
  std::vector<SizeConstraint> constraints;
  DeclaredSizes sizes(program, constraints);
  for (Operation* op = program.block()->front(); op != nullptr;) {
    Operation* const next = op->next();
    sizes.Visit(op);
    op = next;
  }
  return constraints;
}

std::map<std::string, Dim, std::less<>> TakeReleasedSizes(Program& program) {
  std::map<std::string, Dim, std::less<>> released;
  const auto is_unread = [](Operation& op) {
    const auto bind = op.dyn_cast<nn::BindSizesOp>();
    return bind && bind.bound().use_empty();
  };
  if (std::ranges::none_of(*program.block(), is_unread)) return released;
  ShapeInferencer facts(&program.parameters());
  std::vector<Operation*> done;
  for (Operation& op : *program.block()) {
    op.num_regions() == 0 ? facts.Visit(&op) : InferAndSetTypes(&op, facts);
    if (!is_unread(op)) continue;
    const auto bind = op.cast<nn::BindSizesOp>();
    const std::vector<Dim>* known = facts.Contents(bind.sizes());
    const std::vector<std::string> names = bind.names();
    if (known == nullptr || std::ranges::any_of(*known, &Dim::is_unknown)) continue;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!names[i].empty()) released.emplace(names[i], (*known)[i]);
    }
    done.push_back(&op);
  }
  for (Operation* op : done) op->Erase();
  return released;
}

SymbolSet NamesOf(const std::vector<runtime::PlanSymbol>& symbols) {
  SymbolSet names;
  for (const runtime::PlanSymbol& symbol : symbols) names.insert(symbol.name);
  return names;
}

bool AreKnown(const SymbolSet& names, const SizeCondition& condition) {
  std::vector<std::string> used;
  condition.a.CollectSymbols(used);
  condition.b.CollectSymbols(used);
  return std::ranges::all_of(used, [&](const std::string& name) { return names.contains(name); });
}

std::vector<runtime::PlanConstraint> ConstraintsOn(
    const std::vector<runtime::PlanSymbol>& symbols,
    const std::vector<runtime::PlanConstraint>& constraints) {
  const SymbolSet names = NamesOf(symbols);
  std::vector<runtime::PlanConstraint> decided;
  std::ranges::copy_if(constraints, std::back_inserter(decided), [&](const auto& constraint) {
    return AreKnown(names, constraint.condition);
  });
  return decided;
}

}  // namespace lathe
