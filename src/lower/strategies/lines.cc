#include <algorithm>
#include <optional>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/term.h"
#include "src/lower/index_math.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategies/list.h"

// Operations that go along the lines of one axis and remember where they are: positions of the
// greatest and the least, running sums and products, hardmax. Where the axis is not the last one,
// vectors are as many lines; otherwise elements come one by one.
namespace lathe::lower {
namespace {

using nn::Term;

class Lines {
 public:
  explicit Lines(Lowering& lowering) : lowering_(lowering) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  std::string FindOperation();
  std::string FindAxis();
  bool finds() const { return name_ == nn::kArgMax || name_ == nn::kArgMin || marks(); }
  bool marks() const { return name_ == nn::kHardmax; }
  bool Flag(std::string_view name) const {
    const auto flag = op_->attribute(name).dyn_cast<BoolAttribute>();
    return flag && flag.value();
  }
  bool along() const { return axis_ + 1 == dims_.size(); }
  int64_t register_lanes() const { return along() ? 0 : lanes_; }
  ElementType Wider() const;

  void WriteLine();
  Value FindBest();
  Value Better(Value x, Value best);
  void Mark(Value best);
  void Scan();
  Value LoadAt(const Dim& k);
  void StoreAt(const Dim& k, Value v);
  std::vector<Value> ResultAt();

  Lowering& lowering_;
  const Operation* op_ = nullptr;
  std::string_view name_;
  size_t axis_ = 0;
  std::vector<Dim> dims_;
  ElementType element_ = ElementType::kUndefined;
  int64_t lanes_ = 1;

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> im_;
  Value x_, result_, live_;
  std::vector<Dim> at_;  // per axis; that of the lines is none
};

std::string Lines::FindOperation() {
  constexpr std::string_view kNames[] = {nn::kArgMax, nn::kArgMin, nn::kCumSum, nn::kCumProd,
                                         nn::kHardmax};
  for (const Operation& op : lowering_.function) {
    if (op.HasTrait<Terminator>() || op.HasTrait<ConstantLike>()) continue;
    if (op_ != nullptr) return "it is not one operation alone";
    op_ = &op;
  }
  if (op_ == nullptr) return "there is no operation";
  name_ = op_->name();
  if (std::ranges::find(kNames, name_) == std::end(kNames)) {
    return StrCat(name_, " does not go along lines");
  }
  return "";
}

std::string Lines::FindAxis() {
  int64_t axis = 0;
  if (const auto given = op_->attribute("axis").dyn_cast<IntAttribute>()) {
    axis = given.value();
  } else {
    const Operation* constant = op_->operand(1).defining_op();
    if (constant == nullptr || !IsScalarConstant(*constant)) return "the axis is not known";
    axis = ToInt64s(constant->attribute("value").cast<TensorAttribute>().value())[0];
  }
  const auto rank = static_cast<int64_t>(dims_.size());
  axis_ = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  return axis_ < dims_.size() ? "" : "there is no such axis";
}

// Sums of many are kept with more bits.
ElementType Lines::Wider() const {
  if (finds()) return element_;
  if (element_ == ElementType::kF16 || element_ == ElementType::kBF16) return ElementType::kF32;
  return element_ == ElementType::kF32 ? ElementType::kF64 : element_;
}

std::string Lines::Refusal() {
  if (std::string why = FindOperation(); !why.empty()) return why;
  const Value x = op_->operand(0);
  const auto type = x.type().dyn_cast<AnyTensorType>();
  if (!x.is_block_argument() || !type || !type.has_rank()) return "the operand is no argument";
  dims_.assign(type.dims().begin(), type.dims().end());
  element_ = type.element();
  const bool known = IsFloat(element_) || IsInteger(element_);
  if (!known || BitWidth(element_) < 8) {
    return StrCat("elements are ", Name(element_));
  }
  const auto result = op_->result(0).type().dyn_cast<AnyTensorType>();
  if (!result || !result.has_rank()) return "the result is of unknown rank";
  if (std::string why = FindAxis(); !why.empty()) return why;
  const int64_t widest = finds() ? 64 : BitWidth(Wider());
  lanes_ = std::max<int64_t>(lowering_.machine.vector_bytes * 8 / widest, 1);
  return "";
}

void Lines::Write() {
  lb_.emplace(lowering_.body);
  im_.emplace(*lb_);
  x_ = lowering_.body->argument(op_->operand(0).index());
  result_ = lb_->Alloc(TensorOf(op_->result(0)));
  // Lines, or vectors of them, by the axes that they do not go along.
  std::vector<Dim> counts;
  Dim total = 1;
  for (size_t a = 0; a < dims_.size(); ++a) {
    Dim count = a == axis_ ? Dim(1) : im_->Extent(dims_[a]);
    if (a != axis_ && a + 1 == dims_.size()) count = im_->Name(CeilDiv(count, lanes_));
    counts.push_back(count);
    total *= count;
  }
  total *= im_->Name(Min(im_->Extent(dims_[axis_]), 1));  // an empty line has no best element
  im_->For(total, true, [&](const Dim& number) {
    Dim rest = number;
    at_.assign(dims_.size(), 0);
    for (size_t a = dims_.size(); a-- > 0;) {
      if (a == axis_) continue;
      at_[a] = im_->Name(Mod(rest, counts[a]));
      rest = FloorDiv(rest, counts[a]);
    }
    if (!along()) {
      at_.back() = im_->Name(at_.back() * lanes_);
      live_ = im_->At(Min(im_->Extent(dims_.back()) - at_.back(), lanes_));
    }
    WriteLine();
  });
  const Value y = builtin::ToVtensorOp::Create(lb_->b(), result_).y();
  const Operation* end = lowering_.function.terminator();
  lb_->b().Create(end->info(), {&y, 1}, end->attributes().entries(), {});
}

void Lines::WriteLine() {
  if (!finds()) return Scan();
  const Value best = FindBest();
  if (marks()) return Mark(best);
  lb_->Store(result_, lb_->Widen(best, register_lanes()), ResultAt(), live_);
}

std::vector<Value> Lines::ResultAt() {
  std::vector<Value> at;
  const bool keeps = Flag("keepdims");
  for (size_t a = 0; a < dims_.size(); ++a) {
    if (a != axis_ || keeps) at.push_back(im_->At(at_[a]));
  }
  return at;
}

Value Lines::LoadAt(const Dim& k) {
  std::vector<Value> at;
  for (size_t a = 0; a < dims_.size(); ++a) at.push_back(im_->At(a == axis_ ? k : at_[a]));
  return lb_->Load(x_, at, register_lanes(), live_);
}

void Lines::StoreAt(const Dim& k, Value v) {
  std::vector<Value> at;
  for (size_t a = 0; a < dims_.size(); ++a) at.push_back(im_->At(a == axis_ ? k : at_[a]));
  lb_->Store(result_, v, at, live_);
}

// NaN is better than any number; among equals the first or the last one is.
Value Lines::Better(Value x, Value best) {
  Builder& b = lb_->b();
  const Term mine(b, x), other(b, best);
  const bool last = Flag("select_last_index"), largest = name_ != nn::kArgMin;
  const std::string_view compare =
      largest ? (last ? nn::kGreaterOrEqual : nn::kGreater) : (last ? nn::kLessOrEqual : nn::kLess);
  const Term better = mine.Call(compare, {other});
  if (!IsFloat(element_)) return better;
  const Term none = mine.Call(nn::kIsNan);
  if (last) return better.Call(nn::kOr, {none});
  return better.Call(nn::kOr, {none.Call(nn::kAnd, {other.Call(nn::kIsNan).Call(nn::kNot)})});
}

// The position of the best element of the line.
Value Lines::FindBest() {
  Builder& b = lb_->b();
  const int64_t lanes = register_lanes();
  const Value initial[] = {LoadAt(0), lb_->Splat(ElementType::kI64, 0, lanes)};
  const Value others = im_->At(im_->Extent(dims_[axis_]) - 1);
  return lb_->For(others, initial, [&](Value i, std::span<const Value> best) {
    const Dim k = im_->Of(i) + 1;
    const Term x(b, LoadAt(k)), is_better(b, Better(x, best[0]));
    return std::vector<Value>{Where(is_better, x, Term(b, best[0])),
                              Where(is_better, Term(b, im_->At(k)), Term(b, best[1]))};
  })[1];
}

void Lines::Mark(Value best) {
  Builder& b = lb_->b();
  im_->For(im_->Extent(dims_[axis_]), false, [&](const Dim& k) {
    const Term is_it = Term(b, best).Call(nn::kEqual, {Term(b, im_->At(k))});
    const Value mark = nn::CastOp::Create(b, is_it, {.to = element_}).output();
    StoreAt(k, mark);
  });
}

void Lines::Scan() {
  Builder& b = lb_->b();
  const bool product = name_ == nn::kCumProd;
  const ElementType wide = Wider();
  const auto cast = [&](Value v, ElementType from, ElementType to) {
    return from == to ? v : nn::CastOp::Create(b, v, {.to = to}).output();
  };
  const Value initial = lb_->Splat(wide, product ? 1 : 0, register_lanes());
  const Dim extent = im_->Extent(dims_[axis_]);
  lb_->For(im_->At(extent), std::span(&initial, 1), [&](Value i, std::span<const Value> before) {
    const Dim k = Flag("reverse") ? extent - 1 - im_->Of(i) : im_->Of(i);
    const Term x(b, cast(LoadAt(k), element_, wide)), total(b, before[0]);
    const Term next = product ? total * x : total + x;
    StoreAt(k, cast(Flag("exclusive") ? total : next, wide, element_));
    return std::vector<Value>{next};
  });
}

}  // namespace

bool LowerLines(Lowering& l) { return WriteUnlessRefused<Lines>(l); }

}  // namespace lathe::lower
