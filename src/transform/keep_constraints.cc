#include "lathe/transform/keep_constraints.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
#include "lathe/support/hash.h"
#include "src/transform/data_sizes.h"

namespace lathe {
namespace {

// Conditions that have been added; looked up, never iterated.
class KnownConditions {
 public:
  explicit KnownConditions(const std::vector<SizeConstraint>& constraints = {}) {
    for (const SizeConstraint& c : constraints) Add(c.condition);
  }
  void Add(const SizeCondition& condition) { known_.emplace(HashOf(condition), condition); }
  bool Contains(const SizeCondition& condition) const {
    const auto [first, last] = known_.equal_range(HashOf(condition));
    return std::any_of(first, last, [&](const auto& entry) { return entry.second == condition; });
  }

 private:
  static uint64_t HashOf(const SizeCondition& c) { return HashCombine(c.a.Hash(), c.b.Hash()); }

  std::unordered_multimap<uint64_t, SizeCondition> known_;
};

// Names for extents of inputs that no run binds a symbol to.
class ExtentNames {
 public:
  explicit ExtentNames(const Program& program) : taken_(SymbolNames(program)) {
    for (Operation* feed : program.feeds()) AddBound(feed->result(0).type());
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
  void AddBound(Type input) {
    const auto type = input.dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return;
    for (const Dim& dim : type.dims()) {
      if (dim.is_symbol()) bound_.emplace(dim.symbol_name());
    }
  }

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
    while (!taken_.insert(name).second) name += "_";
    const Dim symbol = Dim::Symbol(name);
    if (!dim.is_unknown()) named_.emplace_back(dim, symbol);
    return symbol;
  }

  std::set<std::string> taken_, bound_;
  std::vector<std::pair<Dim, Dim>> named_;  // expressions
};

bool AllIn(const std::set<std::string>& names, const SizeCondition& condition) {
  std::vector<std::string> used;
  condition.a.CollectSymbols(used);
  condition.b.CollectSymbols(used);
  return std::ranges::all_of(used, [&](const std::string& name) { return names.contains(name); });
}

bool HasUnnamedExtents(const Program& program) {
  ExtentNames names(program);
  return std::ranges::any_of(program.feeds(), [&](Operation* feed) {
    return names.Named(feed) != feed->result(0).type();
  });
}

// The program where all extents have names, for what is said of them; it keeps those that it has.
class Named {
 public:
  explicit Named(Program& program) : program_(&program) {
    if (!HasUnnamedExtents(program)) return;
    copy_.emplace(program.Clone());
    NameUnknownExtents(*copy_);
    program_ = &*copy_;
  }
  Program& program() { return *program_; }
  bool is_copy() const { return copy_.has_value(); }

 private:
  Program* program_;
  std::optional<Program> copy_;
};

std::vector<Block*> RegionBlocks(Program& program) {
  std::vector<Block*> blocks;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    for (Region& region : op->regions()) {
      for (Block& block : region) blocks.push_back(&block);
    }
  }
  return blocks;
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

bool MayHaveConditions(const Program& program) {
  return FunctionTable(program).empty() &&
         std::ranges::any_of(*program.block(),
                             [](const Operation& op) { return op.num_regions() != 0; });
}

bool IsAsInferred(const Program& program) {
  Program copy = program.Clone();
  ShapeInferencer(&copy.parameters()).Visit(copy);
  return StructurallyEqual(copy.module(), program.module());
}

std::string InputName(Operation* feed) { return std::string(feed->cast<nn::FeedOp>().name()); }

std::vector<int64_t> MarksOf(const Block& block) {
  const Attribute marks = block.back()->attribute(kConditionsAttr);
  return marks ? *marks.cast<ArrayAttribute>().AsInts() : std::vector<int64_t>();
}

// Adds symbols of an input's type that have become other sizes.
void AddBecome(Type was, Type is, KeptConstraints::Sizes& became) {
  const auto a = was.dyn_cast<AnyTensorType>(), b = is.dyn_cast<AnyTensorType>();
  if (!a || !b || !a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return;
  for (size_t axis = 0; axis < a.rank(); ++axis) {
    const Dim &from = a.dims()[axis], &to = b.dims()[axis];
    if (from.is_symbol() && !(from == to)) became.emplace(from.symbol_name(), to);
  }
}

// States what the operations of a block do not show, as far as its symbols are known.
void StateHidden(Block& block, std::vector<SizeConstraint> all,
                 const std::vector<SizeConstraint>& shown, const std::set<std::string>& names) {
  const KnownConditions known(shown);
  std::erase_if(all, [&](const SizeConstraint& c) {
    return known.Contains(c.condition) || !AllIn(names, c.condition) ||
           c.condition.Decide() == true;
  });
  StateConstraints(block, all);
}

bool AllStatedIn(Program& program, const std::set<std::string>& names) {
  std::vector<Block*> blocks = RegionBlocks(program);
  blocks.push_back(program.block());
  return std::ranges::all_of(blocks, [&](const Block* block) {
    return std::ranges::all_of(StatedConstraints(*block),
                               [&](const SizeConstraint& c) { return AllIn(names, c.condition); });
  });
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

std::vector<SizeConstraint> FindConstraintsWithCalls(Program& program) {
  if (FunctionTable(program).empty()) return FindSizeConstraints(program);
  Program inlined = Inlined(program);
  return FindSizeConstraints(inlined);
}

KeptConstraints::KeptConstraints(Program& program, std::vector<SizeConstraint> known)
    : constraints_(std::move(known)) {
  Gather(program);
  // What regions declare counts for nothing until it is inferred.
  if (MayHaveConditions(program) && IsAsInferred(program)) GatherOfRegions(program);
  Named named(program);
  for (Operation* feed : named.program().feeds()) {
    inputs_.emplace(InputName(feed), feed->result(0).type());
  }
}

void KeptConstraints::Gather(Program& program) {
  KnownConditions known(constraints_);
  Named named(program);
  for (SizeConstraint& found : FindConstraintsWithCalls(named.program())) {
    if (!known.Contains(found.condition)) constraints_.push_back(std::move(found));
  }
  StateConstraints(*program.block(), {});
}

// A region keeps the marks of before a pass: what the pass builds on may no longer be in it.
void KeptConstraints::GatherOfRegions(Program& program) {
  if (!MayHaveConditions(program)) return;
  has_regions_ = true;
  Named named(program);
  const std::vector<Block*> of_named = RegionBlocks(named.program()), own = RegionBlocks(program);
  std::unordered_map<const Block*, Block*> original;  // looked up, never iterated
  for (size_t i = 0; i < own.size(); ++i) original.emplace(of_named[i], own[i]);
  for (auto& [block, found] : FindRegionConstraints(named.program())) {
    Mark(*original.at(block), std::move(found));
  }
}

void KeptConstraints::Mark(Block& block, std::vector<SizeConstraint> found) {
  std::vector<int64_t> indices = MarksOf(block);
  KnownConditions known;
  for (const int64_t i : indices) known.Add(conditional_[static_cast<size_t>(i)].condition);
  for (SizeConstraint& constraint : found) {
    if (known.Contains(constraint.condition)) continue;
    indices.push_back(std::ssize(conditional_));
    conditional_.push_back(std::move(constraint));
  }
  StateConstraints(block, {});
  block.back()->SetAttribute(
      kConditionsAttr,
      ArrayAttribute::Get(*block.back()->context(), std::span<const int64_t>(indices)));
}

void KeptConstraints::AfterPass(const Pass& pass, Program& program) {
  const bool infers = pass.name() == "infer_shape";
  const bool binds = pass.name() == "bind_sizes" && pass.changed();
  if (binds) Gather(program);
  if (binds || (infers && (pass.changed() || !has_regions_))) GatherOfRegions(program);
}

void KeptConstraints::Replace(const Sizes& became) {
  if (became.empty()) return;
  const auto of = [&](std::string_view name) -> std::optional<Dim> {
    const auto found = became.find(name);
    return found == became.end() ? std::nullopt : std::optional(found->second);
  };
  // What has become too long is gathered anew, of the sizes that operations have then.
  ReplaceSizes(constraints_, of);
  for (SizeConstraint& c : conditional_) {
    std::vector<SizeConstraint> left = {c};
    ReplaceSizes(left, of);
    c.condition = left.empty() ? SizeCondition::Equal(0, 0) : left[0].condition;  // indices stay
  }
}

void KeptConstraints::Finish(Program& program) {
  Sizes became;
  Named named(program);
  for (Operation* feed : named.program().feeds()) {
    const auto was = inputs_.find(InputName(feed));
    if (was != inputs_.end()) AddBecome(was->second, feed->result(0).type(), became);
  }
  Replace(became);
  // Also of what passes have made: it may ask more than what it stands for; what they have taken
  // out of regions always runs; and some sizes are symbols, or numbers, only now.
  Gather(program);
  GatherOfRegions(program);
}

void KeptConstraints::State(Program& program) const {
  Named named(program);
  if (named.is_copy()) {
    StateAll(named.program());
    const std::set<std::string> names = SymbolNames(program);
    if (!AllStatedIn(named.program(), names)) NameUnknownExtents(program);
  }
  StateAll(program);
}

void KeptConstraints::StateAll(Program& program) const {
  const std::set<std::string> names = SymbolNames(program);
  StateHidden(*program.block(), constraints_, FindConstraintsWithCalls(program), names);
  if (!has_regions_) return;
  for (const auto& [block, shown] : FindRegionConstraints(program)) {
    std::vector<SizeConstraint> all;
    for (const int64_t i : MarksOf(*block)) all.push_back(conditional_[static_cast<size_t>(i)]);
    StateHidden(*block, std::move(all), shown, names);
    block->back()->SetAttribute(kConditionsAttr, Attribute());
  }
}

void RunAndKeepConstraints(PassManager& manager, Program& program) {
  const auto kept = std::make_shared<KeptConstraints>(program);
  manager.AddInstrumentation(kept);
  manager.Run(program);
  kept->Finish(program);
  kept->State(program);
}

}  // namespace lathe
