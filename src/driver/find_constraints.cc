#include "src/driver/find_constraints.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>

#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/dialect/size_constraints.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/op_error.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/hash.h"
#include "src/dialect/bound_sizes.h"
#include "src/driver/plan_operations.h"

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

void AddSymbols(Type type, std::set<std::string>& symbols) {
  const auto tensor = type ? type.dyn_cast<AnyTensorType>() : AnyTensorType();
  if (!tensor || !tensor.has_rank()) return;
  std::vector<std::string> names;
  for (const Dim& dim : tensor.dims()) dim.CollectSymbols(names);
  symbols.insert(names.begin(), names.end());
}

// Names of the symbols of a program and fresh ones.
class SymbolNames {
 public:
  explicit SymbolNames(const Program& program) {
    for (OpWalker w(program.module()); Operation* op = w.Next();) {
      for (size_t i = 0; i < op->num_results(); ++i) AddSymbols(op->result(i).type(), taken_);
      std::ranges::copy(BoundSizes(op), std::inserter(taken_, taken_.end()));
    }
  }
  std::string Fresh(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return name;
  }

 private:
  std::set<std::string> taken_;
};

// Names for extents of inputs that no run binds a symbol to.
class ExtentNames {
 public:
  explicit ExtentNames(const Program& program) : names_(program) {
    for (const runtime::PlanSymbol& symbol : SymbolsOf(program)) bound_.insert(symbol.name);
  }

  // The type of an input with names, if it needs any.
  Type Named(Operation* feed) {
    const auto type = feed->result(0).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return feed->result(0).type();
    SymShape shape = type.shape();
    for (size_t axis = 0; axis < shape.rank(); ++axis) {
      Dim& dim = shape.dims[axis];
      if (!IsBound(dim)) dim = NameOf(dim, StrCat(feed->cast<nn::FeedOp>().name(), ".", axis));
    }
    return type.With(type.element(), shape);
  }

 private:
  bool IsBound(const Dim& dim) const {
    std::vector<std::string> names;
    dim.CollectSymbols(names);
    return !dim.is_unknown() && std::ranges::all_of(names, [&](const std::string& name) {
      return bound_.contains(name);
    });
  }

  // The same for the same expression.
  Dim NameOf(const Dim& dim, std::string name) {
    const auto known = std::ranges::find(named_, dim, &std::pair<Dim, Dim>::first);
    if (known != named_.end()) return known->second;
    const Dim symbol = Dim::Symbol(names_.Fresh(std::move(name)));
    if (!dim.is_unknown()) named_.emplace_back(dim, symbol);
    return symbol;
  }

  SymbolNames names_;
  std::set<std::string> bound_;
  std::vector<std::pair<Dim, Dim>> named_;  // expressions
};

// Extents of results that the program declares and only a run knows.
class DeclaredSizes {
 public:
  DeclaredSizes(Program& program, std::vector<runtime::PlanConstraint>& constraints)
      : names_(program),
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
      names[axis] = names_.Fresh("declared");
      constraints_.push_back(Constraint(op, declared, Dim::Symbol(names[axis]), dim));
    }
    if (any) Bind(op, result, names);
  }

  static runtime::PlanConstraint Constraint(Operation* op, AnyTensorType declared, const Dim& is,
                                            const Dim& dim) {
    return Planned({SizeCondition::Equal(is, dim),
                    ErrorAt(op, "run/result-type",
                            StrCat("a result is declared as ", declared.ToString(),
                                   ", but the elements of its operands make another shape"))});
  }

  void Bind(Operation* op, Value result, const std::vector<std::string>& names) {
    builder_.SetInsertionPoint(op->next());  // a fetch at the latest
    builder_.set_location(op->location());
    const Value extents = nn::ShapeOp::Create(builder_, result).extents();
    nn::BindSizesOp::Create(builder_, extents, {.names = names});
  }

  SymbolNames names_;
  ShapeInferencer facts_;
  Builder builder_;
  std::vector<runtime::PlanConstraint>& constraints_;
};

// Conditions that have been added; looked up, never iterated.
class KnownConditions {
 public:
  void Add(const SizeCondition& condition) { known_.emplace(HashOf(condition), condition); }
  bool Contains(const SizeCondition& condition) const {
    const auto [first, last] = known_.equal_range(HashOf(condition));
    return std::any_of(first, last, [&](const auto& entry) { return entry.second == condition; });
  }

 private:
  static uint64_t HashOf(const SizeCondition& c) { return HashCombine(c.a.Hash(), c.b.Hash()); }

  std::unordered_multimap<uint64_t, SizeCondition> known_;
};

void AddFound(Program& program, std::vector<runtime::PlanConstraint>& constraints) {
  KnownConditions known;
  for (const runtime::PlanConstraint& constraint : constraints) known.Add(constraint.condition);
  for (const SizeConstraint& found : FindSizeConstraints(program)) {
    if (!known.Contains(found.condition)) constraints.push_back(Planned(found));
  }
}

// What functions compute, in terms of their calls.
Program Inlined(const Program& program) {
  Program inlined = program.Clone();
  PassManager manager;
  manager.Add("inline{max_ops=1000}");
  manager.Run(inlined);
  ShapeInferencer(&inlined.parameters()).Visit(inlined);
  return inlined;
}

}  // namespace

void NameUnknownExtents(Program& program) {
  ExtentNames names(program);
  bool named = false;
  for (Operation* feed : program.feeds()) {
    const Type type = names.Named(feed);
    named |= type != feed->result(0).type();
    feed->result(0).set_type(type);
  }
  if (named) ShapeInferencer(&program.parameters()).Visit(program);
}

void BindDeclaredSizes(Program& program, std::vector<runtime::PlanConstraint>& constraints) {
  DeclaredSizes sizes(program, constraints);
  for (Operation* op = program.block()->front(); op != nullptr;) {
    Operation* const next = op->next();
    sizes.Visit(op);
    op = next;
  }
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

void AddConstraints(Program& program, std::vector<runtime::PlanConstraint>& constraints) {
  if (!FunctionTable(program).empty()) {
    Program inlined = Inlined(program);
    return AddFound(inlined, constraints);
  }
  AddFound(program, constraints);
}

void MarkRegions(Program& program, std::vector<runtime::PlanConstraint>& conditional) {
  for (const auto& [block, found] : FindRegionConstraints(program)) {
    std::vector<int64_t> indices;
    if (const Attribute marks = block->back()->attribute(kReliesOnAttr)) {
      indices = *marks.cast<ArrayAttribute>().AsInts();
    }
    KnownConditions known;
    for (const int64_t i : indices) known.Add(conditional[static_cast<size_t>(i)].condition);
    for (const SizeConstraint& constraint : found) {
      if (known.Contains(constraint.condition)) continue;
      indices.push_back(std::ssize(conditional));
      conditional.push_back(Planned(constraint));
      conditional.back().is_conditional = true;
    }
    const auto relies_on =
        ArrayAttribute::Get(program.context(), std::span<const int64_t>(indices));
    block->back()->SetAttribute(kReliesOnAttr, relies_on);
  }
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
