#include "test/differential/evaluate.h"

#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/dialect/size_scope.h"

namespace lathe::testing {

class Evaluator::Context : public EvalContext, public SizeScope {
 public:
  Context(Evaluator& evaluator, Operation* op, std::span<RtValue> inputs,
          std::span<RtValue> outputs)
      : evaluator_(evaluator) {
    op_ = op;
    inputs_ = inputs;
    outputs_ = outputs;
  }
  std::vector<RtValue> RunRegion(Region& region, std::span<const RtValue> arguments) override {
    return evaluator_.RunRegion(region, arguments);
  }
  ParameterMap* parameters() override { return nullptr; }
  uint64_t RandomSeed(std::optional<double>) override { return 0; }
  const RtValue* Feed(std::string_view) override { return nullptr; }
  void Fetch(std::string_view, const RtValue&) override {}
  std::optional<int64_t> SizeOf(std::string_view symbol) const override {
    const Block* outer = op_->block();
    while (outer != nullptr && outer->parent_op() != nullptr && outer->parent_op()->block()) {
      outer = outer->parent_op()->block();
    }
    if (outer == nullptr) return std::nullopt;
    for (OpWalker walk(const_cast<Block*>(outer)); const Operation* op = walk.Next();) {
      for (size_t i = 0; i < op->num_operands(); ++i) {
        const auto found = evaluator_.values.find(op->operand(i));
        if (found == evaluator_.values.end()) continue;
        if (const auto size = SizeIn(op->operand(i).type(), found->second, symbol)) return size;
      }
    }
    return std::nullopt;
  }

 private:
  Evaluator& evaluator_;
};

Evaluator::Evaluator(const ParameterMap& parameters, One one, int most_rounds)
    : parameters_(parameters), one_(std::move(one)), rounds_left_(most_rounds) {}

void Evaluator::Run(Operation* op) {
  if (op->name() == "builtin.get_parameter") {
    const auto name = op->attribute("name").cast<StrAttribute>().value();
    values[op->result(0)] = parameters_.Find(name)->data;
    return;
  }
  std::vector<RtValue> inputs;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    inputs.push_back(op->operand(i) ? values.at(op->operand(i)) : RtValue());
  }
  std::vector<RtValue> results(op->num_results());
  if (op->num_regions() == 0) {
    results = one_(op, inputs);
  } else {
    Context context(*this, op, inputs, results);
    op->dyn_cast<EvalInterface>().Eval(context);
  }
  for (size_t i = 0; i < results.size(); ++i) values[op->result(i)] = std::move(results[i]);
}

std::vector<RtValue> Evaluator::RunRegion(Region& region, std::span<const RtValue> arguments) {
  if (rounds_left_-- <= 0) throw Error(ErrorCode::kLimit, "limit/steps", "regions run too often");
  const Block& block = *region.front();
  for (size_t i = 0; i < arguments.size(); ++i) values[block.argument(i)] = arguments[i];
  for (Operation& op : block) {
    if (!op.HasTrait<Terminator>()) Run(&op);
  }
  std::vector<RtValue> yields;
  const Operation* last = block.back();
  for (size_t i = 0; i < last->num_operands(); ++i) yields.push_back(values.at(last->operand(i)));
  return yields;
}

void EraseUnusedOps(Program& program) {
  std::vector<Operation*> ops;
  for (OpWalker walk(program.block()); Operation* op = walk.Next();) ops.push_back(op);
  for (auto at = ops.rbegin(); at != ops.rend(); ++at) {  // what is within an op before the op
    Operation* op = *at;
    if (op->name() != "nn.fetch" && !op->HasTrait<Terminator>() && op->use_empty()) op->Erase();
  }
}

}  // namespace lathe::testing
