#include "lathe/dialect/nn/training.h"

#include <cmath>
#include <functional>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/operand_shape.h"

namespace lathe::nn {
namespace {

constexpr size_t kFirst = 2;  // operand of the first tensor

// The tensors come in `groups` lists of equal length; results are all lists but the gradients.
size_t ListLength(size_t inputs, size_t groups) {
  const size_t tensors = inputs < kFirst ? 0 : inputs - kFirst;
  if (tensors > 0 && tensors % groups == 0) return tensors / groups;
  eval::FailShape("shape/training",
                  StrCat(tensors, " tensors do not make ", groups, " lists of equal length"));
}

// The operand that result `i` continues.
size_t OperandOf(size_t i, size_t n) { return kFirst + (i < n ? i : i + n); }

void InferStep(InferShapeContext& c, size_t groups) {
  ExpectScalar(c, 0, "the learning rate");
  ExpectScalar(c, 1, "the number of steps");
  const size_t n = ListLength(c.num_inputs(), groups);
  for (size_t k = 0; k < n; ++k) {
    SymShape shape;
    for (size_t g = 0; g < groups; ++g) {
      const SymShape other = c.shape(kFirst + g * n + k);
      if (shape.ranked) ExpectShape(other, shape, "a tensor of the step");
      if (!shape.ranked) shape = other;
    }
  }
  if (c.num_outputs() > n * (groups - 1)) {
    c.Fail("shape/training", StrCat(c.num_outputs(), " results, ", n * (groups - 1), " are made"));
  }
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetType(i, c.input_type(OperandOf(i, n)));
}

double Only(EvalContext& c, size_t i) {
  if (c.input(i).num_elements() == 1) return ToDoubles(c.input(i))[0];
  c.Fail("shape/scalar", StrCat("operand ", i, " is ", c.input(i).TypeString()));
}

// f changes one element of each list: x, gradient, and the states.
using Update = std::function<void(double& x, double g, double& first, double& second)>;

void RunStep(EvalContext& c, size_t groups, const Update& f) {
  const size_t n = ListLength(c.num_inputs(), groups);
  for (size_t k = 0; k < n; ++k) {
    std::vector<std::vector<double>> lists(4);
    for (size_t g = 0; g < groups; ++g) {
      const Tensor& tensor = c.input(kFirst + g * n + k);
      ExpectShape(SymShape::FromConstants(tensor.shape()),
                  SymShape::FromConstants(c.input(kFirst + k).shape()), "a tensor of the step");
      lists[g] = ToDoubles(tensor);
    }
    for (size_t g = groups; g < lists.size(); ++g) lists[g].resize(lists[0].size());
    for (size_t i = 0; i < lists[0].size(); ++i) {
      f(lists[0][i], lists[1][i], lists[2][i], lists[3][i]);
    }
    for (size_t g = 0; g < groups; ++g) {
      if (g == 1) continue;
      const Tensor& like = c.input(kFirst + g * n + k);
      const size_t result = (g == 0 ? 0 : g - 1) * n + k;
      c.SetOutput(result, eval::FromDoubles(like.element_type(), like.shape(), lists[g]));
    }
  }
}

}  // namespace

void AdagradOp::InferShape(InferShapeContext& c) { InferStep(c, 3); }

void AdagradOp::Eval(EvalContext& c) {
  const AdagradOp op(c.op());
  const double rate = Only(c, kR) / (1 + Only(c, kT) * op.decay_factor());
  const double norm = op.norm_coefficient(), epsilon = op.epsilon();
  RunStep(c, 3, [=](double& x, double gradient, double& h, double&) {
    const double g = norm * x + gradient;
    h += g * g;
    x -= rate * g / (std::sqrt(h) + epsilon);
  });
}

void AdamOp::InferShape(InferShapeContext& c) { InferStep(c, 4); }

void AdamOp::Eval(EvalContext& c) {
  const AdamOp op(c.op());
  const double alpha = op.alpha(), beta = op.beta(), epsilon = op.epsilon(), t = Only(c, kT);
  const double norm = op.norm_coefficient(), post = op.norm_coefficient_post();
  double rate = Only(c, kR);
  if (t > 0) rate *= std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t));
  RunStep(c, 4, [=](double& x, double gradient, double& v, double& h) {
    const double g = norm * x + gradient;
    v = alpha * v + (1 - alpha) * g;
    h = beta * h + (1 - beta) * g * g;
    x = (1 - post) * (x - rate * v / (std::sqrt(h) + epsilon));
  });
}

void MomentumOp::InferShape(InferShapeContext& c) { InferStep(c, 3); }

void MomentumOp::Eval(EvalContext& c) {
  const MomentumOp op(c.op());
  const double alpha = op.alpha(), rate = Only(c, kR), norm = op.norm_coefficient();
  const double beta = Only(c, kT) > 0 ? op.beta() : 1;
  const bool nesterov = op.mode() == "nesterov";
  RunStep(c, 3, [=](double& x, double gradient, double& v, double&) {
    const double g = norm * x + gradient;
    v = alpha * v + beta * g;
    x -= rate * (nesterov ? g + alpha * v : v);
  });
}

}  // namespace lathe::nn
