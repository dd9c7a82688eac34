#include "lathe/dialect/dist/collective.h"

#include <cstring>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/dist/op_names.h"
#include "lathe/dialect/eval_util.h"
#include "lathe/support/collectives.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::dist {
namespace {

using eval::Numeric;

bool IsAlone(int64_t nranks) { return nranks == 1; }

// What all ranks give, rank by rank. Ranks that disagree on types or shapes all fail.
std::vector<Tensor> FromAllRanks(EvalContext& c, int64_t nranks) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < c.num_inputs(); ++i) all.push_back(c.input(i));
  if (IsAlone(nranks)) return all;
  Communicator& ranks = CommunicatorOf(nranks);
  std::string types;
  for (const Tensor& t : all) types += (types.empty() ? "" : " and ") + t.TypeString();
  const std::vector<std::string> texts = GatherTexts(ranks, types, c.op()->name());
  for (size_t r = 0; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    c.Fail("shape/collective", StrCat("rank ", r, " gives ", texts[r], ", rank 0 ", texts[0]));
  }
  std::vector<Tensor> gathered(all.size() * texts.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t bytes = all[i].byte_size();
    std::vector<std::byte> data(bytes * texts.size());
    AllGather(ranks, all[i].raw(), bytes, data.data(), c.op()->name());
    for (size_t r = 0; r < texts.size(); ++r) {
      Tensor t(all[i].element_type(), all[i].shape());
      if (bytes > 0) std::memcpy(t.mutable_raw(), data.data() + r * bytes, bytes);
      gathered[r * all.size() + i] = std::move(t);
    }
  }
  return gathered;
}

Tensor Zeros(const Tensor& like) { return Tensor(like.element_type(), like.shape()); }

// Part `part` of `parts` along the first axis.
Tensor PartOf(const Tensor& x, int64_t part, int64_t parts) {
  Shape shape = x.shape();
  shape[0] /= parts;
  Tensor y(x.element_type(), shape);
  const size_t bytes = y.byte_size();
  if (bytes > 0) std::memcpy(y.mutable_raw(), x.raw() + static_cast<size_t>(part) * bytes, bytes);
  return y;
}

void CheckParts(EvalContext& c, const Tensor& x, int64_t parts) {
  if (x.rank() > 0 && x.shape()[0] % parts == 0) return;
  c.Fail("shape/collective", StrCat("the first axis of ", x.TypeString(), " has no ", parts,
                                    " equal parts, one for each rank"));
}

/// What tensors of one shape give together.
Tensor Reduced(EvalContext& c, std::vector<Tensor> xs, std::string_view reduction) {
  for (size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].shape() != xs[0].shape()) {
      c.Fail("shape/collective",
             StrCat("place ", i, " gives ", xs[i].TypeString(), ", place 0 ", xs[0].TypeString()));
    }
  }
  if (reduction == "min") {
    return eval::MapFold<Numeric>(xs, [](auto a, auto b) { return eval::NanMin(a, b); });
  }
  if (reduction == "max") {
    return eval::MapFold<Numeric>(xs, [](auto a, auto b) { return eval::NanMax(a, b); });
  }
  const ElementType type = xs[0].element_type();
  if (IsFloat(type)) {
    for (Tensor& x : xs) x = Cast(x, ElementType::kF64);
  }
  Tensor sum = eval::MapFold<Numeric>(xs, [](auto a, auto b) { return eval::WrapAdd(a, b); });
  if (reduction == "mean") {
    const auto count = static_cast<double>(xs.size());
    sum = eval::MapUnary<Numeric>(sum, sum.element_type(), [count](auto x) {
      return static_cast<decltype(x)>(static_cast<double>(x) / count);
    });
  }
  return Cast(sum, type);
}

SymShape CommonShape(InferShapeContext& c) {
  SymShape shape = c.shape(0);
  for (size_t i = 1; i < c.num_inputs(); ++i) shape = Meet(shape, c.shape(i));
  return shape;
}

void CheckRoot(Operation* op, int64_t root, size_t places, int64_t nranks) {
  const int64_t all = static_cast<int64_t>(places) * nranks;
  if (root < all) return;
  throw Error(ErrorCode::kVerify, "verify/collective",
              StrCat("there are ", all, " places, so none of number ", root))
      .At(op->Describe());
}

void CheckRank(Operation* op, int64_t rank, int64_t nranks) {
  if (rank < nranks) return;
  throw Error(ErrorCode::kVerify, "verify/collective",
              StrCat("there are ", nranks, " ranks, so none of number ", rank))
      .At(op->Describe());
}

void CheckPairs(Operation* op) {
  if (op->num_operands() == op->num_results()) return;
  throw Error(ErrorCode::kVerify, "verify/collective",
              StrCat(op->num_operands(), " operands have ", op->num_results(), " results"))
      .At(op->Describe());
}

void InferSame(InferShapeContext& c) {
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, c.shape(i));
}

// Of a tensor whose first axis has a part for each rank.
SymShape Parted(InferShapeContext& c, int64_t nranks) {
  const SymShape shape = c.shape(0);
  if (!shape.ranked) return shape;
  if (shape.rank() == 0) c.Fail("shape/collective", "a scalar has no first axis");
  Assume(SizeCondition::Divides(nranks, shape.dims[0]), "shape/collective", [&] {
    return StrCat("an axis of ", shape.dims[0].ToString(), " has no ", nranks,
                  " equal parts, one for each rank");
  });
  return shape;
}

SymShape PartShape(InferShapeContext& c, int64_t nranks) {
  SymShape shape = Parted(c, nranks);
  if (shape.ranked) shape.dims[0] = FloorDiv(shape.dims[0], nranks);
  return shape;
}

SymShape Gathered(InferShapeContext& c, int64_t nranks) {
  SymShape shape = c.shape(0);
  if (shape.ranked && shape.rank() == 0) c.Fail("shape/collective", "a scalar has no first axis");
  if (shape.ranked) shape.dims[0] *= Dim(nranks);
  return shape;
}

// The gradients of the results; zeros of those that no loss depends on.
std::vector<Value> ResultGrads(Operation* op, std::span<const Value> g, Builder& b) {
  std::vector<Value> all;
  for (size_t i = 0; i < op->num_results(); ++i) {
    all.push_back(g[i] ? g[i] : nn::FilledLike(b, op->result(i), 0));
  }
  return all;
}

// A sum or a mean: others choose an element, which ranks would have to agree on.
void CheckLinear(Operation* op, std::string_view reduction) {
  if (reduction == "sum" || reduction == "mean") return;
  nn::FailGradient(op, StrCat("reduction = ", reduction));
}

}  // namespace

void AllReduceOp::InferShape(InferShapeContext& c) {
  const SymShape shape = CommonShape(c);
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, shape);
}
void AllReduceOp::Eval(EvalContext& c) {
  const AllReduceOp op(c.op());
  const Tensor sum = Reduced(c, FromAllRanks(c, op.nranks()), op.reduction());
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, sum);
}
void AllReduceOp::Verify(Operation* op) {
  if (op->num_operands() == op->num_results()) return;
  throw Error(ErrorCode::kVerify, "verify/collective",
              StrCat(op->num_operands(), " places give and ", op->num_results(), " get"))
      .At(op->Describe());
}
std::vector<Value> AllReduceOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const AllReduceOp op(o);
  CheckLinear(o, op.reduction());
  const std::vector<Value> grads = ResultGrads(o, g, b);
  return AllReduceOp::Create(b, grads, grads.size(),
                             {.reduction = std::string(op.reduction()), .nranks = op.nranks()})
      .ys();
}

void AllReduceBucketOp::InferShape(InferShapeContext& c) { InferSame(c); }
void AllReduceBucketOp::Eval(EvalContext& c) {
  const AllReduceBucketOp op(c.op());
  const std::vector<Tensor> all = FromAllRanks(c, op.nranks());
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    std::vector<Tensor> xs;
    for (size_t k = i; k < all.size(); k += c.num_inputs()) xs.push_back(all[k]);
    c.SetOutput(i, Reduced(c, std::move(xs), op.reduction()));
  }
}
void AllReduceBucketOp::Verify(Operation* op) { CheckPairs(op); }
std::vector<Value> AllReduceBucketOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const AllReduceBucketOp op(o);
  CheckLinear(o, op.reduction());
  const std::vector<Value> grads = ResultGrads(o, g, b);
  return AllReduceBucketOp::Create(
             b, grads, grads.size(),
             {.reduction = std::string(op.reduction()), .nranks = op.nranks()})
      .ys();
}

void ReduceOp::InferShape(InferShapeContext& c) { c.SetShape(kY, CommonShape(c)); }
void ReduceOp::Eval(EvalContext& c) {
  const ReduceOp op(c.op());
  const Tensor all = Reduced(c, FromAllRanks(c, op.nranks()), op.reduction());
  const int64_t at = op.root() / static_cast<int64_t>(c.num_inputs());
  c.SetOutput(kY, at == RankOf(op.nranks()) ? all : Zeros(all));
}
void ReduceOp::Verify(Operation* op) {
  CheckRoot(op, ReduceOp(op).root(), op->num_operands(), ReduceOp(op).nranks());
}
std::vector<Value> ReduceOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ReduceOp op(o);
  CheckLinear(o, op.reduction());
  Value grad = g[0];
  if (op.reduction() == "mean") {
    const auto count = static_cast<double>(o->num_operands()) * static_cast<double>(op.nranks());
    grad = nn::Term(b, grad) / count;
  }
  return BroadcastOp::Create(b, grad, o->num_operands(), {.root = op.root(), .nranks = op.nranks()})
      .ys();
}

void BroadcastOp::InferShape(InferShapeContext& c) {
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, c.shape(kX));
}
void BroadcastOp::Eval(EvalContext& c) {
  const BroadcastOp op(c.op());
  const std::vector<Tensor> all = FromAllRanks(c, op.nranks());
  const auto rank = static_cast<size_t>(op.root()) / c.num_outputs();
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, all[rank]);
}
void BroadcastOp::Verify(Operation* op) {
  CheckRoot(op, BroadcastOp(op).root(), op->num_results(), BroadcastOp(op).nranks());
}
std::vector<Value> BroadcastOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const BroadcastOp op(o);
  return {
      ReduceOp::Create(b, ResultGrads(o, g, b), {.root = op.root(), .nranks = op.nranks()}).y()};
}

void AllGatherOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, Gathered(c, AllGatherOp(c.op()).nranks()));
}
void AllGatherOp::Eval(EvalContext& c) {
  c.SetOutput(kY, eval::Concatenate(FromAllRanks(c, AllGatherOp(c.op()).nranks()), 0));
}
std::vector<Value> AllGatherOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {ReduceScatterOp::Create(b, g[0], {.nranks = AllGatherOp(o).nranks()}).y()};
}

void ReduceScatterOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, PartShape(c, ReduceScatterOp(c.op()).nranks()));
}
void ReduceScatterOp::Eval(EvalContext& c) {
  const ReduceScatterOp op(c.op());
  CheckParts(c, c.input(kX), op.nranks());
  const Tensor all = Reduced(c, FromAllRanks(c, op.nranks()), op.reduction());
  c.SetOutput(kY, PartOf(all, RankOf(op.nranks()), op.nranks()));
}
std::vector<Value> ReduceScatterOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ReduceScatterOp op(o);
  CheckLinear(o, op.reduction());
  const Value all = AllGatherOp::Create(b, g[0], {.nranks = op.nranks()}).y();
  if (op.reduction() == "sum") return {all};
  return {nn::Term(b, all) / static_cast<double>(op.nranks())};
}

void AllToAllOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, Parted(c, AllToAllOp(c.op()).nranks()));
}
void AllToAllOp::Eval(EvalContext& c) {
  const int64_t nranks = AllToAllOp(c.op()).nranks();
  CheckParts(c, c.input(kX), nranks);
  std::vector<Tensor> parts;
  for (const Tensor& x : FromAllRanks(c, nranks)) {
    parts.push_back(PartOf(x, RankOf(nranks), nranks));
  }
  c.SetOutput(kY, eval::Concatenate(parts, 0));
}
std::vector<Value> AllToAllOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {AllToAllOp::Create(b, g[0], {.nranks = AllToAllOp(o).nranks()}).y()};
}

// ---- collectives that go on while others run ----

namespace {

// What only some other rank can tell is not read before it is there: what passes it on may.
void CheckOnlyWaited(Operation* op, int64_t nranks) {
  for (const OpOperand use : op->result(0).uses()) {
    const Operation* reader = use.owner();
    if (IsAlone(nranks) || reader->isa<WaitOp>() || reader->isa<builtin::ReturnOp>() ||
        reader->isa<builtin::TokenOfOp>() || reader->isa<builtin::DependOp>()) {
      continue;
    }
    throw Error(ErrorCode::kVerify, "verify/collective",
                StrCat(use.owner()->Describe(), " reads what goes on"))
        .At(op->Describe())
        .Hint("dist.wait gives what comes of it");
  }
}

}  // namespace

void StartAllReduceOp::InferShape(InferShapeContext& c) { InferSame(c); }
void StartAllReduceOp::Eval(EvalContext& c) {
  const StartAllReduceOp op(c.op());
  c.SetOutput(kY, Reduced(c, FromAllRanks(c, op.nranks()), op.reduction()));
}
void StartAllReduceOp::Verify(Operation* op) { CheckOnlyWaited(op, StartAllReduceOp(op).nranks()); }

// Here all of it is there at once.
void StartReduceScatterOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, Parted(c, StartReduceScatterOp(c.op()).nranks()));
}
void StartReduceScatterOp::Eval(EvalContext& c) {
  const StartReduceScatterOp op(c.op());
  CheckParts(c, c.input(kX), op.nranks());
  c.SetOutput(kY, Reduced(c, FromAllRanks(c, op.nranks()), op.reduction()));
}
void StartReduceScatterOp::Verify(Operation* op) {
  CheckOnlyWaited(op, StartReduceScatterOp(op).nranks());
}

void StartAllGatherOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, Gathered(c, StartAllGatherOp(c.op()).nranks()));
}
void StartAllGatherOp::Eval(EvalContext& c) {
  c.SetOutput(kY, eval::Concatenate(FromAllRanks(c, StartAllGatherOp(c.op()).nranks()), 0));
}
void StartAllGatherOp::Verify(Operation* op) { CheckOnlyWaited(op, StartAllGatherOp(op).nranks()); }

void WaitOp::InferShape(InferShapeContext& c) {
  const WaitOp op(c.op());
  c.SetShape(kY, op.part() ? PartShape(c, op.nranks()) : c.shape(kX));
}
void WaitOp::Eval(EvalContext& c) {
  const WaitOp op(c.op());
  c.SetOutput(kY, op.part() ? PartOf(c.input(kX), RankOf(op.nranks()), op.nranks()) : c.input(kX));
}

void ShardOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, PartShape(c, ShardOp(c.op()).nranks()));
}
void ShardOp::Eval(EvalContext& c) {
  const int64_t nranks = ShardOp(c.op()).nranks();
  CheckParts(c, c.input(kX), nranks);
  c.SetOutput(kY, PartOf(c.input(kX), RankOf(nranks), nranks));
}

void SendOp::InferShape(InferShapeContext& c) { InferSame(c); }
void SendOp::Eval(EvalContext& c) {
  const SendOp op(c.op());
  const Tensor& x = c.input(kX);
  if (op.to() != RankOf(op.nranks())) {
    const Communicator::Send send{static_cast<int>(op.to()), x.raw(), x.byte_size()};
    CommunicatorOf(op.nranks()).Exchange({&send, 1}, {}, dist::kSend);
  }
  c.SetOutput(kY, x);
}
void SendOp::Verify(Operation* op) { CheckRank(op, SendOp(op).to(), SendOp(op).nranks()); }

void RecvOp::InferShape(InferShapeContext& c) { InferSame(c); }
void RecvOp::Eval(EvalContext& c) {
  const RecvOp op(c.op());
  const Tensor& like = c.input(kLike);
  if (op.from() == RankOf(op.nranks())) return c.SetOutput(kY, like);
  Tensor y(like.element_type(), like.shape());
  const Communicator::Receive receive{static_cast<int>(op.from()), y.mutable_raw(), y.byte_size()};
  CommunicatorOf(op.nranks()).Exchange({}, {&receive, 1}, dist::kRecv);
  c.SetOutput(kY, std::move(y));
}
void RecvOp::Verify(Operation* op) { CheckRank(op, RecvOp(op).from(), RecvOp(op).nranks()); }

void BarrierOp::InferShape(InferShapeContext& c) { InferSame(c); }
void BarrierOp::Eval(EvalContext& c) {
  const int64_t nranks = BarrierOp(c.op()).nranks();
  if (!IsAlone(nranks)) Barrier(CommunicatorOf(nranks), dist::kBarrier);
  for (size_t i = 0; i < c.num_inputs(); ++i) c.SetOutput(i, c.input(i));
}
void BarrierOp::Verify(Operation* op) { CheckPairs(op); }
std::vector<Value> BarrierOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return BarrierOp::Create(b, ResultGrads(o, g, b), o->num_results(),
                           {.nranks = BarrierOp(o).nranks()})
      .ys();
}

}  // namespace lathe::dist
