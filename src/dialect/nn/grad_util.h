#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lathe/ir/builder.h"
#include "src/dialect/nn/term.h"

// What rules of Grad are written with.
namespace lathe::nn {

// A constant vector of i64.
Value IntsConstant(Builder& b, std::span<const int64_t> values);
// A constant scalar of i64.
Value IntConstant(Builder& b, int64_t value);
// A constant, known when the gradient is made; nothing for any other value, or none.
std::optional<Tensor> ConstantTensor(Value v);
// The elements of a constant of integers; likewise.
std::optional<std::vector<int64_t>> ConstantInts(Value v);
// A tensor of the type and shape of `like` whose elements are all `value`.
Value FilledLike(Builder& b, Value like, double value);
// The gradient of a value that was broadcast: `grad` summed over what it was repeated along, in the
// shape of `like`. Slow where the declared shapes do not tell what that is.
Value SumTo(Builder& b, Value grad, Value like);
// `x` in the shape of `like`, which has as many elements.
Value ReshapeLike(Builder& b, Value x, Value like);
// All elements in one axis.
Value Flat(Builder& b, Value x);
// `v`, known to have the shape of `like`.
Value Typed(Value v, Value like);
// Of each element of x, its number in row-major order, in the shape of x.
Value Numbers(Builder& b, Value x);
// The gradient of an op whose result consists of elements of one operand and of nothing else:
// which, the op itself says when it is given their numbers.
Value GradOfSelection(Operation* op, Value grad, Builder& b, size_t operand = 0);
// The same of an op whose result also has zeros; it takes its operand 0 in f64, too.
Value GradOfSelectionOrZero(Operation* op, Value grad, Builder& b);
// The same of an op whose result consists of elements of two operands: the gradients of both.
std::pair<Value, Value> GradsOfJoin(Operation* op, size_t first, size_t second, Value grad,
                                    Builder& b);
// Zeros in the shape of `like`, to which the elements of `grad` are added at the numbers `at`.
Value AddedAt(Builder& b, Value like, Value at, Value grad);
// The rank of `v`; throws gradient/unknown-shape if it is unknown.
int64_t KnownRank(Value v);
// The extents of `v`; throws gradient/unknown-shape if one is unknown. Those before axis `from` are
// -1 unless known.
std::vector<int64_t> KnownShape(Value v, size_t from = 0);
// The extent of one axis; likewise.
int64_t KnownExtent(Value v, size_t axis);
// `axis` in [0, rank).
int64_t FrontAxis(int64_t axis, int64_t rank);
[[noreturn]] void FailGradient(const Operation* op, std::string_view why);

Term operator-(Term x);
Term operator-(double x, Term y);
Term operator*(double x, Term y);
Term Tanh(Term x);
// x where the condition holds, else y.
Term Select(Value condition, Term x, Term y);
Value Less(Term x, Term y);
Value Equal(Term x, Term y);
// The truth values as numbers of the type of `like`.
Term AsNumbers(Value truth, Term like);

}  // namespace lathe::nn
