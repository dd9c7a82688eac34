#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/order.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/dialect/cf/loop_sizes.h"
#include "src/dialect/cf/regions.h"
#include "src/dialect/fold_util.h"
#include "src/transform/data_sizes.h"
#include "src/transform/refine_types.h"

namespace lathe {

namespace {

// The operand that tells it the shapes of its results.
std::optional<size_t> Teller(const Operation* op) {
  if (op->isa<nn::ReshapeOp>()) return nn::ReshapeOp::kShape;
  if (op->isa<nn::ExpandOp>()) return nn::ExpandOp::kShape;
  if (op->isa<nn::ConstantOfShapeOp>()) return nn::ConstantOfShapeOp::kInput;
  if (op->isa<nn::SplitOp>()) return nn::SplitOp::kSplit;
  return std::nullopt;
}

// Whether a run may tell it any shape.
bool IsToldByData(const Operation* op) {
  const auto teller = Teller(op);
  return teller && *teller < op->num_operands() && op->operand(*teller) &&
         !FollowsFromSizes(op->operand(*teller));
}

// Whether regions yield other types, of which the result may not know yet.
bool HasRegionsThatDiffer(const Operation* op) {
  if (!op->isa<cf::IfOp>()) return false;
  const cf::IfOp either(op);
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (cf::YieldType(either.then_region(), i) != cf::YieldType(either.else_region(), i))
      return true;
  }
  return false;
}

bool ReadsStrings(const Operation* op) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const AnyTensorType type = TensorOrNull(op->operand(i));
    if (type && type.element() == ElementType::kString) return true;
  }
  return false;
}

// Whether it is numbers whose extents nobody knows before they are there.
bool AreOpenNumbers(Value v) {
  const AnyTensorType type = TensorOrNull(v);
  return type && type.is_value() && type.element() != ElementType::kString && type.has_rank() &&
         std::ranges::any_of(type.dims(), &Dim::is_unknown);
}

bool MayNeedBinding(const Block& block) {
  for (OpWalker w(const_cast<Block*>(&block)); const Operation* op = w.Next();) {
    if (HasOpenSizes(op) || IsToldByData(op) || HasRegionsThatDiffer(op)) return true;
  }
  return false;
}

}  // namespace

/// Sizes that depend on the elements of tensors, such as the count of a `non_zero` or the shape of
/// a `reshape` that a model computes from its data, become symbols that a `bind_sizes` says while
/// the program runs. All that follows is planned like anything of symbolic size. What an `if` gives
/// has a symbol for each extent in which its regions differ, and so has what a loop carries for
/// each that differs by iteration.
class BindSizesPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    if (!MayNeedBinding(*graph.block())) return;
    Program& program = graph.program();
    names_ = SymbolNames(program);
    rewriter_.emplace(program, this);
    facts_.emplace(&program.parameters());
    build_.emplace(*rewriter_, *facts_, names_);
    VisitBlock(graph.block());
  }

 private:
  // As deep as programs nest.
  void VisitBlock(Block* block) {
    for (Operation* op = block->front(); op != nullptr;) {
      Operation* const next = op->next();
      if (op->isa<cf::WhileOp>() && !option_bool("told")) NameResults(op);
      for (Region& region : op->regions()) VisitBlock(region.front());
      const bool can_run = Infer(op);
      if (op->isa<nn::TopKOp>()) ShortenCount(op);
      const bool told = Decides(op, Teller(op).value_or(0));
      if (can_run && (told || (HasOpenSizes(op) && !option_bool("told")))) Resolve(op);
      op = next;
    }
  }

  // The extents of what a loop carries that differ by iteration, and how much it stacks.
  void NameResults(Operation* loop) {
    if (!Infer(loop)) return;
    std::vector<std::string> names;
    bool any = false;
    for (size_t i = 0; i < loop->num_results(); ++i) {
      names.push_back(cf::SizesName(loop, i));
      if (!names.back().empty() || !HasOpenExtents(loop, i)) continue;
      names.back() = FreshPrefix("loop");
      any = true;
    }
    if (!any) return;
    rewriter_->SetAttribute(
        loop, cf::WhileOp::kSizesAttr,
        ArrayAttribute::Get(rewriter_->context(), std::span<const std::string>(names)));
    rewriter_->Applied(loop, "its iterations say the sizes of what it gives");
    Count("loops");
    Infer(loop);
  }

  static bool HasOpenExtents(const Operation* loop, size_t result) {
    const Block& body = *loop->region(0).front();
    const size_t count = loop->num_operands();
    const size_t carried = count > cf::WhileOp::kCarried ? count - cf::WhileOp::kCarried : 0;
    const Value v = result < carried ? body.argument(body.num_arguments() - carried + result)
                                     : loop->result(result);
    const AnyTensorType type = TensorOrNull(v);
    if (!type || !type.is_value() || !type.has_rank() || type.rank() == 0) return false;
    return result < carried ? std::ranges::any_of(type.dims(), &Dim::is_unknown)
                            : type.dims()[0].is_unknown();
  }

  // No other name begins with it.
  std::string FreshPrefix(std::string_view what) {
    for (;;) {
      std::string name = build_->FreshName(what);
      const auto longer = names_.lower_bound(name + "_");
      if (longer == names_.end() || !longer->starts_with(name + "_")) return name;
    }
  }

  // False where it cannot run.
  bool Infer(Operation* op) {
    const std::optional<bool> changed = InferAgain(op, *facts_);
    if (changed == true) MarkChanged();
    return changed.has_value();
  }

  // Whether it takes sizes from an operand whose numbers a run may make anything.
  bool Decides(const Operation* op, size_t i) {
    if (i != Teller(op) || !IsToldByData(op)) return false;
    const std::vector<Dim>* known = facts_->Contents(op->operand(i));
    return known == nullptr || std::ranges::any_of(*known, &Dim::is_unknown);
  }

  // May replace it.
  void Resolve(Operation* op) {
    if (op->isa<cf::IfOp>()) return JoinRegions(op);
    if (op->num_regions() != 0) return;
    if (ComputeSizes(op, *build_) || (!TakesNegative(op) && BindOperands(op)) ||
        (ReadsStrings(op) && NameNumbers(op))) {
      Count("bound");
    } else {
      rewriter_->Missed(op, "nothing says how its sizes follow from its operands");
    }
  }

  // The interpreter counts words; with names for their sizes the operations on counts have kernels.
  bool NameNumbers(Operation* op) {
    bool any = false;
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value numbers = op->result(i);
      if (!AreOpenNumbers(numbers) || numbers.use_empty()) continue;
      const std::vector<OpOperand> uses(numbers.uses().begin(), numbers.uses().end());
      rewriter_->SetInsertionPoint(op->next());
      rewriter_->set_location(op->location());
      std::vector<std::string> names;
      for (const Dim& dim : TensorOrNull(numbers).dims()) {
        names.push_back(dim.is_unknown() ? build_->FreshName(ShortName(op)) : std::string());
      }
      const Value named = WithExtents(numbers, names);
      for (const OpOperand& use : uses) rewriter_->SetOperand(use.owner(), use.index(), named);
      any = true;
    }
    if (any) rewriter_->Applied(op, "what it gives says its size");
    return any;
  }

  // The same, where each axis with a name has that symbol for its extent.
  Value WithExtents(Value v, const std::vector<std::string>& names) {
    const Value bound = build_->BindAs(build_->Create(nn::kShape, {v}), names);
    return build_->Create(nn::kReshape, {v, bound}, {build_->Attr("allowzero", true)});
  }

  // Whether its operands may be numbers that no size is.
  bool TakesNegative(Operation* op) {
    if (const auto reshape = op->dyn_cast<nn::ReshapeOp>()) {
      return !AreExtents(reshape.shape(), *build_);
    }
    return op->isa<nn::SliceOp>() || op->isa<nn::RangeOp>();
  }

  // The operands that an operation takes sizes from are integers. They are put back where its sizes
  // do not follow from them.
  bool BindOperands(Operation* op) {
    std::vector<std::pair<size_t, Value>> before;
    rewriter_->SetInsertionPoint(op);
    rewriter_->set_location(op->location());
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value operand = op->operand(i);
      const Value bound = operand ? build_->Bind(operand, ShortName(op)) : Value();
      if (!bound) continue;
      before.emplace_back(i, operand);
      rewriter_->SetOperand(op, i, bound);
    }
    if (before.empty()) return false;
    if (Infer(op) && !HasOpenSizes(op)) {
      ReleaseOthers(op, before);
      rewriter_->Applied(op, "the program computes its size");
      return true;
    }
    for (const auto& [i, operand] : before) Release(op, i, operand);
    Infer(op);
    return false;
  }

  void Release(Operation* op, size_t i, Value operand) {
    Operation* bind = op->operand(i).defining_op();
    rewriter_->SetOperand(op, i, operand);
    EraseBinding(bind);
  }

  // Integers that are data, such as those that a top_k chooses from, decide no size and may be
  // negative.
  void ReleaseOthers(Operation* op, std::span<const std::pair<size_t, Value>> before) {
    for (const auto& [i, operand] : before) {
      const Value bound = op->operand(i);
      rewriter_->SetOperand(op, i, operand);
      const bool decides = !Infer(op) || HasOpenSizes(op) || Decides(op, i);
      rewriter_->SetOperand(op, i, bound);
      if (!decides) Release(op, i, operand);
      Infer(op);
    }
  }

  void EraseBinding(Operation* op) {
    while (!op->isa<nn::BindSizesOp>()) {
      Operation* before = op->operand(0).defining_op();
      rewriter_->Erase(op);
      op = before;
    }
    rewriter_->Erase(op);
  }

  // Detectors take the best of what they find, at most so many, for each class, and join them: sums
  // of minima that no dim can hold. Each count that is computed has a name instead.
  void ShortenCount(Operation* op) {
    const std::vector<Dim>* known = facts_->Contents(op->operand(nn::TopKOp::kK));
    if (known == nullptr || known->size() != 1 || (*known)[0].is_symbol()) return;
    std::vector<std::string> used;
    (*known)[0].CollectSymbols(used);
    const auto computed = [&](const std::string& name) { return build_->IsComputed(name); };
    if (std::ranges::none_of(used, computed)) return;
    rewriter_->SetInsertionPoint(op);
    rewriter_->set_location(op->location());
    const Value k = op->operand(nn::TopKOp::kK);
    rewriter_->SetOperand(op, nn::TopKOp::kK, build_->BindAs(k, {build_->FreshName("top_k")}));
    Infer(op);
  }

  static std::string ShortName(const Operation* op) {
    const std::string_view name = op->name();
    return std::string(name.substr(name.find('.') + 1));
  }

  void JoinRegions(Operation* op) {
    joined_.clear();
    for (size_t i = 0; i < op->num_results(); ++i) {
      const AnyTensorType type = TensorOrNull(op->result(i));
      const bool is_open = type && type.is_value() && type.has_rank() &&
                           std::ranges::any_of(type.dims(), &Dim::is_unknown);
      if (is_open && AreKnown(op, i)) Join(op, i, type);
    }
    Infer(op);
  }

  // Whether both regions know the extents of their result.
  static bool AreKnown(Operation* op, size_t result) {
    return std::ranges::all_of(op->regions(), [&](const Region& region) {
      const AnyTensorType type = TensorOrNull(region.front()->back()->operand(result));
      return type && type.has_rank() && std::ranges::none_of(type.dims(), &Dim::is_unknown);
    });
  }

  // Extents that are the same in each region have one name, whichever results they are of.
  std::string NameOfExtent(Operation* op, size_t result, size_t axis) {
    std::string key;
    for (const Region& region : op->regions()) {
      const AnyTensorType type = TensorOrNull(region.front()->back()->operand(result));
      key += StrCat(type.dims()[axis].ToString(), ";");
    }
    std::string& name = joined_[key];
    if (name.empty()) name = build_->FreshName("if");
    return name;
  }

  void Join(Operation* op, size_t result, AnyTensorType type) {
    std::vector<std::string> names;
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      const bool is_open = type.dims()[axis].is_unknown();
      names.push_back(is_open ? NameOfExtent(op, result, axis) : std::string());
    }
    for (Region& region : op->regions()) {
      Operation* yield = region.front()->back();
      rewriter_->SetInsertionPoint(yield);
      rewriter_->set_location(op->location());
      rewriter_->SetOperand(yield, result, WithExtents(yield->operand(result), names));
    }
    rewriter_->Applied(op, "the region that runs says the size");
    Count("joined");
  }

  std::set<std::string> names_;
  std::map<std::string, std::string> joined_;  // of the if at hand, by the extents in its regions
  std::optional<Rewriter> rewriter_;
  std::optional<ShapeInferencer> facts_;
  std::optional<SizeBuilder> build_;
};

REGISTER_PASS(bind_sizes, BindSizesPass)
    .Doc(
        "sizes that depend on the elements of tensors become symbols that a step of the program "
        "says: counts of non_zero, computed shapes, results of an if or of a loop")
    .Option(
        "told", PassOption::Kind::kBool, "false",
        "only the computed shapes of reshape, expand, constant_of_shape and split, before other "
        "passes drop those that say nothing new, which a run may contradict");

}  // namespace lathe
