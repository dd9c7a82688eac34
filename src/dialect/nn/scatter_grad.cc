#include <string_view>

#include "lathe/dialect/nn/indexing.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

// A scatter with any data and updates, and the gather of the same places.
struct Scatter {
  Operation* op;
  Builder& b;

  Value indices() const { return op->operand(1); }

  Term Gather(const Term& from) const {
    if (const auto elements = op->dyn_cast<ScatterElementsOp>()) {
      return {b, GatherElementsOp::Create(b, from, indices(), {.axis = elements.axis()}).output()};
    }
    return {b, GatherNdOp::Create(b, from, indices()).output()};
  }

  Term Put(const Term& data, const Term& updates, const char* reduction) const {
    if (const auto elements = op->dyn_cast<ScatterElementsOp>()) {
      return {b, ScatterElementsOp::Create(b, data, indices(), updates,
                                           {.axis = elements.axis(), .reduction = reduction})
                     .output()};
    }
    return {b, ScatterNdOp::Create(b, data, indices(), updates, {.reduction = reduction}).output()};
  }
};

using Both = std::vector<Value>;  // gradients of data, of indices (none), of updates

// Each factor's gradient is the product of the others, which is found without dividing by zero.
Both OfProduct(const Scatter& s, const Term& g, const Term& data, const Term& updates) {
  const Term zero = data.Number(0), one = data.Number(1);
  const Term is_zero = AsNumbers(Equal(updates, zero), data);
  const Term not_zero = Select(Equal(updates, zero), one, updates);
  const Term ones(s.b, FilledLike(s.b, data, 1)), zeros(s.b, FilledLike(s.b, data, 0));
  const Term product = s.Put(ones, updates, "mul");
  const Term nonzero_product = s.Gather(s.Put(ones, not_zero, "mul"));
  const Term other_zeros = s.Gather(s.Put(zeros, is_zero, "add")) - is_zero;
  const Term others = Select(Equal(other_zeros, zero), nonzero_product / not_zero, zero);
  return {g * product, Value(), s.Gather(g * data) * others};
}

// All that have the extreme value get an equal share.
Both OfExtreme(const Scatter& s, const Term& g, const Term& data, const Term& updates, Value y) {
  const Term result(s.b, y);
  const Term data_has = AsNumbers(Equal(data, result), data);
  const Term update_has = AsNumbers(Equal(updates, s.Gather(result)), data);
  const Term share = g / s.Put(data_has, update_has, "add");
  return {data_has * share, Value(), update_has * s.Gather(share)};
}

Both GradOfScatter(Operation* op, std::string_view reduction, Value grad, Builder& b) {
  if (reduction == "none") {
    const auto [data, updates] = GradsOfJoin(op, 0, 2, grad, b);
    return {data, Value(), updates};
  }
  const Scatter scatter{op, b};
  const Term g(b, grad), data(b, op->operand(0)), updates(b, op->operand(2));
  if (reduction == "add") return {grad, Value(), scatter.Gather(g)};
  if (reduction == "mul") return OfProduct(scatter, g, data, updates);
  return OfExtreme(scatter, g, data, updates, op->result(0));
}

}  // namespace

std::vector<Value> ScatterElementsOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradOfScatter(o, ScatterElementsOp(o).reduction(), g[0], b);
}

std::vector<Value> ScatterNdOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradOfScatter(o, ScatterNdOp(o).reduction(), g[0], b);
}

std::vector<Value> TensorScatterOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const auto [cache, update] = GradsOfJoin(o, kPastCache, kUpdate, g[0], b);
  return {cache, update, Value()};
}

std::vector<Value> OneHotOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {Value(), Value(), GradOfSelection(o, g[0], b, kValues)};
}

}  // namespace lathe::nn
