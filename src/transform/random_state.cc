#include <optional>
#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/decompose.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/random.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"

namespace lathe {

namespace {

/// The parameter that counts runs.
constexpr std::string_view kCounter = "random.run";

std::vector<Operation*> RandomOps(const Program& program) {
  std::vector<Operation*> ops;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (op->isa<builtin::FuncOp>()) w.SkipRegions();
    if (op->HasTrait<Random>()) ops.push_back(op);
  }
  return ops;
}

bool SetsParameters(const Program& program) {
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    if (op->isa<builtin::SetParameterOp>()) return true;
  }
  return false;
}

/// Streams of keys: that of the run or, within a region, which may run again, another one each
/// time.
class Streams {
 public:
  Streams(Rewriter& rewriter, bool counts) : rewriter_(rewriter), counts_(counts) {}

  /// Of an operation, before which what is made stands.
  Value Of(Operation* op) {
    op_ = op;
    Return();
    return op->block() == rewriter_.program().block() ? First() : Next();
  }

  /// The next run begins behind what this one has used.
  void End() {
    if (!counts_ || !first_) return;
    rewriter_.SetInsertionPointToEnd(rewriter_.program().block());
    const Value next = PlusOne(state_ ? Now() : first_);
    const NamedAttribute name = rewriter_.Named("name", rewriter_.Attr(kCounter));
    rewriter_.Create(builtin::kSetParameter, {&next, 1}, {&name, 1});
  }

 private:
  void Return() {
    rewriter_.SetInsertionPoint(op_);
    rewriter_.set_location(op_->location());
  }
  Value Now() { return rewriter_.Create(builtin::kToVtensor, {&state_, 1})->result(0); }
  Value PlusOne(Value x) {
    const Value one = rewriter_.Constant(Tensor::Of<int64_t>({1}, {1}));
    return nn::AddOp::Create(rewriter_, x, one).c();
  }

  Value First() {
    if (first_) return first_;
    rewriter_.SetInsertionPoint(rewriter_.program().block()->front());
    first_ = counts_ ? Counter() : rewriter_.Constant(Tensor::Of<int64_t>({1}, {0}));
    Return();
    return first_;
  }

  Value Counter() {
    const Tensor zero(ElementType::kI64, {1});
    ParameterMap& parameters = rewriter_.program().parameters();
    const StrAttribute name = StrAttribute::Get(rewriter_.context(), kCounter);
    if (parameters.Find(name) == nullptr) {
      parameters.Insert(name, {.data = zero, .is_mutable = true});
    }
    const Type type = VTensorType::Get(rewriter_.context(), SymShape::FromConstants(zero.shape()),
                                       ElementType::kI64);
    return builtin::GetParameterOp::Create(rewriter_, {&type, 1}, {.name = std::string(kCounter)})
        .value();
  }

  Value Next() {
    if (!state_) {
      const Value first = First();
      rewriter_.SetInsertionPoint(first.defining_op()->next());
      state_ = rewriter_.Create(builtin::kToTensor, {&first, 1})->result(0);
      Return();
    }
    const Value now = Now();
    const Value operands[] = {state_, PlusOne(now)};
    rewriter_.Create(nn::kCopyInplace, operands);
    return now;
  }

  Rewriter& rewriter_;
  const bool counts_;
  Operation* op_ = nullptr;
  Value first_, state_;  // [1]; a mutable tensor
};

class RandomStatePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    const std::vector<Operation*> draws = RandomOps(program);
    if (draws.empty()) return;
    const bool counts =
        option("counter") == "always" || (option("counter") == "auto" && SetsParameters(program));
    Rewriter rewriter(program, this);
    for (Operation* op : draws) Decompose(op, rewriter);
    Streams streams(rewriter, counts);
    uint64_t draw = 0;
    for (Operation* op : RandomOps(program)) {
      if (auto key = op->dyn_cast<nn::RandomKeyOp>()) MakeKey(key, draw++, streams, rewriter);
    }
    streams.End();
  }

 private:
  void Decompose(Operation* op, Rewriter& rewriter) {
    if (op->isa<nn::RandomKeyOp>()) return;
    std::vector<Value> results;
    rewriter.SetInsertionPoint(op);
    rewriter.set_location(op->location());
    if (op->HasInterface<DecomposeInterface>() && !TouchesMutableTensor(op)) {
      results = DecomposeInFloats(op, rewriter);
    }
    if (results.empty()) return Missed(op, "this form draws by itself");
    for (size_t i = 0; i < results.size(); ++i) {
      if (op->result(i).use_empty()) continue;
      results[i].set_type(op->result(i).type());
      rewriter.ReplaceAllUses(op->result(i), results[i]);
    }
    Applied(op, "its numbers come from a counter");
    rewriter.Erase(op);
  }

  void MakeKey(nn::RandomKeyOp op, uint64_t draw, Streams& streams, Rewriter& rewriter) {
    const auto seed = static_cast<int64_t>(
        SeedOfDraw(op.seed(), static_cast<uint64_t>(option_int("seed")), draw));
    const Tensor zero(ElementType::kI64, {1});
    const Value stream = op.seed() ? Value() : streams.Of(op);
    rewriter.SetInsertionPoint(op);
    rewriter.set_location(op->location());
    const Value parts[] = {rewriter.Constant(Tensor::Of<int64_t>({1}, {seed})),
                           stream ? stream : rewriter.Constant(zero)};
    const NamedAttribute axis = rewriter.Named("axis", rewriter.Attr(int64_t{0}));
    rewriter.ReplaceOp(op, rewriter.Create(nn::kConcat, parts, {&axis, 1})->result(0));
  }
};

REGISTER_PASS(random_state, RandomStatePass)
    .Doc("random operations as functions of seeds and of a counter of the runs")
    .Details(
        "Each becomes arithmetic on the numbers of `nn.philox`, which runs as a kernel, with the "
        "same bits for any number of threads. The first run draws what the interpreter draws of "
        "the "
        "program as it was, but for operations in regions, which draw other numbers each time. In "
        "a "
        "program that sets parameters the parameter `random.run`, one i64, counts the runs, and "
        "operations without a seed draw other numbers in each; it is state like any other, so that "
        "a program that is saved and loaded goes on with the same numbers. Other programs draw the "
        "same numbers in every run.")
    .Option("seed", PassOption::Kind::kInt, "0", "of all operations that have none of their own")
    .Option("counter", PassOption::Kind::kString, "auto",
            "`always`, `never`, or `auto`: if the program sets parameters");

}  // namespace

}  // namespace lathe
