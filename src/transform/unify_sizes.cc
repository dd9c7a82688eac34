#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/dialect/size_constraints.h"
#include "lathe/ir/stated_constraints.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/support/error.h"
#include "src/dialect/bound_sizes.h"

namespace lathe {

namespace {

using Conditions = std::vector<SizeCondition>;
using RegionConstraints = std::vector<std::pair<Block*, std::vector<SizeConstraint>>>;

Conditions ConditionsOf(const std::vector<SizeConstraint>& constraints) {
  Conditions conditions;
  for (const SizeConstraint& c : constraints) conditions.push_back(c.condition);
  return conditions;
}

// What holds in every run that ends well: what a block relies on, and what both branches of an `if`
// in it do. As deep as programs nest.
Conditions AlwaysIn(const Block& block, Conditions own, const RegionConstraints& regions) {
  const auto in = [&](const Region& region) {
    const auto found =
        std::ranges::find(regions, region.front(), &RegionConstraints::value_type::first);
    Conditions here = found == regions.end() ? Conditions() : ConditionsOf(found->second);
    return AlwaysIn(*region.front(), std::move(here), regions);
  };
  for (const Operation& op : block) {
    if (op.name() != cf::IfOp::kName) continue;
    const Conditions other = in(op.region(1));
    for (SizeCondition& c : in(op.region(0))) {
      if (std::ranges::find(other, c) != other.end()) own.push_back(std::move(c));
    }
  }
  return own;
}

}  // namespace

/// Extents of inputs that must equal a number in every run, for else an operation that it always
/// runs is wrong, become that: nothing has to be ready for others then. A run with others is
/// refused as one whose inputs contradict each other. So do extents that nobody has named ("x.0")
/// and that must equal another one. What has a name keeps it then: an error tells of the operation
/// in terms of it.
class UnifySizesPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    if (graph.block() != program.block()) return;
    same_.clear();
    computed_.clear();
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      std::ranges::copy(BoundSizes(op), std::back_inserter(computed_));
    }
    const Conditions own = ConditionsOf(FindSizeConstraints(program));
    for (const SizeCondition& c : AlwaysIn(*program.block(), own, FindRegionConstraints(program))) {
      if (c.kind == SizeCondition::Kind::kEqual || IsWhole(c)) Unify(Of(c.a), Of(c.b));
    }
    if (same_.empty() || Contradicts(program)) return;
    Rename(program);
    Count("unified", static_cast<int64_t>(same_.size()));
    MarkChanged();
  }

 private:
  // What the program computes is known too late to be the size of an input.
  bool IsComputed(const Dim& dim) const {
    return dim.is_symbol() && std::ranges::find(computed_, dim.symbol_name()) != computed_.end();
  }

  // What is not 1 is not broadcast.
  static bool IsWhole(const SizeCondition& c) {
    const bool is_whole = c.a.is_constant() && c.a.value() != 1;
    return c.kind == SizeCondition::Kind::kBroadcastTo && is_whole;
  }

  static bool IsUnnamed(const Dim& dim) {
    return dim.is_symbol() && dim.symbol_name().find('.') != std::string_view::npos;
  }

  void Unify(const Dim& a, const Dim& b) {
    if (a == b || IsComputed(a) || IsComputed(b)) return;
    if (b.is_symbol() && (a.is_constant() || (IsUnnamed(b) && a.is_symbol()))) return Put(b, a);
    if (a.is_symbol() && (b.is_constant() || (IsUnnamed(a) && b.is_symbol()))) Put(a, b);
  }

  void Put(const Dim& symbol, const Dim& other) {
    for (auto& [name, dim] : same_) {
      if (dim == symbol) dim = other;
    }
    same_.emplace_back(symbol.symbol_name(), other);
  }

  Dim Of(const Dim& dim) const {
    return dim.Substitute([&](std::string_view name) { return Same(name); });
  }

  std::optional<Dim> Same(std::string_view name) const {
    const auto found = std::ranges::find(same_, name, &std::pair<std::string, Dim>::first);
    return found == same_.end() ? std::nullopt : std::optional(found->second);
  }

  // Whether no run can be right, of which that tells.
  bool Contradicts(const Program& program) {
    Program copy = program.Clone();
    try {
      Rename(copy);
    } catch (const Error&) {
      return true;
    }
    return false;
  }

  // Functions have symbols of their own.
  void Rename(Program& program) {
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (op->HasTrait<IsolatedFromAbove>()) {
        w.SkipRegions();
        continue;
      }
      for (size_t i = 0; i < op->num_results(); ++i) Rename(op->result(i));
      for (Region& region : op->regions()) {
        for (Block& block : region) {
          for (size_t i = 0; i < block.num_arguments(); ++i) Rename(block.argument(i));
        }
      }
    }
    ReplaceStatedSizes(program.module(), [&](std::string_view name) { return Same(name); });
    ShapeInferencer(&program.parameters()).Visit(program);
  }

  void Rename(Value value) {
    const auto type = value.type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return;
    SymShape shape = type.shape();
    for (Dim& dim : shape.dims) dim = Of(dim);
    value.set_type(type.With(type.element(), shape));
  }

  std::vector<std::string> computed_;              // symbols
  std::vector<std::pair<std::string, Dim>> same_;  // of a symbol
};

REGISTER_PASS(unify_sizes, UnifySizesPass)
    .Doc(
        "sizes of inputs that must equal a number, and unnamed ones that must equal others, become "
        "so");

}  // namespace lathe
