#include "src/transform/optimizer/loss_scaling.h"

#include <optional>
#include <string>

#include "lathe/dialect/dist/collective.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/transform/optimizer.h"
#include "src/dialect/nn/grad_util.h"
#include "src/transform/optimizer/training_step.h"

namespace lathe {

namespace {

using nn::Term;

// As PyTorch's GradScaler.
constexpr double kGrowth = 2, kBackoff = 0.5, kGrowthInterval = 2000;
// The largest scale: one more doubling of it is still finite.
constexpr double kLargestScale = 0x1p126;

}  // namespace

LossScaling::LossScaling(Program& program, Builder& reads, Builder& b) : b_(b) {
  if (program.parameters().Find(kLossScale) == nullptr) return;
  scale_ = ReadVariable(program, reads, std::string(kLossScale), ElementType::kF32, {}, 1);
  good_steps_ = ReadVariable(program, reads, std::string(kGoodSteps), ElementType::kI64, {}, 0);
}

// Zero times what is not finite is NaN; so is a sum with it.
void LossScaling::Unscale(std::vector<Term>& gradients, int64_t nranks) {
  if (!scale_) return;
  const Term inverse = 1.0 / Term(b_, scale_);
  std::optional<Term> sum;
  for (Term& g : gradients) {
    g = g * As(inverse, g.element());
    const Term zero{b_,
                    nn::ReduceSumOp::Create(b_, g * 0.0, Value(), {.keepdims = false}).reduced()};
    sum = sum ? *sum + As(zero, ElementType::kF32) : As(zero, ElementType::kF32);
  }
  Value all = *sum;
  if (nranks > 1) all = dist::AllReduceOp::Create(b_, {{all}}, 1, {.nranks = nranks}).ys()[0];
  finite_ = nn::Equal(Term(b_, all), Term(b_, all).Number(0));
}

void LossScaling::Guard(std::vector<VariableUpdate>& updates) {
  if (!scale_) return;
  for (VariableUpdate& u : updates) {
    if (u.after != u.before) u.after = nn::Select(finite_, Term(b_, u.after), Term(b_, u.before));
  }
  const Term scale(b_, scale_);
  const Term good = Term(b_, good_steps_) + Term(b_, nn::IntConstant(b_, 1));
  const Value grows = nn::Equal(good, Term(b_, nn::IntConstant(b_, kGrowthInterval)));
  const Term zero(b_, nn::IntConstant(b_, 0));
  const Term larger = nn::Select(grows, Least(scale * kGrowth, kLargestScale), scale);
  updates.push_back(
      {std::string(kLossScale), scale_, nn::Select(finite_, larger, scale * kBackoff)});
  updates.push_back({std::string(kGoodSteps), good_steps_,
                     nn::Select(finite_, nn::Select(grows, zero, good), zero)});
}

}  // namespace lathe
