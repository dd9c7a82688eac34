#include "src/dialect/nn/einsum.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"

namespace lathe::nn {
namespace {

using Term = EinsumPlan::Term;

constexpr int kDots = EinsumPlan::kDots;

struct Equation {
  std::vector<Term> operands;
  Term result;
};

[[noreturn]] void Fail(std::string message, std::string hint = "") {
  eval::FailShape("shape/einsum", std::move(message), std::move(hint));
}

size_t LettersOf(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char ch) {
    return std::isalpha(static_cast<unsigned char>(ch)) != 0;
  }));
}

// The labels of one term whose "..." stands for `dots` dims.
Term ParseTerm(std::string_view text, size_t dots) {
  Term term;
  bool had_dots = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      term.push_back(static_cast<unsigned char>(text[i]));
    } else if (text.substr(i, 3) == "..." && !had_dots) {
      for (size_t d = dots; d-- > 0;) term.push_back(kDots + static_cast<int>(d));
      had_dots = true;
      i += 2;
    } else {
      Fail(StrCat("the term '", text, "' is not a sequence of letters with at most one '...'"));
    }
  }
  return term;
}

bool HasDots(std::string_view text) { return text.find("...") != std::string_view::npos; }

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char ch : text) {
    if (ch == ',') {
      parts.emplace_back();
    } else {
      parts.back() += ch;
    }
  }
  return parts;
}

// "..." and then the letters that occur once, in ASCII order.
Term ImplicitResult(const std::vector<Term>& operands, size_t dots) {
  std::array<int, kDots> count{};
  for (const Term& term : operands) {
    for (int label : term) {
      if (label < kDots) ++count[static_cast<size_t>(label)];
    }
  }
  Term result;
  for (size_t d = dots; d-- > 0;) result.push_back(kDots + static_cast<int>(d));
  for (int label = 0; label < kDots; ++label) {
    if (count[static_cast<size_t>(label)] == 1) result.push_back(label);
  }
  return result;
}

Term ExplicitResult(const std::vector<Term>& operands, const std::string& text, size_t dots) {
  Term result = ParseTerm(text, dots);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto has = [&](const Term& t) { return std::count(t.begin(), t.end(), result[i]) > 0; };
    if (std::none_of(operands.begin(), operands.end(), has)) {
      Fail(StrCat("'", static_cast<char>(result[i]), "' of the result is in no operand"));
    }
    if (std::count(result.begin(), result.end(), result[i]) > 1) {
      Fail(StrCat("'", static_cast<char>(result[i]), "' is twice in the result"));
    }
  }
  return result;
}

// How many dims "..." stands for in an operand of this rank.
size_t DotsOf(const std::string& text, size_t rank) {
  const size_t letters = LettersOf(text);
  if (letters > rank || (letters < rank && !HasDots(text))) {
    Fail(StrCat("the term '", text, "' has ", letters, " letters for an operand of rank ", rank),
         "a term has one letter for each dim, or '...' for the dims that it does not name");
  }
  return rank - letters;
}

Equation Parse(std::string_view equation, std::span<const size_t> ranks) {
  std::string text(equation);
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  const std::vector<std::string> terms = Split(text.substr(0, arrow));
  if (terms.size() != ranks.size()) {
    Fail(StrCat("the equation '", equation, "' has ", terms.size(), " terms for ", ranks.size(),
                " operands"));
  }
  Equation result;
  size_t dots = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const size_t own = DotsOf(terms[i], ranks[i]);
    result.operands.push_back(ParseTerm(terms[i], own));
    dots = std::max(dots, own);
  }
  result.result = arrow == std::string::npos
                      ? ImplicitResult(result.operands, dots)
                      : ExplicitResult(result.operands, text.substr(arrow + 2), dots);
  return result;
}

using Extents = EinsumPlan::Extents;

Dim* Find(Extents& extents, int label) {
  for (auto& [key, extent] : extents) {
    if (key == label) return &extent;
  }
  return nullptr;
}

Extents ExtentsOf(const Equation& equation, std::span<const SymShape> shapes) {
  Extents extents;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Term& term = equation.operands[i];
    for (size_t d = 0; d < term.size(); ++d) {
      const Dim& extent = shapes[i].dims[d];
      Dim* known = Find(extents, term[d]);
      if (known == nullptr) {
        extents.emplace_back(term[d], extent);
      } else {
        Assume(SizeCondition::Broadcast(*known, extent), "shape/einsum", [&] {
          return StrCat("dim ", d, " of operand ", i, " has extent ", extent.ToString(),
                        ", elsewhere the same label has ", known->ToString());
        });
        *known = Broadcast(*known, extent);
      }
    }
  }
  return extents;
}

}  // namespace

EinsumPlan EinsumPlan::Of(std::string_view text, std::span<const SymShape> shapes) {
  std::vector<size_t> ranks;
  for (const SymShape& shape : shapes) ranks.push_back(shape.rank());
  const Equation equation = Parse(text, ranks);
  EinsumPlan plan;
  plan.extents = ExtentsOf(equation, shapes);
  plan.operands = equation.operands;
  plan.result = equation.result;
  std::vector<Dim> dims;
  for (int label : plan.result) dims.push_back(*Find(plan.extents, label));
  plan.shape = SymShape(std::move(dims));
  for (const auto& [label, extent] : plan.extents) {
    if (std::count(plan.result.begin(), plan.result.end(), label) == 0) {
      plan.summed.push_back(label);
    }
  }
  return plan;
}

const Dim& EinsumPlan::ExtentOf(int label) const {
  return *Find(const_cast<Extents&>(extents), label);
}

namespace {

// Extents of some labels, and per operand how far a step along each goes.
struct Loop {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;  // [label][operand]
};

Loop LoopOver(const EinsumPlan& plan, std::span<const int> labels, std::span<const Shape> shapes) {
  Loop loop;
  for (int label : labels) {
    loop.extents.push_back(plan.ExtentOf(label).value());
    std::vector<int64_t> strides;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::vector<int64_t> own = eval::RowMajorStrides(shapes[i]);
      int64_t stride = 0;
      for (size_t d = 0; d < own.size(); ++d) {
        if (plan.operands[i][d] == label && shapes[i][d] != 1) stride += own[d];
      }
      strides.push_back(stride);
    }
    loop.strides.push_back(std::move(strides));
  }
  return loop;
}

// Steps through `loop`; `at` are the positions in the operands. False behind the last step.
bool Step(const Loop& loop, std::vector<int64_t>& index, std::vector<int64_t>& at) {
  for (size_t d = loop.extents.size(); d-- > 0;) {
    const bool carry = ++index[d] == loop.extents[d];
    const int64_t steps = carry ? 1 - loop.extents[d] : 1;
    for (size_t i = 0; i < at.size(); ++i) at[i] += steps * loop.strides[d][i];
    if (!carry) return true;
    index[d] = 0;
  }
  return false;
}

template <class Acc>
Tensor Evaluate(const EinsumPlan& plan, std::span<const Tensor> inputs, const Shape& shape) {
  Tensor result(inputs[0].element_type(), shape);  // first, since it checks the size
  std::vector<Shape> shapes;
  std::vector<std::vector<Acc>> values;
  for (const Tensor& input : inputs) {
    shapes.push_back(input.shape());
    values.push_back(eval::LoadAll<Acc>(input));
  }
  const Loop outer = LoopOver(plan, plan.result, shapes);
  const Loop inner = LoopOver(plan, plan.summed, shapes);
  std::vector<Acc> sums(static_cast<size_t>(NumElements(shape)));
  const bool nothing = std::count(inner.extents.begin(), inner.extents.end(), 0) > 0;
  std::vector<int64_t> outer_index(outer.extents.size());
  std::vector<int64_t> inner_index(inner.extents.size());
  std::vector<int64_t> at(inputs.size());
  for (Acc& sum : sums) {
    if (nothing) break;
    do {
      Acc product{1};
      for (size_t i = 0; i < at.size(); ++i) product *= values[i][static_cast<size_t>(at[i])];
      sum += product;
    } while (Step(inner, inner_index, at));
    static_cast<void>(Step(outer, outer_index, at));
  }
  eval::Store<Acc>(result.element_type(), result.mutable_raw(), 0, result.num_elements(),
                   sums.data());
  return result;
}

}  // namespace

void EinsumOp::InferShape(InferShapeContext& c) {
  std::vector<SymShape> shapes;
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    shapes.push_back(c.shape(i));
    if (!shapes.back().ranked) return c.SetShape(kY, SymShape());
  }
  c.SetShape(kY, EinsumPlan::Of(EinsumOp(c.op()).equation(), shapes).shape);
}

void EinsumOp::Eval(EvalContext& c) {
  std::vector<Tensor> inputs;
  std::vector<SymShape> shapes;
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    inputs.push_back(c.input(i));
    shapes.push_back(SymShape::FromConstants(inputs.back().shape()));
  }
  const EinsumPlan plan = EinsumPlan::Of(EinsumOp(c.op()).equation(), shapes);
  const Shape shape = plan.shape.Constants().value();
  c.SetOutput(kY, IsFloat(inputs[0].element_type()) ? Evaluate<double>(plan, inputs, shape)
                                                    : Evaluate<uint64_t>(plan, inputs, shape));
}

// One multiply-add for each point of the space of all labels and each operand but the first.
Dim EinsumOp::Flops(Operation* o) {
  std::vector<SymShape> shapes;
  for (size_t i = 0; i < o->num_operands(); ++i) {
    shapes.push_back(ShapeOf(o->operand(i)));
    if (!shapes.back().ranked) return Dim::Unknown();
  }
  Dim flops = 2 * std::max<int64_t>(1, static_cast<int64_t>(shapes.size()) - 1);
  for (const auto& [label, extent] : EinsumPlan::Of(EinsumOp(o).equation(), shapes).extents) {
    flops *= extent;
  }
  return flops;
}

}  // namespace lathe::nn
