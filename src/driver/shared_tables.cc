#include "src/driver/shared_tables.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/builder.h"
#include "src/lower/pack.h"

namespace lathe {
namespace {

constexpr size_t kLarge = 1 << 20;  // bytes; below, it is not worth slower rows

// Only slices along the outermost axis are taken of it.
bool IsTable(Value argument) {
  if (argument.use_empty() || !argument.type().cast<AnyTensorType>().is_static()) return false;
  return std::ranges::all_of(argument.uses(), [](const OpOperand use) {
    const auto gather = use.owner()->dyn_cast<nn::GatherOp>();
    return gather && gather.axis() == 0 && use.index() == nn::GatherOp::kData;
  });
}

bool IsReadByOthers(const Operation* source, const std::vector<Operation*>& calls) {
  return std::ranges::any_of(source->result(0).uses(), [&](const OpOperand use) {
    return std::ranges::count(calls, use.owner()) == 0;
  });
}

Value Ints(Builder& b, const Shape& values) {
  const Shape shape{std::ssize(values)};
  return builtin::ConstantOp::Create(b, {.value = Tensor::Of<int64_t>(shape, values)}).result();
}

Value OfShape(Value v, const Shape& shape) {
  const std::vector<Dim> dims(shape.begin(), shape.end());
  const auto type = v.type().cast<AnyTensorType>();
  v.set_type(VTensorType::Get(*v.context(), SymShape(dims), type.element()));
  return v;
}

// The tensor of that shape which was packed so.
Value Unpacked(Builder& b, Value packed, const lower::PackedLayout& layout, const Shape& shape) {
  std::vector<int64_t> back(layout.order.size());
  for (size_t i = 0; i < back.size(); ++i) {
    back[static_cast<size_t>(layout.order[i])] = static_cast<int64_t>(i);
  }
  const Value split = nn::TransposeOp::Create(b, packed, {.perm = back}).transposed();
  const Value to = Ints(b, layout.padded);
  const Value padded = OfShape(nn::ReshapeOp::Create(b, split, to).reshaped(), layout.padded);
  if (layout.padded == shape) return padded;
  const Value zeros = Ints(b, Shape(shape.size(), 0)), ends = Ints(b, shape);
  return OfShape(nn::SliceOp::Create(b, padded, zeros, ends, {}, {}).output(), shape);
}

// The order in which the constants of all calls are wanted anyway; null if there is none.
const lower::PackedLayout* CommonOrder(const std::vector<Operation*>& calls, size_t i,
                                       const PackedOrders& orders) {
  for (const lower::PackedLayout& order : orders.Of(calls[0]->operand(i).defining_op())) {
    const bool has_elements = order.element == ElementType::kUndefined;
    if (!has_elements || !order.sums.empty() || !order.parts.empty()) continue;
    const bool has_all = std::ranges::all_of(calls, [&](const Operation* call) {
      return orders.Has(call->operand(i).defining_op(), order);
    });
    if (has_all) return &order;
  }
  return nullptr;
}

}  // namespace

bool SharesTable(const Operation* function, const FunctionCalls& calls, const Program& program) {
  const Block& body = *function->region(0).front();
  const std::vector<Operation*>& own = calls.Of(function);
  const std::vector<bool> constant = calls.ConstantArguments(function);
  for (size_t i = 0; i < body.num_arguments(); ++i) {
    if (!constant[i] || !IsTable(body.argument(i))) continue;
    const bool is_shared = std::ranges::all_of(own, [&](const Operation* call) {
      const Operation* source = call->operand(i).defining_op();
      return ConstantTensor(program, source)->byte_size() >= kLarge && IsReadByOthers(source, own);
    });
    if (is_shared) return true;
  }
  return false;
}

std::vector<lower::PackedLayout> PackedTables(const Operation* function, const FunctionCalls& calls,
                                              const PackedOrders& orders) {
  std::vector<lower::PackedLayout> tables;
  const Block& body = *function->region(0).front();
  const std::vector<Operation*>& own = calls.Of(function);
  for (size_t i = 0; i < body.num_arguments(); ++i) {
    if (own.empty() || !IsTable(body.argument(i))) continue;
    const lower::PackedLayout* found = CommonOrder(own, i, orders);
    if (found == nullptr) continue;
    tables.push_back(*found);
    tables.back().argument = i;
  }
  return tables;
}

void ReadPackedTables(Operation* function, std::span<const lower::PackedLayout> tables) {
  Block& body = *function->region(0).front();
  for (const lower::PackedLayout& layout : tables) {
    const Value argument = body.argument(layout.argument);
    const auto type = argument.type().cast<AnyTensorType>();
    std::vector<OpOperand> uses;
    for (const OpOperand use : argument.uses()) uses.push_back(use);
    argument.set_type(lower::PackedType(type, layout));
    Builder b = Builder::Before(body.front());
    const Value table = Unpacked(b, argument, layout, *type.shape().Constants());
    for (const OpOperand use : uses) use.Set(table);
  }
}

}  // namespace lathe
