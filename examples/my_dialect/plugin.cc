// What a plug-in registers: a dialect, a pass with a pattern, a strategy.
#include <lathe/dialect/builtin/builtin.h>
#include <lathe/dialect/cf/cf.h>
#include <lathe/dialect/loop/loop.h>
#include <lathe/dialect/loop/memory.h>
#include <lathe/dialect/mine/mine_ops.h>
#include <lathe/dialect/nn/elementwise_binary.h>
#include <lathe/dialect/nn/elementwise_unary.h>
#include <lathe/dialect/nn/view.h>
#include <lathe/ir/dialect.h>
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

constexpr int64_t kLanes = 16;

/// Elements i * kLanes .. of `to`: soft_cap of those of `from`. Vectors are tensors of rank 1.
void CapLanes(Builder& b, Value i, Value from, Value to, double limit) {
  const Attribute expr = DimAttribute::Get(b.context(), Dim::Symbol("d0") * kLanes);
  const Value at = loop::IndexOp::Create(b, {&i, 1}, {.expr = expr}).value();
  const std::vector<float> limits(kLanes, static_cast<float>(limit));
  const Value cap =
      builtin::ConstantOp::Create(b, {.value = Tensor::Of<float>({kLanes}, limits)}).result();
  const Value x = loop::LoadOp::Create(b, from, Value(), {&at, 1}, {.lanes = kLanes}).value();
  const Value tanh = nn::TanhOp::Create(b, nn::DivOp::Create(b, x, cap).c()).y();
  loop::StoreInplaceOp::Create(b, to, nn::MulOp::Create(b, tanh, cap).c(), Value(), {&at, 1});
}

/// Loops for soft_cap alone on f32: 16 elements at once, the vectors in parallel.
bool LowerSoftCap(lower::Lowering& l) {
  const Operation* op = l.function.front();
  const auto type = l.body->argument(0).type().cast<AnyTensorType>();
  const Dim count = type.shape().NumElements();
  const bool alone = l.body->num_arguments() == 1 && op->next() == l.function.back();
  if (!alone || type.element() != ElementType::kF32 || !count.is_constant() ||
      count.value() % kLanes != 0) {
    l.why = StrCat("it takes soft_cap alone, of f32 and a multiple of ", kLanes, " elements");
    return false;
  }
  Builder b = Builder::AtEnd(l.body);
  const Type memory_type = type.AsMutable();
  const Value memory = loop::AllocOp::Create(b, {}, {&memory_type, 1}).memory();
  const nn::ViewReshapeOp::Attrs flat{.shape = {-1}};
  const Value from = nn::ViewReshapeOp::Create(b, l.body->argument(0), flat).y();
  const Value to = nn::ViewReshapeOp::Create(b, memory, flat).y();

  const loop::ForOp::Attrs trips{.extent = count.value() / kLanes, .parallel = true};
  Operation* loop = loop::ForOp::Create(b, Value(), {}, {}, trips).operation();
  Block* body = loop->region(0).AddBlock();
  body->AddArgument(VTensorType::Get(b.context(), SymShape(std::vector<Dim>()), ElementType::kI64));
  Builder inside = Builder::AtEnd(body);
  CapLanes(inside, body->argument(0), from, to, mine::SoftCapOp(l.function.front()).limit());
  cf::YieldOp::Create(inside, {});

  const Value result = b.Create("builtin.to_vtensor", {&memory, 1})->result(0);
  b.Create(l.function.back()->info(), {&result, 1}, {}, {});
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
