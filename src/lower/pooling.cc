#include "src/lower/pooling.h"

#include <algorithm>
#include <limits>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/layout.h"
#include "src/lower/anchor.h"

namespace lathe::lower {
namespace {

using Kind = Pooling::Kind;

Pooling Described(const Operation* op) {
  auto* mutable_op = const_cast<Operation*>(op);
  Pooling p;
  p.op = op;
  if (op->isa<nn::MaxPoolOp>()) {
    p.spec = nn::WindowOf(nn::MaxPoolOp(mutable_op));
  } else if (op->isa<nn::AveragePoolOp>()) {
    p.kind = Kind::kAverage;
    p.spec = nn::WindowOf(nn::AveragePoolOp(mutable_op));
    p.count_include_pad = nn::AveragePoolOp(mutable_op).count_include_pad();
  } else if (op->isa<nn::LpPoolOp>()) {
    p.kind = Kind::kNorm;
    p.spec = nn::WindowOf(nn::LpPoolOp(mutable_op));
    p.p = nn::LpPoolOp(mutable_op).p();
  } else {
    p.global = true;
    if (op->isa<nn::GlobalAveragePoolOp>()) p.kind = Kind::kAverage;
    if (op->isa<nn::GlobalLpPoolOp>()) {
      p.kind = Kind::kNorm;
      p.p = nn::GlobalLpPoolOp(mutable_op).p();
    }
  }
  return p;
}

bool IsPool(const Operation& op) {
  return op.isa<nn::MaxPoolOp>() || op.isa<nn::AveragePoolOp>() || op.isa<nn::LpPoolOp>() ||
         op.isa<nn::GlobalMaxPoolOp>() || op.isa<nn::GlobalAveragePoolOp>() ||
         op.isa<nn::GlobalLpPoolOp>();
}

std::string TypeRefusal(const Pooling& p) {
  const ElementType element = p.input().element();
  const bool is_float = element == ElementType::kF32 || element == ElementType::kF64;
  const bool is_byte = element == ElementType::kI8 || element == ElementType::kU8;
  if (p.kind == Kind::kNorm && p.p > 2) return "powers are summed in f64";
  if (is_float || (is_byte && p.kind == Kind::kMax)) return "";
  return StrCat("elements are ", Name(element));
}

}  // namespace

std::optional<Pooling> Pooling::Find(const Block& function, const Machine& machine,
                                     std::string& why) {
  const Operation* found = nullptr;
  why = FindAnchor(function, "pool", IsPool, found);
  if (!why.empty()) return std::nullopt;
  if (!found->operand(0).is_block_argument()) {
    return why = "its input is computed in the same function", std::nullopt;
  }
  if (nn::ChannelsLast(found)) return why = "the channels are last", std::nullopt;
  Pooling p = Described(found);
  if (!p.input().has_rank() || p.input().rank() < 2) return why = "of no rank", std::nullopt;
  why = TypeRefusal(p);
  if (!why.empty()) return std::nullopt;
  p.element = p.input().element();
  p.after.emplace(function, found, machine);
  why = p.after->Refusal();
  if (!why.empty()) return std::nullopt;
  if (!std::ranges::equal(p.output().dims(), p.after->dims())) {
    return why = "the result is broadcast further", std::nullopt;
  }
  std::vector<std::vector<size_t>> axes;
  for (size_t a = 0; a < p.after->dims().size(); ++a) axes.push_back({a});
  if (!p.after->SetGroups(std::move(axes))) {
    return why = "rows of the result are stored apart", std::nullopt;
  }
  return p;
}

bool Pooling::gives_indices() const { return op->num_results() > 1 && !op->result(1).use_empty(); }

bool Pooling::CountsAll(size_t axis) const {
  const nn::WindowSteps steps = nn::CheckedSteps(spec, input().rank() - 2);
  const bool pads = nn::IsSame(spec) || steps.begins[axis] != 0 || steps.ends[axis] != 0;
  // Only rounded up can a window hang over the padding, and no window of SAME does.
  return (!spec.ceil_mode || nn::IsSame(spec)) && (!pads || count_include_pad);
}

double Pooling::neutral() const {
  if (kind != Kind::kMax) return 0;
  if (element == ElementType::kI8) return -128;
  if (element == ElementType::kU8) return 0;
  return -std::numeric_limits<double>::infinity();
}

Value Pooling::Prepared(LoopBuilder& lb, Value x) const {
  if (kind != Kind::kNorm) return x;
  return p == 2 ? nn::MulOp::Create(lb.b(), x, x).c() : nn::AbsOp::Create(lb.b(), x).y();
}

Value Pooling::Combined(LoopBuilder& lb, Value a, Value b) const {
  if (kind != Kind::kMax) return nn::AddOp::Create(lb.b(), a, b).c();
  const Value both[] = {a, b};
  return nn::MaxOp::Create(lb.b(), both).y();
}

Value Pooling::Finished(LoopBuilder& lb, Value x, Value scale) const {
  if (kind == Kind::kAverage) return nn::MulOp::Create(lb.b(), x, scale).c();
  return kind == Kind::kMax || p == 1 ? x : nn::SqrtOp::Create(lb.b(), x).y();
}

}  // namespace lathe::lower
