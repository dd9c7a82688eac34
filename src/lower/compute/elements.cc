#include "src/lower/compute/elements.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/order.h"
#include "lathe/dialect/nn/sampling.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/nn/signal.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "src/lower/compute/amounts.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/resize_axis.h"

namespace lathe::lower {
namespace {

constexpr size_t kMaxOps = 512;       // evaluation follows operands, one call each
constexpr int64_t kMaxConstant = 16;  // elements of a constant that is part of the code

bool IsStored(ElementType element) {
  switch (element) {
    case ElementType::kBool:
    case ElementType::kI8:
    case ElementType::kU8:
    case ElementType::kI16:
    case ElementType::kU16:
    case ElementType::kI32:
    case ElementType::kU32:
    case ElementType::kI64:
    case ElementType::kU64:
    case ElementType::kF16:
    case ElementType::kBF16:
    case ElementType::kF32:
    case ElementType::kF64:
    case ElementType::kF8E4M3FN:
    case ElementType::kF8E4M3FNUZ:
    case ElementType::kF8E5M2:
    case ElementType::kF8E5M2FNUZ:
    case ElementType::kF8E8M0:
      return true;
    default:
      return false;
  }
}

std::string TypeRefusal(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return "a value is not a tensor of known rank";
  if (!IsStored(type.element())) return StrCat("elements are ", Name(type.element()));
  for (const Dim& dim : type.dims()) {
    if (dim.is_unknown()) return "an extent is not known";
  }
  return "";
}

bool HasInstruction(const Operation& op, const Machine& machine) {
  const OpKind kind = KindOf(&op);
  return (kind == OpKind::kElementwise || kind == OpKind::kBroadcast) && op.num_results() == 1 &&
         op.num_operands() > 0 && machine.has_instruction(op);
}

std::string BroadcastRefusal(const Operation& op) {
  for (size_t i = 0; i < op.num_operands(); ++i) {
    if (!op.operand(i)) continue;
    const bool fits = DimsOf(op.operand(i)).size() <= DimsOf(op.result(0)).size();
    if (!fits) return "an operand has more axes than the result";
  }
  return "";
}

bool IsAlone(const Operation& op) {
  return std::ranges::none_of(*op.block(), [&](const Operation& other) {
    return &other != &op && !other.HasTrait<Terminator>() && !other.HasTrait<ConstantLike>();
  });
}

std::string OpRefusal(const Operation& op, const Machine& machine) {
  if (op.name() == builtin::ConstantOp::kName) return "";
  for (size_t i = 0; i < op.num_operands(); ++i) {
    if (!op.operand(i)) continue;
    const Tensor* constant = ConstantOf(op.operand(i));
    if (constant == nullptr || NeedsWhole(&op, i) || constant->num_elements() <= kMaxConstant) {
      continue;
    }
    return StrCat("a constant of ", constant->num_elements(), " elements");
  }
  if (HasInstruction(op, machine)) return BroadcastRefusal(op);
  if (op.HasTrait<Random>()) return StrCat(op.name(), " draws random numbers");
  const Compute* compute = FindCompute(op.name());
  if (compute == nullptr) {
    const bool is_elementwise = KindOf(&op) <= OpKind::kBroadcast && op.num_operands() > 0;
    if (!is_elementwise) return StrCat(op.name(), " has no loops");
    const auto type = op.operand(0).type().cast<AnyTensorType>();
    return StrCat(op.name(), " has no instructions for ", Name(type.element()));
  }
  if (compute->alone && !IsAlone(op)) return StrCat(op.name(), " is a part");
  return compute->refuse == nullptr ? "" : compute->refuse(op);
}

std::string ValueRefusal(const Extents& extents, Value v) {
  if (std::string why = TypeRefusal(v); !why.empty()) return why;
  for (const Dim& dim : DimsOf(v)) {
    if (!extents.Resolve(dim)) return StrCat("no argument has extent ", dim.ToString());
  }
  return "";
}

Dim With(const Dim& expr, const Dim& symbol, const Dim& by) {
  return expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
    return name == symbol.symbol_name() ? std::optional(by) : std::nullopt;
  });
}

// The same integer, of which nobody sees what it is made of: schedules compute with the expressions
// of indices, which must not grow without bound.
Value Opaque(LoopBuilder& lb, Value integer) { return nn::IdentityOp::Create(lb.b(), integer).y(); }

}  // namespace

// Where an operation is told the extent of an axis of its result.
std::pair<size_t, int64_t> EntryOf(const Operation& op, size_t result, size_t axis) {
  if (op.name() == nn::SplitOp::kName) return {nn::SplitOp::kSplit, static_cast<int64_t>(result)};
  if (op.name() == nn::TopKOp::kName) return {nn::TopKOp::kK, 0};
  if (op.name() == nn::OneHotOp::kName) return {nn::OneHotOp::kDepth, 0};
  if (op.name() == nn::DftOp::kName) return {nn::DftOp::kDftLength, 0};
  if (op.name() == nn::AffineGridOp::kName) {  // sizes of images, with their channels
    return {nn::AffineGridOp::kSize, static_cast<int64_t>(axis == 0 ? 0 : axis + 1)};
  }
  const bool is_tile = op.name() == nn::TileOp::kName;
  const size_t operand = is_tile ? nn::TileOp::kRepeats : nn::ConstantOfShapeOp::kInput;
  return {operand, static_cast<int64_t>(axis)};
}

// An extent of which it is not known whether it is 1 is either that or the whole: a loop that is
// cut behind what there is has one part that counts, and one that stays at the only element.
Place BroadcastPlace(const Place& at, const std::vector<Dim>& dims, const std::vector<Dim>& whole,
                     IndexSpace* space) {
  const size_t added = at.size() - dims.size();
  Place place(at.begin() + static_cast<std::ptrdiff_t>(added), at.end());
  for (size_t a = 0; a < dims.size(); ++a) {
    if (dims[a].IsConstant(1)) {
      place[a] = 0;
    } else if (!ProvablyEqual(dims[a], whole[added + a])) {
      const bool asks = space != nullptr && a + 1 == dims.size();
      const auto below =
          asks ? space->Below(place[a], Min(dims[a], whole[added + a])) : std::optional<bool>();
      if (!below) {
        place[a] = Min(place[a], dims[a] - 1);
      } else if (!*below) {
        place[a] = 0;
      }
    }
  }
  return place;
}

std::vector<Dim> DimsOf(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return {};
  return {type.dims().begin(), type.dims().end()};
}

const Tensor* ConstantOf(Value v) {
  const Operation* op = v ? v.defining_op() : nullptr;
  if (op == nullptr || op->name() != builtin::ConstantOp::kName) return nullptr;
  return &op->attribute("value").cast<TensorAttribute>().value();
}

bool Elements::CanCompute(const Operation& op, const Machine& machine) {
  if (HasInstruction(op, machine)) return true;
  const lower::Compute* compute = FindCompute(op.name());
  return compute != nullptr && !compute->alone;
}

std::string Elements::Refusal(const Block& function, const Machine& machine) {
  size_t count = 0;
  const Extents extents(function);
  for (size_t i = 0; i < function.num_arguments(); ++i) {
    if (std::string why = ValueRefusal(extents, function.argument(i)); !why.empty()) return why;
  }
  for (const Operation& op : function) {
    if (op.HasTrait<Terminator>()) {
      if (op.num_operands() == 0) return "it has no result";
      continue;
    }
    if (++count > kMaxOps) return "it has too many operations";
    for (size_t i = 0; i < op.num_results(); ++i) {
      if (std::string why = ValueRefusal(extents, op.result(i)); !why.empty()) return why;
    }
    if (std::string why = OpRefusal(op, machine); !why.empty()) return why;
  }
  return "";
}

Elements::Elements(LoopBuilder& lb, const Block& function, const Block& body)
    : lb_(lb), extents_(function) {
  for (size_t i = 0; i < function.num_arguments(); ++i) {
    memory_[function.argument(i)] = body.argument(i);
  }
  for (const Extents::Source& source : extents_.sources()) {
    if (source.op == nullptr) symbols_.emplace_back(source.symbol, ExtentAt(source));
  }
  for (size_t i = 0; i < function.num_arguments(); ++i) {
    memory_[function.argument(i)] = lb.Flat(body.argument(i));
  }
  for (const Extents::Source& source : extents_.sources()) {
    if (source.op != nullptr) symbols_.emplace_back(source.symbol, ExtentAt(source));
  }
  for (size_t i = 0; i < function.num_arguments(); ++i) NameLongExtents(function.argument(i));
  for (const Operation& op : function) {
    for (size_t i = 0; i < op.num_results(); ++i) NameLongExtents(op.result(i));
  }
  for (const Operation& op : function) {
    const std::vector<Value> amounts = AmountsAt(*this, op);
    for (size_t i = 0; i < amounts.size(); ++i) {
      const std::string symbol = StrCat("#", extents_.sources().size() + named_.size());
      symbols_.emplace_back(symbol, Opaque(lb_, amounts[i]));
      named_.emplace_back(AmountKey(op, i), Dim::Symbol(symbol));
    }
  }
  Reset();
}

// Products of extents that are long sums would be too long to compute with.
void Elements::NameLongExtents(Value v) {
  for (const Dim& dim : Dims(v)) {
    if (IsLong(dim)) Name(dim);
  }
}

Dim Elements::Name(const Dim& expr) {
  if (expr.is_constant()) return expr;
  const std::string symbol = StrCat("#", extents_.sources().size() + named_.size());
  symbols_.emplace_back(symbol, Opaque(lb_, Int(expr)));
  named_.emplace_back(expr, Dim::Symbol(symbol));
  return named_.back().second;
}

Value Elements::ExtentAt(const Extents::Source& source) {
  if (source.op == nullptr) {
    const Value memory = memory_.at(source.argument);
    return loop::DimOp::Create(lb_.b(), memory, {.axis = static_cast<int64_t>(source.axis)})
        .value();
  }
  if (source.op->name() == nn::SliceOp::kName) return SliceCountAt(*this, *source.op, source.axis);
  if (source.op->name() == nn::RangeOp::kName) return RangeCountAt(*this, *source.op);
  if (source.op->name() == nn::ResizeOp::kName) {
    return ResizedExtentAt(*this, *source.op, source.axis);
  }
  if (source.op->name() == nn::PadOp::kName) return PaddedExtentAt(*this, *source.op, source.axis);
  if (source.op->name() == nn::ExpandOp::kName) return ExpandedExtentAt(*source.op, source.axis);
  const auto [operand, entry] = EntryOf(*source.op, source.result, source.axis);
  const size_t rank = DimsOf(source.op->operand(operand)).size();
  const Value given = ToInt64(*this, At(source.op->operand(operand), Place(rank, entry)));
  if (source.op->name() != nn::TileOp::kName) return given;
  const Value repeated = Int(Dims(source.op->operand(0))[source.axis]);
  return nn::MulOp::Create(lb_.b(), given, repeated).c();
}

// An extent of the operand that is not 1 stays.
Value Elements::ExpandedExtentAt(const Operation& op, size_t axis) {
  const auto entry = static_cast<int64_t>(*ExpandEntry(op, axis));
  const Value given = ToInt64(*this, At(op.operand(nn::ExpandOp::kShape), {entry}));
  const std::vector<Dim> from = Dims(op.operand(0));
  const size_t added = DimsOf(op.result(0)).size() - from.size();
  if (axis < added || from[axis - added].IsConstant(1)) return given;
  const Value extent = Int(from[axis - added]);
  const Value is_one = nn::EqualOp::Create(lb_.b(), extent, lb_.Int(1)).c();
  return Where(*this, is_one, given, extent);
}

std::vector<Dim> Elements::Dims(Value v) const {
  std::vector<Dim> dims = DimsOf(v);
  for (Dim& dim : dims) {
    dim = *extents_.Resolve(dim);
    const auto known = std::ranges::find(named_, dim, &std::pair<Dim, Dim>::first);
    if (known != named_.end()) dim = known->second;
  }
  return dims;
}

Value Elements::Alloc(Value v) {
  const AnyTensorType type = TensorOf(v);
  std::vector<Value> sizes;
  if (!type.is_static()) {
    for (const Dim& dim : Dims(v)) sizes.push_back(Int(dim));
  }
  const Type memory = type.AsMutable();
  return loop::AllocOp::Create(lb_.b(), sizes, {&memory, 1}).memory();
}

void Elements::Reset() {
  space_ =
      IndexSpace([this](const Dim& expr, const Dim& extent) { return Shortened(expr, extent); });
  integers_.clear();
  known_.clear();
  order_.clear();
}

// ---- indices ----

Value Elements::SymbolValue(std::string_view name) {
  if (const auto number = space_.Number(name)) return integers_[*number];
  const auto found = std::ranges::find_if(symbols_, [&](const auto& s) { return s.first == name; });
  LATHE_CHECK(found != symbols_.end(), "no argument has extent ", std::string(name));
  return found->second;
}

Dim Elements::Shortened(const Dim& expr, const Dim& extent) {
  return Loaded(Opaque(lb_, Int(expr)), extent);
}

Value Elements::Int(const Dim& expr) {
  if (expr.is_unknown()) {
    throw Error(ErrorCode::kLimit, "lower/index", "an index is too long an expression");
  }
  std::vector<std::string> names;
  expr.CollectSymbols(names);
  std::vector<Value> values;
  values.reserve(names.size());
  for (const std::string& name : names) values.push_back(SymbolValue(name));
  const Dim numbered = expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
    const auto at = std::ranges::find(names, name) - names.begin();
    return Dim::Symbol(StrCat("d", at));
  });
  return lb_.Index(numbered, values);
}

void Elements::Bind(Value v, Value memory) {
  memory_[v] = lb_.Flat(memory);
  bound_.push_back(v);
}

Dim Elements::Counter(Value i, const Dim& extent, const IndexSpace::Piece& piece) {
  const Dim counter = space_.AddCounter(extent, piece);
  if (counter.is_symbol()) integers_.push_back(i);
  return counter;
}

Dim Elements::Loaded(Value i, const Dim& extent) {
  const Dim index = space_.Add(extent);
  if (index.is_symbol()) integers_.push_back(i);
  return index;
}

// ---- elements ----

Value Elements::At(Value v, const Place& given) {
  Place at = given;
  if (std::ranges::any_of(at, IsLong)) {
    const std::vector<Dim> dims = Dims(v);
    for (size_t a = 0; a < at.size(); ++a) at[a] = space_.Short(at[a], dims[a]);
  }
  for (const Known& known : known_[v]) {
    if (known.at == at) return known.element;
  }
  const Value element = Compute(v, at);
  known_[v].push_back({at, element});
  order_.push_back(v);
  return element;
}

Value Elements::Compute(Value v, const Place& at) {
  if (memory_.count(v) != 0) return Load(v, at);
  if (const Tensor* constant = ConstantOf(v)) return OfConstant(*constant, at);
  const Operation* op = v.defining_op();
  if (const lower::Compute* compute = FindCompute(op->name())) {
    return compute->element({*this, op, v.index(), at});
  }
  std::vector<Value> operands;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (!op->operand(i)) {
      operands.emplace_back();
      continue;
    }
    const Place own = BroadcastPlace(at, Dims(op->operand(i)), Dims(op->result(0)), &space_);
    operands.push_back(At(op->operand(i), own));
  }
  return lb_.Elementwise(op, operands);
}

Value Elements::Load(Value v, const Place& at) {
  const Value index = Int(space_.Flatten(at, Dims(v)));
  return lb_.Load(memory_.at(v), {&index, 1});
}

Value Elements::AtFlat(Value v, const Dim& flat) {
  const auto memory = memory_.find(v);
  return memory == memory_.end() ? At(v, space_.Unflatten(flat, Dims(v)))
                                 : LoadFrom(memory->second, flat);
}

// The elements of a small constant are told apart by their number.
Value Elements::OfConstant(const Tensor& tensor, const Place& at) {
  const SymShape shape = SymShape::FromConstants(tensor.shape());
  const Dim flat = space_.Flatten(at, shape.dims);
  const Tensor all = tensor.Reshaped({tensor.num_elements()});
  const auto element = [&](int64_t i) {
    Tensor one(tensor.element_type(), {});
    const auto width = static_cast<size_t>(BitWidth(tensor.element_type()) / 8);
    std::copy_n(all.raw() + static_cast<size_t>(i) * width, width, one.mutable_raw());
    return lb_.Constant(one);
  };
  if (flat.is_constant()) return element(flat.value());
  Value value = element(0);
  const Value index = Int(flat);
  for (int64_t i = 1; i < tensor.num_elements(); ++i) {
    const Value matches = nn::EqualOp::Create(lb_.b(), index, lb_.Int(i)).c();
    value = nn::WhereOp::Create(lb_.b(), matches, element(i), value).output();
  }
  return value;
}

void Elements::Store(Value memory, const Dim& at, Value element) {
  const Value index = Int(at);
  lb_.Store(memory, element, {&index, 1});
}

// ---- loops within ----

// What is known inside of a loop is not known behind it.
void Elements::Forget(size_t outside) {
  for (; order_.size() > outside; order_.pop_back()) known_[order_.back()].pop_back();
}

void Elements::For(const Dim& extent, bool parallel,
                   const std::function<void(const Dim& i)>& body) {
  const size_t outside = order_.size();
  const auto inside = [&](Value i) { body(Loaded(i, extent)); };
  if (extent.is_constant()) {
    lb_.For(extent, parallel, inside);
  } else {
    lb_.For(Int(extent), parallel, inside);
  }
  Forget(outside);
}

std::vector<Value> Elements::For(const Dim& extent, std::vector<Value> initial, const Carry& body) {
  const size_t outside = order_.size();
  const auto inside = [&](Value i, std::span<const Value> before) {
    return body(Loaded(i, extent), before);
  };
  std::vector<Value> last = extent.is_constant() ? lb_.For(extent, initial, inside)
                                                 : lb_.For(Int(extent), initial, inside);
  Forget(outside);
  return last;
}

Value Elements::Scratch(ElementType element, const Dim& extent) {
  std::vector<Value> sizes;
  // In the symbols of the types, in which a caller knows it.
  Dim known = extent;
  for (size_t i = named_.size(); i-- > 0;) known = With(known, named_[i].second, named_[i].first);
  for (const Extents::Source& s : extents_.sources()) {
    known = With(known, Dim::Symbol(s.symbol), s.dim);
  }
  if (!extent.is_constant()) sizes.push_back(Int(extent));
  const Type type = TensorType::Get(lb_.context(), SymShape({known}), element);
  return loop::AllocOp::Create(lb_.b(), sizes, {&type, 1}).memory();
}

Value Elements::LoadFrom(Value memory, const Dim& at) {
  const Value index = Int(at);
  return lb_.Load(memory, {&index, 1});
}

Value Elements::Guarded(const Dim& condition, Value otherwise,
                        const std::function<Value()>& element) {
  if (condition.IsConstant(1)) return element();
  if (condition.IsConstant(0)) return otherwise;
  const size_t outside = order_.size();
  const Value result = lb_.For(Int(condition), {&otherwise, 1},
                               [&](Value, auto) { return std::vector<Value>{element()}; })[0];
  Forget(outside);
  return result;
}

Value Elements::Reduce(const std::vector<Dim>& extents, Value initial, const Step& next) {
  Place at;
  return ReduceAxis(extents, at, initial, next);
}

// As deep as there are axes.
Value Elements::ReduceAxis(const std::vector<Dim>& extents, Place& at, Value so_far,
                           const Step& next) {
  if (at.size() == extents.size()) return next(at, so_far);
  const Dim& extent = extents[at.size()];
  if (extent.IsConstant(0)) return so_far;
  const size_t outside = order_.size();
  const auto body = [&](Value i, std::span<const Value> carried) {
    at.push_back(Loaded(i, extent));
    const Value result = ReduceAxis(extents, at, carried[0], next);
    at.pop_back();
    return std::vector<Value>{result};
  };
  const Value result = extent.is_constant() ? lb_.For(extent, {&so_far, 1}, body)[0]
                                            : lb_.For(Int(extent), {&so_far, 1}, body)[0];
  Forget(outside);
  return result;
}

}  // namespace lathe::lower
