#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/dialect/nn/einsum.h"

namespace lathe {

namespace {

// A letter per axis of each operand and of the result.
struct Spelling {
  std::vector<std::string> operands;
  std::string result;

  std::string Text() const {
    std::string text;
    for (const std::string& term : operands) text += term + ",";  // that of a scalar is empty
    text.pop_back();
    return text + "->" + result;
  }
};

bool Reads(std::string_view term, char letter) {
  return term.find(letter) != std::string_view::npos;
}

// Nothing if an operand's rank is unknown, or letters do not suffice.
std::optional<Spelling> SpellingOf(nn::EinsumOp op) {
  std::vector<SymShape> shapes;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const auto type = op->operand(i).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return std::nullopt;
    shapes.push_back(type.shape());
  }
  const std::string equation(op.equation());
  const nn::EinsumPlan plan = nn::EinsumPlan::Of(equation, shapes);
  std::string unused;
  for (char letter = 'A'; letter <= 'z'; ++letter) {
    const bool is_letter = letter <= 'Z' || letter >= 'a';
    if (is_letter && !Reads(equation, letter)) unused += letter;
  }
  bool suffices = true;
  const auto spelled = [&](const nn::EinsumPlan::Term& term) {
    std::string letters;
    for (const int label : term) {
      const auto dot = static_cast<size_t>(std::max(label - nn::EinsumPlan::kDots, 0));
      suffices &= dot < unused.size();
      letters += label < nn::EinsumPlan::kDots ? static_cast<char>(label)
                                               : unused[std::min(dot, unused.size() - 1)];
    }
    return letters;
  };
  Spelling spelling;
  for (const auto& term : plan.operands) spelling.operands.push_back(spelled(term));
  spelling.result = spelled(plan.result);
  return suffices ? std::optional(std::move(spelling)) : std::nullopt;
}

// Whether it sums over any axis.
bool Sums(const Spelling& spelling) {
  return std::ranges::any_of(spelling.operands, [&](const std::string& term) {
    return std::ranges::any_of(term, [&](char letter) { return !Reads(spelling.result, letter); });
  });
}

// Whether partial sums may be kept in it.
bool KeepsSums(Value v) {
  constexpr ElementType kWide[] = {ElementType::kF32, ElementType::kF64, ElementType::kI32,
                                   ElementType::kI64};
  const auto type = v.type().dyn_cast<AnyTensorType>();
  return type && std::ranges::find(kWide, type.element()) != std::end(kWide);
}

}  // namespace

/// An einsum says what it computes: a letter for each axis, instead of dots and an implied result;
/// two operands at a time, from the left, which takes a step per pair instead of one per element of
/// all; sums over an axis of one operand alone, and transposes, as what they are.
class ExpandEinsumPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    std::vector<Operation*> ops;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<nn::EinsumOp>()) ops.push_back(op);
    }
    for (Operation* op : ops) Expand(op);
  }

 private:
  void Expand(Operation* op) {
    const auto spelling = SpellingOf(nn::EinsumOp(op));
    if (!spelling) return;
    if (!KeepsSums(op->result(0))) return SpellOut(op, *spelling);
    const Rewriter::Replacing replacing(*rewriter_, {&op, 1});
    std::vector<Value> values;
    for (size_t i = 0; i < op->num_operands(); ++i) values.push_back(op->operand(i));
    Spelling rest = *spelling;
    bool changed = false;
    const bool folds = Sums(rest);  // products alone are one loop
    while (folds && rest.operands.size() > 2) {
      FoldPair(values, rest);
      changed = true;
    }
    for (size_t i = 0; i < values.size(); ++i) changed |= SumAlone(values, rest, i);
    if (rest.operands.size() == 1) {
      if (const auto moved = Moved(values[0], rest)) {
        rewriter_->Applied(op, "sums and a transpose");
        Count("expanded");
        return rewriter_->ReplaceOp(op, *moved);
      }
    }
    const std::string result = BatchFirst(rest);
    if (!changed && result == rest.result) return SpellOut(op, *spelling);
    const std::string asked = std::exchange(rest.result, result);
    const Value y = Product(values, rest);
    rewriter_->Applied(op, "two operands at a time");
    Count("expanded");
    rewriter_->ReplaceOp(op, Transposed(y, result, asked));
  }

  void SpellOut(Operation* op, const Spelling& spelling) {
    std::string text(nn::EinsumOp(op).equation());
    std::erase(text, ' ');
    if (text == spelling.Text()) return;
    rewriter_->SetAttribute(op, "equation", rewriter_->Attr(spelling.Text()));
    rewriter_->Applied(op, "a letter for each axis");
    Count("spelled out");
  }

  Value Product(const std::vector<Value>& values, const Spelling& spelling) {
    const NamedAttribute equation = rewriter_->Named("equation", rewriter_->Attr(spelling.Text()));
    return rewriter_->Create(nn::kEinsum, values, {&equation, 1})->result(0);
  }

  // The first two operands become one, with the letters that are read behind them.
  void FoldPair(std::vector<Value>& values, Spelling& spelling) {
    Spelling pair{{spelling.operands[0], spelling.operands[1]}, ""};
    std::string read = spelling.result;
    for (size_t i = 2; i < spelling.operands.size(); ++i) read += spelling.operands[i];
    for (const char letter : pair.operands[0] + pair.operands[1]) {
      if (Reads(read, letter) && !Reads(pair.result, letter)) pair.result += letter;
    }
    for (size_t i = 0; i < 2; ++i) {
      std::vector<Value> own{values[i]};
      Spelling alone{{pair.operands[i]}, pair.operands[1 - i] + pair.result};
      if (SumAlone(own, alone, 0)) {
        values[i] = own[0];
        pair.operands[i] = alone.operands[0];
      }
    }
    const Value product = Product({values[0], values[1]}, pair);
    values.erase(values.begin());
    values[0] = product;
    spelling.operands.erase(spelling.operands.begin());
    spelling.operands[0] = pair.result;
  }

  // Sums operand `i` over axes that nothing else reads. False if there are none.
  bool SumAlone(std::vector<Value>& values, Spelling& spelling, size_t i) {
    std::string& term = spelling.operands[i];
    std::string others = spelling.result;
    for (size_t o = 0; o < spelling.operands.size(); ++o) {
      if (o != i) others += spelling.operands[o];
    }
    std::vector<int64_t> axes;
    std::string left;
    for (size_t a = 0; a < term.size(); ++a) {
      if (std::ranges::count(term, term[a]) > 1 || Reads(others, term[a])) {
        left += term[a];
      } else {
        axes.push_back(static_cast<int64_t>(a));
      }
    }
    if (axes.empty()) return false;
    const Value operands[] = {values[i],
                              rewriter_->Constant(Tensor::Of<int64_t>({std::ssize(axes)}, axes))};
    const NamedAttribute keeps = rewriter_->Named("keepdims", rewriter_->Attr(false));
    values[i] = rewriter_->Create(nn::kReduceSum, operands, {&keeps, 1})->result(0);
    term = left;
    return true;
  }

  // The result of one operand if it is that, transposed.
  std::optional<Value> Moved(Value v, const Spelling& spelling) {
    const std::string& term = spelling.operands[0];
    if (!std::ranges::is_permutation(term, spelling.result)) return std::nullopt;
    return Transposed(v, term, spelling.result);
  }

  Value Transposed(Value v, const std::string& from, const std::string& to) {
    if (from == to) return v;
    std::vector<int64_t> order;
    for (const char letter : to) order.push_back(static_cast<int64_t>(from.find(letter)));
    const NamedAttribute perm = rewriter_->Named("perm", rewriter_->Attr(order));
    return rewriter_->Create(nn::kTranspose, {&v, 1}, {&perm, 1})->result(0);
  }

  // The letters of a result in the order in which products are fast: one whose last axis both
  // operands have is computed with such axes first.
  static std::string BatchFirst(const Spelling& spelling) {
    const std::string& result = spelling.result;
    if (spelling.operands.size() != 2 || result.empty()) return result;
    const std::string &left = spelling.operands[0], &right = spelling.operands[1];
    const auto is_batch = [&](char letter) { return Reads(left, letter) && Reads(right, letter); };
    std::string batch, own;
    for (const char letter : result) (is_batch(letter) ? batch : own) += letter;
    const auto of = [&](const std::string& term) {
      return std::ranges::any_of(own, [&](char letter) { return Reads(term, letter); });
    };
    const bool is_summed = std::ranges::any_of(
        left, [&](char letter) { return is_batch(letter) && !Reads(result, letter); });
    return is_batch(result.back()) && is_summed && of(left) && of(right) ? batch + own : result;
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(expand_einsum, ExpandEinsumPass)
    .Doc(
        "an einsum names each axis and has two operands; sums of one of them and transposes are "
        "apart");

}  // namespace lathe
