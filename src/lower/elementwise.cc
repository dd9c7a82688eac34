#include <algorithm>
#include <unordered_map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "src/lower/loop_builder.h"
#include "src/lower/strategy_list.h"

// Elementwise operations around one another: each element of the results is computed in registers
// from the matching elements of the arguments, a vector along the last axis at a time.
namespace lathe::lower {
namespace {

constexpr int64_t kPiece = 1 << 14;  // elements of a flat loop that one thread takes at a time

AnyTensorType TensorOf(Value v) { return v.type().cast<AnyTensorType>(); }

class Elementwise {
 public:
  Elementwise(const Block& function, const Machine& machine)
      : function_(function), machine_(machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write(Block* body);

 private:
  // An argument or result as the loops see it: equally many axes, each whole or of extent 1.
  struct View {
    Value memory;
    std::vector<bool> whole;
  };

  std::string OpRefusal(const Operation& op) const;
  std::string ShapeRefusal(Value v) const;
  std::vector<bool> WholeAxes(AnyTensorType type) const;
  void GroupAxes();
  View MakeView(LoopBuilder& lb, Value memory) const;
  void WriteAxis(LoopBuilder& lb, size_t axis, std::vector<Value>& at);
  void WriteLastAxis(LoopBuilder& lb, std::vector<Value>& at);
  void WriteVectors(LoopBuilder& lb, std::vector<Value>& at, Value base, const Dim& count);
  void WriteVector(LoopBuilder& lb, const std::vector<Value>& at, Value live);
  Value Load(LoopBuilder& lb, const View& view, const std::vector<Value>& at, Value live) const;

  const Block& function_;
  const Machine& machine_;
  std::vector<Dim> dims_;     // of every result
  std::vector<std::vector<size_t>> groups_;  // axes that one loop walks
  std::vector<Dim> extents_;                 // of the loops
  bool merged_ = false;
  int64_t lanes_ = 1;
  bool parallel_ = false;
  std::unordered_map<Value, View> views_;  // looked up, never iterated
  std::vector<View> results_;
};

std::string Elementwise::Refusal() {
  const Operation* end = function_.terminator();
  if (end == nullptr || end->num_operands() == 0) return "it has no result";
  for (const Operation& op : function_) {
    if (op.HasTrait<Terminator>()) continue;
    if (std::string why = OpRefusal(op); !why.empty()) return why;
  }
  const auto first = TensorOf(end->operand(0));
  if (!first.has_rank()) return "the rank of a result is unknown";
  dims_.assign(first.dims().begin(), first.dims().end());
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const Value v = end->operand(i);
    if (v.defining_op() == nullptr) return "a result is an argument";
    if (!std::ranges::equal(TensorOf(v).dims(), dims_)) return "results differ in shape";
  }
  for (size_t i = 0; i < function_.num_arguments(); ++i) {
    if (std::string why = ShapeRefusal(function_.argument(i)); !why.empty()) return why;
  }
  return "";
}

std::string Elementwise::OpRefusal(const Operation& op) const {
  if (op.name() == builtin::ConstantOp::kName) {
    const Tensor& value = op.attribute("value").cast<TensorAttribute>().value();
    return value.num_elements() == 1 ? "" : "a constant has several elements";
  }
  if (!op.HasTrait<lathe::Elementwise>()) return StrCat(op.name(), " is not elementwise");
  const auto type = op.operand(0).type().dyn_cast<AnyTensorType>();
  if (!type || !machine_.has_instruction(op.name(), type.element())) {
    return StrCat(op.name(), " has no instructions");
  }
  for (size_t i = 0; i < op.num_operands(); ++i) {
    const Value v = op.operand(i);
    if (v && v.defining_op() != nullptr) {
      if (std::string why = ShapeRefusal(v); !why.empty()) return why;
    }
  }
  return "";
}

// Every axis must be known to be whole or of extent 1.
std::string Elementwise::ShapeRefusal(Value v) const {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return "an argument is no tensor of known rank";
  if (dims_.empty() && type.rank() > 0) return "";  // checked once the results are known
  if (type.rank() > dims_.size()) return "an argument has more axes than the result";
  for (size_t a = 0; a < type.rank(); ++a) {
    const Dim& dim = type.dims()[a];
    if (dim.IsConstant(1) || ProvablyEqual(dim, dims_[dims_.size() - type.rank() + a])) continue;
    return StrCat("whether extent ", dim.ToString(), " is broadcast is not known");
  }
  return "";
}

std::vector<bool> Elementwise::WholeAxes(AnyTensorType type) const {
  std::vector<bool> whole(dims_.size(), false);
  const size_t missing = dims_.size() - type.rank();
  for (size_t a = missing; a < dims_.size(); ++a) {
    whole[a] = !type.dims()[a - missing].IsConstant(1) || dims_[a].IsConstant(1);
  }
  return whole;
}

// Neighbouring axes that every argument has whole, or has not at all, are walked as one; so are axes
// of extent 1 with any other.
void Elementwise::GroupAxes() {
  std::vector<std::vector<bool>> whole;
  merged_ = TensorOf(function_.terminator()->operand(0)).is_static();
  for (size_t i = 0; i < function_.num_arguments(); ++i) {
    const AnyTensorType type = TensorOf(function_.argument(i));
    whole.push_back(WholeAxes(type));
    merged_ &= type.is_static();
  }
  size_t last = 0;  // the last axis seen that is longer than 1
  for (size_t a = 0; a < dims_.size(); ++a) {
    const bool is_one = dims_[a].IsConstant(1);
    const bool joins = merged_ && !groups_.empty() &&
                       (is_one || extents_.back().IsConstant(1) ||
                        std::ranges::all_of(whole, [&](const auto& w) { return w[a] == w[last]; }));
    if (joins) {
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

Elementwise::View Elementwise::MakeView(LoopBuilder& lb, Value memory) const {
  const AnyTensorType type = TensorOf(memory);
  const std::vector<bool> whole = WholeAxes(type);
  View view{memory, {}};
  std::vector<int64_t> shape;
  for (size_t g = 0; g < groups_.size(); ++g) {
    view.whole.push_back(std::ranges::any_of(
        groups_[g], [&](size_t a) { return whole[a] && !dims_[a].IsConstant(1); }));
    if (merged_) shape.push_back(view.whole.back() ? extents_[g].value() : 1);
  }
  if (merged_) view.memory = nn::ViewReshapeOp::Create(lb.b(), memory, {.shape = shape}).y();
  return view;
}

void Elementwise::Write(Block* body) {
  GroupAxes();
  LoopBuilder lb(body);
  int64_t widest = 1;
  for (const Operation& op : function_) {
    for (size_t i = 0; i < op.num_operands(); ++i) {
      if (!op.operand(i)) continue;
      widest = std::max<int64_t>(widest, BitWidth(TensorOf(op.operand(i)).element()) / 8);
    }
  }
  lanes_ = std::max<int64_t>(1, machine_.vector_bytes / widest);
  Dim elements = 1;
  for (const Dim& extent : extents_) elements *= extent;
  parallel_ = !elements.is_constant() || elements.value() > 2 * kPiece;
  for (size_t i = 0; i < function_.num_arguments(); ++i) {
    views_[function_.argument(i)] = MakeView(lb, body->argument(i));
  }
  const Operation* end = function_.terminator();
  std::vector<Value> memory;
  for (size_t i = 0; i < end->num_operands(); ++i) {
    memory.push_back(lb.Alloc(TensorOf(end->operand(i))));
    results_.push_back(MakeView(lb, memory.back()));
  }
  std::vector<Value> at;
  WriteAxis(lb, 0, at);
  for (Value& v : memory) v = builtin::ToVtensorOp::Create(lb.b(), v).y();
  lb.b().Create(end->info(), memory, end->attributes().entries(), {});
}

// The nest is as deep as the tensor has axes.
void Elementwise::WriteAxis(LoopBuilder& lb, size_t axis, std::vector<Value>& at) {
  if (axis + 1 == extents_.size()) return WriteLastAxis(lb, at);
  lb.For(extents_[axis], parallel_ && axis == 0, [&](Value i) {
    at.push_back(i);
    WriteAxis(lb, axis + 1, at);
    at.pop_back();
  });
}

void Elementwise::WriteLastAxis(LoopBuilder& lb, std::vector<Value>& at) {
  const Dim& length = extents_.back();
  if (!parallel_ || extents_.size() > 1) return WriteVectors(lb, at, {}, length);
  const Dim pieces = FloorDiv(length, kPiece);
  lb.For(pieces, true, [&](Value p) {
    WriteVectors(lb, at, lb.Index(LoopBuilder::D0() * kPiece, p), kPiece);
  });
  WriteVectors(lb, at, lb.Index(LoopBuilder::D0() * kPiece, lb.Extent(pieces)),
               Mod(length, kPiece));
}

// `count` elements of the last axis from `base` (null: 0) on.
void Elementwise::WriteVectors(LoopBuilder& lb, std::vector<Value>& at, Value base,
                               const Dim& count) {
  const Dim full = FloorDiv(count, lanes_), rest = Mod(count, lanes_);
  const auto place = [&](const Dim& expr, Value v) {
    if (!base) return lb.Index(expr, v);
    const Value both[] = {v, base};
    return lb.Index(expr + LoopBuilder::D1(), both);
  };
  if (!full.IsConstant(0)) {
    lb.For(full, false, [&](Value i) {
      at.push_back(place(LoopBuilder::D0() * lanes_, i));
      WriteVector(lb, at, {});
      at.pop_back();
    });
  }
  if (rest.IsConstant(0)) return;
  lb.For(Min(rest, 1), false, [&](Value) {
    at.push_back(place(LoopBuilder::D0() * lanes_, lb.Extent(full)));
    WriteVector(lb, at, lb.Extent(rest));
    at.pop_back();
  });
}

Value Elementwise::Load(LoopBuilder& lb, const View& view, const std::vector<Value>& at,
                        Value live) const {
  const auto rank = TensorOf(view.memory).rank();
  std::vector<Value> indices;
  const size_t missing = at.size() - rank;
  for (size_t a = missing; a < at.size(); ++a) indices.push_back(view.whole[a] ? at[a] : lb.Int(0));
  if (rank == 0 || !view.whole.back()) return lb.Load(view.memory, indices);
  return lb.Load(view.memory, indices, lanes_, live);
}

void Elementwise::WriteVector(LoopBuilder& lb, const std::vector<Value>& at, Value live) {
  std::unordered_map<Value, Value> registers;  // looked up, never iterated
  const auto value_of = [&](Value v) {
    Value& value = registers[v];
    if (!value) value = Load(lb, views_.at(v), at, live);
    return value;
  };
  for (const Operation& op : function_) {
    if (op.HasTrait<Terminator>()) continue;
    if (op.name() == builtin::ConstantOp::kName) {
      const Tensor& value = op.attribute("value").cast<TensorAttribute>().value();
      registers[op.result(0)] = lb.Splat(value.element_type(), ToDoubles(value)[0]);
      continue;
    }
    std::vector<Value> operands;
    for (size_t i = 0; i < op.num_operands(); ++i) {
      operands.push_back(op.operand(i) ? value_of(op.operand(i)) : Value());
    }
    registers[op.result(0)] = lb.Elementwise(&op, operands);
  }
  const Operation* end = function_.terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const Value value = registers.at(end->operand(i));
    lb.Store(results_[i].memory, lb.Widen(value, lanes_), at, live);
  }
}

}  // namespace

bool LowerElementwise(const Block& function, Block* body, const Machine& machine,
                      std::string& why) {
  Elementwise lowering(function, machine);
  why = lowering.Refusal();
  if (!why.empty()) return false;
  lowering.Write(body);
  return true;
}

}  // namespace lathe::lower
