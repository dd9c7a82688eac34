#include <algorithm>
#include <numeric>

#include "lathe/dialect/permute_interface.h"
#include "lathe/ir/context.h"

namespace lathe {

bool IsIdentity(const Permutation& perm) { return std::is_sorted(perm.begin(), perm.end()); }

Permutation Inverse(const Permutation& perm) {
  Permutation inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) {
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  }
  return inverse;
}

Permutation Compose(const Permutation& first, const Permutation& second) {
  Permutation both;
  for (const int64_t axis : second) both.push_back(first[static_cast<size_t>(axis)]);
  return both;
}

const Tensor* PermuteContext::Constant(size_t i) const {
  return HasInput(i) ? facts_.Constant(op_->operand(i)) : nullptr;
}

int64_t PermuteContext::NewAxis(int64_t axis) const {
  if (axis < 0) axis += static_cast<int64_t>(perm_.size());
  return std::find(perm_.begin(), perm_.end(), axis) - perm_.begin();
}

std::vector<int64_t> PermuteContext::NewAxes(const std::vector<int64_t>& axes) const {
  std::vector<int64_t> moved;
  for (const int64_t axis : axes) moved.push_back(NewAxis(axis));
  return moved;
}

void PermuteContext::SetInts(size_t i, const std::vector<int64_t>& values) {
  SetConstant(i, Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

void PermuteContext::SetAttribute(std::string name, int64_t value) {
  SetAttribute(std::move(name), IntAttribute::Get(*op_->context(), value));
}

namespace {

/// Every operand broadcasts to the result: all axes of it are permuted, those that the operand
/// lacks stay in front.
bool PermuteElementwise(PermuteContext& c) {
  Operation* op = c.op();
  const auto result = op->result(0).type().dyn_cast<AnyTensorType>();
  if (op->num_results() != 1 || !result || !result.has_rank()) return false;
  const size_t missing = result.rank() - c.perm().size();
  Permutation perm(missing);
  std::iota(perm.begin(), perm.end(), 0);
  for (const int64_t axis : c.perm()) perm.push_back(axis + static_cast<int64_t>(missing));
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const auto type = op->operand(i).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return false;
    if (i == c.operand()) {
      c.Operand(i, c.perm());
    } else if (type.rank() > 0) {
      c.Operand(i, perm);
    }
  }
  c.Result(0, perm);
  return true;
}

}  // namespace

bool AskPermute(PermuteContext& c) {
  Operation* op = c.op();
  if (const auto own = op->dyn_cast<PermuteInterface>()) return own.Permute(c);
  return op->HasTrait<Elementwise>() && op->HasTrait<HasValueSemantics>() && PermuteElementwise(c);
}

}  // namespace lathe
