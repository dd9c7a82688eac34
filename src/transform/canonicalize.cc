#include "src/transform/canonicalize.h"

#include <algorithm>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

// ---- sites ----

Operation* Site::Maker(size_t i) const {
  return HasOperand(i) ? op->operand(i).defining_op() : nullptr;
}

const Tensor* Site::Constant(size_t i) const {
  return HasOperand(i) ? ConstantValue(rewriter.program(), op->operand(i)) : nullptr;
}

std::optional<std::vector<int64_t>> Site::Ints(size_t i) const {
  const Tensor* t = Constant(i);
  if (t == nullptr || !IsInteger(t->element_type()) || t->rank() > 1) return std::nullopt;
  return ToInt64s(*t);
}

std::optional<int64_t> Site::IntAttr(const char* name) const {
  const auto a = op->attribute(name).dyn_cast<IntAttribute>();
  return a ? std::optional(a.value()) : std::nullopt;
}

Value Site::Constant(const std::vector<int64_t>& values) const {
  return rewriter.Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

NamedAttribute Site::Attr(const char* name, const std::vector<int64_t>& values) const {
  return rewriter.Named(name, rewriter.Attr(std::span<const int64_t>(values)));
}

bool Site::ReplaceBy(Value value) const {
  if (value.type() != type()) return false;
  rewriter.ReplaceAllUses(op->result(0), value);
  rewriter.EraseDead(op);
  return true;
}

bool Site::ReplaceByNew(Operation* inner, const char* name, std::vector<Value> operands,
                        std::vector<NamedAttribute> attributes) const {
  const std::vector<Operation*> replaced{inner, op};
  const Rewriter::Replacing scope(rewriter, replaced);
  Operation* made = rewriter.Create(name, operands, attributes, 1);
  if (!Compatible(made->result(0).type(), type())) {
    rewriter.Erase(made);
    return false;
  }
  made->result(0).set_type(type());
  rewriter.ReplaceAllUses(op->result(0), made->result(0));
  rewriter.EraseDead(op);
  return true;
}

// ---- what rules ask ----

bool IsA(const Operation* op, const char* name) { return op != nullptr && op->name() == name; }

std::optional<int64_t> AxisOf(int64_t axis, Value value) { return AxisFromFront(axis, value); }

std::optional<std::vector<int64_t>> ReshapeTarget(AnyTensorType from, AnyTensorType to, bool fits) {
  if (!from || !to || !to.has_rank()) return std::nullopt;
  return ReshapeTarget(from.shape(), {to.dims().begin(), to.dims().end()}, fits);
}

namespace {

class TablePattern : public RewritePattern {
 public:
  explicit TablePattern(const CanonicalRow& row)
      : RewritePattern(row.name, row.root), fn_(row.fn) {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    const bool on_values = op->num_results() != 0 && !op->result(0).type().isa<TensorType>();
    return on_values && fn_({op, rewriter});
  }

 private:
  CanonicalRule fn_;
};

/// Exact for every bit but the sign of a NaN.
std::vector<Rule> SignRules() {
  using namespace pat;  // NOLINT: the words of a rule
  std::vector<Rule> rules;
  const auto negative = [](const char* name) { return Call(nn::kNeg, {Var(name)}).Shared(); };
  rules.push_back(Rule("add-of-neg")
                      .Match(Call(nn::kAdd, {Var("x"), negative("y")}))
                      .Replace(Call(nn::kSub, {Var("x"), Var("y")}))
                      .Quiet());
  rules.push_back(Rule("sub-of-neg")
                      .Match(Call(nn::kSub, {Var("x"), negative("y")}))
                      .Replace(Call(nn::kAdd, {Var("x"), Var("y")}))
                      .Quiet());
  rules.push_back(Rule("mul-of-negs")
                      .Match(Call(nn::kMul, {negative("x"), negative("y")}))
                      .Replace(Call(nn::kMul, {Var("x"), Var("y")}))
                      .Quiet());
  rules.push_back(Rule("abs-of-neg")
                      .Match(Call(nn::kAbs, {negative("x")}))
                      .Replace(Call(nn::kAbs, {Var("x")}))
                      .Quiet());
  rules.push_back(
      Rule("where-not")
          .Match(Call(nn::kWhere, {Call(nn::kNot, {Var("c")}).Shared(), Var("x"), Var("y")}))
          .Replace(Call(nn::kWhere, {Var("c"), Var("y"), Var("x")}))
          .Quiet());
  return rules;
}

/// x + 0.0 gives 0.0 where x is -0.0, so it is x only for who does not look at the sign of zeros.
class AddZero : public RewritePattern {
 public:
  AddZero() : RewritePattern("add-zero", nn::kAdd) {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    for (size_t side = 0; side < 2; ++side) {
      const Tensor* zero = ConstantValue(rewriter.program(), op->operand(side));
      if (zero == nullptr || !IsFloat(zero->element_type())) continue;
      const std::vector<double> values = ToDoubles(*zero);
      const bool zeros = std::all_of(values.begin(), values.end(), [](double v) { return v == 0; });
      if (zeros && Site{op, rewriter}.ReplaceBy(op->operand(1 - side))) return true;
    }
    return false;
  }
};

}  // namespace

void AddCanonicalRow(const CanonicalRow& row, PatternSet& patterns) {
  patterns.push_back(std::make_unique<TablePattern>(row));
}

/// Local algebra on what exporters write. Never needed for correctness.
class CanonicalizePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    PatternSet patterns;
    for (const auto& rules : {OrderRules(), PieceRules(), BroadcastRules()}) {
      for (const CanonicalRow& row : rules) AddCanonicalRow(row, patterns);
    }
    for (Rule& rule : SignRules()) AddRule(std::move(rule), graph.context(), patterns);
    if (!option_bool("signed_zeros")) patterns.push_back(std::make_unique<AddZero>());
    ApplyPatternsGreedily(graph.program(), this, patterns, {.fold = true});
  }
};

REGISTER_PASS(canonicalize, CanonicalizePass)
    .Doc(
        "removes reshapes, transposes, casts, slices, pads and arithmetic that do nothing or undo "
        "one another")
    .Details(
        "Asks the Fold of each op, and tries local rules: transposes, reshapes and casts one after "
        "the other become one; pieces that are cut and joined again, or joined and cut, are seen "
        "through; what is repeated only to be broadcast is read as it was. Results keep their "
        "bits; x + 0.0 therefore stays unless `signed_zeros` is off.")
    .Option("signed_zeros", PassOption::Kind::kBool, "true", "-0.0 and 0.0 are different results");

}  // namespace lathe
