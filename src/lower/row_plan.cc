#include "src/lower/row_plan.h"

#include <algorithm>
#include <limits>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "src/lower/pointwise.h"

namespace lathe::lower {
namespace {

constexpr int64_t kParallelElements = 1 << 14;
constexpr int kWorthKeeping = 8;  // instructions that a kept element must save

}  // namespace

Combination CombinationOf(const Operation* reduction, ElementType element) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool of_bools = element == ElementType::kBool;
  const std::string_view name = reduction->name();
  if (name == nn::ReduceMaxOp::kName) {
    return of_bools ? Combination{nn::kOr, "or", 0} : Combination{nn::kMax, "max", -kInfinity};
  }
  if (name == nn::ReduceMinOp::kName) {
    return of_bools ? Combination{nn::kAnd, "and", 1} : Combination{nn::kMin, "min", kInfinity};
  }
  if (name == nn::ReduceProdOp::kName) return {nn::kMul, "mul", 1};
  return {nn::kAdd, "add", 0};
}

std::string RowPlan::Refusal() {
  if (std::string why = program_.Refusal(); !why.empty()) return why;
  for (const Operation* op : program_.reductions()) {
    if (std::string why = CombinationRefusal(op); !why.empty()) return why;
  }
  FormGroups();
  PlanPasses();
  PlanKept();
  return "";
}

std::string RowPlan::CombinationRefusal(const Operation* reduction) {
  const auto type = TensorOf(reduction->operand(0));
  const Combination c = CombinationOf(reduction, type.element());
  Region scratch(function_.parent_op());
  Builder b = Builder::AtEnd(scratch.AddBlock());
  const Value operands[] = {reduction->operand(0), reduction->operand(0)};
  const Operation* op = b.CreateInferred(b.context().GetOrMakeOp(c.op), operands, {}, 1);
  const bool has = machine_.has_instruction(*op);
  return has ? "" : StrCat(reduction->name(), " of ", Name(type.element()), " has no instructions");
}

bool RowPlan::AllStatic() const {
  const auto is_static = [](Value v) { return TensorOf(v).is_static(); };
  const Operation* end = program_.block().terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    if (!is_static(end->operand(i))) return false;
  }
  return std::ranges::all_of(program_.leaves(), is_static);
}

// Of each argument and result.
std::vector<std::vector<bool>> RowPlan::WholeAxes() const {
  std::vector<std::vector<bool>> whole;
  const auto add = [&](Value v) {
    whole.emplace_back(program_.dims().size(), false);
    for (const size_t axis : program_.AxesOf(v)) {
      if (axis != RowProgram::kNoAxis) whole.back()[axis] = true;
    }
  };
  for (const Value v : program_.leaves()) add(v);
  const Operation* end = program_.block().terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) add(end->operand(i));
  return whole;
}

// Neighboring axes that every argument has whole, or has not at all, are walked as one; axes of
// extent 1 are not walked. Reduced axes of symbolic extent stay apart.
void RowPlan::FormGroups() {
  const auto& dims = program_.dims();
  const bool all_static = AllStatic();
  reshaped_ = all_static;
  const auto whole = WholeAxes();
  group_of_.assign(dims.size(), kNoGroup);
  for (size_t a = 0; a < dims.size(); ++a) {
    if (dims[a].IsConstant(1)) continue;
    const bool reduced = program_.reduced()[a];
    const bool joins =
        (all_static || !reduced) && !groups_.empty() && groups_.back().reduced == reduced &&
        std::ranges::all_of(whole,
                            [&](const auto& w) { return w[a] == w[groups_.back().axes.back()]; });
    if (!joins) groups_.push_back({1, reduced, {}});
    reshaped_ |= joins;
    groups_.back().extent *= dims[a];
    groups_.back().axes.push_back(a);
    group_of_[a] = groups_.size() - 1;
  }
  if (groups_.empty()) groups_.push_back({1, false, {}});
  Dim elements = 1;
  for (const Group& g : groups_) elements *= g.extent;
  parallel_ = !elements.is_constant() || elements.value() > kParallelElements;
  lanes_ = std::max<int64_t>(1, machine_.vector_bytes / program_.widest());
  is_short_ = EndsShort();
}

// Vectors of elements a few apart are put together from neighbors.
bool RowPlan::EndsShort() const {
  constexpr int64_t kFewApart = 4;
  if (groups_.size() < 2 || groups_[groups_.size() - 2].reduced) return false;
  const Group& row = groups_.back();
  const bool is_known = row.reduced && row.extent.is_constant() && row.extent.value() > 0;
  return is_known && row.extent.value() <= std::min(kFewApart, lanes_ / 2);
}

void RowPlan::PlanPasses() {
  for (const Operation* op : program_.reductions()) {
    passes_ = std::max(passes_, program_.info(op->result(0)).level);
  }
  const Operation* end = program_.block().terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const auto& info = program_.info(end->operand(i));
    if (!info.per_row) passes_ = std::max(passes_, info.level + 1);
  }
}

std::vector<const Operation*> RowPlan::ReductionsIn(int pass) const {
  std::vector<const Operation*> found;
  for (const Operation* op : program_.reductions()) {
    if (program_.info(op->result(0)).level == pass + 1) found.push_back(op);
  }
  return found;
}

// Elements that the pass reduces, keeps or stores.
std::vector<Value> RowPlan::ComputedIn(int pass) const {
  std::vector<Value> values;
  for (const Operation* op : ReductionsIn(pass)) values.push_back(op->operand(0));
  const Operation* end = program_.block().terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const auto& info = program_.info(end->operand(i));
    if (!info.per_row && info.level == pass) values.push_back(end->operand(i));
  }
  for (const Operation& op : program_.block()) {
    if (op.num_results() != 1 || !kept_in_.contains(op.result(0))) continue;
    if (program_.info(op.result(0)).level == pass) values.push_back(op.result(0));
  }
  return values;
}

// Which operations are computed, per operation of the block, so that the targets are.
std::vector<bool> RowPlan::Needed(std::span<const Value> targets, int pass) const {
  std::vector<const Operation*> ops;
  for (const Operation& op : program_.block()) ops.push_back(&op);
  std::vector<bool> needed(ops.size(), false);
  const auto is_target = [&](Value v) { return std::ranges::find(targets, v) != targets.end(); };
  for (size_t i = ops.size(); i-- > 0;) {
    if (ops[i]->num_results() != 1 || ops[i]->num_operands() == 0) continue;
    if (program_.Computed(ops[i]->result(0)) == nullptr) continue;
    const Value v = ops[i]->result(0);
    const bool kept = kept_in_.contains(v) && program_.info(v).level < pass;
    if (kept || program_.info(v).per_row) continue;
    needed[i] = is_target(v);
    for (const OpOperand use : v.uses()) {
      const auto user = std::ranges::find(ops, use.owner());
      needed[i] = needed[i] || needed[static_cast<size_t>(user - ops.begin())];
    }
  }
  return needed;
}

// The last pass that computes with the value.
int RowPlan::LastUse(Value v) const {
  int last = -1;
  for (int pass = 0; pass < passes_; ++pass) {
    const std::vector<bool> needed = Needed(ComputedIn(pass), pass);
    size_t i = 0;
    for (const Operation& op : program_.block()) {
      if (needed[i++] && op.result(0) == v) last = pass;
    }
  }
  return last;
}

bool RowPlan::MayKeep(Value v, Value result) const {
  const auto &info = program_.info(v), &of_result = program_.info(result);
  if (info.per_row || of_result.per_row || info.cost < kWorthKeeping || kept_in_.contains(v)) {
    return false;
  }
  if (!program_.IsWhole(v) || TensorOf(v).element() != TensorOf(result).element()) return false;
  const int last = LastUse(v);
  return info.level < last && last <= of_result.level;
}

void RowPlan::PlanKept() {
  if (is_short_) return;  // its elements stay in registers
  const Operation* end = program_.block().terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    Value best;
    for (const Operation& op : program_.block()) {
      if (op.num_results() != 1 || op.num_operands() == 0) continue;
      const Value v = op.result(0);
      if (program_.Computed(v) == nullptr || !MayKeep(v, end->operand(i))) continue;
      if (!best || program_.info(v).cost > program_.info(best).cost) best = v;
    }
    if (best) kept_in_[best] = i;
  }
}

// Neighbors along the last loop must be neighbors along the last axis.
bool RowPlan::IsReshaped(Value v) const {
  if (reshaped_ || is_short_ || (v.defining_op() != nullptr && program_.info(v).is_leaf))
    return true;
  const std::vector<size_t> axes = program_.AxesOf(v);
  if (axes.empty() || axes.back() != RowProgram::kNoAxis) return false;
  const auto group_is_last = [&](size_t axis) {
    return axis != RowProgram::kNoAxis && group_of_[axis] == last();
  };
  return std::ranges::any_of(axes, group_is_last);
}

}  // namespace lathe::lower
