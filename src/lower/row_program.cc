#include "src/lower/row_program.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/term.h"
#include "src/lower/element_layout.h"
#include "src/lower/factors.h"
#include "src/lower/op_cost.h"
#include "src/lower/pointwise.h"

namespace lathe::lower {
namespace {

constexpr int kMaxCost = 1 << 20;

class LocalConstants : public ValueFacts {
 public:
  const Tensor* Constant(Value v) override {
    const Operation* op = v.defining_op();
    if (op == nullptr || op->name() != builtin::ConstantOp::kName) return nullptr;
    return &op->attribute("value").cast<TensorAttribute>().value();
  }
};

bool IsPrimitive(const Operation* op) {
  constexpr std::string_view kNames[] = {nn::kReduceSum, nn::kReduceMean, nn::kReduceMax,
                                         nn::kReduceMin, nn::kReduceProd};
  return std::ranges::find(kNames, op->name()) != std::end(kNames);
}

// Read as it is, or with other extents.
bool IsArgument(Value v) {
  while (v.defining_op() != nullptr && IsReshape(*v.defining_op())) {
    v = v.defining_op()->operand(0);
  }
  return v.is_block_argument();
}

bool IsNarrowFloat(ElementType element) {
  return element == ElementType::kF16 || element == ElementType::kBF16;
}

// x / y as x * (1 / y): right where y is far from the least and greatest numbers, as the sum of a
// softmax is, and one division per row instead of one per element.
Value MultipliedInstead(Builder& b, Value quotient) {
  const Operation* div = quotient.defining_op();
  LATHE_CHECK(div != nullptr && div->isa<nn::DivOp>(), "a softmax ends with a division");
  return nn::Term(b, div->operand(0)) * (1 / nn::Term(b, div->operand(1)));
}

}  // namespace

RowProgram::RowProgram(const Block& function, const Machine& machine)
    : machine_(machine), copy_(function.parent_op()) {
  CopyOps(function);
}

void RowProgram::CopyOps(const Block& function) {
  Block* block = copy_.AddBlock();
  IrMapping mapping;
  for (size_t i = 0; i < function.num_arguments(); ++i) {
    mapping.Map(function.argument(i), block->AddArgument(function.argument(i).type()));
  }
  for (const Operation& op : function) {
    if (op.num_regions() == 0) block->PushBack(Clone(&op, mapping));
  }
}

std::string RowProgram::Refusal() {
  for (const Operation& op : block()) {
    for (size_t i = 0; i < op.num_results(); ++i) {
      const auto type = op.result(i).type().dyn_cast<AnyTensorType>();
      if (!type || !type.has_rank()) return "a value is not a tensor of known rank";
    }
  }
  Simplify();
  if (std::string why = FindRows(); !why.empty()) return why;
  if (std::string why = FindAxes(); !why.empty()) return why;
  return Describe();
}

// ---- simpler operations ----

void RowProgram::Simplify() {
  for (Operation* op = block().front(); op != nullptr;) {
    Operation* before = op->prev();
    Operation* next = op->next();
    if (SimplifyOne(op)) next = before == nullptr ? block().front() : before->next();
    op = next;
  }
  DropUnused();
}

bool RowProgram::SimplifyOne(Operation* op) {
  if (KindOf(op) != OpKind::kReduction) {
    return op->HasInterface<DecomposeInterface>() && !IsReshape(*op) &&
           KindOf(op) <= OpKind::kBroadcast && !machine_.has_instruction(*op) && Decompose(op);
  }
  return ComputeWider(op) || (!IsPrimitive(op) && Decompose(op));
}

// Floats of 16 bits as f32, means of integers as i64; true if that changed the operation.
bool RowProgram::ComputeWider(Operation* op) {
  const ElementType element = TensorOf(op->operand(0)).element();
  const bool integer_mean =
      op->isa<nn::ReduceMeanOp>() && IsInteger(element) && BitWidth(element) < 64;
  const auto wide = [&](ElementType from) {
    if (IsNarrowFloat(from)) return ElementType::kF32;
    return integer_mean && from == element ? ElementType::kI64 : from;
  };
  std::vector<Value> operands;
  Builder b = Builder::Before(op);
  LocalConstants constants;
  b.set_facts(&constants);
  bool changed = false;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    operands.push_back(op->operand(i));
    if (!operands[i] || NeedsWhole(op, i)) continue;
    const ElementType from = TensorOf(operands[i]).element();
    if (wide(from) == from) continue;
    operands[i] = nn::CastOp::Create(b, operands[i], {.to = wide(from)}).output();
    changed = true;
  }
  if (!changed) return false;
  Operation* wider =
      b.CreateInferred(op->info(), operands, op->attributes().entries(), op->num_results());
  for (size_t i = 0; i < op->num_results(); ++i) {
    const ElementType to = TensorOf(op->result(i)).element();
    Value v = wider->result(i);
    if (TensorOf(v).element() != to) v = nn::CastOp::Create(b, v, {.to = to}).output();
    v.set_type(op->result(i).type());
    op->result(i).ReplaceAllUsesWith(v);
  }
  op->Erase();
  return true;
}

bool RowProgram::Decompose(Operation* op) {
  if (!op->HasInterface<DecomposeInterface>()) return false;
  Builder b = Builder::Before(op);
  LocalConstants constants;
  b.set_facts(&constants);
  const std::vector<Value> results = DecomposeForKernel(op, b);
  if (results.empty()) return false;
  for (size_t i = 0; i < results.size(); ++i) {
    Value result = results[i];
    if (op->isa<nn::SoftmaxOp>()) result = MultipliedInstead(b, result);
    if (result.defining_op() != nullptr) result.set_type(op->result(i).type());
    op->result(i).ReplaceAllUsesWith(result);
  }
  op->Erase();
  return true;
}

void RowProgram::DropUnused() {
  for (Operation* op = block().back(); op != nullptr;) {
    Operation* before = op->prev();
    if (op->use_empty() && !op->HasTrait<Terminator>()) op->Erase();
    op = before;
  }
}

// ---- rows ----

bool RowProgram::IsReduction(const Operation* op) const { return op != nullptr && IsPrimitive(op); }

// False if they are not known.
bool RowProgram::ReducedAxes(const Operation* op, std::vector<bool>& axes) const {
  const size_t rank = TensorOf(op->operand(0)).rank();
  std::vector<int64_t> given;
  if (op->num_operands() > 1 && op->operand(1)) {
    const Tensor* tensor = LocalConstants().Constant(op->operand(1));
    if (tensor == nullptr) return false;
    given = ToInt64s(*tensor);
  }
  const bool noop = op->attribute("noop_with_empty_axes").cast<BoolAttribute>().value();
  axes.assign(rank, given.empty() && !noop);
  for (const int64_t axis : given) {
    const auto at = axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
    axes.at(static_cast<size_t>(at)) = true;
  }
  return true;
}

std::string RowProgram::ReductionRefusal(const Operation* op) {
  std::vector<bool> axes;
  if (!ReducedAxes(op, axes)) return "axes are not known";
  const auto type = TensorOf(op->operand(0));
  if (reductions_.empty()) {
    dims_.assign(type.dims().begin(), type.dims().end());
    reduced_ = axes;
  } else if (axes != reduced_ || !std::ranges::equal(type.dims(), dims_, ProvablyEqual)) {
    return "reductions have different rows";
  }
  reductions_.push_back(op);
  return "";
}

std::string RowProgram::FindRows() {
  for (const Operation& op : block()) {
    if (!IsPrimitive(&op)) continue;
    if (std::string why = ReductionRefusal(&op); !why.empty()) return why;
  }
  return reductions_.empty() ? "nothing is reduced" : "";
}

// ---- axes ----

// A result has the axes that its operands have; true if these say it.
bool RowProgram::AxesFromOperands(const Operation& op) {
  bool all = false, kept = false;
  for (size_t i = 0; i < op.num_operands(); ++i) {
    const auto known = op.operand(i) ? infos_.find(op.operand(i)) : infos_.end();
    if (known == infos_.end()) continue;
    (known->second.axes == RowAxes::kKept ? kept : all) = true;
  }
  if (all || kept) infos_[op.result(0)].axes = kept ? RowAxes::kKept : RowAxes::kAll;
  return !(all && kept);
}

// What computes no reduction has the axes that its users want.
std::string RowProgram::AxesFromUses(Value v) {
  bool all = false, kept = false;
  for (const OpOperand use : v.uses()) {
    const Operation* user = use.owner();
    if (user->HasTrait<Terminator>() || IsReshape(*user) || NeedsWhole(user, use.index())) continue;
    const bool as_all = IsPrimitive(user) || infos_.at(user->result(0)).axes == RowAxes::kAll;
    (as_all ? all : kept) = true;
  }
  if (all && kept && TensorOf(v).rank() > 0) return "a value is read by rows and per row";
  if (!all && !kept) kept = !std::ranges::equal(TensorOf(v).dims(), dims_, ProvablyEqual);
  infos_[v].axes = kept ? RowAxes::kKept : RowAxes::kAll;
  return "";
}

std::string RowProgram::FindAxes() {
  std::vector<const Operation*> backwards;
  for (const Operation& op : block()) {
    if (op.HasTrait<Terminator>() || op.num_operands() == 0 || IsReshape(op)) continue;
    if (IsPrimitive(&op)) {
      const bool keeps = op.attribute("keepdims").cast<BoolAttribute>().value();
      infos_[op.result(0)].axes = keeps ? RowAxes::kAll : RowAxes::kKept;
    } else if (!AxesFromOperands(op)) {
      return "a value of all axes and one of those left come together";
    }
    backwards.insert(backwards.begin(), &op);
  }
  for (const Operation* op : backwards) {
    if (infos_.contains(op->result(0))) continue;
    if (std::string why = AxesFromUses(op->result(0)); !why.empty()) return why;
  }
  return "";
}

std::vector<size_t> RowProgram::AxisNumbers(RowAxes axes) const {
  std::vector<size_t> numbers;
  for (size_t a = 0; a < dims_.size(); ++a) {
    if (axes == RowAxes::kAll || !reduced_[a]) numbers.push_back(a);
  }
  return numbers;
}

std::vector<size_t> RowProgram::AxesOf(Value v) const {
  const std::vector<size_t> numbers = AxisNumbers(infos_.at(v).axes);
  const auto type = TensorOf(v);
  std::vector<size_t> axes;
  for (size_t a = 0; a < type.rank(); ++a) {
    const size_t number = numbers[numbers.size() - type.rank() + a];
    axes.push_back(type.dims()[a].IsConstant(1) ? kNoAxis : number);
  }
  return axes;
}

// ---- what is known of each value ----

std::string RowProgram::Describe() {
  for (const Operation& op : block()) {
    if (op.HasTrait<Terminator>() || op.num_operands() == 0 || IsReshape(op)) continue;
    for (size_t i = 0; i < op.num_operands(); ++i) {
      const Value v = op.operand(i);
      const bool reads = v && (i == 0 || !IsPrimitive(&op));
      if (!reads || infos_.contains(v) || !IsArgument(v)) continue;
      if (std::string why = DescribeLeaf(v); !why.empty()) return why;
    }
    if (std::string why = OpRefusal(op); !why.empty()) return why;
  }
  const Operation* end = block().terminator();
  if (end == nullptr || end->num_operands() == 0) return "it has no result";
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const auto known = infos_.find(end->operand(i));
    if (known == infos_.end() || known->second.is_leaf) return "a result is not computed";
    if (!IsWhole(end->operand(i))) return "a result is broadcast further";
  }
  return "";
}

// Has all axes, or all that are left.
bool RowProgram::IsWhole(Value v) const {
  const std::vector<size_t> axes = AxesOf(v);
  for (size_t a = 0; a < dims_.size(); ++a) {
    if (dims_[a].IsConstant(1) || (reduced_[a] && info(v).per_row)) continue;
    if (std::ranges::find(axes, a) == axes.end()) return false;
  }
  return true;
}

std::string RowProgram::DescribeLeaf(Value v) {
  if (std::string why = AxesFromUses(v); !why.empty()) return why;
  if (std::string why = ShapeRefusal(v); !why.empty()) return why;
  const auto symbolic =
      std::ranges::count_if(TensorOf(v).dims(), [](const Dim& d) { return !d.is_constant(); });
  if (!v.is_block_argument() && symbolic > 1) return "an argument is reshaped to unknown extents";
  Info& info = infos_[v];
  info.is_leaf = true;
  for (const size_t axis : AxesOf(v)) {
    if (axis != kNoAxis && reduced_[axis]) info.per_row = false;
  }
  info.cost = info.per_row ? 0 : 1;
  leaves_.push_back(v);
  return "";
}

std::string RowProgram::OpRefusal(const Operation& op) {
  const bool reduces = IsPrimitive(&op);
  if (!reduces) {
    const OpKind kind = KindOf(&op);
    if (kind > OpKind::kBroadcast) return StrCat(op.name(), " is not elementwise");
    if (op.num_results() != 1) return StrCat(op.name(), " has several results");
    if (!machine_.has_instruction(op)) return StrCat(op.name(), " has no instructions");
  }
  if (std::string why = ShapeRefusal(op.result(0)); !why.empty()) return why;
  Info& info = infos_.at(op.result(0));
  for (size_t i = 0; i < (reduces ? 1 : op.num_operands()); ++i) {
    const Value v = op.operand(i);
    if (!v || (v.defining_op() != nullptr && IsScalarConstant(*v.defining_op()))) continue;
    const auto known = infos_.find(v);
    if (known == infos_.end()) return "an operand is rearranged or a constant tensor";
    info.level = std::max(info.level, known->second.level + (reduces ? 1 : 0));
    info.per_row = info.per_row && (reduces || known->second.per_row);
    info.cost = std::min(kMaxCost, info.cost + known->second.cost);
  }
  info.cost = info.per_row ? 0 : info.cost + InstructionsOf(op);
  return "";
}

// Every axis must be known to be whole or of extent 1.
std::string RowProgram::ShapeRefusal(Value v) const {
  const auto type = TensorOf(v);
  const std::vector<size_t> numbers = AxisNumbers(infos_.at(v).axes);
  if (type.rank() > numbers.size()) return "a value has more axes than the rows";
  for (size_t a = 0; a < type.rank(); ++a) {
    const Dim& dim = type.dims()[a];
    const Dim& whole = dims_[numbers[numbers.size() - type.rank() + a]];
    if (dim.IsConstant(1) || ProvablyEqual(dim, whole)) continue;
    return StrCat("whether extent ", dim.ToString(), " is broadcast is not known");
  }
  return "";
}

const Operation* RowProgram::Computed(Value v) const {
  const Operation* op = v.defining_op();
  return op == nullptr || IsPrimitive(op) || IsReshape(*op) ? nullptr : op;
}

int64_t RowProgram::widest() const {
  int64_t bits = 8;
  for (const Operation& op : block()) {
    if (IsReshape(op) || op.num_operands() == 0) continue;
    for (size_t i = 0; i < (IsPrimitive(&op) ? 1 : op.num_operands()); ++i) {
      if (op.operand(i))
        bits = std::max<int64_t>(bits, BitWidth(TensorOf(op.operand(i)).element()));
    }
  }
  return bits / 8;
}

}  // namespace lathe::lower
