#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/schedule.h"
#include "lathe/support/error.h"
#include "src/lower/schedule/leaves.h"

namespace lathe::schedule {
namespace {

bool IsLoop(const Operation* op) { return op->name() == loop::ForOp::kName; }
bool IsIndex(const Operation* op) { return op != nullptr && op->name() == loop::IndexOp::kName; }
bool IsConstant(const Operation* op) { return op->name() == builtin::ConstantOp::kName; }

// Which values of a loop's body become vectors.
class Widening {
 public:
  explicit Widening(const Operation* loop) : loop_(loop), counter_(CounterOf(loop)) {}

  std::string Refusal() {
    if (!IsLoop(loop_)) return StrCat(loop_->name(), " is no loop");
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

 private:
  void Mark(Value v) {
    vectors_.insert(v);
    const auto type = v.type().cast<AnyTensorType>();
    widest_ = std::max(widest_, std::max(BitWidth(type.element()) / 8, 1));
  }

  // 0: the same place in each lane, 1: neighbours, -1: neither.
  int StepOf(const Operation* op, size_t first) {
    for (size_t i = first; i < op->num_operands(); ++i) {
      const Dim slope = Slope(op->operand(i));
      if (slope.IsConstant(0)) continue;
      return i + 1 == op->num_operands() && slope.IsConstant(1) ? 1 : -1;
    }
    return 0;
  }

  std::string Visit(Operation* op) {
    if (op->name() == loop::LoadOp::kName) {
      if (op->operand(loop::LoadOp::kLive)) return "there are vectors already";
      if (loop::LoadOp(op).lanes() != 0) return "there are vectors already";
      const int step = StepOf(op, loop::LoadOp::kIndices);
      if (step < 0) return "a load does not read neighbours";
      if (step > 0) Mark(op->result(0));
      return "";
    }
    if (op->name() == loop::StoreInplaceOp::kName) {
      const Value value = op->operand(loop::StoreInplaceOp::kValue);
      const auto type = value.type().cast<AnyTensorType>();
      if (type.rank() != 0) return "there are vectors already";
      widest_ = std::max(widest_, BitWidth(type.element()) / 8);
      return StepOf(op, loop::StoreInplaceOp::kIndices) == 1 ? ""
                                                             : "a store does not write neighbours";
    }
    if (IsLoop(op)) return VisitLoop(op);
    if (IsIndex(op) || IsConstant(op) || op->HasTrait<Terminator>()) return "";
    const OpKind kind = KindOf(op);
    const bool is_scalar = op->num_results() == 1 && op->num_regions() == 0 &&
                           (kind == OpKind::kElementwise || kind == OpKind::kBroadcast);
    if (!is_scalar) return StrCat("there is ", op->name());
    return VisitElementwise(op);
  }

  std::string VisitElementwise(Operation* op) {
    bool widens = false;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (!v) continue;
      if (v.type().cast<AnyTensorType>().rank() != 0) return "there are vectors already";
      if (Counts(v)) {
        if (!Slope(v).is_constant()) return "an index is no multiple of the counter";
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
  Value counter_;
  Leaves leaves_;
  std::unordered_set<Value> vectors_;  // looked up, never iterated
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
    live_ = live.IsConstant(lanes_) ? Value() : leaves_.Emit(b, live);
    WriteBlock(b, loop_->region(0).front());
  }

 private:
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
      std::vector<Value> at = IndicesFrom(b, op, loop::LoadOp::kIndices);
      const bool wide = widening_.IsVector(op->result(0));
      map_[op->result(0)] = loop::LoadOp::Create(b, Outside(op->operand(0)), wide ? live_ : Value(),
                                                 at, {.lanes = wide ? lanes_ : 0})
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

  // An index of the old body at the first lane.
  Value Index(Builder& b, Value old) {
    Dim expr = leaves_.Of(old);
    for (const Value leaf : leaves_.In(expr)) {
      if (leaf == CounterOf(loop_)) {
        expr = leaves_.Replace(expr, leaf, first_);
      } else if (const Value now = Outside(leaf); !(now == leaf)) {
        expr = leaves_.Replace(expr, leaf, leaves_.SymbolOf(now));
      }
    }
    return leaves_.Emit(b, expr);
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
    if (old != CounterOf(loop_) && !IsIndex(old.defining_op())) return Outside(old);
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
  std::unordered_map<Value, Value> map_;  // looked up, never iterated
};

}  // namespace

std::string WhyNotVectorise(const Operation* loop) { return Widening(loop).Refusal(); }

int64_t SuitableLanes(const Operation* loop, int vector_bytes) {
  Widening widening(loop);
  if (!widening.Refusal().empty()) return 1;
  return std::max(1, vector_bytes / widening.widest());
}

void Vectorise(Operation* loop, int64_t lanes) {
  Widening widening(loop);
  std::string why = widening.Refusal();
  if (lanes < 1) why = StrCat("there can not be ", lanes, " lanes");
  if (!why.empty()) Refuse(loop, "vectorise", why);
  Leaves leaves;
  const Dim extent = ExtentOf(loop, leaves);
  const Dim full = FloorDiv(extent, lanes), rest = Mod(extent, lanes);
  Vectors vectors(loop, widening, lanes, leaves);
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  if (!full.IsConstant(0)) {
    Operation* main = MakeLoop(b, leaves, full, loop::ForOp(loop).parallel());
    Builder inside = Builder::AtEnd(main->region(0).front());
    vectors.Write(inside, leaves.SymbolOf(CounterOf(main)) * lanes, lanes);
    EndLoop(main);
  }
  if (rest.is_constant() && !rest.IsConstant(0)) {
    vectors.Write(b, full * lanes, rest);
  } else if (!rest.is_constant()) {
    Operation* last = MakeLoop(b, leaves, Min(rest, 1));
    Builder inside = Builder::AtEnd(last->region(0).front());
    vectors.Write(inside, full * lanes, rest);
    EndLoop(last);
  }
  loop->Erase();
}

}  // namespace lathe::schedule
