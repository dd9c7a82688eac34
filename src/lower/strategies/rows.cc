#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "src/lower/pointwise.h"
#include "src/lower/row_plan.h"
#include "src/lower/strategies/list.h"

// Reductions with the elementwise operations before, between and after them: softmax, the
// normalizations, sums of any axes. Row by row, in as many passes as reductions wait for one
// another; what a later pass needs again is computed again, or if that is expensive, kept in the
// row of the result. A row's elements are neighbors, and partial sums are vectors, or where the
// last axis stays or is short, vectors are as many rows.
namespace lathe::lower {
namespace {

Value Number(LoopBuilder& lb, ElementType element, int64_t lanes, int64_t value) {
  const std::vector<int64_t> values(static_cast<size_t>(std::max<int64_t>(lanes, 1)), value);
  const Shape shape = lanes > 0 ? Shape{lanes} : Shape{};
  return lb.Constant(Cast(Tensor::Of<int64_t>(shape, values), element));
}

// What changes nothing when it is combined with others.
Value Neutral(LoopBuilder& lb, const Combination& c, ElementType element, int64_t lanes) {
  if (IsFloat(element) || std::abs(c.neutral) <= 1) return lb.Splat(element, c.neutral, lanes);
  const int bits = BitWidth(element);
  const auto all = static_cast<int64_t>(~uint64_t{0} >> (64 - bits));
  const bool least = c.neutral < 0;
  if (!IsSigned(element)) return Number(lb, element, lanes, least ? 0 : all);
  const int64_t greatest = bits == 64 ? std::numeric_limits<int64_t>::max() : all >> 1;
  return Number(lb, element, lanes, least ? -greatest - 1 : greatest);
}

class Rows : public RowPlan {
 public:
  Rows(const Block& function, const Machine& machine) : RowPlan(function, machine) {}

  /// Along rows, another number than the usual one sums in another order.
  void ChooseVectors(Knobs& knobs) {
    vectors_ =
        is_short() ? knobs.Choose("vectors", {1, 2, 4}) : knobs.Choose("vectors", {4, 1, 2, 8});
  }

  void Write(Block* body);

 private:
  // A tensor in memory, and the loop of each of its axes.
  struct View {
    Value memory;
    std::vector<size_t> groups;  // kNoGroup: index 0
    int64_t apart = 0;  // neighbors of a vector; the last two groups are one axis. 0: they are not
  };
  using Registers = std::unordered_map<Value, Value>;  // looked up, never iterated
  // A vector of rows or, where vectors lie along rows, the one that is computed.
  struct Column {
    Value first;  // index of the last group
    Value live;
    Registers registers;  // what is computed per row
  };
  using Values = std::vector<Value>;

  void Open(const Block& body);
  View MakeView(Value memory, Value v);
  View WithShortRows(View view);
  Values IndicesOf(const View& view);
  // How often the loop of a group runs, over its size d0.
  struct Walked {
    size_t group;
    Dim count;
  };
  void ForEach(const std::vector<Walked>& walks, const std::function<void()>& body);
  void WriteNest();
  void WriteAcross(const Dim& count, int64_t vectors, bool rest);
  void WriteRow();
  void ComputePerRow(int pass);
  void StorePerRow();
  Values Walk(size_t group, Values carried, int pass);
  Values WalkVectors(Values carried, int pass);
  Values Step(Column& column, size_t slot, Values sums, Value live, int pass);
  void Evaluate(std::span<const Value> targets, Registers& local, const Column& column, Value live,
                int pass);
  Value Get(Value v, Registers& local, const Column& column, Value live, int pass);
  Value Combined(const Operation* reduction, Value part, Value sum, Value live);
  Value MulAdded(const Operation* reduction, Value sum, Value live, const Registers& local);
  Value Finished(const Operation* reduction, Values sums);
  Value Count(ElementType element);
  Value Load(const View& view, int64_t lanes, Value live);
  void Store(const View& view, Value value, int64_t lanes, Value live);
  Values Repeat(const Dim& count, Values carried, const LoopBuilder::CarryingBody& body);
  Value AtSize(const Dim& expr, Value d1);
  int64_t SlotsPerRow() const;
  size_t Slots() const { return along() ? static_cast<size_t>(SlotsPerRow()) : columns_.size(); }
  int64_t vectors_ = 4;  // that are summed side by side

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::unordered_map<Value, View> views_;
  std::vector<Value> memory_;
  std::vector<View> results_;
  std::vector<Value> at_;     // index per group
  std::vector<Value> sizes_;  // of groups of symbolic extent
  std::vector<Column> columns_;
};

// ---- memory ----

void Rows::Open(const Block& body) {
  for (const Value leaf : program_.leaves()) {
    Value root = leaf;
    while (!root.is_block_argument()) root = root.defining_op()->operand(0);
    views_[leaf] = MakeView(body.argument(root.index()), leaf);
  }
  const Operation* end = program_.block().terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    memory_.push_back(lb_->Alloc(TensorOf(end->operand(i))));
    results_.push_back(MakeView(memory_.back(), end->operand(i)));
  }
}

// `memory` as the loops walk it: axes that one loop walks are one, those of extent 1 are left out.
Rows::View Rows::MakeView(Value memory, Value v) {
  View view{memory, {}};
  const std::vector<size_t> axes = program_.AxesOf(v);
  const auto group_of = [&](size_t axis) {
    return axis == RowProgram::kNoAxis ? kNoGroup : group_of_[axis];
  };
  if (!IsReshaped(v)) {
    for (const size_t axis : axes) view.groups.push_back(group_of(axis));
    return view;
  }
  std::vector<int64_t> shape, counts;  // counts: of axes
  int64_t left_out = 0;                // in front
  for (const size_t axis : axes) {
    const size_t group = group_of(axis);
    if (group == kNoGroup || (!view.groups.empty() && view.groups.back() == group)) {
      ++(counts.empty() ? left_out : counts.back());
      continue;
    }
    const Dim& extent = groups_[group].extent;
    view.groups.push_back(group);
    shape.push_back(extent.is_constant() ? extent.value() : -1);
    counts.push_back(1 + std::exchange(left_out, 0));
  }
  if (shape.empty()) shape.push_back(1), view.groups.push_back(kNoGroup);
  nn::ViewReshapeOp::Attrs attrs{.shape = shape};
  // One symbol follows from the number of elements, unless that is zero whatever it is.
  const auto symbols = std::ranges::count(shape, -1);
  if (symbols > 1 || (symbols == 1 && std::ranges::count(shape, 0) > 0)) attrs.groups = counts;
  view.memory = nn::ViewReshapeOp::Create(lb_->b(), memory, attrs).y();
  return is_short() ? WithShortRows(std::move(view)) : view;
}

// Where it has rows, one axis of all their elements.
Rows::View Rows::WithShortRows(View view) {
  const size_t count = view.groups.size();
  if (count < 2 || view.groups.back() != last() || view.groups[count - 2] != lanes_group()) {
    return view;
  }
  std::vector<int64_t> merged(count - 2, 1);
  merged.push_back(2);
  view.memory = lb_->Grouped(view.memory, merged);
  view.apart = groups_.back().extent.value();
  return view;
}

Rows::Values Rows::IndicesOf(const View& view) {
  Values indices;
  for (const size_t g : view.groups) indices.push_back(g == kNoGroup ? lb_->Int(0) : at_[g]);
  if (view.apart > 0) {
    const Value pair[] = {indices[indices.size() - 2], indices.back()};
    indices.pop_back();
    indices.back() = lb_->Index(LoopBuilder::D0() * view.apart + LoopBuilder::D1(), pair);
  }
  return indices;
}

Value Rows::Load(const View& view, int64_t lanes, Value live) {
  const Values indices = IndicesOf(view);
  if (lanes > 0 && view.apart > 0) {
    return lb_->LoadApart(view.memory, indices, lanes, -1, view.apart, live);
  }
  const bool vector = lanes > 0 && !view.groups.empty() && view.groups.back() == lanes_group();
  return vector ? lb_->Load(view.memory, indices, lanes, live) : lb_->Load(view.memory, indices);
}

void Rows::Store(const View& view, Value value, int64_t lanes, Value live) {
  if (lanes > 0) value = lb_->Widen(value, lanes);
  const Values indices = IndicesOf(view);
  if (lanes > 0 && view.apart > 0) {
    return lb_->StoreApart(view.memory, value, indices, -1, view.apart, live);
  }
  lb_->Store(view.memory, value, indices, live);
}

// ---- loops ----

// `expr` over the size of the last group and d1.
Value Rows::AtSize(const Dim& expr, Value d1) {
  const Value both[] = {sizes_[lanes_group()] ? sizes_[lanes_group()] : lb_->Int(0), d1};
  return lb_->Index(expr, both);
}

// `count` is over the size of the last group.
Rows::Values Rows::Repeat(const Dim& count, Values carried, const LoopBuilder::CarryingBody& body) {
  if (count.IsConstant(0)) return carried;
  if (count.IsConstant(1)) return body(lb_->Int(0), carried);
  if (count.is_constant()) return lb_->For(count, carried, body);
  return lb_->For(lb_->Index(count, sizes_[lanes_group()]), carried, body);
}

// One loop over all combinations, which threads share.
void Rows::ForEach(const std::vector<Walked>& walks, const std::function<void()>& body) {
  std::vector<Value> symbols{Value()};
  std::vector<Dim> counts;
  Dim total = 1;
  for (const Walked& walk : walks) {
    counts.push_back(walk.count);
    if (!walk.count.is_constant()) {
      counts.back() = Dim::Symbol(StrCat("d", symbols.size()));
      symbols.push_back(lb_->Index(walk.count, sizes_[walk.group]));
    }
    total *= counts.back();
  }
  const auto combination = [&](Value number) {
    symbols[0] = number;
    Dim rest = LoopBuilder::D0();
    for (size_t i = walks.size(); i-- > 0;) {
      at_[walks[i].group] = lb_->Index(i == 0 ? rest : Mod(rest, counts[i]), symbols);
      rest = FloorDiv(rest, counts[i]);
    }
    body();
  };
  if (total.is_constant()) return lb_->For(total, parallel_, combination);
  symbols[0] = lb_->Int(0);
  lb_->For(lb_->Index(total, symbols), parallel_, combination);
}

void Rows::Write(Block* body) {
  lb_.emplace(body);
  sizes_.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].extent.is_constant()) sizes_[g] = lb_->Extent(groups_[g].extent);
  }
  Open(*body);
  at_.assign(groups_.size(), Value());
  WriteNest();
  lb_->Return(memory_);
}

void Rows::WriteNest() {
  if (!along()) {
    const Dim size = SizeOf(lanes_group());
    const int64_t width = vectors_ * lanes_;
    WriteAcross(FloorDiv(size, width), vectors_, false);
    WriteAcross(CeilDiv(Mod(size, width), lanes_), 1, true);
    return;
  }
  std::vector<Walked> walks;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].reduced) walks.push_back({g, SizeOf(g)});
  }
  ForEach(walks, [&] {
    columns_.assign(1, {});
    WriteRow();
  });
}

// `vectors` vectors of rows at a time; `rest`: those that are left, one at a time.
void Rows::WriteAcross(const Dim& count, int64_t vectors, bool rest) {
  if (count.IsConstant(0)) return;
  std::vector<Walked> walks;
  for (size_t g = 0; g < lanes_group(); ++g) {
    if (!groups_[g].reduced) walks.push_back({g, SizeOf(g)});
  }
  walks.push_back({lanes_group(), count});
  ForEach(walks, [&] {
    const Value chunk = at_[lanes_group()];
    const Dim size = SizeOf(lanes_group());
    columns_.clear();
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t width = vectors_ * lanes_;
      const Dim before = rest ? FloorDiv(size, width) * width : Dim(v * lanes_);
      const Dim first = before + LoopBuilder::D1() * (vectors * lanes_);
      Column& column = columns_.emplace_back();
      column.first = AtSize(first, chunk);
      if (rest) column.live = AtSize(Min(size - first, lanes_), chunk);
    }
    WriteRow();
  });
}

// ---- rows ----

void Rows::WriteRow() {
  for (int pass = 0; pass < passes_; ++pass) {
    ComputePerRow(pass);
    const std::vector<const Operation*> reductions = ReductionsIn(pass);
    if (ComputedIn(pass).empty()) continue;
    const size_t slots = Slots();
    Values sums;
    for (const Operation* op : reductions) {
      const ElementType element = TensorOf(op->operand(0)).element();
      const Combination c = CombinationOf(op, element);
      sums.insert(sums.end(), slots, Neutral(*lb_, c, element, lanes_));
    }
    sums = Walk(0, sums, pass);
    for (size_t r = 0; r < reductions.size(); ++r) {
      const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(r * slots);
      for (size_t c = 0; c < columns_.size(); ++c) {
        const auto at = begin + static_cast<std::ptrdiff_t>(c);
        columns_[c].registers[reductions[r]->result(0)] = Finished(
            reductions[r],
            along() ? Values(begin, begin + static_cast<std::ptrdiff_t>(slots)) : Values{*at});
      }
    }
  }
  ComputePerRow(passes_);
  StorePerRow();
}

// What all elements of a row share and no later reduction is needed for.
void Rows::ComputePerRow(int pass) {
  for (Column& column : columns_) {
    if (!along()) at_[lanes_group()] = column.first;
    for (const Value leaf : program_.leaves()) {
      if (pass > 0 || !program_.info(leaf).per_row) continue;
      column.registers[leaf] = Load(views_.at(leaf), along() ? 0 : lanes_, column.live);
    }
    for (const Operation& op : program_.block()) {
      if (op.num_results() != 1 || op.num_operands() == 0) continue;
      const Value v = op.result(0);
      if (program_.Computed(v) == nullptr || column.registers.contains(v)) continue;
      if (!program_.info(v).per_row || program_.info(v).level > pass) continue;
      Values operands;
      for (size_t i = 0; i < op.num_operands(); ++i) {
        operands.push_back(op.operand(i)
                               ? Get(op.operand(i), column.registers, column, column.live, pass)
                               : Value());
      }
      column.registers[v] = lb_->Elementwise(&op, operands);
    }
  }
}

void Rows::StorePerRow() {
  const Operation* end = program_.block().terminator();
  for (const Column& column : columns_) {
    if (!along()) at_[lanes_group()] = column.first;
    for (size_t i = 0; i < end->num_operands(); ++i) {
      const Value v = end->operand(i);
      if (!program_.info(v).per_row) continue;
      Store(results_[i], column.registers.at(v), along() ? 0 : lanes_, column.live);
    }
  }
}

// As deep as there are groups of reduced axes.
Rows::Values Rows::Walk(size_t group, Values carried, int pass) {
  while (group < groups_.size() && !groups_[group].reduced) ++group;
  if (along() && group == last()) return WalkVectors(std::move(carried), pass);
  if (group < groups_.size()) {
    const auto body = [&](Value i, std::span<const Value> sums) {
      at_[group] = i;
      return Walk(group + 1, Values(sums.begin(), sums.end()), pass);
    };
    const Dim& extent = groups_[group].extent;
    if (is_short() && group == last()) {
      for (int64_t i = 0; i < extent.value(); ++i) carried = body(lb_->Int(i), carried);
      return carried;
    }
    if (extent.is_constant()) return lb_->For(extent, carried, body);
    return lb_->For(sizes_[group], carried, body);
  }
  for (size_t c = 0; c < columns_.size(); ++c) {
    at_[lanes_group()] = columns_[c].first;
    carried = Step(columns_[c], c, std::move(carried), columns_[c].live, pass);
  }
  return carried;
}

int64_t Rows::SlotsPerRow() const {
  const Dim& size = groups_.back().extent;
  if (!size.is_constant()) return vectors_;
  return std::clamp<int64_t>(size.value() / lanes_, 1, vectors_);
}

Rows::Values Rows::WalkVectors(Values carried, int pass) {
  const Dim size = SizeOf(lanes_group()), d1 = LoopBuilder::D1();
  const int64_t slots = SlotsPerRow(), width = slots * lanes_;
  const auto vectors = [&](const Dim& first, int64_t count, const Dim& live) {
    return [=, this](Value i, std::span<const Value> sums) {
      Values next(sums.begin(), sums.end());
      for (int64_t v = 0; v < count; ++v) {
        at_[lanes_group()] = AtSize(first + v * lanes_, i);
        const Value lanes = live.IsConstant(0) ? Value() : AtSize(live, i);
        next = Step(columns_[0], static_cast<size_t>(v), std::move(next), lanes, pass);
      }
      return next;
    };
  };
  const Dim rest = Mod(size, width), tail = Mod(size, lanes_);
  carried = Repeat(FloorDiv(size, width), std::move(carried), vectors(d1 * width, slots, 0));
  carried = Repeat(FloorDiv(rest, lanes_), std::move(carried),
                   vectors(FloorDiv(size, width) * width + d1 * lanes_, 1, 0));
  return Repeat(Min(tail, 1), std::move(carried),
                vectors(FloorDiv(size, lanes_) * lanes_, 1, tail));
}

// ---- elements ----

// One vector of elements; a row's sums are those of its `slot`.
Rows::Values Rows::Step(Column& column, size_t slot, Values sums, Value live, int pass) {
  Registers local;
  Evaluate(ComputedIn(pass), local, column, live, pass);
  const Operation* end = program_.block().terminator();
  for (const Operation& op : program_.block()) {
    if (op.num_results() != 1 || !kept_in_.contains(op.result(0))) continue;
    const Value v = op.result(0);
    if (program_.info(v).level != pass) continue;
    Store(results_[kept_in_.at(v)], Get(v, local, column, live, pass), lanes_, live);
  }
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const auto& info = program_.info(end->operand(i));
    if (info.per_row || info.level != pass) continue;
    Store(results_[i], Get(end->operand(i), local, column, live, pass), lanes_, live);
  }
  const std::vector<const Operation*> reductions = ReductionsIn(pass);
  for (size_t r = 0; r < reductions.size(); ++r) {
    Value& sum = sums[r * Slots() + slot];
    if (const Value added = MulAdded(reductions[r], sum, live, local)) {
      sum = added;
      continue;
    }
    const Value part = Get(reductions[r]->operand(0), local, column, live, pass);
    sum = Combined(reductions[r], part, sum, along() ? live : Value());
  }
  return sums;
}

void Rows::Evaluate(std::span<const Value> targets, Registers& local, const Column& column,
                    Value live, int pass) {
  const std::vector<bool> needed = Needed(targets, pass);
  size_t i = 0;
  for (const Operation& op : program_.block()) {
    if (!needed[i++]) continue;
    Values operands;
    for (size_t k = 0; k < op.num_operands(); ++k) {
      operands.push_back(op.operand(k) ? Get(op.operand(k), local, column, live, pass) : Value());
    }
    local[op.result(0)] = lb_->Elementwise(&op, operands);
  }
}

Value Rows::Get(Value v, Registers& local, const Column& column, Value live, int pass) {
  if (const auto found = local.find(v); found != local.end()) return found->second;
  const auto per_row = column.registers.find(v);
  if (per_row != column.registers.end()) return per_row->second;
  const Operation* op = v.defining_op();
  Value value;
  if (op != nullptr && IsScalarConstant(*op)) {
    value = lb_->Constant(op->attribute("value").cast<TensorAttribute>().value().Reshaped({}));
  } else if (kept_in_.contains(v) && program_.info(v).level < pass) {
    value = Load(results_[kept_in_.at(v)], lanes_, live);
  } else {
    value = Load(views_.at(v), lanes_, live);
  }
  local[v] = value;
  return value;
}

// A sum of products in one instruction, where it is one.
Value Rows::MulAdded(const Operation* reduction, Value sum, Value live, const Registers& local) {
  const bool adds = reduction->isa<nn::ReduceSumOp>() || reduction->isa<nn::ReduceMeanOp>();
  const Operation* product = program_.Computed(reduction->operand(0));
  if (!adds || !machine_.has_fma || live || product == nullptr) return {};
  if (product->name() != nn::MulOp::kName || !IsFloat(TensorOf(product->result(0)).element())) {
    return {};
  }
  const auto made = local.find(product->result(0));
  if (made == local.end() || made->second.defining_op()->name() != nn::MulOp::kName) return {};
  const Operation* mul = made->second.defining_op();
  return loop::FmaOp::Create(lb_->b(), mul->operand(0), mul->operand(1), sum).y();
}

Value Rows::Combined(const Operation* reduction, Value part, Value sum, Value live) {
  const ElementType element = TensorOf(reduction->operand(0)).element();
  const Combination c = CombinationOf(reduction, element);
  part = lb_->Widen(part, lanes_);
  if (live) {
    std::vector<int32_t> numbers;
    for (int32_t i = 0; i < lanes_; ++i) numbers.push_back(i);
    const Value lane = lb_->Constant(Tensor::Of<int32_t>({lanes_}, numbers));
    const Value count = nn::CastOp::Create(lb_->b(), live, {.to = ElementType::kI32}).output();
    const Value is_live = nn::LessOp::Create(lb_->b(), lane, count).c();
    part = nn::WhereOp::Create(lb_->b(), is_live, part, Neutral(*lb_, c, element, lanes_)).output();
  }
  const Value operands[] = {sum, part};
  const Type type = sum.type();
  return lb_->b().Create(lb_->context().GetOrMakeOp(c.op), operands, {}, {&type, 1})->result(0);
}

// A row's result from its partial ones.
Value Rows::Finished(const Operation* reduction, Values sums) {
  const ElementType element = TensorOf(reduction->operand(0)).element();
  const Combination c = CombinationOf(reduction, element);
  while (sums.size() > 1) {
    const size_t half = (sums.size() + 1) / 2;
    for (size_t i = 0; half + i < sums.size(); ++i) {
      sums[i] = Combined(reduction, sums[half + i], sums[i], {});
    }
    sums.resize(half);
  }
  Value result = sums[0];
  if (along()) result = loop::ReduceOp::Create(lb_->b(), result, {.kind = std::string(c.kind)}).y();
  if (!reduction->isa<nn::ReduceMeanOp>()) return result;
  return nn::DivOp::Create(lb_->b(), result, Count(element)).c();
}

// Elements in a row.
Value Rows::Count(ElementType element) {
  Dim count = 1;
  std::vector<Value> symbols;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].reduced) continue;
    if (groups_[g].extent.is_constant()) {
      count *= groups_[g].extent;
    } else {
      count *= Dim::Symbol(StrCat("d", symbols.size()));
      symbols.push_back(sizes_[g]);
    }
  }
  if (count.is_constant()) return Number(*lb_, element, 0, count.value());
  return nn::CastOp::Create(lb_->b(), lb_->Index(count, symbols), {.to = element}).output();
}

}  // namespace

bool LowerRows(Lowering& l) {
  Rows lowering(l.function, l.machine);
  l.why = lowering.Refusal();
  if (!l.why.empty()) return false;
  lowering.ChooseVectors(l.knobs);
  lowering.Write(l.body);
  return true;
}

}  // namespace lathe::lower
