#include "src/codegen/llvm/indices.h"

#include <algorithm>
#include <charconv>

#include "lathe/support/error.h"
#include "src/codegen/llvm/emit.h"

namespace lathe::codegen {

using internal::DimKind;
using internal::DimNode;

// ---- sums ----

IndexSum IndexSum::Of(const Term& term) {
  IndexSum sum;
  sum.Add(term);
  return sum;
}

IndexSum IndexSum::WithoutConstant() const {
  IndexSum sum = *this;
  sum.constant_ = 0;
  return sum;
}

namespace {

// Products and sums wrap around.
int64_t Times(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
}

int64_t Plus(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
}

}  // namespace

void IndexSum::Add(const Term& term) {
  if (term.coefficient == 0) return;
  if (term.factors.back() == 0) {
    constant_ = Plus(constant_, term.coefficient);
    return;
  }
  auto* at = std::ranges::lower_bound(terms_, term.factors, {}, &Term::factors);
  if (at == terms_.end() || at->factors != term.factors) {
    terms_.insert(at, term);
    return;
  }
  at->coefficient = Plus(at->coefficient, term.coefficient);
  if (at->coefficient == 0) terms_.erase(at);
}

void IndexSum::Add(const IndexSum& other, int64_t times) {
  constant_ = Plus(constant_, Times(other.constant_, times));
  for (Term term : other.terms_) {
    term.coefficient = Times(term.coefficient, times);
    Add(term);
  }
}

bool IndexSum::IsMultiple(int64_t divisor) const {
  return std::ranges::all_of(terms_, [&](const Term& t) { return t.coefficient % divisor == 0; });
}

IndexSum IndexSum::DividedBy(int64_t divisor) const {
  IndexSum quotient(constant_ / divisor - (constant_ % divisor < 0 ? 1 : 0));
  for (Term term : terms_) {
    term.coefficient /= divisor;
    quotient.terms_.push_back(term);
  }
  return quotient;
}

namespace {

// What sums, and what is made of them, are kept under.
void Append(const IndexSum& sum, std::vector<uint64_t>& key) {
  key.push_back(static_cast<uint64_t>(sum.constant()));
  for (const IndexSum::Term& term : sum.terms()) {
    key.push_back(static_cast<uint64_t>(term.coefficient));
    key.push_back(uint64_t{term.factors[0]} << 32 | term.factors[1]);
    key.push_back(uint64_t{term.factors[2]} << 32 | term.factors[3]);
  }
}

uint64_t Word(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

// ---- what indices are ----

uint32_t Indices::NumberOf(llvm::Value* value, size_t depth) {
  factors_.push_back({value, depth});
  const auto number = static_cast<uint32_t>(factors_.size());
  sums_.emplace(value, IndexSum::Of({.factors = {0, 0, 0, number}, .coefficient = 1}));
  return number;
}

IndexSum Indices::Of(llvm::Value* value, size_t depth) {
  if (const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(value)) {
    return constant->getSExtValue();
  }
  if (const auto found = sums_.find(value); found != sums_.end()) return found->second;
  NumberOf(value, llvm::isa<llvm::Argument>(value) ? 0 : depth);
  return sums_.at(value);
}

// One value instead of a sum.
IndexSum Indices::AsFactor(const IndexSum& sum) {
  llvm::Value* value = ValueOf(sum);
  if (llvm::isa<llvm::ConstantInt>(value)) return sum;
  const auto found = sums_.find(value);
  if (found != sums_.end()) {
    const auto& terms = found->second.terms();
    const bool is_factor = terms.size() == 1 && found->second.constant() == 0 &&
                           terms[0].coefficient == 1 && terms[0].factors[2] == 0;
    if (is_factor) return found->second;
    sums_.erase(found);
  }
  NumberOf(value, DepthOf(sum));
  return sums_.at(value);
}

IndexSum Indices::Product(const IndexSum& x, const IndexSum& y) {
  if (y.is_constant()) {
    IndexSum product;
    product.Add(x, y.constant());
    return product;
  }
  if (x.is_constant()) return Product(y, x);
  const auto most = [](const IndexSum& sum) {
    ptrdiff_t factors = 0;
    for (const IndexSum::Term& term : sum.terms()) {
      factors =
          std::max(factors, std::ranges::count_if(term.factors, [](uint32_t f) { return f != 0; }));
    }
    return static_cast<size_t>(factors);
  };
  const size_t terms = (x.terms().size() + 1) * (y.terms().size() + 1);
  if (most(x) + most(y) > IndexSum::kMaxFactors || terms > IndexSum::kMaxTerms) {
    return Product(AsFactor(x), AsFactor(y));
  }
  IndexSum product;
  product.Add(x, y.constant());
  product.Add(y.WithoutConstant(), x.constant());
  for (const IndexSum::Term& a : x.terms()) {
    for (const IndexSum::Term& b : y.terms()) {
      IndexSum::Term term{.coefficient = Times(a.coefficient, b.coefficient)};
      size_t at = IndexSum::kMaxFactors;
      for (const IndexSum::Factors* factors : {&a.factors, &b.factors}) {
        for (const uint32_t f : *factors) {
          if (f != 0) term.factors[--at] = f;
        }
      }
      std::ranges::sort(term.factors);
      product.Add(IndexSum::Of(term));
    }
  }
  return product;
}

IndexSum Indices::Of(const Dim& expr, std::span<const IndexSum> symbols) {
  if (expr.is_constant()) return expr.value();
  const DimNode* node = DimNode::Of(expr);
  LATHE_CHECK(node != nullptr, "an unknown dim in an index");
  if (node->kind == DimKind::kSymbol) {
    size_t number = 0;
    std::from_chars(node->name.data() + 1, node->name.data() + node->name.size(), number);
    return symbols[number];
  }
  if (node->kind == DimKind::kSum) return SumOf(node->sum, symbols);
  IndexSum value = Of(node->operands[0], symbols);
  for (size_t i = 1; i < node->operands.size(); ++i) {
    value = Function(node->kind, value, Of(node->operands[i], symbols));
  }
  return value;
}

IndexSum Indices::SumOf(const internal::DimPoly& poly, std::span<const IndexSum> symbols) {
  IndexSum sum(poly.constant);
  for (const internal::DimTerm& term : poly.terms) {
    IndexSum product(1);
    for (const Dim& factor : term.factors) product = Product(product, Of(factor, symbols));
    if (sum.terms().size() + product.terms().size() > IndexSum::kMaxTerms) sum = AsFactor(sum);
    sum.Add(product, term.coefficient);
  }
  return sum;
}

// Of what is the same wherever it is computed.
IndexSum Indices::Function(DimKind kind, const IndexSum& x, const IndexSum& y) {
  const bool by_constant = y.is_constant() && y.constant() > 0;
  if (kind == DimKind::kFloorDiv && by_constant && x.IsMultiple(y.constant())) {
    return x.DividedBy(y.constant());
  }
  if (kind == DimKind::kMin || kind == DimKind::kMax) {
    IndexSum difference = x;
    difference.Add(y, -1);
    if (difference.is_constant()) {
      return (difference.constant() < 0) == (kind == DimKind::kMin) ? x : y;
    }
  }
  const size_t depth = std::max(DepthOf(x), DepthOf(y));
  llvm::Value* operands[] = {ValueOf(x), ValueOf(y)};
  Key key{static_cast<uint64_t>(kind), Word(operands[0]), Word(operands[1]), 0};
  llvm::Value*& made = loops_[depth].made[std::move(key)];
  if (made == nullptr) {
    const llvm::IRBuilderBase::InsertPointGuard guard(b_);
    MoveTo(depth);
    made = EmitDimFunction(b_, kind, operands[0], operands[1]);
  }
  return Of(made, depth);
}

size_t Indices::DepthOf(const IndexSum::Term& term) const {
  size_t depth = 0;
  for (const uint32_t f : term.factors) {
    if (f != 0) depth = std::max(depth, factors_[f - 1].depth);
  }
  return depth;
}

size_t Indices::DepthOf(const IndexSum& sum) const {
  size_t depth = 0;
  for (const IndexSum::Term& term : sum.terms()) depth = std::max(depth, DepthOf(term));
  return depth;
}

// The terms that are there outside of the loop at `depth`, and the others.
void Indices::Split(const IndexSum& sum, size_t depth, IndexSum& outer, IndexSum& inner) const {
  for (const IndexSum::Term& term : sum.terms()) {
    (DepthOf(term) < depth ? outer : inner).Add(IndexSum::Of(term));
  }
}

// ---- writing them ----

// To the end of what has been written in the loop at `depth` itself.
void Indices::MoveTo(size_t depth) {
  if (depth < this->depth()) b_.SetInsertPoint(loops_[depth + 1].before);
}

llvm::Value* Indices::ValueOf(const IndexSum& sum) {
  if (sum.is_constant()) return b_.getInt64(static_cast<uint64_t>(sum.constant()));
  const size_t depth = DepthOf(sum);
  Key key;
  Append(sum, key);
  if (const auto found = loops_[depth].made.find(key); found != loops_[depth].made.end()) {
    return found->second;
  }
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  MoveTo(depth);
  llvm::Value* value = Make(sum, depth);
  loops_[depth].made.emplace(std::move(key), value);
  sums_.emplace(value, sum);
  return value;
}

// From sums and products that are worth keeping themselves.
llvm::Value* Indices::Make(const IndexSum& sum, size_t depth) {
  const auto constant = [&](int64_t c) { return llvm::ConstantInt::getSigned(b_.getInt64Ty(), c); };
  if (sum.constant() != 0) {
    return b_.CreateAdd(ValueOf(sum.WithoutConstant()), constant(sum.constant()));
  }
  if (sum.terms().size() == 1) {
    const IndexSum::Term& term = sum.terms()[0];
    IndexSum::Term rest = term;
    auto innermost = std::ranges::max_element(
        rest.factors, {}, [&](uint32_t f) { return f == 0 ? 0 : factors_[f - 1].depth + 1; });
    llvm::Value* factor = factors_[*innermost - 1].value;
    *innermost = 0;
    std::ranges::sort(rest.factors);
    if (rest.factors.back() != 0) return b_.CreateMul(factor, ValueOf(IndexSum::Of(rest)));
    return term.coefficient == 1 ? factor : b_.CreateMul(factor, constant(term.coefficient));
  }
  IndexSum outer, inner;
  Split(sum, depth, outer, inner);
  llvm::Value* value = outer.is_constant() ? nullptr : ValueOf(outer);
  for (IndexSum::Term term : inner.terms()) {
    const bool subtracts = value != nullptr && term.coefficient < 0;
    if (subtracts) term.coefficient = Times(term.coefficient, -1);
    llvm::Value* product = ValueOf(IndexSum::Of(term));
    if (value == nullptr) {
      value = product;
    } else {
      value = subtracts ? b_.CreateSub(value, product) : b_.CreateAdd(value, product);
    }
  }
  return value;
}

// ---- addresses ----

// The constant is part of an instruction.
llvm::Value* Indices::Address(llvm::Value* base, llvm::Type* element, const IndexSum& elements) {
  llvm::Value* pointer = Pointer(base, element, elements.WithoutConstant());
  if (elements.constant() == 0) return pointer;
  return b_.CreateGEP(element, pointer,
                      llvm::ConstantInt::getSigned(b_.getInt64Ty(), elements.constant()));
}

llvm::Value* Indices::Base(llvm::Value* base, llvm::Type* element, int64_t elements) {
  if (elements == 0) return base;
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  MoveTo(0);
  return b_.CreateGEP(element, base, b_.getInt64(static_cast<uint64_t>(elements)));
}

llvm::Value* Indices::Pointer(llvm::Value* base, llvm::Type* element, const IndexSum& elements) {
  if (elements.is_constant()) return base;
  const size_t depth = DepthOf(elements);
  Key key{Word(base), Word(element)};
  Append(elements, key);
  if (const auto found = loops_[depth].made.find(key); found != loops_[depth].made.end()) {
    return found->second;
  }
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  MoveTo(depth);
  IndexSum outer, inner, step;
  Split(elements, depth, outer, inner);
  llvm::Value* pointer = Pointer(base, element, outer);
  if (StepOf(inner, loops_[depth], step)) {
    pointer = Advancing(pointer, element, step);
  } else {
    pointer = b_.CreateGEP(element, pointer, ValueOf(inner));
  }
  loops_[depth].made.emplace(std::move(key), pointer);
  return pointer;
}

// Whether `elements` are the counter of an innermost loop times what the loop does not change.
bool Indices::StepOf(const IndexSum& elements, const Loop& loop, IndexSum& step) const {
  if (!loop.is_innermost) return false;
  for (IndexSum::Term term : elements.terms()) {
    const auto found = std::ranges::find(term.factors, loop.factor);
    if (found == term.factors.end()) return false;
    *found = 0;
    std::ranges::sort(term.factors);
    const IndexSum rest = IndexSum::Of(term);
    if (DepthOf(rest) == depth()) return false;
    step.Add(rest);
  }
  return true;
}

// Single elements are what instructions count by themselves.
llvm::Value* Indices::Advancing(llvm::Value* base, llvm::Type* element, const IndexSum& step) {
  const uint64_t bytes = element->getPrimitiveSizeInBits() / 8;
  if (step.is_constant() && step.constant() == 1 && bytes <= 8) {
    return b_.CreateGEP(element, base, loops_.back().counter);
  }
  Offset& offset = OffsetBy(step, bytes);
  auto* address = llvm::GetElementPtrInst::Create(b_.getInt8Ty(), base, {offset.bytes});
  b_.Insert(address);
  offset.addresses.push_back(address);
  return address;
}

Indices::Offset& Indices::OffsetBy(const IndexSum& step, uint64_t element_bytes) {
  IndexSum bytes;
  bytes.Add(step, static_cast<int64_t>(element_bytes));
  Loop& loop = loops_.back();
  Key key;
  Append(bytes, key);
  const auto [at, is_new] = loop.offset_numbers.emplace(std::move(key), loop.offsets.size());
  if (!is_new) return loop.offsets[at->second];
  Offset offset;
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  b_.SetInsertPoint(loop.before);
  offset.step = ValueOf(bytes);
  b_.SetInsertPoint(loop.before);
  llvm::Value* begin = b_.CreateMul(loop.begin, offset.step);
  b_.SetInsertPoint(loop.counter);
  offset.bytes = b_.CreatePHI(b_.getInt64Ty(), 2);
  offset.bytes->addIncoming(begin, loop.before->getParent());
  loop.offsets.push_back(std::move(offset));
  return loop.offsets.back();
}

void Indices::Enter(llvm::PHINode* counter, llvm::Value* begin, bool is_innermost) {
  Loop loop;
  loop.counter = counter;
  loop.begin = begin;
  loop.before = counter->getIncomingBlock(0)->getTerminator();
  loop.is_innermost = is_innermost;
  loops_.push_back(std::move(loop));
  loops_.back().factor = NumberOf(counter, depth());
}

void Indices::Leave() {
  llvm::BasicBlock* last = b_.GetInsertBlock();
  for (Offset& offset : loops_.back().offsets) Advance(offset, last);
  loops_.pop_back();
}

// An offset that one address has is a pointer.
void Indices::Advance(Offset& offset, llvm::BasicBlock* last) {
  llvm::PHINode* bytes = offset.bytes;
  if (offset.addresses.size() > 1) {
    bytes->addIncoming(b_.CreateAdd(bytes, offset.step), last);
    return;
  }
  llvm::GetElementPtrInst* address = offset.addresses[0];
  llvm::Value* begin = bytes->getIncomingValue(0);
  llvm::BasicBlock* before = bytes->getIncomingBlock(0);
  llvm::Value* first = address->getPointerOperand();
  const auto* none = llvm::dyn_cast<llvm::ConstantInt>(begin);
  if (none == nullptr || !none->isZero()) {
    const llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(before->getTerminator());
    first = b_.CreateGEP(b_.getInt8Ty(), first, begin);
  }
  auto* pointer = llvm::PHINode::Create(first->getType(), 2, "", bytes->getIterator());
  pointer->addIncoming(first, before);
  pointer->addIncoming(b_.CreateGEP(b_.getInt8Ty(), pointer, offset.step), last);
  address->replaceAllUsesWith(pointer);
  address->eraseFromParent();
  bytes->eraseFromParent();
}

}  // namespace lathe::codegen
