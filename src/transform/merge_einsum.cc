#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

// Of two operands and the result: a letter per axis, each once.
using Terms = std::array<std::string, 3>;

// Whether a letter has one extent in both operands: one of them may be 1 otherwise.
bool AreEqual(nn::EinsumOp op, const Terms& terms) {
  const auto left = op->operand(0).type().cast<AnyTensorType>().dims();
  const auto right = op->operand(1).type().cast<AnyTensorType>().dims();
  for (size_t i = 0; i < terms[0].size(); ++i) {
    const size_t j = terms[1].find(terms[0][i]);
    if (j != std::string::npos && !ProvablyEqual(left[i], right[j])) return false;
  }
  return true;
}

std::optional<Terms> TermsOf(nn::EinsumOp op) {
  std::string text(op.equation());
  std::erase(text, ' ');
  const size_t comma = text.find(','), arrow = text.find("->");
  if (op->num_operands() != 2 || comma == std::string::npos || arrow == std::string::npos) {
    return std::nullopt;
  }
  if (comma > arrow || text.find('.') != std::string::npos) return std::nullopt;
  Terms terms{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
              text.substr(arrow + 2)};
  const auto has_rank = [](Value v, const std::string& term) {
    const auto type = v.type().dyn_cast<AnyTensorType>();
    return type && type.has_rank() && type.rank() == term.size();
  };
  const bool ranked = has_rank(op->operand(0), terms[0]) && has_rank(op->operand(1), terms[1]) &&
                      has_rank(op->result(0), terms[2]);
  for (std::string term : terms) {
    std::ranges::sort(term);
    if (std::ranges::adjacent_find(term) != term.end()) return std::nullopt;
  }
  return ranked && AreEqual(op, terms) ? std::optional(terms) : std::nullopt;
}

// Whether two letters stand side by side wherever one of them does.
bool AreOne(const Terms& terms, const std::string& pair) {
  return std::ranges::all_of(terms, [&](const std::string& term) {
    return term.find(pair) != std::string::npos || term.find_first_of(pair) == std::string::npos;
  });
}

// The shape operand of a reshape that gives `to` and copies the first `same` extents; nothing where
// more than one other is symbolic.
std::optional<Tensor> TargetOf(const std::vector<Dim>& to, size_t same) {
  std::vector<int64_t> target;
  for (size_t i = 0; i < to.size(); ++i) {
    const bool is_known = to[i].is_constant();
    if (is_known && to[i].value() == 0) return std::nullopt;
    target.push_back(i < same ? 0 : is_known ? to[i].value() : -1);
  }
  if (std::ranges::count(target, -1) > 1) return std::nullopt;
  const Shape shape{static_cast<int64_t>(target.size())};
  return Tensor::Of<int64_t>(shape, target);
}

}  // namespace

/// Axes of an einsum that stand side by side in every term become one, and what is a product with a
/// matrix then is a matmul: "bqhd,hde->bqe", as Keras and others write projections of heads.
class MergeEinsumPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    std::vector<Operation*> ops;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<nn::EinsumOp>()) ops.push_back(op);
    }
    for (Operation* op : ops) {
      while (op != nullptr) op = Merge(op);
    }
  }

 private:
  // The einsum with one axis less; null if it stays or is a matmul.
  Operation* Merge(Operation* op) {
    const auto terms = TermsOf(nn::EinsumOp(op));
    if (!terms || ToMatmul(op, *terms)) return nullptr;
    for (const std::string* term : {&(*terms)[0], &(*terms)[1]}) {
      for (size_t a = 0; a + 1 < term->size(); ++a) {
        const std::string pair = term->substr(a, 2);
        if (!AreOne(*terms, pair)) continue;
        if (Operation* merged = MergePair(op, *terms, pair)) return merged;
      }
    }
    return nullptr;
  }

  Operation* MergePair(Operation* op, const Terms& terms, const std::string& pair) {
    const Value values[] = {op->operand(0), op->operand(1), op->result(0)};
    std::optional<Tensor> targets[3];
    for (size_t t = 0; t < 3; ++t) {
      const size_t at = terms[t].find(pair);
      if (at == std::string::npos) continue;
      const auto dims = values[t].type().cast<AnyTensorType>().dims();
      std::vector<Dim> to(dims.begin(), dims.end());
      if (t < 2) {
        to[at] = to[at] * to[at + 1];
        to.erase(to.begin() + static_cast<ptrdiff_t>(at) + 1);
      }
      targets[t] = TargetOf(to, at);
      if (!targets[t]) return nullptr;
    }
    const Rewriter::Replacing replacing(*rewriter_, {&op, 1});
    const auto reshaped = [&](Value v, size_t t) {
      if (!targets[t]) return v;
      const Value operands[] = {v, rewriter_->Constant(*targets[t])};
      return rewriter_->Create(nn::kReshape, operands)->result(0);
    };
    std::string text;
    for (size_t t = 0; t < 3; ++t) {
      std::string term = terms[t];
      if (const size_t at = term.find(pair); at != std::string::npos) term.erase(at + 1, 1);
      text += StrCat(t == 0 ? "" : t == 1 ? "," : "->", term);
    }
    const Value operands[] = {reshaped(values[0], 0), reshaped(values[1], 1)};
    const NamedAttribute equation = rewriter_->Named("equation", rewriter_->Attr(text));
    Operation* merged = rewriter_->Create(nn::kEinsum, operands, {&equation, 1});
    rewriter_->Applied(op, StrCat("axes ", pair, " are one"));
    rewriter_->ReplaceOp(op, reshaped(merged->result(0), 2));
    Count("merged");
    return merged;
  }

  // "...k,kx->...x" or "...k,xk->...x"
  bool ToMatmul(Operation* op, const Terms& terms) {
    const auto& [left, right, result] = terms;
    if (left.empty() || right.size() != 2 || result.size() != left.size()) return false;
    const char k = left.back(), x = result.back();
    const std::string rows = left.substr(0, left.size() - 1);
    const bool plain = right == std::string{k, x}, transposed = right == std::string{x, k};
    if (k == x || !result.starts_with(rows) || rows.find(x) != std::string::npos) return false;
    if (!plain && !transposed) return false;
    const Rewriter::Replacing replacing(*rewriter_, {&op, 1});
    const Value operands[] = {op->operand(0), op->operand(1)};
    const NamedAttribute flag = rewriter_->Named("transpose_y", rewriter_->Attr(transposed));
    Operation* product = rewriter_->Create(nn::kMatmul, operands, {&flag, 1});
    rewriter_->Applied(op, "a product with a matrix");
    rewriter_->ReplaceOp(op, product->result(0));
    Count("products");
    return true;
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(merge_einsum, MergeEinsumPass)
    .Doc(
        "axes of an einsum that stand side by side in every term become one, and products with a "
        "matrix a matmul");

}  // namespace lathe
