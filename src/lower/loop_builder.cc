#include "lathe/lower/loop_builder.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/loop/vector.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/lower/lower_function.h"
#include "lathe/support/error.h"
#include "src/lower/budget.h"

namespace lathe::lower {

namespace {

// A scalar, or a vector of `lanes`.
Type RegisterType(IrContext& context, ElementType element, int64_t lanes) {
  std::vector<Dim> dims;
  if (lanes > 0) dims.emplace_back(lanes);
  return VTensorType::Get(context, SymShape(dims), element);
}

}  // namespace

LoopBuilder::LoopBuilder(Block* block) : b_(Builder::AtEnd(block)), top_(block) {}

void LoopBuilder::Count() {
  if (++written_ > kMaxOperations) ThrowTooLong(kMaxOperations);
}

Value LoopBuilder::Int(int64_t value) { return Index(Dim(value), std::span<const Value>()); }

std::optional<int64_t> LoopBuilder::Known(Value v) {
  Operation* op = v.defining_op();
  const auto index = op == nullptr ? loop::IndexOp() : op->dyn_cast<loop::IndexOp>();
  if (!index) return std::nullopt;
  const Dim& expr = op->attribute("expr").cast<DimAttribute>().value();
  return expr.is_constant() ? std::optional(expr.value()) : std::nullopt;
}

Value LoopBuilder::Index(const Dim& expr, std::span<const Value> symbols) {
  Count();
  std::vector<Value> open;  // those that are not known
  const Dim folded = expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
    const Value v = symbols[static_cast<size_t>(std::stoul(std::string(name.substr(1))))];
    if (const auto known = Known(v)) return Dim(*known);
    const auto at = std::ranges::find(open, v);
    const auto number = at - open.begin();
    if (at == open.end()) open.push_back(v);
    return Dim::Symbol(StrCat("d", number));
  });
  if (folded == D0()) return open[0];
  return loop::IndexOp::Create(b_, open, {.expr = DimAttribute::Get(context(), folded)}).value();
}

Value LoopBuilder::Extent(const Dim& dim) {
  if (dim.is_constant()) return Int(dim.value());
  for (size_t i = 0; i < top_->num_arguments(); ++i) {
    const auto type = top_->argument(i).type().dyn_cast<AnyTensorType>();
    for (size_t axis = 0; type && axis < type.rank(); ++axis) {
      if (type.dims()[axis] == dim) {
        return loop::DimOp::Create(b_, top_->argument(i), {.axis = static_cast<int64_t>(axis)})
            .value();
      }
    }
  }
  for (const auto& [known, extent] : defined_) {
    if (known == dim) return extent;
  }
  std::vector<std::string> names;
  dim.CollectSymbols(names);
  if (dim.is_symbol()) {
    if (const Value part = PartOfExtent(dim)) return part;
  }
  if (names.empty() || dim.is_symbol()) {
    throw Error(ErrorCode::kUnsupported, "lower/dim",
                StrCat("no argument has extent ", dim.ToString()));
  }
  std::vector<Value> symbols;
  for (const std::string& name : names) symbols.push_back(Extent(Dim::Symbol(name)));
  const Dim expr = dim.Substitute([&](std::string_view name) -> std::optional<Dim> {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return Dim::Symbol(StrCat("d", i));
    }
    return std::nullopt;
  });
  return Index(expr, symbols);
}

Value LoopBuilder::PartOfExtent(const Dim& symbol) {
  for (size_t i = 0; i < top_->num_arguments(); ++i) {
    const auto type = top_->argument(i).type().dyn_cast<AnyTensorType>();
    for (size_t axis = 0; type && axis < type.rank(); ++axis) {
      const Dim& whole = type.dims()[axis];
      if (whole.is_constant() || whole.is_unknown()) continue;
      const Dim factor = whole.Substitute([&](std::string_view name) {
        return name == symbol.symbol_name() ? std::optional<Dim>(1) : std::nullopt;
      });
      if (!factor.is_constant() || factor.value() < 1 || whole != symbol * factor) continue;
      return Index(FloorDiv(D0(), factor), Extent(whole));
    }
  }
  return {};
}

Operation* LoopBuilder::OpenLoop(const Dim& extent, std::span<const Value> initial, bool parallel) {
  if (!extent.is_constant()) return OpenLoop(Extent(extent), initial, {.parallel = parallel});
  return OpenLoop(Value(), initial, {.extent = extent.value(), .parallel = parallel});
}

Operation* LoopBuilder::OpenLoop(Value size, std::span<const Value> initial,
                                 loop::ForOp::Attrs attrs) {
  std::vector<Type> types;
  for (const Value v : initial) types.push_back(v.type());
  Operation* op = loop::ForOp::Create(b_, size, initial, types, attrs).operation();
  Block* body = op->region(0).AddBlock();
  body->AddArgument(RegisterType(context(), ElementType::kI64, 0));
  for (const Type type : types) body->AddArgument(type);
  b_.SetInsertionPointToEnd(body);
  return op;
}

void LoopBuilder::CloseLoop(Operation* op, Block* around, const Body& body) {
  body(op->region(0).front()->argument(0));
  cf::YieldOp::Create(b_, {});
  b_.SetInsertionPointToEnd(around);
}

void LoopBuilder::For(const Dim& extent, bool parallel, const Body& body) {
  if (extent.IsConstant(0)) return;
  if (extent.IsConstant(1)) return body(Int(0));
  Block* around = b_.block();
  CloseLoop(OpenLoop(extent, {}, parallel), around, body);
}

void LoopBuilder::For(Value extent, bool parallel, const Body& body) {
  if (const auto known = Known(extent)) return For(Dim(*known), parallel, body);
  Block* around = b_.block();
  CloseLoop(OpenLoop(extent, {}, {.parallel = parallel}), around, body);
}

std::vector<Value> LoopBuilder::For(const Dim& extent, std::span<const Value> initial,
                                    const CarryingBody& body) {
  Block* around = b_.block();
  return CloseLoop(OpenLoop(extent, initial, false), around, body);
}

std::vector<Value> LoopBuilder::For(Value extent, std::span<const Value> initial,
                                    const CarryingBody& body) {
  if (const auto known = Known(extent)) return For(Dim(*known), initial, body);
  Block* around = b_.block();
  return CloseLoop(OpenLoop(extent, initial, {}), around, body);
}

std::vector<Value> LoopBuilder::CloseLoop(Operation* op, Block* around, const CarryingBody& body) {
  Block* inside = op->region(0).front();
  std::vector<Value> carried;
  for (size_t i = 1; i < inside->num_arguments(); ++i) carried.push_back(inside->argument(i));
  cf::YieldOp::Create(b_, body(inside->argument(0), carried));
  b_.SetInsertionPointToEnd(around);
  std::vector<Value> results;
  for (size_t i = 0; i < op->num_results(); ++i) results.push_back(op->result(i));
  return results;
}

Value LoopBuilder::Alloc(AnyTensorType type) {
  std::vector<Value> sizes;
  if (!type.is_static()) {
    for (const Dim& dim : type.dims()) sizes.push_back(Extent(dim));
  }
  const Type memory = type.AsMutable();
  return loop::AllocOp::Create(b_, sizes, {&memory, 1}).memory();
}

Value LoopBuilder::Load(Value memory, std::span<const Value> indices, int64_t lanes, Value live) {
  Count();
  return loop::LoadOp::Create(b_, memory, live, indices, {.lanes = lanes}).value();
}

void LoopBuilder::Store(Value memory, Value value, std::span<const Value> indices, Value live) {
  loop::StoreInplaceOp::Create(b_, memory, value, live, indices);
}

Value LoopBuilder::LoadApart(Value memory, std::span<const Value> indices, int64_t lanes,
                             int64_t axis, int64_t stride, Value live) {
  const loop::LoadOp::Attrs attrs{.lanes = lanes, .axis = axis, .stride = stride};
  return loop::LoadOp::Create(b_, memory, live, indices, attrs).value();
}

void LoopBuilder::StoreApart(Value memory, Value value, std::span<const Value> indices,
                             int64_t axis, int64_t stride, Value live) {
  loop::StoreInplaceOp::Create(b_, memory, value, live, indices, {.axis = axis, .stride = stride});
}

Value LoopBuilder::Gather(Value memory, std::span<const Value> indices, Value live) {
  return loop::GatherOp::Create(b_, memory, live, indices).value();
}

void LoopBuilder::Return(std::span<const Value> results) {
  std::vector<Value> values;
  for (const Value memory : results) {
    values.push_back(builtin::ToVtensorOp::Create(b_, memory).y());
  }
  builtin::ReturnOp::Create(b_, values);
}

void LoopBuilder::Prefetch(Value memory, std::span<const Value> indices) {
  loop::PrefetchOp::Create(b_, memory, indices);
}

Value LoopBuilder::Reduce(std::string_view kind, Value vector) {
  return loop::ReduceOp::Create(b_, vector, {.kind = std::string(kind)}).y();
}

std::vector<Value> LoopBuilder::Transpose(std::span<const Value> rows) {
  return loop::TransposeOp::Create(b_, rows, rows.size()).columns();
}

Value LoopBuilder::Interleave(std::span<const Value> parts) {
  return parts.size() == 1 ? parts[0] : loop::InterleaveOp::Create(b_, parts).y();
}

Value LoopBuilder::Flat(Value memory) {
  if (TensorOf(memory).rank() == 1) return memory;
  return nn::ViewReshapeOp::Create(b_, memory, {.shape = {-1}}).y();
}

Value LoopBuilder::Grouped(Value memory, std::span<const int64_t> groups) {
  const auto dims = memory.type().cast<AnyTensorType>().dims();
  std::vector<int64_t> shape;
  size_t next = 0;
  for (const int64_t group : groups) {
    Dim extent = 1;
    for (int64_t i = 0; i < group; ++i) extent *= dims[next++];
    shape.push_back(extent.is_constant() ? extent.value() : -1);
  }
  nn::ViewReshapeOp::Attrs attrs{.shape = shape};
  if (std::ranges::count(shape, -1) > 1) attrs.groups.emplace(groups.begin(), groups.end());
  return nn::ViewReshapeOp::Create(b_, memory, attrs).y();
}

Value LoopBuilder::Narrow(std::span<const Value> parts) {
  return loop::NarrowOp::Create(b_, parts).y();
}

Value LoopBuilder::As(Value v, ElementType to) {
  if (TensorOf(v).element() == to) return v;
  return nn::CastOp::Create(b_, v, {.to = to}).output();
}

Value LoopBuilder::DotPairs(Value a, Value b, Value sums) {
  Count();
  return loop::DotPairsOp::Create(b_, a, b, sums).y();
}

Value LoopBuilder::Dot(Value a, Value b, Value sums) {
  Count();
  return loop::DotOp::Create(b_, a, b, sums).y();
}

Value LoopBuilder::Constant(const Tensor& value) {
  Count();
  return builtin::ConstantOp::Create(b_, {.value = value}).result();
}

Value LoopBuilder::Splat(ElementType element, double value, int64_t lanes) {
  const Shape shape = lanes > 0 ? Shape{lanes} : Shape{};
  const std::vector<double> values(static_cast<size_t>(lanes > 0 ? lanes : 1), value);
  return Constant(Cast(Tensor::Of<double>(shape, values), element));
}

Value LoopBuilder::Widen(Value value, int64_t lanes) {
  if (value.type().cast<AnyTensorType>().rank() == 1) return value;
  const Value everywhere = Splat(ElementType::kBool, 1, lanes);
  return nn::WhereOp::Create(b_, everywhere, value, value).output();
}

Value LoopBuilder::Elementwise(const Operation* op, std::span<const Value> operands) {
  Count();
  int64_t lanes = 0;
  for (const Value v : operands) {
    if (!v) continue;
    const auto type = v.type().cast<AnyTensorType>();
    if (type.rank() == 1) lanes = type.dims()[0].value();
  }
  const ElementType element = op->result(0).type().cast<AnyTensorType>().element();
  const Type type = RegisterType(context(), element, lanes);
  return b_.Create(op->info(), operands, op->attributes().entries(), {&type, 1})->result(0);
}

}  // namespace lathe::lower
