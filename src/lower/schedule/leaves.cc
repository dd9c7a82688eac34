#include "src/lower/schedule/leaves.h"

#include <algorithm>
#include <charconv>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe::schedule {
namespace {

constexpr char kMark = '%';
constexpr const char* kHere = "schedule_refused_here";

Dim ExpressionOf(const Operation* index) {
  return index->attribute(loop::IndexOp::kExprAttr).cast<DimAttribute>().value();
}

size_t OperandNumber(std::string_view symbol) {  // d0, d1, ...
  size_t number = 0;
  std::from_chars(symbol.data() + 1, symbol.data() + symbol.size(), number);
  return number;
}

}  // namespace

Dim Leaves::Of(Value v) {
  const Operation* op = v.defining_op();
  if (op != nullptr && op->name() == builtin::ConstantOp::kName) {
    return ToInt64s(op->attribute("value").cast<TensorAttribute>().value())[0];
  }
  if (op == nullptr || op->name() != loop::IndexOp::kName) return SymbolOf(v);
  if (const auto kept = kept_.find(v); kept != kept_.end()) return kept->second;
  const Dim whole = ExpressionOf(op).Substitute([&](std::string_view name) -> std::optional<Dim> {
    return Of(op->operand(OperandNumber(name)));
  });
  if (keeps_) kept_.emplace(v, whole);
  return whole;
}

Dim Leaves::SymbolOf(Value leaf) {
  auto at = std::ranges::find(leaves_, leaf);
  if (at == leaves_.end()) at = leaves_.insert(at, leaf);
  return Dim::Symbol(StrCat(kMark, at - leaves_.begin()));
}

Value Leaves::Leaf(std::string_view symbol) const {
  if (symbol.empty() || symbol[0] != kMark) return {};
  return leaves_[OperandNumber(symbol)];
}

std::vector<Value> Leaves::In(const Dim& expr) const {
  std::vector<std::string> names;
  expr.CollectSymbols(names);
  std::vector<Value> values;
  for (const std::string& name : names) values.push_back(Leaf(name));
  return values;
}

bool Leaves::Reads(const Dim& expr, Value leaf) const {
  return std::ranges::count(In(expr), leaf) != 0;
}

Dim Leaves::Replace(const Dim& expr, Value leaf, const Dim& by) {
  return expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
    if (Leaf(name) != leaf) return std::nullopt;
    return by;
  });
}

Dim Leaves::Slope(const Dim& expr, Value leaf) {
  if (!Reads(expr, leaf)) return expr.is_unknown() ? Dim() : Dim(0);
  const Dim slope = Replace(expr, leaf, SymbolOf(leaf) + 1) - expr;
  return Reads(slope, leaf) ? Dim() : slope;
}

Value Leaves::Emit(Builder& b, const Dim& expr) const {
  if (expr.is_unknown()) {
    throw Error(ErrorCode::kLimit, "lower/index", "an index is too long an expression");
  }
  std::vector<std::string> names;
  expr.CollectSymbols(names);
  std::vector<Value> values = In(expr);
  if (expr.is_symbol()) return values[0];
  const Dim numbered = expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
    return Dim::Symbol(StrCat("d", std::ranges::find(names, name) - names.begin()));
  });
  return loop::IndexOp::Create(b, values, {.expr = DimAttribute::Get(b.context(), numbered)})
      .value();
}

Value CounterOf(const Operation* loop) { return loop->region(0).front()->argument(0); }

Dim ExtentOf(const Operation* loop, Leaves& leaves) {
  const loop::ForOp op(loop);
  if (const auto extent = op.extent()) return *extent;
  return leaves.Of(op.size());
}

Operation* MakeLoop(Builder& b, const Leaves& leaves, const Dim& extent, bool parallel) {
  loop::ForOp::Attrs attrs{.parallel = parallel};
  Value size;
  if (extent.is_constant()) {
    attrs.extent = extent.value();
  } else {
    size = leaves.Emit(b, extent);
  }
  Operation* op = loop::ForOp::Create(b, size, {}, {}, attrs).operation();
  op->region(0).AddBlock()->AddArgument(
      VTensorType::Get(b.context(), SymShape(std::vector<Dim>()), ElementType::kI64));
  return op;
}

void EndLoop(Operation* loop) {
  Builder b = Builder::AtEnd(loop->region(0).front());
  cf::YieldOp::Create(b, {});
}

// Each is written where it is used: loops that are perfectly nested stay so.
void ReplaceCounter(Value counter, const Dim& expr, Leaves& leaves) {
  std::vector<OpOperand> uses;
  for (const OpOperand use : counter.uses()) uses.push_back(use);
  for (const OpOperand use : uses) {
    Operation* user = use.owner();
    Builder b = Builder::Before(user);
    b.set_location(user->location());
    if (user->name() != loop::IndexOp::kName) {
      use.Set(leaves.Emit(b, expr));
      continue;
    }
    if (user->use_empty()) continue;
    const Dim old = leaves.Of(user->result(0));
    user->result(0).ReplaceAllUsesWith(leaves.Emit(b, leaves.Replace(old, counter, expr)));
  }
  // Indices that nobody reads may be left.
  const auto dead = [&]() -> Operation* {
    for (const OpOperand use : counter.uses()) {
      const bool is_index = use.owner()->name() == loop::IndexOp::kName;
      if (is_index && use.owner()->use_empty()) return use.owner();
    }
    return nullptr;
  };
  while (Operation* op = dead()) op->Erase();
}

Value BaseMemory(Value memory) {
  for (;;) {
    const Operation* op = memory.defining_op();
    const bool is_view =
        op != nullptr && (op->name() == nn::kViewReshape || op->name() == builtin::kToVtensor);
    if (!is_view) return memory;
    memory = op->operand(0);
  }
}

namespace {

// Where the mark was in a line; npos if it was not.
size_t EraseMark(std::string& line) {
  const std::string mark = StrCat(kHere, " = true");
  for (const std::string& written : {", " + mark, " {" + mark + "}"}) {
    const size_t at = line.find(written);
    if (at == std::string::npos) continue;
    line.erase(at, written.size());
    return at;
  }
  return std::string::npos;
}

}  // namespace

void Refuse(const Operation* loop, std::string_view primitive, std::string_view why) {
  Error error(ErrorCode::kInvalidArgument, "lower/schedule",
              StrCat(std::string(primitive), ": ", std::string(why)));
  auto* marked = const_cast<Operation*>(loop);
  Operation* top = marked;
  while (top->parent_op() != nullptr && top->name() != builtin::kFunc) top = top->parent_op();
  marked->SetAttribute(kHere, BoolAttribute::Get(*loop->context(), true));
  const std::string text = Print(top, {.locations = false});
  marked->SetAttribute(kHere, {});
  std::string shown;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    const size_t at = EraseMark(line);
    shown += StrCat(at != std::string::npos ? "-> " : "   ", line, "\n");
    begin = end + 1;
  }
  throw std::move(error).Note(shown);
}

}  // namespace lathe::schedule
