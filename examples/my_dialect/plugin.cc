// What a plug-in registers: a dialect, a pass with a pattern, a strategy.
#include <lathe/dialect/mine/mine_ops.h>
#include <lathe/dialect/nn/elementwise_binary.h>
#include <lathe/dialect/nn/elementwise_unary.h>
#include <lathe/ir/dialect.h>
#include <lathe/ir/tensor_of.h>
#include <lathe/lower/loop_builder.h>
#include <lathe/lower/lowering.h>
#include <lathe/lower/strategy.h>
#include <lathe/pass/pass.h>
#include <lathe/pass/pipeline_places.h>
#include <lathe/pass/rule.h>
#include <lathe/plugin.h>

namespace {

using namespace lathe;       // NOLINT: the words of a pass
using namespace lathe::pat;  // NOLINT: the words of a rule

class MineDialect : public Dialect {
 public:
  static constexpr const char* kName = "mine";
  explicit MineDialect(IrContext& context) : Dialect(context, kName) {
    mine::RegisterMineOps(*this);
  }
};

/// tanh(x / limit) * limit, as exporters write it.
class FuseSoftCap : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Pat capped = Call("nn.tanh", {Call("nn.div", {Var("x"), Scalar("limit")})});
    std::vector<Rule> rules;
    rules.push_back(
        Rule("soft-cap")
            .Match(Call("nn.mul", {capped, Scalar("again")}))
            .Where([](const RuleMatch& m) { return m.scalar("limit") == m.scalar("again"); },
                   "what is divided by is what is multiplied by")
            .Where([](const RuleMatch& m) { return m.scalar("limit") > 0; }, "the limit is above 0")
            .Replace(Call("mine.soft_cap", {Var("x")}).Set("limit", [](const RuleMatch& m) {
              return MakeAttribute(m.context(), m.scalar("limit"));
            })));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};
REGISTER_PASS(fuse_soft_cap, FuseSoftCap).Doc("makes tanh(x / limit) * limit one op");

/// Loops for soft_cap alone on f32: a vector of elements after the other, in parallel.
class SoftCapLoops {
 public:
  explicit SoftCapLoops(lower::Lowering& l)
      : lb_(l.body),
        lanes_(l.machine.lanes(ElementType::kF32)),
        from_(lb_.Flat(l.body->argument(0))),
        limit_(lb_.Splat(ElementType::kF32, mine::SoftCapOp(l.function.front()).limit(), lanes_)) {}

  /// `type`: of operand and result. Its extents may be symbols.
  void Write(AnyTensorType type) {
    const Value result = lb_.Alloc(type);
    to_ = lb_.Flat(result);
    const Dim count = type.shape().NumElements();
    const Dim full = FloorDiv(count, lanes_), rest = Mod(count, lanes_);
    lb_.For(full, true, [&](Value i) { Cap(i, {}); });
    lb_.For(Min(rest, 1), false, [&](Value) { Cap(lb_.Extent(full), lb_.Extent(rest)); });
    lb_.Return({&result, 1});
  }

 private:
  /// Vector number `i`; of the last one only the first `live` lanes.
  void Cap(Value i, Value live) {
    const Value at = lb_.Index(lower::LoopBuilder::D0() * lanes_, i);
    const Value x = lb_.Load(from_, {&at, 1}, lanes_, live);
    const Value share = nn::DivOp::Create(lb_.b(), x, limit_).c();
    const Value tanh = nn::TanhOp::Create(lb_.b(), share).y();
    lb_.Store(to_, nn::MulOp::Create(lb_.b(), tanh, limit_).c(), {&at, 1}, live);
  }

  lower::LoopBuilder lb_;
  int64_t lanes_;
  Value from_, limit_, to_;
};

bool LowerSoftCap(lower::Lowering& l) {
  const AnyTensorType type = TensorOf(l.body->argument(0));
  const bool alone =
      l.body->num_arguments() == 1 && l.function.front()->next() == l.function.back();
  if (!alone || type.element() != ElementType::kF32) {
    l.why = "it takes soft_cap alone, of f32";
    return false;
  }
  SoftCapLoops(l).Write(type);
  return true;
}

/// Where it fits it is taken: the strategies that come with Lathe have priority 10.
void RegisterStrategy() {
  StrategyRegistry::Global().Register("mine.soft_cap", "generic", [](const OpCall&) {
    OpStrategy strategy;
    strategy.Add({.name = "soft_cap_lanes", .plevel = 20, .lower = &LowerSoftCap});
    return strategy;
  });
}

}  // namespace

LATHE_PLUGIN(context) {
  context.LoadDialect<MineDialect>();
  static const bool once = (RegisterStrategy(), true);  // of the process, not of a context
  (void)once;
  JoinPipeline("fuse_soft_cap", {.pipeline = "inference", .before = "fuse_activation"});
}
