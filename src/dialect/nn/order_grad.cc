#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/order.h"
#include "src/dialect/nn/grad_parts.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

// The running sum of the gradient from the other end.
std::vector<Value> CumSumOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const CumSumOp op(o);
  const CumSumAttrs back{.exclusive = op.exclusive(), .reverse = !op.reverse()};
  return {CumSumOp::Create(b, g[0], op.axis(), back).y()};
}

// Of all products that contain an element, the others: where there is no zero, the product divided
// by the element; the first zero has those without it, and the others have none.
std::vector<Value> CumProdOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const CumProdOp op(o);
  const Term x(b, op.x()), dy(b, g[0]), zero = x.Number(0), one = x.Number(1);
  const auto sum = [&](const Term& of, bool exclusive, bool reverse) {
    const CumSumAttrs attrs{.exclusive = exclusive, .reverse = reverse};
    return Term(b, CumSumOp::Create(b, of, op.axis(), attrs).y());
  };
  const auto back = [&](const Term& of) { return sum(of, op.exclusive(), !op.reverse()); };
  const Value is_zero = Equal(x, zero);
  const Term zeros = AsNumbers(is_zero, x), others = Select(is_zero, one, x);
  const CumProdAttrs attrs{.exclusive = op.exclusive(), .reverse = op.reverse()};
  const Term product(b, CumProdOp::Create(b, others, op.axis(), attrs).y());
  const Term within = sum(zeros, op.exclusive(), op.reverse());
  const Term plain = back(dy * Term(b, op.y())) / others;
  const Term of_zero = back(Select(Equal(within, one), dy * product, zero));
  const Term before = sum(zeros, true, op.reverse());
  const Term of_first = Select(Equal(before, zero), of_zero, zero);
  return {Typed(Select(is_zero, of_first, plain), op.x()), Value()};
}

std::vector<Value> TopKOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const TopKOp op(o);
  const Value zeros = FilledLike(b, op.x(), 0);
  return {ScatterElementsOp::Create(b, zeros, op.indices(), g[0],
                                    {.axis = op.axis(), .reduction = "add"})
              .output(),
          Value()};
}

// To the first of equal elements or slices.
std::vector<Value> UniqueOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    const UniqueOp op(o);
    const Operation* all = inner.CreateInferred(o->info(), operands, o->attributes().entries(), 4);
    const Value from = op.axis() ? operands[kX] : Flat(inner, operands[kX]);
    return std::vector<Value>{
        GatherOp::Create(inner, from, all->result(kIndices), {.axis = op.axis().value_or(0)})
            .output()};
  });
}

}  // namespace lathe::nn
