#include "src/driver/reduce_loops.h"

#include <set>
#include <string>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/pass/rewriter.h"
#include "src/dialect/cf/loop_sizes.h"

namespace lathe::reduction {
namespace {

std::vector<Operation*> LoopsOf(const Program& program, bool scans_too) {
  std::vector<Operation*> ops;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (op->isa<cf::WhileOp>() || (scans_too && op->isa<cf::ScanOp>())) ops.push_back(op);
  }
  return ops;
}

size_t NumCarried(Operation* loop) { return cf::WhileOp(loop).carried().size(); }

Value Scalar(Builder& b, const Tensor& value) {
  return builtin::ConstantOp::Create(b, {.value = value}).result();
}

void RunPasses(Program& program, const char* passes) {
  PassManager manager;
  manager.Add(passes);
  manager.Run(program);
}

// What a round computes for results of the loop that nobody reads: it stays, as outputs.
void FetchUnread(Program& program, Operation* loop) {
  std::set<std::string> outputs;
  for (const Operation* fetch : program.fetches()) outputs.insert(PortName(fetch));
  for (size_t i = 0; i < loop->num_results() && loop->block() == program.block(); ++i) {
    const Value value = loop->region(0).front()->back()->operand(i + 1);
    if (loop->result(i).use_empty() && value.defining_op() != nullptr) {
      FetchValue(program, FreeName(value, outputs), value);
    }
  }
}

}  // namespace

// ---- one round in place of the loop ----

size_t CountLoops(const FailingCase& c) { return LoopsOf(c.program, /*scans_too=*/true).size(); }

bool KeepRound(FailingCase& c, size_t begin, size_t /*end*/, CaseValues& /*values*/) {
  Operation* loop = LoopsOf(c.program, /*scans_too=*/true)[begin];
  if (loop->isa<cf::ScanOp>()) {  // the loop that it is takes its place in the list
    RunPasses(c.program, "scan_as_loop");
    loop = LoopsOf(c.program, /*scans_too=*/true)[begin];
  }
  if (!loop->isa<cf::WhileOp>()) return false;
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  Block& body = *loop->region(0).front();
  body.argument(0).ReplaceAllUsesWith(Scalar(b, Tensor::Scalar<int64_t>(0)));
  body.argument(1).ReplaceAllUsesWith(Scalar(b, Tensor::Scalar<bool>(true)));
  for (size_t i = 0; i < NumCarried(loop); ++i) {
    body.argument(cf::kLoopArguments + i)
        .ReplaceAllUsesWith(loop->operand(cf::WhileOp::kCarried + i));
  }
  while (body.front() != body.back()) body.front()->MoveBefore(loop);
  FetchUnread(c.program, loop);
  for (size_t i = 0; i < loop->num_results(); ++i) {
    Value value = body.back()->operand(i + 1);
    if (loop->result(i).use_empty()) continue;
    if (i >= NumCarried(loop)) {
      const Value axes = Scalar(b, Tensor::Of<int64_t>({1}, {0}));
      value = nn::UnsqueezeOp::Create(b, value, axes).expanded();
    }
    loop->result(i).ReplaceAllUsesWith(value);
  }
  return true;
}

// ---- fewer rounds ----

namespace {

// Those with a trip count that is not known to be at most 1.
std::vector<Operation*> LongLoops(const Program& program) {
  std::vector<Operation*> ops = LoopsOf(program, /*scans_too=*/false);
  std::erase_if(ops, [&](const Operation* loop) {
    const Value count = loop->operand(cf::WhileOp::kTripCount);
    if (!count) return true;
    const Tensor* known = ConstantValue(program, count);
    return known != nullptr && known->num_elements() == 1 && ToInt64s(*known)[0] <= 1;
  });
  return ops;
}

}  // namespace

size_t CountTripCounts(const FailingCase& c) { return LongLoops(c.program).size(); }

bool GoOneRound(FailingCase& c, size_t begin, size_t end, CaseValues& /*values*/) {
  const std::vector<Operation*> loops = LongLoops(c.program);
  for (size_t i = begin; i < end; ++i) {
    Builder b = Builder::Before(loops[i]);
    loops[i]->set_operand(cf::WhileOp::kTripCount, Scalar(b, Tensor::Scalar<int64_t>(1)));
  }
  RunPasses(c.program, "infer_shape");
  return true;
}

// ---- fewer carried values ----

namespace {

struct Carried {
  Operation* loop;
  size_t index;
};

std::vector<Carried> ChangedValues(const Program& program) {
  std::vector<Carried> all;
  for (Operation* loop : LoopsOf(program, /*scans_too=*/false)) {
    const Block& body = *loop->region(0).front();
    for (size_t i = 0; i < NumCarried(loop); ++i) {
      if (body.back()->operand(i + 1) != body.argument(cf::kLoopArguments + i)) {
        all.push_back({loop, i});
      }
    }
  }
  return all;
}

}  // namespace

size_t CountCarried(const FailingCase& c) { return ChangedValues(c.program).size(); }

bool HoldCarried(FailingCase& c, size_t begin, size_t end, CaseValues& /*values*/) {
  const std::vector<Carried> all = ChangedValues(c.program);
  for (size_t i = begin; i < end; ++i) {
    Block& body = *all[i].loop->region(0).front();
    body.back()->set_operand(all[i].index + 1, body.argument(cf::kLoopArguments + all[i].index));
  }
  RunPasses(c.program, "loop_invariants");
  return true;
}

// ---- fewer stacks ----

namespace {

std::vector<Carried> UnreadStacks(const Program& program) {
  std::vector<Carried> all;
  for (Operation* loop : LoopsOf(program, /*scans_too=*/false)) {
    for (size_t i = NumCarried(loop); i < loop->num_results(); ++i) {
      if (loop->result(i).use_empty()) all.push_back({loop, i});
    }
  }
  return all;
}

void DropResult(const Carried& stack) {
  Operation* loop = stack.loop;
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  std::vector<Type> types;
  std::vector<std::string> names;
  const auto sizes = cf::WhileOp(loop).sizes();
  for (size_t i = 0; i < loop->num_results(); ++i) {
    if (i == stack.index) continue;
    types.push_back(loop->result(i).type());
    if (sizes) names.push_back((*sizes)[i]);
  }
  std::vector<Value> operands;
  for (size_t i = 0; i < loop->num_operands(); ++i) operands.push_back(loop->operand(i));
  Operation* made =
      b.Create(loop->info(), operands, loop->attributes().entries(), types, /*num_regions=*/1);
  if (sizes) {
    made->SetAttribute(cf::WhileOp::kSizesAttr,
                       ArrayAttribute::Get(b.context(), std::span<const std::string>(names)));
  }
  Block* to = made->region(0).AddBlock();
  Block* from = loop->region(0).front();
  for (size_t i = 0; i < from->num_arguments(); ++i) {
    from->argument(i).ReplaceAllUsesWith(to->AddArgument(from->argument(i).type()));
  }
  Operation* yield = from->back();
  std::vector<Value> yields;
  for (size_t i = 0; i < yield->num_operands(); ++i) {
    if (i != stack.index + 1) yields.push_back(yield->operand(i));
  }
  while (from->front() != yield) from->front()->MoveToEnd(to);
  Builder::AtEnd(to).Create(cf::kYield, yields);
  for (size_t i = 0, next = 0; i < loop->num_results(); ++i) {
    if (i != stack.index) loop->result(i).ReplaceAllUsesWith(made->result(next++));
  }
  loop->Erase();
}

}  // namespace

size_t CountUnreadStacks(const FailingCase& c) { return UnreadStacks(c.program).size(); }

bool DropStacks(FailingCase& c, size_t begin, size_t /*end*/, CaseValues& /*values*/) {
  DropResult(UnreadStacks(c.program)[begin]);
  return true;
}

}  // namespace lathe::reduction
