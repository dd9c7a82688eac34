#include "src/driver/reduce_edits.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/value_names.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "src/driver/reduce_data.h"
#include "src/driver/reduce_loops.h"

namespace lathe::reduction {
namespace {

void RunPasses(Program& program, const char* passes) {
  PassManager manager;
  manager.Add(passes);
  manager.Run(program);
}

// ---- sets of inputs, outputs ----

size_t CountInputSets(const FailingCase& c) { return c.inputs.size(); }

bool KeepInputSets(FailingCase& c, size_t begin, size_t end, CaseValues& /*values*/) {
  if (end - begin == c.inputs.size()) return false;
  c.inputs = std::vector(c.inputs.begin() + static_cast<int64_t>(begin),
                         c.inputs.begin() + static_cast<int64_t>(end));
  return true;
}

bool DropInputSets(FailingCase& c, size_t begin, size_t end, CaseValues& /*values*/) {
  if (end - begin == c.inputs.size()) return false;
  c.inputs.erase(c.inputs.begin() + static_cast<int64_t>(begin),
                 c.inputs.begin() + static_cast<int64_t>(end));
  return true;
}

size_t CountOutputs(const FailingCase& c) { return c.program.fetches().size(); }

bool DropOutputs(FailingCase& c, size_t begin, size_t end, CaseValues& /*values*/) {
  const std::vector<Operation*> fetches = c.program.fetches();
  if (end - begin == fetches.size()) return false;
  for (size_t i = begin; i < end; ++i) fetches[i]->Erase();
  return true;
}

// ---- operations ----

struct PlacedOp {
  Operation* op;
  size_t place;  ///< in the order of OpWalker
};

bool IsInFunction(const Operation* op, const Program& program) {
  for (; op->block() != program.block(); op = op->parent_op()) {
    if (op->parent_op()->HasTrait<IsolatedFromAbove>()) return true;
  }
  return false;
}

// Those that can be cut out, also of branches and loops: no inputs, outputs, parameters, constants
// and functions.
std::vector<PlacedOp> RemovableOps(const Program& program) {
  const FunctionTable functions(program);
  std::vector<PlacedOp> ops;
  size_t place = 0;
  for (OpWalker w(program.block()); Operation* op = w.Next(); ++place) {
    const bool is_port = op->name() == nn::kFeed || op->name() == nn::kFetch;
    const bool does_something =
        (op->num_operands() > 0 && !IsSplat(*op)) || !IsRemovableWhenUnused(op);
    if (does_something && !is_port && !op->HasTrait<Terminator>() && !functions.IsFunction(op) &&
        !IsInFunction(op, program)) {
      ops.push_back({op, place});
    }
  }
  return ops;
}

// Cuts operations out of a program.
class Cut {
 public:
  Cut(FailingCase& c, std::span<const PlacedOp> gone, CaseValues& values)
      : case_(c), gone_(gone), values_(values) {
    for (const PlacedOp& p : gone) is_gone_.insert(p.op);
    for (const Operation* feed : c.program.feeds()) inputs_.insert(PortName(feed));
    for (const Operation* fetch : c.program.fetches()) outputs_.insert(PortName(fetch));
  }

  // False if the interpreter does not know the values that become inputs.
  bool Apply() {
    FetchDeadEnds();
    for (const PlacedOp& p : gone_) {
      if (!FeedResults(p)) return false;
    }
    for (auto p = gone_.rbegin(); p != gone_.rend(); ++p) p->op->Erase();
    return !case_.program.fetches().empty();
  }

 private:
  // Whether an operation goes, or one around it does.
  bool Goes(const Operation* op) const {
    for (; op != nullptr; op = op->parent_op()) {
      if (is_gone_.contains(op)) return true;
    }
    return false;
  }

  bool IsReadByGoneAlone(Value value) const {
    if (value.use_empty()) return false;
    return std::ranges::all_of(value.uses(),
                               [&](const OpOperand& use) { return Goes(use.owner()); });
  }

  // What the operations that stay compute for those that go becomes an output.
  void FetchDeadEnds() {
    for (const PlacedOp& p : RemovableOps(case_.program)) {
      if (is_gone_.contains(p.op) || p.op->block() != case_.program.block()) continue;
      for (size_t i = 0; i < p.op->num_results(); ++i) {
        if (!IsReadByGoneAlone(p.op->result(i))) continue;
        FetchValue(case_.program, FreeName(p.op->result(i), outputs_), p.op->result(i));
      }
    }
  }

  // Results that are read elsewhere become inputs; outputs that they were are of no use.
  bool FeedResults(const PlacedOp& p) {
    for (size_t i = 0; i < p.op->num_results(); ++i) {
      const Value result = p.op->result(i);
      EraseFetchesOf(result);
      if (result.use_empty() || IsReadByGoneAlone(result)) continue;
      const std::string name = FreeName(result, inputs_);
      for (size_t s = 0; s < case_.inputs.size(); ++s) {
        const std::vector<RtValue>& results = values_.ResultsOf(s, p.place);
        if (i >= results.size() || results[i].is_none()) return false;
        case_.inputs[s].values.emplace_back(name, results[i]);
      }
      FeedValue(case_.program, name, result);
    }
    return true;
  }

  static void EraseFetchesOf(Value value) {
    std::vector<Operation*> fetches;
    for (const OpOperand use : value.uses()) {
      if (use.owner()->name() == nn::kFetch) fetches.push_back(use.owner());
    }
    for (Operation* fetch : fetches) fetch->Erase();
  }

  FailingCase& case_;
  std::span<const PlacedOp> gone_;
  CaseValues& values_;
  std::unordered_set<const Operation*> is_gone_;
  std::set<std::string> inputs_, outputs_;
};

size_t CountRemovable(const FailingCase& c) { return RemovableOps(c.program).size(); }

bool CutOut(FailingCase& c, size_t begin, size_t end, CaseValues& values) {
  const std::vector<PlacedOp> ops = RemovableOps(c.program);
  if (end - begin == ops.size()) return false;
  return Cut(c, std::span(ops).subspan(begin, end - begin), values).Apply();
}

// ---- operands in place of results ----

// What stands for the results of an operation, by its operands.
struct Bypass {
  Operation* op;
  std::vector<Value> values;
};

// Of an operation with several results, such as a loop, the first operand that fits each.
std::vector<Value> FirstThatFit(const Operation* op) {
  std::vector<Value> values;
  for (size_t i = 0; i < op->num_results(); ++i) {
    for (size_t k = 0; k < op->num_operands() && values.size() == i; ++k) {
      const Value operand = op->operand(k);
      const bool is_free = std::ranges::find(values, operand) == values.end();
      if (operand && is_free && operand.type() == op->result(i).type()) values.push_back(operand);
    }
    if (values.size() == i) return {};
  }
  return values;
}

std::vector<Bypass> Bypasses(const Program& program) {
  std::vector<Bypass> all;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (op->num_results() > 1) {
      if (std::vector<Value> values = FirstThatFit(op); !values.empty())
        all.push_back({op, std::move(values)});
    } else if (op->num_results() == 1) {
      for (size_t i = 0; i < op->num_operands(); ++i) {
        const Value operand = op->operand(i);
        if (operand && operand.type() == op->result(0).type()) all.push_back({op, {operand}});
      }
    }
  }
  return all;
}

size_t CountBypasses(const FailingCase& c) { return Bypasses(c.program).size(); }

bool TakeOperands(FailingCase& c, size_t begin, size_t end, CaseValues& /*values*/) {
  std::vector<Bypass> all = Bypasses(c.program);
  std::unordered_map<Value, Value> replaced;  // an operand may be a result that is gone
  for (size_t i = begin; i < end; ++i) {
    for (size_t r = 0; r < all[i].values.size(); ++r) {
      const Value result = all[i].op->result(r);
      Value value = all[i].values[r];
      for (auto at = replaced.find(value); at != replaced.end(); at = replaced.find(value)) {
        value = at->second;
      }
      if (replaced.emplace(result, value).second) result.ReplaceAllUsesWith(value);
    }
  }
  return true;
}

// ---- branches, functions ----

std::vector<Operation*> Ifs(const Program& program) {
  std::vector<Operation*> ops;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (op->name() == cf::kIf) ops.push_back(op);
  }
  return ops;
}

size_t CountBranches(const FailingCase& c) { return 2 * Ifs(c.program).size(); }

bool KeepBranch(FailingCase& c, size_t begin, size_t /*end*/, CaseValues& /*values*/) {
  Operation* op = Ifs(c.program)[begin / 2];
  Block& block = *op->region(begin % 2).front();
  while (block.front() != block.back()) block.front()->MoveBefore(op);
  for (size_t i = 0; i < op->num_results(); ++i) {
    op->result(i).ReplaceAllUsesWith(block.back()->operand(i));
  }
  return true;
}

size_t CountCalls(const FailingCase& c) {
  return FunctionTable(c.program).CallsIn().empty() ? 0 : 1;
}

bool Inline(FailingCase& c, size_t /*begin*/, size_t /*end*/, CaseValues& /*values*/) {
  RunPasses(c.program, "inline");
  return true;
}

constexpr auto kEdits = std::to_array<Edit>({
    {FirstChunk::kOne, CountInputSets, KeepInputSets},
    {FirstChunk::kHalf, CountInputSets, DropInputSets},
    {FirstChunk::kOne, CountCalls, Inline},
    {FirstChunk::kHalf, CountOutputs, DropOutputs},
    {FirstChunk::kOne, CountBranches, KeepBranch},
    {FirstChunk::kOne, CountLoops, KeepRound},
    {FirstChunk::kHalf, CountRemovable, CutOut},
    {FirstChunk::kAll, CountTripCounts, GoOneRound},
    {FirstChunk::kHalf, CountCarried, HoldCarried},
    {FirstChunk::kOne, CountUnreadStacks, DropStacks},
    {FirstChunk::kHalf, CountOutputs, DropOutputs},
    {FirstChunk::kAll, CountBypasses, TakeOperands},
    {FirstChunk::kOne, CountOpenSizes, FixSize},
    {FirstChunk::kOne, CountSmallerExtents, ShrinkExtent},
});
constexpr auto kLastEdits = std::to_array<Edit>({
    {FirstChunk::kAll, CountWeights, SplatWeights},
});

}  // namespace

std::string FreeName(Value value, std::set<std::string>& taken) {
  const std::string_view own = NameInFile(value);
  const std::string base(own.empty() ? "value" : own);
  std::string name = base;
  for (size_t i = 1; !taken.insert(name).second; ++i) name = StrCat(base, "_", i);
  return name;
}

std::span<const Edit> Edits() { return kEdits; }
std::span<const Edit> LastEdits() { return kLastEdits; }

void EraseUnused(FailingCase& c) {
  RunPasses(c.program, "dead_code,symbol_dce,prune");
  std::set<std::string> feeds;
  for (const Operation* feed : c.program.feeds()) feeds.insert(PortName(feed));
  for (LabeledInputs& set : c.inputs) {
    std::erase_if(set.values, [&](const auto& v) { return !feeds.contains(v.first); });
  }
}

}  // namespace lathe::reduction
