#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/loop/vector.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/schedule.h"
#include "lathe/support/error.h"
#include "src/lower/schedule/leaves.h"
#include "src/lower/schedule/touched.h"

namespace lathe::schedule {
namespace {

constexpr int64_t kFewSteps = 4;    // elements this far apart are read by a few instructions
constexpr int64_t kMaxTurned = 16;  // vectors in a tile that is turned
constexpr const char* kNoMultiple = "an index is not a multiple of the counter";

bool IsLoop(const Operation* op) { return op != nullptr && op->name() == loop::ForOp::kName; }
bool IsIndex(const Operation* op) { return op != nullptr && op->name() == loop::IndexOp::kName; }
bool IsConstant(const Operation* op) { return op->name() == builtin::ConstantOp::kName; }

// Which values of a loop's body become vectors.
class Widening {
 public:
  /// With `across`, loads that read neighbors for that counter are no obstacle, but turned.
  explicit Widening(const Operation* loop, Value across = {})
      : loop_(loop), counter_(CounterOf(loop)), across_(across) {}

  std::string Refusal() {
    if (loop_ == nullptr) return "there is no loop";
    if (!IsLoop(loop_)) return StrCat(loop_->name(), " is not a loop");
    if (loop_->num_results() > 0) return "the loop carries values";
    for (OpWalker w(loop_->region(0).front()); Operation* op = w.Next();) {
      if (std::string why = Visit(op); !why.empty()) return why;
    }
    return "";
  }
  bool IsVector(Value v) const { return vectors_.count(v) != 0; }
  /// Of the index in the counter, if the index is not loaded by it.
  Dim Slope(Value index) {
    const Dim expr = leaves_.Of(index);
    for (const Value leaf : leaves_.In(expr)) {
      if (IsVector(leaf)) return {};
    }
    return leaves_.Slope(expr, counter_);
  }
  /// A number of the loop's body that is different in each lane.
  bool Counts(Value v) {
    if (!v || IsVector(v) || (v != counter_ && !IsIndex(v.defining_op()))) return false;
    return !Slope(v).IsConstant(0);
  }
  int widest() const { return widest_; }
  const std::vector<Operation*>& turned() const { return turned_; }
  int64_t Step(const Operation* load) { return StepOf(load, loop::LoadOp::kIndices); }

  /// The numbers that differ from lane to lane of which the place of an element is a sum, for a
  /// load that gathers: one from flat memory at loaded indices, or against the order of memory.
  std::optional<std::vector<Value>> Gathered(const Operation* load) {
    if (load->num_operands() != loop::LoadOp::kIndices + 1) return std::nullopt;
    const Dim expr = leaves_.Of(load->operand(loop::LoadOp::kIndices));
    const auto differs = [&](Value leaf) { return leaf == counter_ || IsVector(leaf); };
    std::vector<Value> parts;
    bool is_loaded = false, is_fixed = true;
    for (const Value leaf : leaves_.In(expr)) {
      if (!differs(leaf)) continue;
      const Dim slope = leaves_.Slope(expr, leaf);
      if (slope.is_unknown() || std::ranges::any_of(leaves_.In(slope), differs)) {
        return std::nullopt;
      }
      parts.push_back(leaf);
      is_loaded = is_loaded || IsVector(leaf);
      is_fixed = is_fixed && slope.is_constant();
    }
    return is_loaded || is_fixed ? std::optional(parts) : std::nullopt;
  }

 private:
  // Whether the load reads far apart along this loop, and neighbors along the other one.
  bool IsTurned(const Operation* load) {
    if (!across_ || load->block() != loop_->region(0).front()) return false;
    const size_t last = load->num_operands() - 1;
    const Dim far = Slope(load->operand(last));
    const bool is_far = !far.IsConstant(0) && !(far.is_constant() && far.value() <= kFewSteps);
    if (far.is_unknown() || !is_far) return false;
    for (size_t i = loop::LoadOp::kIndices; i <= last; ++i) {
      const Dim index = leaves_.Of(load->operand(i));
      if (!std::ranges::all_of(leaves_.In(index), [&](Value v) { return IsKnownBefore(v); })) {
        return false;
      }
      const Dim near = leaves_.Slope(index, across_);
      if (!near.IsConstant(i == last ? 1 : 0)) return false;
    }
    return true;
  }

  // A square of elements is read before anything else in it is computed.
  bool IsKnownBefore(Value leaf) const {
    if (leaf == counter_ || leaf == across_) return true;
    const Operation* owner =
        leaf.is_block_argument() ? leaf.argument_block()->parent_op() : leaf.defining_op();
    return !IsInside(owner, loop_);
  }

  void Mark(Value v) {
    vectors_.insert(v);
    const auto type = v.type().cast<AnyTensorType>();
    widest_ = std::max(widest_, std::max(BitWidth(type.element()) / 8, 1));
  }

  // Elements from lane to lane; -1 if these are not along the last axis, or not equally far apart.
  int64_t StepOf(const Operation* op, size_t first) {
    for (size_t i = first; i < op->num_operands(); ++i) {
      const Dim slope = Slope(op->operand(i));
      if (slope.IsConstant(0)) continue;
      const bool is_step = i + 1 == op->num_operands() && slope.is_constant() && slope.value() > 0;
      return is_step ? slope.value() : -1;
    }
    return 0;
  }

  std::string Visit(Operation* op) {
    if (op->name() == loop::LoadOp::kName) {
      if (op->operand(loop::LoadOp::kLive)) return "there are vectors already";
      if (loop::LoadOp(op).lanes() != 0) return "there are vectors already";
      if (IsTurned(op)) {
        turned_.push_back(op);
        Mark(op->result(0));
        return "";
      }
      const int64_t step = StepOf(op, loop::LoadOp::kIndices);
      if (step < 0 && !Gathered(op)) return "a load reads elements that are not equally far apart";
      if (step != 0) Mark(op->result(0));
      return "";
    }
    if (op->name() == loop::StoreInplaceOp::kName) {
      const Value value = op->operand(loop::StoreInplaceOp::kValue);
      const auto type = value.type().cast<AnyTensorType>();
      if (type.rank() != 0) return "there are vectors already";
      if (Counts(value) && !Slope(value).is_constant()) return kNoMultiple;
      widest_ = std::max(widest_, BitWidth(type.element()) / 8);
      return StepOf(op, loop::StoreInplaceOp::kIndices) == 1 ? ""
                                                             : "a store does not write neighbors";
    }
    if (IsLoop(op)) return VisitLoop(op);
    if (op->name() == loop::ExpectOp::kName) return VisitExpect(op);
    if (IsIndex(op) || IsConstant(op) || op->HasTrait<Terminator>()) return "";
    const OpKind kind = KindOf(op);
    const bool is_scalar = op->num_results() == 1 && op->num_regions() == 0 &&
                           (kind == OpKind::kElementwise || kind == OpKind::kBroadcast);
    if (!is_scalar) return StrCat("there is ", op->name());
    return VisitElementwise(op);
  }

  std::string VisitExpect(const Operation* op) {
    const Value extent = op->operand(loop::ExpectOp::kExtent);
    const Value index = op->operand(loop::ExpectOp::kIndex);
    if (index.type().cast<AnyTensorType>().rank() != 0) return "there are vectors already";
    if (IsVector(extent) || Counts(extent)) return "the extent of an axis depends on it";
    return IsVector(index) ? "" : "an index is checked that is the same in each lane";
  }

  std::string VisitElementwise(Operation* op) {
    bool widens = false;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (!v) continue;
      if (v.type().cast<AnyTensorType>().rank() != 0) return "there are vectors already";
      if (Counts(v)) {
        if (!Slope(v).is_constant()) return kNoMultiple;
        widest_ = std::max(widest_, 8);
        widens = true;
      }
      widens = widens || IsVector(v);
    }
    if (widens) Mark(op->result(0));
    return "";
  }

  // Carried values become vectors, whatever they are.
  std::string VisitLoop(Operation* op) {
    const Value size = loop::ForOp(op).size();
    if (size && !Slope(size).IsConstant(0)) return "the extent of a loop within depends on it";
    for (size_t i = 0; i < op->num_results(); ++i) {
      const auto type = op->result(i).type().cast<AnyTensorType>();
      if (type.rank() != 0) return "there are vectors already";
      Mark(op->result(i));
      Mark(op->region(0).front()->argument(1 + i));
    }
    return "";
  }

  const Operation* loop_;
  Value counter_, across_;
  Leaves leaves_;
  std::unordered_set<Value> vectors_;  // looked up, never iterated
  std::vector<Operation*> turned_;
  int widest_ = 1;
};

// Writes the body for `lanes` iterations at once.
class Vectors {
 public:
  Vectors(Operation* loop, Widening& widening, int64_t lanes, Leaves& leaves)
      : loop_(loop), widening_(widening), lanes_(lanes), leaves_(leaves) {}

  /// From iteration `first` on, all lanes or the first `live` of them.
  void Write(Builder& b, const Dim& first, const Dim& live) {
    map_.clear();
    first_ = first;
    SetLive(b, live);
    WriteBlock(b, loop_->region(0).front());
  }

  /// A square of iterations: from iteration `first_row` of the loop with that counter around this
  /// one on, and from `first` of this one. Of both all lanes, or the first ones.
  void WriteTurned(Builder& b, Value rows, const Dim& first_row, const Dim& live_rows,
                   const Dim& last_row, const Dim& first, const Dim& live) {
    is_turning_ = true;
    around_ = rows;
    std::vector<std::vector<Value>> columns;  // of each turned load
    for (Operation* load : widening_.turned()) {
      columns.push_back(Turn(b, load, first_row, live_rows, first, live));
    }
    const bool is_whole = live_rows.IsConstant(lanes_);
    for (int64_t r = 0; r < lanes_; ++r) {
      map_.clear();
      for (size_t i = 0; i < columns.size(); ++i) {
        map_[widening_.turned()[i]->result(0)] = columns[i][static_cast<size_t>(r)];
      }
      around_at_ = is_whole ? first_row + r : Min(first_row + r, last_row);
      first_ = first;
      const Dim row_lives = is_whole ? Dim(1) : Min(Max(live_rows - r, 0), 1);
      SetLive(b, live * row_lives);
      WriteBlock(b, loop_->region(0).front());
    }
  }

 private:
  void SetLive(Builder& b, const Dim& live) {
    live_ = live.IsConstant(lanes_) ? Value() : leaves_.Emit(b, live);
  }

  // Neighbors along the rows, read for each lane, as vectors along the loop.
  std::vector<Value> Turn(Builder& b, Operation* load, const Dim& first_row, const Dim& live_rows,
                          const Dim& first, const Dim& live) {
    std::vector<Value> rows;
    const bool is_whole = live.IsConstant(lanes_);
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      map_.clear();
      around_at_ = first_row;
      first_ = is_whole ? first + lane : Min(first + lane, first + live - 1);
      const Dim lane_lives = is_whole ? Dim(1) : Min(Max(live - lane, 0), 1);
      SetLive(b, live_rows * lane_lives);
      const std::vector<Value> at = IndicesFrom(b, load, loop::LoadOp::kIndices);
      rows.push_back(
          loop::LoadOp::Create(b, load->operand(0), live_, at, {.lanes = lanes_}).value());
    }
    return loop::TransposeOp::Create(b, rows, rows.size()).columns();
  }

  // As deep as loops nest.
  void WriteBlock(Builder& b, Block* block) {
    for (Operation& op : *block) {
      if (!op.HasTrait<Terminator>()) WriteOp(b, &op);
    }
  }

  void WriteOp(Builder& b, Operation* op) {
    b.set_location(op->location());
    if (IsIndex(op)) return;  // written where it is read
    if (IsLoop(op)) return WriteLoop(b, op);
    if (op->name() == loop::LoadOp::kName) {
      if (is_turning_ && map_.contains(op->result(0))) return;
      const bool wide = widening_.IsVector(op->result(0));
      const int64_t step = wide ? widening_.Step(op) : 0;
      if (step < 0) {
        map_[op->result(0)] = Gather(b, op);
        return;
      }
      const std::vector<Value> at = IndicesFrom(b, op, loop::LoadOp::kIndices);
      loop::LoadOp::Attrs attrs;
      if (wide) attrs = {.lanes = lanes_, .stride = std::max<int64_t>(1, step)};
      map_[op->result(0)] =
          loop::LoadOp::Create(b, Outside(op->operand(0)), wide ? live_ : Value(), at, attrs)
              .value();
      return;
    }
    if (op->name() == loop::StoreInplaceOp::kName) {
      const std::vector<Value> at = IndicesFrom(b, op, loop::StoreInplaceOp::kIndices);
      const Value value = Wide(b, op->operand(loop::StoreInplaceOp::kValue));
      loop::StoreInplaceOp::Create(b, Outside(op->operand(0)), value, live_, at);
      return;
    }
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(Scalar(b, op->operand(i)));
    if (op->name() == loop::ExpectOp::kName) {
      loop::ExpectOp::Create(b, operands[loop::ExpectOp::kIndex], operands[loop::ExpectOp::kExtent],
                             live_, {.axis = loop::ExpectOp(op).axis()});
      return;
    }
    const bool wide = widening_.IsVector(op->result(0));
    const Type type = wide ? VectorType(op->result(0)) : op->result(0).type();
    map_[op->result(0)] =
        b.Create(op->info(), operands, op->attributes().entries(), {&type, 1})->result(0);
  }

  void WriteLoop(Builder& b, Operation* op) {
    const loop::ForOp old(op);
    std::vector<Value> initial;
    std::vector<Type> types;
    for (const Value v : old.carried()) {
      initial.push_back(Wide(b, v));
      types.push_back(initial.back().type());
    }
    const Value size = old.size() ? Index(b, old.size()) : Value();
    Operation* made = loop::ForOp::Create(b, size, initial, types,
                                          {.extent = old.extent(), .parallel = old.parallel()})
                          .operation();
    Block* from = op->region(0).front();
    Block* to = made->region(0).AddBlock();
    for (size_t i = 0; i < from->num_arguments(); ++i) {
      map_[from->argument(i)] = to->AddArgument(i == 0 ? from->argument(0).type() : types[i - 1]);
    }
    Builder inside = Builder::AtEnd(to);
    WriteBlock(inside, from);
    std::vector<Value> next;
    for (size_t i = 0; i < from->back()->num_operands(); ++i) {
      next.push_back(Wide(inside, from->back()->operand(i)));
    }
    cf::YieldOp::Create(inside, next);
    for (size_t i = 0; i < made->num_results(); ++i) map_[op->result(i)] = made->result(i);
  }

  Value Outside(Value v) const {
    const auto at = map_.find(v);
    return at == map_.end() ? v : at->second;
  }

  Value Gather(Builder& b, const Operation* load) {
    const Dim expr = leaves_.Of(load->operand(loop::LoadOp::kIndices));
    const std::vector<Value> parts = *widening_.Gathered(load);
    Dim first = expr;
    for (const Value leaf : parts) first = leaves_.Replace(first, leaf, 0);
    Value at = leaves_.Emit(b, AtFirstLane(first));
    for (const Value leaf : parts) {
      Value part = Scalar(b, leaf);
      if (const Dim slope = leaves_.Slope(expr, leaf); !slope.IsConstant(1)) {
        part = nn::MulOp::Create(b, part, leaves_.Emit(b, AtFirstLane(slope))).c();
      }
      at = nn::AddOp::Create(b, part, at).c();
    }
    return loop::GatherOp::Create(b, Outside(load->operand(0)), live_, {&at, 1}).value();
  }

  // An index of the old body at the first lane.
  Value Index(Builder& b, Value old) { return leaves_.Emit(b, AtFirstLane(leaves_.Of(old))); }

  Dim AtFirstLane(Dim expr) {
    for (const Value leaf : leaves_.In(expr)) {
      if (leaf == CounterOf(loop_)) {
        expr = leaves_.Replace(expr, leaf, first_);
      } else if (around_ && leaf == around_) {
        expr = leaves_.Replace(expr, leaf, around_at_);
      } else if (const Value now = Outside(leaf); !(now == leaf)) {
        expr = leaves_.Replace(expr, leaf, leaves_.SymbolOf(now));
      }
    }
    return expr;
  }

  std::vector<Value> IndicesFrom(Builder& b, Operation* op, size_t first) {
    std::vector<Value> at;
    for (size_t i = first; i < op->num_operands(); ++i) at.push_back(Index(b, op->operand(i)));
    return at;
  }

  Type VectorType(Value v) const {
    return VTensorType::Get(*loop_->context(), SymShape({Dim(lanes_)}),
                            v.type().cast<AnyTensorType>().element());
  }

  // The operand, a vector if it is one; numbers that count become a vector.
  Value Scalar(Builder& b, Value old) {
    if (!old) return old;
    const bool is_index = old == CounterOf(loop_) || old == around_ || IsIndex(old.defining_op());
    if (!is_index) return Outside(old);
    const Value first = Index(b, old);
    if (!widening_.Counts(old)) return first;
    std::vector<int64_t> steps;
    for (int64_t i = 0; i < lanes_; ++i) steps.push_back(i * widening_.Slope(old).value());
    const Value offsets =
        builtin::ConstantOp::Create(b, {.value = Tensor::Of<int64_t>({lanes_}, steps)}).result();
    return nn::AddOp::Create(b, offsets, first).c();
  }

  Value Wide(Builder& b, Value old) {
    const Value value = Scalar(b, old);
    if (value.type().cast<AnyTensorType>().rank() == 1) return value;
    const std::vector<uint8_t> ones(static_cast<size_t>(lanes_), 1);
    const Tensor all = Cast(Tensor::Of<uint8_t>({lanes_}, ones), ElementType::kBool);
    const Value everywhere = builtin::ConstantOp::Create(b, {.value = all}).result();
    return nn::WhereOp::Create(b, everywhere, value, value).output();
  }

  Operation* loop_;
  Widening& widening_;
  int64_t lanes_;
  Leaves& leaves_;
  Dim first_;
  Value live_;
  bool is_turning_ = false;
  Value around_;  // the counter of the rows of a square
  Dim around_at_;
  std::unordered_map<Value, Value> map_;  // looked up, never iterated
};

// `write` for each run of `lanes` iterations of an extent, then for the rest of them.
void ForRuns(Builder& b, Leaves& leaves, const Dim& extent, int64_t lanes, bool parallel,
             const std::function<void(Builder&, const Dim& first, const Dim& live)>& write) {
  const Dim full = FloorDiv(extent, lanes), rest = Mod(extent, lanes);
  if (!full.IsConstant(0)) {
    Operation* main = MakeLoop(b, leaves, full, parallel);
    Builder inside = Builder::AtEnd(main->region(0).front());
    write(inside, leaves.SymbolOf(CounterOf(main)) * lanes, lanes);
    EndLoop(main);
  }
  if (rest.is_constant() && !rest.IsConstant(0)) {
    write(b, full * lanes, rest);
  } else if (!rest.is_constant()) {
    Operation* last = MakeLoop(b, leaves, Min(rest, 1));
    Builder inside = Builder::AtEnd(last->region(0).front());
    write(inside, full * lanes, rest);
    EndLoop(last);
  }
}

}  // namespace

std::string WhyNotVectorize(const Operation* loop) { return Widening(loop).Refusal(); }

int64_t SuitableLanes(const Operation* loop, int vector_bytes) {
  Widening widening(loop);
  if (!widening.Refusal().empty()) return 1;
  return std::max(1, vector_bytes / widening.widest());
}

void Vectorize(Operation* loop, int64_t lanes) {
  Widening widening(loop);
  std::string why = widening.Refusal();
  if (lanes < 1) why = StrCat("there cannot be ", lanes, " lanes");
  if (!why.empty()) Refuse(loop, "vectorize", why);
  Leaves leaves;
  const Dim extent = ExtentOf(loop, leaves);
  Vectors vectors(loop, widening, lanes, leaves);
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  ForRuns(b, leaves, extent, lanes, loop::ForOp(loop).parallel(),
          [&](Builder& at, const Dim& first, const Dim& live) { vectors.Write(at, first, live); });
  loop->Erase();
}

// ---- turned ----

bool ReadsAlong(const Operation* outer, const Operation* inner) {
  Widening widening(inner, CounterOf(outer));
  return widening.Refusal().empty() && !widening.turned().empty();
}

std::string WhyNotVectorizeTurned(const Operation* outer) {
  if (std::string why = WhyNotFuse(outer); !why.empty()) return why;
  const Operation* inner = PerfectlyNested(outer);
  Widening widening(inner, CounterOf(outer));
  if (std::string why = widening.Refusal(); !why.empty()) return why;
  if (widening.turned().empty()) return "no load reads neighbors along the outer loop";
  Leaves leaves;
  if (leaves.Reads(ExtentOf(inner, leaves), CounterOf(outer))) {
    return "the inner extent depends on the loop";
  }
  return WhyNotParallel(outer);
}

void VectorizeTurned(Operation* outer, int vector_bytes) {
  if (const std::string why = WhyNotVectorizeTurned(outer); !why.empty()) {
    Refuse(outer, "vectorize_turned", why);
  }
  Operation* inner = PerfectlyNested(outer);
  Widening widening(inner, CounterOf(outer));
  LATHE_CHECK(widening.Refusal().empty(), "asked before");
  const int64_t lanes = std::min<int64_t>(vector_bytes / widening.widest(), kMaxTurned);
  Leaves leaves;
  const Dim rows = ExtentOf(outer, leaves), columns = ExtentOf(inner, leaves);
  Vectors vectors(inner, widening, lanes, leaves);
  Builder b = Builder::Before(outer);
  b.set_location(outer->location());
  const bool parallel = loop::ForOp(outer).parallel();
  ForRuns(
      b, leaves, rows, lanes, parallel, [&](Builder& at_row, const Dim& row, const Dim& live_rows) {
        ForRuns(at_row, leaves, columns, lanes, false,
                [&](Builder& at, const Dim& first, const Dim& live) {
                  vectors.WriteTurned(at, CounterOf(outer), row, live_rows, rows - 1, first, live);
                });
      });
  outer->Erase();
}

}  // namespace lathe::schedule
