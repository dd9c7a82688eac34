#include "src/lower/schedule/product_nest.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/schedule.h"
#include "lathe/support/text.h"

namespace lathe::schedule {
namespace {

constexpr size_t kCarried = loop::ForOp::kCarried;
constexpr size_t kMostTerms = 64;  // of an iteration: groups are of four

Block* BodyOf(const Operation* loop) { return loop->region(0).front(); }
bool IsA(const Operation* op, std::string_view name) { return op != nullptr && op->name() == name; }
bool IsLoop(const Operation* op) { return IsA(op, loop::ForOp::kName); }

std::optional<int64_t> ConstantExtent(const Operation* loop) { return loop::ForOp(loop).extent(); }

// A scalar +0.
bool IsZero(Value v) {
  const Operation* op = v.defining_op();
  if (!IsA(op, builtin::ConstantOp::kName) || TensorOf(v).rank() != 0) return false;
  const double value = ToDoubles(op->attribute("value").cast<TensorAttribute>().value())[0];
  return value == 0 && !std::signbit(value);
}

class Matcher {
 public:
  Matcher(Operation* loop, Leaves& leaves, ProductNest& nest)
      : loop_(loop), leaves_(leaves), nest_(nest) {}

  std::string Run() {
    if (std::string why = FindLoops(); !why.empty()) return why;
    if (std::string why = FindStore(); !why.empty()) return why;
    if (std::string why = FindSums(loop::StoreInplaceOp(nest_.stored.op).value()); !why.empty()) {
      return why;
    }
    if (std::string why = FindTerms(); !why.empty()) return why;
    if (std::string why = CheckRest(); !why.empty()) return why;
    return CheckTypes();
  }

 private:
  // What a loop over depth makes of `start`.
  struct Step {
    Value start;
    const Operation* loop = nullptr;
  };

  std::string FindLoops();
  std::string FindStore();
  std::string FindSums(Value sum);
  std::string FindStart(Value start);
  std::optional<Step> StepTo(Value next);
  bool IsSumFromZero(Value v, Step& step);
  std::string FindTerms();
  bool FindTermsOf(Value sum, Value carried);
  bool AddProduct(Value a, Value b);
  std::optional<Element> FactorOf(Value v);
  std::string CheckRest() const;
  std::string CheckTypes() const;
  Element ElementOf(Operation* op, size_t first);

  Operation* loop_;
  Leaves& leaves_;
  ProductNest& nest_;
  std::vector<const Operation*> seen_;
};

std::string Matcher::FindLoops() {
  if (!IsLoop(loop_)) return StrCat(loop_->name(), " is not a loop");
  for (const Operation* at = loop_; at != nullptr; at = PerfectlyNested(at)) {
    if (at->num_results() > 0) return "the loop carries values";
    const auto extent = ConstantExtent(at);
    if (!extent) return "the extent of a loop over rows or columns is not constant";
    if (*extent < 1) return "a loop never runs";
    nest_.loops.push_back(at);
    seen_.push_back(at);
  }
  return "";
}

Element Matcher::ElementOf(Operation* op, size_t first) {
  Element e{op, op->operand(0)};
  for (size_t i = first; i < op->num_operands(); ++i) e.at.push_back(leaves_.Of(op->operand(i)));
  seen_.push_back(op);
  return e;
}

std::string Matcher::FindStore() {
  for (Operation& op : *BodyOf(nest_.loops.back())) {
    if (!IsA(&op, loop::StoreInplaceOp::kName)) continue;
    if (nest_.stored.op != nullptr) return "the loops store more than once";
    nest_.stored = ElementOf(&op, loop::StoreInplaceOp::kIndices);
  }
  if (nest_.stored.op == nullptr) return "the innermost loop stores nothing";
  if (!nest_.stored.op->result(0).use_empty()) return "what a store gives is used";
  const loop::StoreInplaceOp store(nest_.stored.op);
  return TensorOf(store.value()).rank() == 0 ? "" : "there are vectors already";
}

// One loop over depth, or two: the outer one carries the sum from one tile to the next.
std::string Matcher::FindSums(Value sum) {
  constexpr const char* kNone = "what is stored is not a sum of products";
  auto step = StepTo(sum);
  if (!step) return kNone;
  const Value start = step->start;
  nest_.depth = step->loop;
  if (std::ranges::any_of(*BodyOf(step->loop), [](const Operation& op) { return IsLoop(&op); })) {
    if (sum != step->loop->result(0)) return kNone;
    nest_.blocks = step->loop;
    step = StepTo(BodyOf(nest_.blocks)->terminator()->operand(0));
    if (!step || step->start != BodyOf(nest_.blocks)->argument(1)) return kNone;
    nest_.depth = step->loop;
  }
  const auto extent = ConstantExtent(nest_.depth);
  if (!extent) return "the depth of a tile is not constant";
  return *extent < 1 ? "a loop never runs" : FindStart(start);
}

std::string Matcher::FindStart(Value start) {
  if (IsZero(start)) return "";
  Operation* load = start.defining_op();
  if (!IsA(load, loop::LoadOp::kName) || TensorOf(start).rank() != 0) {
    return "a sum starts neither from zero nor from what was stored";
  }
  nest_.start = ElementOf(load, loop::LoadOp::kIndices);
  const bool is_same =
      nest_.start->memory == nest_.stored.memory && nest_.start->at == nest_.stored.at;
  return is_same ? "" : "a sum starts from another element than the one that is stored";
}

// A loop that carries the sum; or the sum plus what a loop makes of zeros.
std::optional<Matcher::Step> Matcher::StepTo(Value next) {
  const Operation* op = next.defining_op();
  if (IsLoop(op)) {
    seen_.push_back(op);
    if (op->num_results() != 1) return std::nullopt;
    return Step{op->operand(kCarried), op};
  }
  if (!IsA(op, nn::AddOp::kName)) return std::nullopt;
  for (const size_t i : {0U, 1U}) {
    Step step{op->operand(i)};
    if (!IsSumFromZero(op->operand(1 - i), step)) continue;
    seen_.push_back(op);
    return step;
  }
  return std::nullopt;
}

bool Matcher::IsSumFromZero(Value v, Step& step) {
  const Operation* op = v.defining_op();
  const bool is_pair = IsA(op, nn::AddOp::kName) && op->operand(0) != op->operand(1);
  step.loop = is_pair ? op->operand(0).defining_op() : op;
  if (!IsLoop(step.loop) || step.loop->num_results() != (is_pair ? 2 : 1)) return false;
  if (is_pair && op->operand(1).defining_op() != step.loop) return false;
  for (size_t i = 0; i < step.loop->num_results(); ++i) {
    if (!IsZero(step.loop->operand(kCarried + i))) return false;
  }
  seen_.push_back(op);
  seen_.push_back(step.loop);
  return true;
}

std::string Matcher::FindTerms() {
  const Block* body = BodyOf(nest_.depth);
  const bool is_float = IsFloat(nest_.stored.type());
  for (size_t i = 0; i < nest_.depth->num_results(); ++i) {
    const size_t before = nest_.products.size();
    if (!FindTermsOf(body->terminator()->operand(i), body->argument(i + 1))) {
      return "a sum over the depth is not a sum of products";
    }
    if (is_float && nest_.products.size() != before + 1)
      return "a sum of floats has two products in an iteration";
  }
  const bool interleaved = nest_.depth->num_results() == 2;
  return is_float && !interleaved ? "sums of floats are not interleaved, as a tile unit has them"
                                  : "";
}

// `sum` is what was carried plus products.
bool Matcher::FindTermsOf(Value sum, Value carried) {
  size_t carries = 0, seen = 0;
  std::vector<Value> open{sum};
  while (!open.empty()) {
    if (++seen > kMostTerms) return false;
    const Value v = open.back();
    open.pop_back();
    const Operation* op = v.defining_op();
    if (v == carried) {
      ++carries;
    } else if (IsA(op, nn::AddOp::kName)) {
      open.insert(open.end(), {op->operand(0), op->operand(1)});
    } else if (IsA(op, loop::FmaOp::kName)) {
      if (!AddProduct(op->operand(0), op->operand(1))) return false;
      open.push_back(op->operand(2));
    } else if (!IsA(op, nn::MulOp::kName) || !AddProduct(op->operand(0), op->operand(1))) {
      return false;
    }
    if (op != nullptr) seen_.push_back(op);
  }
  return carries == 1;
}

// The two factors may stand either way round.
bool Matcher::AddProduct(Value a, Value b) {
  auto left = FactorOf(a), right = FactorOf(b);
  if (!left || !right) return false;
  if (!nest_.products.empty() && left->memory != nest_.products[0].left.memory) {
    std::swap(left, right);
  }
  nest_.products.push_back({*std::move(left), *std::move(right)});
  return true;
}

std::optional<Element> Matcher::FactorOf(Value v) {
  Operation* op = v.defining_op();
  if (IsA(op, nn::CastOp::kName)) {
    seen_.push_back(op);
    op = op->operand(0).defining_op();
  }
  if (!IsA(op, loop::LoadOp::kName) || TensorOf(op->result(0)).rank() != 0) return std::nullopt;
  return ElementOf(op, loop::LoadOp::kIndices);
}

std::string Matcher::CheckRest() const {
  for (OpWalker w(loop_); const Operation* op = w.Next();) {
    const bool is_number = IsA(op, loop::IndexOp::kName) || IsA(op, builtin::ConstantOp::kName);
    if (is_number || op->HasTrait<Terminator>() || std::ranges::count(seen_, op) > 0) continue;
    return StrCat("there is ", op->name(), ", which is not part of a sum of products");
  }
  return "";
}

std::string Matcher::CheckTypes() const {
  const ElementType sum = nest_.stored.type();
  for (const Factors& f : nest_.products) {
    const bool same = f.left.memory == nest_.products[0].left.memory &&
                      f.right.memory == nest_.products[0].right.memory;
    if (!same) return "products are of more than two matrices";
  }
  const Factors& f = nest_.products[0];
  for (const Element* e : {&f.left, &f.right}) {
    if (BaseMemory(e->memory) == BaseMemory(nest_.stored.memory)) {
      return "a factor is read from the memory that is stored in";
    }
  }
  const auto is_byte = [](ElementType t) { return t == ElementType::kI8 || t == ElementType::kU8; };
  const ElementType left = f.left.type(), right = f.right.type();
  const bool fits = sum == ElementType::kF32
                        ? left == ElementType::kBF16 && right == ElementType::kBF16
                        : sum == ElementType::kI32 && is_byte(left) && is_byte(right);
  return fits ? ""
              : StrCat("a tile unit does not sum products of ", Name(left), " and ", Name(right),
                       " in ", Name(sum));
}

}  // namespace

ElementType Element::type() const { return TensorOf(memory).element(); }

int64_t ProductNest::group() const { return 32 / BitWidth(products[0].left.type()); }

std::string FindProducts(Operation* loop, Leaves& leaves, ProductNest& nest) {
  return Matcher(loop, leaves, nest).Run();
}

}  // namespace lathe::schedule
