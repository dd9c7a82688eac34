#include "src/lower/pointwise.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "src/lower/op_cost.h"

namespace lathe::lower {
namespace {}  // namespace

bool IsScalarConstant(const Operation& op) {
  return op.name() == builtin::ConstantOp::kName &&
         op.attribute("value").cast<TensorAttribute>().value().num_elements() == 1;
}

Pointwise::Pointwise(const Block& function, const Operation* anchor, const Machine& machine)
    : function_(function), anchor_(anchor), machine_(machine) {
  const Operation* end = function.terminator();
  for (size_t i = 0; end != nullptr && i < end->num_operands(); ++i) {
    targets_.push_back(end->operand(i));
  }
  layouts_.resize(targets_.size());
  if (anchor != nullptr) PeelLayouts();
  FindOperations();
}

Pointwise::Pointwise(const Block& function, Value target, const Machine& machine)
    : function_(function),
      anchor_(nullptr),
      machine_(machine),
      targets_{target},
      layouts_(1),
      is_before_(true) {
  FindOperations();
}

// A result that is moved is the value before, and how it is moved.
void Pointwise::PeelLayouts() {
  for (size_t i = 0; i < targets_.size(); ++i) {
    Value& v = targets_[i];
    while (v.defining_op() != nullptr && IsLayout(*v.defining_op())) {
      layouts_[i].insert(layouts_[i].begin(), v.defining_op());
      v = v.defining_op()->operand(0);
    }
  }
}

void Pointwise::FindOperations() {
  std::unordered_map<Value, bool> wanted;  // looked up, never iterated
  for (const Value v : targets_) wanted.emplace(v, true);
  for (const Operation* op = function_.back(); op != nullptr; op = op->prev()) {
    if (op->HasTrait<Terminator>() || op == anchor_) continue;
    bool needed = false;
    for (size_t i = 0; i < op->num_results(); ++i) needed |= wanted.contains(op->result(i));
    if (!needed) continue;
    ops_.push_back(op);
    for (size_t i = 0; i < op->num_operands(); ++i) {
      if (op->isa<nn::LookupOp>() && i == nn::LookupOp::kTable) continue;
      if (op->operand(i)) wanted.emplace(op->operand(i), true);
    }
  }
  std::ranges::reverse(ops_);
  for (size_t i = 0; i < function_.num_arguments(); ++i) {
    if (wanted.contains(function_.argument(i))) arguments_.push_back(function_.argument(i));
  }
}

int Pointwise::cost() const {
  int cost = 0;
  for (const Operation* op : ops_) cost += IsScalarConstant(*op) ? 0 : InstructionsOf(*op);
  return cost;
}

std::string Pointwise::Refusal() {
  if (targets_.empty()) return "it has no result";
  const auto first = targets_[0].type().dyn_cast<AnyTensorType>();
  if (!first || !first.has_rank()) return "a result is not a tensor of known rank";
  dims_.assign(first.dims().begin(), first.dims().end());
  for (const Value v : targets_) {
    if (v.defining_op() == nullptr) return "a result is an argument";
    if (!std::ranges::equal(TensorOf(v).dims(), dims_)) return "results differ in shape";
  }
  for (const Operation* op : ops_) {
    if (std::string why = OpRefusal(*op); !why.empty()) return why;
  }
  for (const Value v : arguments_) {
    if (std::string why = ShapeRefusal(v); !why.empty()) return why;
  }
  const bool is_moved = std::ranges::any_of(layouts_, [](const auto& l) { return !l.empty(); });
  return is_moved && !TensorOf(targets_[0]).is_static() ? "what is moved is of symbolic shape" : "";
}

std::string Pointwise::OpRefusal(const Operation& op) const {
  if (IsScalarConstant(op)) return "";
  if (op.isa<nn::LookupOp>()) {
    const bool has_table = op.operand(nn::LookupOp::kTable).is_block_argument();
    return has_table ? ShapeRefusal(op.result(0)) : "a table is computed";
  }
  const OpKind kind = KindOf(&op);
  if (kind != OpKind::kElementwise && kind != OpKind::kBroadcast) {
    return StrCat(op.name(), " is not elementwise");
  }
  if (op.num_results() != 1 || op.num_operands() == 0) return StrCat(op.name(), " is of no use");
  if (!machine_.has_instruction(op)) return StrCat(op.name(), " has no instructions");
  return ShapeRefusal(op.result(0));
}

std::string Pointwise::ShapeRefusal(Value v) const {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return "an argument is not a tensor of known rank";
  if (type.rank() > dims_.size()) return "an argument has more axes than the result";
  // What is before an anchor op may be asked for where there is nothing.
  for (size_t a = 0; is_before_ && a < dims_.size(); ++a) {
    if (!IsOpen(type, a)) continue;
    const Dim& dim = type.dims()[a + type.rank() - dims_.size()];
    return StrCat("whether extent ", dim.ToString(), " is broadcast is not known");
  }
  return "";
}

// Whether only a run knows if a value is broadcast along an axis of the result.
bool Pointwise::IsOpen(AnyTensorType type, size_t axis) const {
  const size_t missing = dims_.size() - type.rank();
  if (axis < missing) return false;
  const Dim& dim = type.dims()[axis - missing];
  return !dim.is_constant() && !ProvablyEqual(dim, dims_[axis]);
}

std::vector<bool> Pointwise::WholeAxes(AnyTensorType type) const {
  std::vector<bool> whole(dims_.size(), false);
  const size_t missing = dims_.size() - type.rank();
  for (size_t a = missing; a < dims_.size(); ++a) {
    whole[a] = !type.dims()[a - missing].IsConstant(1) || dims_[a].IsConstant(1);
  }
  return whole;
}

bool Pointwise::AllStatic() const {
  return TensorOf(targets_[0]).is_static() &&
         std::ranges::all_of(arguments_, [](Value v) { return TensorOf(v).is_static(); });
}

// Neighboring axes that every argument has whole, or has not at all, are walked as one; so are
// axes of extent 1 with any other. An axis along which only a run knows whether an argument is
// broadcast stays apart.
void Pointwise::GroupAxes() {
  std::vector<std::vector<bool>> whole;
  for (const Value v : arguments_) whole.push_back(WholeAxes(TensorOf(v)));
  const auto is_open = [&](size_t a) {
    return std::ranges::any_of(arguments_, [&](Value v) { return IsOpen(TensorOf(v), a); });
  };
  reshaped_ = AllStatic();
  size_t last = 0;  // the last axis seen that is longer than 1
  for (size_t a = 0; a < dims_.size(); ++a) {
    const bool is_one = dims_[a].IsConstant(1);
    const bool joins = !groups_.empty() && !is_open(a) && !is_open(groups_.back()[0]) &&
                       (is_one || extents_.back().IsConstant(1) ||
                        std::ranges::all_of(whole, [&](const auto& w) { return w[a] == w[last]; }));
    if (joins) {
      reshaped_ = true;
      groups_.back().push_back(a);
      extents_.back() *= dims_[a];
    } else {
      groups_.push_back({a});
      extents_.push_back(dims_[a]);
    }
    if (!is_one) last = a;
  }
  if (extents_.empty()) {
    groups_.emplace_back();
    extents_.emplace_back(1);
  }
}

bool Pointwise::SetGroups(std::vector<std::vector<size_t>> groups) {
  groups_ = std::move(groups);
  reshaped_ = std::ranges::any_of(groups_, [](const auto& g) { return g.size() != 1; });
  for (const std::vector<size_t>& group : groups_) {
    Dim extent = 1;
    for (const size_t a : group) extent *= dims_[a];
    extents_.push_back(extent);
    for (const Value v : arguments_) {
      const std::vector<bool> whole = WholeAxes(TensorOf(v));
      std::optional<bool> of_group;
      for (const size_t a : group) {
        if (group.size() > 1 && IsOpen(TensorOf(v), a)) return false;
        if (dims_[a].IsConstant(1)) continue;
        if (of_group.value_or(whole[a]) != whole[a]) return false;
        of_group = whole[a];
      }
    }
  }
  return PlaceResults();
}

// Vectors are stored as they are: the last loop must be the last axis.
bool Pointwise::PlaceResults() {
  parts_.assign(targets_.size(), {});
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (layouts_[i].empty()) continue;
    std::vector<int64_t> extents;
    std::vector<size_t> loops;
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const size_t a : groups_[g]) {
        extents.push_back(dims_[a].value());
        loops.push_back(g);
      }
    }
    ElementLayout layout(extents, loops);
    for (const Operation* op : layouts_[i]) {
      if (!layout.Apply(*op)) return false;
    }
    parts_[i] = layout.Parts();
    const ElementLayout::Part last{groups_.size() - 1, extents_.back().value(), 1};
    if (parts_[i].empty() || parts_[i].back() != last) return false;
  }
  return true;
}

int64_t Pointwise::lanes() const {
  int64_t widest = 1;
  for (const Operation& op : function_) {
    for (size_t i = 0; i < op.num_operands(); ++i) {
      if (!op.operand(i)) continue;
      widest = std::max<int64_t>(widest, BitWidth(TensorOf(op.operand(i)).element()) / 8);
    }
  }
  return std::max<int64_t>(1, machine_.vector_bytes / widest);
}

Pointwise::View Pointwise::MakeView(LoopBuilder& lb, Value memory) const {
  const AnyTensorType type = TensorOf(memory);
  const std::vector<bool> whole = WholeAxes(type);
  View view{memory, {}, {}};
  std::vector<int64_t> shape;
  for (size_t g = 0; g < groups_.size(); ++g) {
    view.whole.push_back(std::ranges::any_of(
        groups_[g], [&](size_t a) { return whole[a] && !dims_[a].IsConstant(1); }));
    const size_t first = groups_[g].empty() ? 0 : groups_[g][0];
    const bool is_open = !groups_[g].empty() && IsOpen(type, first);
    view.open.push_back(is_open ? lb.Extent(type.dims()[first + type.rank() - dims_.size()])
                                : Value());
    if (!reshaped_) continue;
    const Dim& extent = extents_[g];
    const bool is_known = extent.is_constant() && !is_open;
    shape.push_back(!view.whole.back() ? 1 : is_known ? extent.value() : -1);
  }
  if (std::ranges::count(shape, -1) > 0) {
    view.memory = lb.Grouped(memory, AxesOfGroups(TensorOf(memory).rank()));
  } else if (reshaped_) {
    view.memory = nn::ViewReshapeOp::Create(lb.b(), memory, {.shape = shape}).y();
  }
  return view;
}

// How many axes of a value of that rank are in each group, those groups left out that begin before
// its first one and end there.
std::vector<int64_t> Pointwise::AxesOfGroups(size_t rank) const {
  const size_t missing = dims_.size() - rank;
  std::vector<int64_t> counts;
  for (const std::vector<size_t>& group : groups_) {
    const auto count = std::ranges::count_if(group, [&](size_t a) { return a >= missing; });
    if (count > 0 || !counts.empty()) counts.push_back(count);
  }
  return counts;
}

void Pointwise::OpenArguments(LoopBuilder& lb, const Block& body) {
  for (const Operation* op : ops_) {
    if (!op->isa<nn::LookupOp>()) continue;
    const Value table = op->operand(nn::LookupOp::kTable);
    tables_[table] = body.argument(table.index());
  }
  for (const Value v : arguments_) views_[v] = MakeView(lb, body.argument(v.index()));
}

void Pointwise::Open(LoopBuilder& lb, const Block& body) {
  OpenArguments(lb, body);
  const Operation* end = function_.terminator();
  for (size_t i = 0; i < targets_.size(); ++i) {
    memory_.push_back(lb.Alloc(TensorOf(end->operand(i))));
    if (IsPlain(i)) {
      results_.push_back(MakeView(lb, memory_.back()));
      continue;
    }
    std::vector<int64_t> shape;
    for (const ElementLayout::Part& part : parts_[i]) shape.push_back(part.extent);
    results_.push_back(
        {nn::ViewReshapeOp::Create(lb.b(), memory_.back(), {.shape = shape}).y(), {}, {}});
  }
}

// Where a result with a layout keeps the element of that index.
std::vector<Value> Pointwise::MovedTo(LoopBuilder& lb, size_t result,
                                      const std::vector<Value>& at) const {
  std::vector<Value> moved;
  for (const ElementLayout::Part& part : parts_[result]) {
    const Dim whole = FloorDiv(LoopBuilder::D0(), part.stride);
    const bool is_first = Dim(part.extent * part.stride) == extents_[part.loop];
    moved.push_back(lb.Index(is_first ? whole : Mod(whole, part.extent), at[part.loop]));
  }
  return moved;
}

Value Pointwise::Load(LoopBuilder& lb, const View& view, const std::vector<Value>& at,
                      int64_t lanes, Value live, int64_t stride) const {
  const size_t rank = TensorOf(view.memory).rank();
  std::vector<Value> indices;
  for (size_t a = at.size() - rank; a < at.size(); ++a) {
    indices.push_back(view.whole[a] ? at[a] : lb.Int(0));
    if (!view.open[a]) continue;
    const Value both[] = {at[a], view.open[a]};
    indices.back() = lb.Index(Min(LoopBuilder::D0(), LoopBuilder::D1() - 1), both);
  }
  if (rank == 0 || !view.whole.back() || lanes == 0) return lb.Load(view.memory, indices);
  if (view.open.back()) return LoadOpen(lb, view, indices, lanes, live, stride);
  if (stride != 1) return lb.LoadApart(view.memory, indices, lanes, -1, stride, live);
  return lb.Load(view.memory, indices, lanes, live);
}

// A vector or, where the operand is broadcast, its only element in all lanes. Both are loaded and
// one is selected, without a branch in the loop.
Value Pointwise::LoadOpen(LoopBuilder& lb, const View& view, std::span<const Value> indices,
                          int64_t lanes, Value live, int64_t stride) {
  const Dim most = Min(LoopBuilder::D1(), (LoopBuilder::D0() - 1) * lanes + 1);
  const Value both[] = {view.open.back(), live ? live : lb.Int(lanes)};
  const Value vector = lb.LoadApart(view.memory, indices, lanes, -1, stride, lb.Index(most, both));
  const Value one = lb.Widen(lb.Load(view.memory, indices), lanes);
  const Value is_whole = nn::GreaterOp::Create(lb.b(), view.open.back(), lb.Int(1)).c();
  return nn::WhereOp::Create(lb.b(), is_whole, vector, one).output();
}

// Each byte, of lanes that are not live, too, has an entry.
Value Pointwise::LookedUp(LoopBuilder& lb, Value table, Value bytes) {
  const Value index = nn::CastOp::Create(lb.b(), bytes, {.to = ElementType::kI64}).output();
  return TensorOf(bytes).rank() == 0 ? lb.Load(table, {&index, 1}) : lb.Gather(table, {&index, 1});
}

void Pointwise::Evaluate(LoopBuilder& lb, const std::vector<Value>& at, int64_t lanes, Value live,
                         int64_t stride, Registers& registers) const {
  const auto value_of = [&](Value v) {
    Value& value = registers[v];
    if (!value) value = Load(lb, views_.at(v), at, lanes, live, stride);
    return value;
  };
  for (const Operation* op : ops_) {
    if (IsScalarConstant(*op)) {
      const Tensor& value = op->attribute("value").cast<TensorAttribute>().value();
      registers[op->result(0)] = lb.Constant(value.Reshaped({}));
      continue;
    }
    if (op->isa<nn::LookupOp>()) {
      const Value table = tables_.at(op->operand(nn::LookupOp::kTable));
      registers[op->result(0)] = LookedUp(lb, table, value_of(op->operand(nn::LookupOp::kX)));
      continue;
    }
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      operands.push_back(op->operand(i) ? value_of(op->operand(i)) : Value());
    }
    registers[op->result(0)] = lb.Elementwise(op, operands);
  }
}

Value Pointwise::At(LoopBuilder& lb, const std::vector<Value>& at, int64_t lanes, Value live,
                    int64_t stride) const {
  Registers registers;
  Evaluate(lb, at, lanes, live, stride, registers);
  const Value value = registers.at(targets_[0]);
  return lanes == 0 ? value : lb.Widen(value, lanes);
}

void Pointwise::Store(LoopBuilder& lb, const std::vector<Value>& at, int64_t lanes, Value live,
                      Value anchor) const {
  Registers registers;
  if (anchor_ != nullptr) registers[anchor_->result(0)] = anchor;
  Evaluate(lb, at, lanes, live, 1, registers);
  for (size_t i = 0; i < targets_.size(); ++i) {
    const Value value = registers.at(targets_[i]);
    lb.Store(results_[i].memory, lanes == 0 ? value : lb.Widen(value, lanes),
             IsPlain(i) ? at : MovedTo(lb, i, at), live);
  }
}

void Pointwise::Close(LoopBuilder& lb) { lb.Return(memory_); }

}  // namespace lathe::lower
