#include "lathe/support/dim.h"

#include <algorithm>
#include <utility>

#include "lathe/support/error.h"
#include "lathe/support/hash.h"
#include "src/support/dim_node.h"

namespace lathe {

using internal::DimKind;
using internal::DimNode;
using internal::DimPoly;
using internal::DimTerm;

namespace internal {
namespace {

// Products of sums with more terms than this are not worth having.
constexpr size_t kMaxProductTerms = 4 * Dim::kMaxSize;

uint64_t HashOf(const DimNode& node) {
  uint64_t hash = HashCombine(static_cast<uint64_t>(node.kind) + 2, node.operands.size());
  hash = HashString(node.name, hash);
  for (const Dim& operand : node.operands) hash = HashCombine(hash, operand.Hash());
  hash = HashCombine(hash, static_cast<uint64_t>(node.sum.constant));
  for (const DimTerm& term : node.sum.terms) {
    hash = HashCombine(hash, static_cast<uint64_t>(term.coefficient));
    for (const Dim& factor : term.factors) hash = HashCombine(hash, factor.Hash());
  }
  return hash;
}

void Include(DimNode& node, const Dim& child) {
  const DimNode* inner = DimNode::Of(child);
  node.size += inner == nullptr ? 1 : inner->size;
  node.depth = std::max(node.depth, 1 + (inner == nullptr ? 1U : inner->depth));
}

Dim Finish(DimNode* node) {
  Dim result = DimNode::Adopt(node);
  for (const Dim& operand : node->operands) Include(*node, operand);
  for (const DimTerm& term : node->sum.terms) {
    node->size += 1;
    for (const Dim& factor : term.factors) Include(*node, factor);
  }
  if (node->size > Dim::kMaxSize || node->depth > Dim::kMaxDepth) return Dim::Unknown();
  node->hash = HashOf(*node);
  node->bounds = FindBounds(*node);
  return result;
}

int CompareSums(const DimPoly& a, const DimPoly& b) {
  const size_t common = std::min(a.terms.size(), b.terms.size());
  for (size_t i = 0; i < common; ++i) {
    const int order = Compare(a.terms[i].factors, b.terms[i].factors);
    if (order != 0) return order;
    if (a.terms[i].coefficient != b.terms[i].coefficient) {
      return a.terms[i].coefficient < b.terms[i].coefficient ? -1 : 1;
    }
  }
  if (a.terms.size() != b.terms.size()) return a.terms.size() < b.terms.size() ? -1 : 1;
  return a.constant == b.constant ? 0 : a.constant < b.constant ? -1 : 1;
}

DimKind KindOf(const Dim& dim) {
  const DimNode* node = DimNode::Of(dim);
  return node == nullptr ? DimKind::kConstant : node->kind;
}

// Sorts, merges equal products, drops zeros. False on overflow.
bool Normalize(std::vector<DimTerm>& terms) {
  std::sort(terms.begin(), terms.end(),
            [](const DimTerm& a, const DimTerm& b) { return Compare(a.factors, b.factors) < 0; });
  std::vector<DimTerm> merged;
  for (DimTerm& term : terms) {
    const bool same = !merged.empty() && Compare(merged.back().factors, term.factors) == 0;
    if (!same) {
      merged.push_back(std::move(term));
      continue;
    }
    int64_t& sum = merged.back().coefficient;
    if (__builtin_add_overflow(sum, term.coefficient, &sum)) return false;
  }
  std::erase_if(merged, [](const DimTerm& term) { return term.coefficient == 0; });
  terms = std::move(merged);
  return true;
}

// Appends a * b for two terms with factors; false on overflow.
bool AppendProduct(const DimTerm& a, const DimTerm& b, std::vector<DimTerm>& out) {
  DimTerm product;
  if (__builtin_mul_overflow(a.coefficient, b.coefficient, &product.coefficient)) return false;
  product.factors = a.factors;
  product.factors.insert(product.factors.end(), b.factors.begin(), b.factors.end());
  if (product.factors.size() > Dim::kMaxSize) return false;
  std::sort(product.factors.begin(), product.factors.end(),
            [](const Dim& x, const Dim& y) { return Compare(x, y) < 0; });
  out.push_back(std::move(product));
  return true;
}

}  // namespace

const DimNode* ExpressionOf(const Dim& dim) {
  return dim.is_constant() ? nullptr : DimNode::Of(dim);
}

bool IsFunction(const Dim& dim, DimKind kind) {
  const DimNode* node = DimNode::Of(dim);
  return node != nullptr && node->kind == kind;
}

int Compare(const Dim& a, const Dim& b) {
  if (a == b) return 0;
  const DimKind kind = KindOf(a);
  if (kind != KindOf(b)) return kind < KindOf(b) ? -1 : 1;
  if (kind == DimKind::kConstant) return a.value() < b.value() ? -1 : 1;
  const DimNode* left = DimNode::Of(a);
  const DimNode* right = DimNode::Of(b);
  if (kind == DimKind::kSymbol) return left->name < right->name ? -1 : 1;
  if (kind == DimKind::kSum) return CompareSums(left->sum, right->sum);
  return Compare(left->operands, right->operands);
}

int Compare(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const int order = Compare(a[i], b[i]);
    if (order != 0) return order;
  }
  return a.size() == b.size() ? 0 : a.size() < b.size() ? -1 : 1;
}

Dim MakeFunction(DimKind kind, std::vector<Dim> operands) {
  auto* node = new DimNode;
  node->kind = kind;
  node->operands = std::move(operands);
  return Finish(node);
}

Dim MakeSum(DimPoly poly) {
  if (poly.terms.empty()) return poly.constant;
  if (poly.constant == 0 && poly.terms.size() == 1) {
    const DimTerm& only = poly.terms[0];
    if (only.coefficient == 1 && only.factors.size() == 1) return only.factors[0];
  }
  if (auto united = UniteExtrema(poly)) return MakeSum(*std::move(united));
  if (auto shifted = ShiftedExtremum(poly)) return *std::move(shifted);
  auto* node = new DimNode;
  node->kind = DimKind::kSum;
  node->sum = std::move(poly);
  return Finish(node);
}

DimPoly PolyOf(const Dim& dim) {
  DimPoly poly;
  if (dim.is_constant()) {
    poly.constant = dim.value();
  } else if (const DimNode* node = DimNode::Of(dim); node->kind == DimKind::kSum) {
    poly = node->sum;
  } else {
    poly.terms.push_back({1, {dim}});
  }
  return poly;
}

std::optional<DimPoly> Add(const DimPoly& a, const DimPoly& b) {
  DimPoly result;
  if (__builtin_add_overflow(a.constant, b.constant, &result.constant)) return std::nullopt;
  result.terms = a.terms;
  result.terms.insert(result.terms.end(), b.terms.begin(), b.terms.end());
  if (!Normalize(result.terms)) return std::nullopt;
  return result;
}

std::optional<DimPoly> Scale(const DimPoly& a, int64_t factor) {
  if (factor == 0) return DimPoly{};
  DimPoly result = a;
  if (__builtin_mul_overflow(a.constant, factor, &result.constant)) return std::nullopt;
  for (DimTerm& term : result.terms) {
    if (__builtin_mul_overflow(term.coefficient, factor, &term.coefficient)) return std::nullopt;
  }
  return result;
}

std::optional<DimPoly> Multiply(const DimPoly& a, const DimPoly& b) {
  if (a.terms.empty()) return Scale(b, a.constant);
  if (b.terms.empty()) return Scale(a, b.constant);
  if (a.terms.size() * b.terms.size() > kMaxProductTerms) return std::nullopt;
  DimPoly result;
  for (const DimTerm& x : a.terms) {
    for (const DimTerm& y : b.terms) {
      if (!AppendProduct(x, y, result.terms)) return std::nullopt;
    }
  }
  if (!Normalize(result.terms)) return std::nullopt;
  const auto left = Scale(DimPoly{.constant = 0, .terms = a.terms}, b.constant);
  const auto right = Scale(b, a.constant);
  if (!left || !right) return std::nullopt;
  const auto linear = Add(*left, *right);
  if (!linear) return std::nullopt;
  return Add(result, *linear);
}

}  // namespace internal

Dim Dim::Symbol(std::string_view name) {
  if (name.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "dim/symbol", "a dimension symbol needs a name");
  }
  auto* node = new DimNode;
  node->kind = DimKind::kSymbol;
  node->name = name;
  return internal::Finish(node);
}

uint64_t Dim::BoxConstant(int64_t value) {
  auto* node = new DimNode;
  node->sum.constant = value;
  node->hash = internal::HashOf(*node);
  return reinterpret_cast<uintptr_t>(node);
}

bool Dim::IsBoxed() const { return DimNode::Of(*this)->kind == DimKind::kConstant; }
int64_t Dim::BoxedValue() const {
  LATHE_CHECK(is_constant(), "value() of a dimension that is not a constant");
  return DimNode::Of(*this)->sum.constant;
}

bool Dim::is_symbol() const { return internal::IsFunction(*this, DimKind::kSymbol); }

std::string_view Dim::symbol_name() const {
  LATHE_CHECK(is_symbol());
  return DimNode::Of(*this)->name;
}

void Dim::RetainNode() const {
  const_cast<DimNode*>(DimNode::Of(*this))->references.fetch_add(1, std::memory_order_relaxed);
}

void Dim::ReleaseNode() {
  auto* node = const_cast<DimNode*>(DimNode::Of(*this));
  if (node->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete node;
}

bool Dim::EqualSlow(const Dim& a, const Dim& b) {
  const DimNode* left = DimNode::Of(a);
  const DimNode* right = DimNode::Of(b);
  if (left == nullptr || right == nullptr) return false;
  if (left->hash != right->hash || left->kind != right->kind) return false;
  if (left->name != right->name || left->operands != right->operands) return false;
  const DimPoly& x = left->sum;
  const DimPoly& y = right->sum;
  return x.constant == y.constant &&
         std::equal(x.terms.begin(), x.terms.end(), y.terms.begin(), y.terms.end(),
                    [](const DimTerm& s, const DimTerm& t) {
                      return s.coefficient == t.coefficient && s.factors == t.factors;
                    });
}

uint64_t Dim::Hash() const {
  if (is_unknown()) return HashMix(0x3f);
  const DimNode* node = DimNode::Of(*this);
  return node == nullptr ? HashCombine(1, static_cast<uint64_t>(value())) : node->hash;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  if (a.IsConstant(0)) return b;
  if (b.IsConstant(0)) return a;
  auto sum = internal::Add(internal::PolyOf(a), internal::PolyOf(b));
  return sum ? internal::MakeSum(*std::move(sum)) : Dim::Unknown();
}

Dim operator-(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  if (b.IsConstant(0)) return a;
  const auto negated = internal::Scale(internal::PolyOf(b), -1);
  if (!negated) return Dim::Unknown();
  auto difference = internal::Add(internal::PolyOf(a), *negated);
  return difference ? internal::MakeSum(*std::move(difference)) : Dim::Unknown();
}

Dim operator*(const Dim& a, const Dim& b) {
  if (a.IsConstant(0) || b.IsConstant(0)) return 0;
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  if (a.IsConstant(1)) return b;
  if (b.IsConstant(1)) return a;
  auto product = internal::Multiply(internal::PolyOf(a), internal::PolyOf(b));
  return product ? internal::MakeSum(*std::move(product)) : Dim::Unknown();
}

}  // namespace lathe
