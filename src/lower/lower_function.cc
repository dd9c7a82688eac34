#include "lathe/lower/lower_function.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/structure.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lowering.h"
#include "lathe/lower/split_function.h"
#include "lathe/lower/strategy.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "src/lower/budget.h"
#include "src/lower/dispatch.h"
#include "src/lower/factors.h"
#include "src/lower/in_place.h"
#include "src/lower/own_sizes.h"
#include "src/lower/pack.h"
#include "src/lower/strategies/gemm.h"
#include "src/lower/strategies/list.h"

namespace lathe::lower {
namespace {

// Why there can be no loops: two sizes that are not known may be the same or not.
std::string WhyOpen(const Block& block) {
  const auto is_open = [](Value v) {
    const auto type = v.type().dyn_cast<AnyTensorType>();
    return type && (!type.has_rank() || std::ranges::any_of(type.dims(), &Dim::is_unknown));
  };
  for (size_t i = 0; i < block.num_arguments(); ++i) {
    if (is_open(block.argument(i)))
      return StrCat("loops: the size of argument ", i, " is not known");
  }
  for (const Operation& op : block) {
    for (size_t i = 0; i < op.num_results(); ++i) {
      if (is_open(op.result(i)))
        return StrCat("loops: the size of what ", op.name(), " gives is not known");
    }
  }
  return "";
}

// A block with the same arguments as the function's.
Block* AddBodyLike(const Block& old, Region& region) {
  Block* body = region.AddBlock();
  for (size_t i = 0; i < old.num_arguments(); ++i) body->AddArgument(old.argument(i).type());
  return body;
}

bool ShouldDecompose(const Operation& op, const Machine& machine) {
  const OpKind kind = KindOf(&op);
  return (kind == OpKind::kElementwise || kind == OpKind::kBroadcast) &&
         op.HasInterface<DecomposeInterface>() && !machine.has_instruction(op) &&
         !op.isa<nn::LookupOp>();  // Pointwise reads its table
}

// Whether a strategy is registered for an operation that Decompose would leave nothing of.
bool HasWholeStrategy(Block& block, const Machine& machine, const std::string& target) {
  const TargetKeys keys = TargetKeys::Of(target);
  return std::any_of(block.begin(), block.end(), [&](Operation& op) {
    return ShouldDecompose(op, machine) && StrategyRegistry::Global().Has({&op, &keys});
  });
}

// Elementwise operations without instructions, such as gelu, become simpler ones; so do products
// with what is scaled and added.
void Decompose(Block& block, const Machine& machine) {
  for (Operation* op = block.front(); op != nullptr;) {
    Operation* next = op->next();
    if (op->name() == nn::GemmOp::kName) {
      SpellGemm(op);
    } else if (op->name() == nn::QlinearMatmulOp::kName) {
      SpellQlinearMatmul(op);
    } else if (ShouldDecompose(*op, machine)) {
      Operation* before = op->prev();
      Builder b = Builder::Before(op);
      b.set_location(op->location());
      const std::vector<Value> simpler = DecomposeForKernel(op, b);
      if (!simpler.empty()) {
        op->ReplaceAllUsesWith(simpler);
        next = before == nullptr ? block.front()
                                 : before->next();  // what it became may decompose further
        op->Erase();
      }
    }
    op = next;
  }
}

// A strategy that was asked.
struct Attempt {
  OpImplementation implementation;
  Condition where;  // what it declares, and what it found when it was asked
  std::unique_ptr<Region> loops;
  Lowering lowering;
  bool fits = false;

  std::string name() const { return implementation.name + lowering.knobs.TakenText(); }
};

struct Known {
  Condition condition;
  OpImplementation implementation;
};

// Those registered for operations of the function and for functions, each once.
std::vector<Known> RegisteredStrategies(Operation* function, const TargetKeys& target) {
  std::vector<Known> known;
  const auto add = [&](const Condition& condition, const OpImplementation& i) {
    const auto is_it = [&](const Known& k) { return k.implementation.name == i.name; };
    if (std::ranges::none_of(known, is_it)) known.push_back({condition, i});
  };
  const auto add_of = [&](Operation* op) {
    const OpCall call{op, &target};
    if (!StrategyRegistry::Global().Has(call)) return;
    const OpStrategy strategy = StrategyRegistry::Global().Find(call);
    for (const OpSpecialization& s : strategy.specializations()) {
      for (const OpImplementation& i : s.implementations) add(s.condition, i);
    }
  };
  for (Operation& op : *function->region(0).front()) add_of(&op);
  add_of(function);
  return known;
}

// Those of plug-ins, then those that come with Lathe.
std::vector<Known> KnownStrategies(Operation* function, const TargetKeys& target) {
  std::vector<Known> known = RegisteredStrategies(function, target);
  const TargetKeys own_key{target.name, {StrategyRegistry::kOwnKey}};
  std::ranges::move(RegisteredStrategies(function, own_key), std::back_inserter(known));
  std::ranges::stable_sort(known, std::greater<>(),
                           [](const Known& k) { return k.implementation.plevel; });
  return known;
}

// Loops of a function of several operations: each of these by itself has fewer, and the time of
// code generation is more than linear in them.
constexpr size_t kMaxLoops = 512;

bool HasSeveral(const Block& function) {
  const auto computes = [](const Operation& op) {
    return !op.HasTrait<Terminator>() && !op.HasTrait<ConstantLike>();
  };
  return std::ranges::count_if(function, computes) > 1;
}

// Throws if loops are too many to compile.
void CheckOperations(const Lowering& lowering, size_t most) {
  size_t count = 0, loops = 0;
  for (OpWalker w(lowering.body); const Operation* op = w.Next();) {
    ++count;
    loops += op->name() == loop::ForOp::kName ? 1 : 0;
  }
  if (count > most) ThrowTooLong(most);
  if (loops > kMaxLoops && HasSeveral(lowering.function)) {
    throw Error(ErrorCode::kLimit, "lower/budget",
                StrCat("it has more than ", kMaxLoops, " loops"));
  }
}

// Asks strategies in order of preference until those that fit serve all extents.
class Selector {
 public:
  Selector(Operation* function, const Machine& machine, const std::vector<bool>& constant,
           const LowerOptions& options, std::string workload, bool rather_apart,
           bool only_registered = false)
      : function_(function),
        machine_(machine),
        constant_(constant),
        options_(options),
        workload_(std::move(workload)),
        rather_apart_(rather_apart),
        only_registered_(only_registered),
        target_(TargetKeys::Of(options.target)) {}

  Lowered Run();

 private:
  void Ask(const Known& known, std::string_view knobs);
  bool LowerBy(const OpImplementation& implementation, Attempt& attempt);
  void GiveUp(const std::exception& error, Attempt& attempt);
  std::optional<size_t> AskRecords(const std::vector<Known>& known);
  void AskAll();
  void Take(const Selection& selection, Lowered& lowered);

  Operation* function_;
  const Machine& machine_;
  const std::vector<bool>& constant_;
  const LowerOptions& options_;
  std::string workload_;  // of the function before its operations became simpler ones
  bool rather_apart_;     // than by plain loops
  bool only_registered_;  // asks no built-in strategy
  TargetKeys target_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  std::vector<Remark> remarks_;
  std::string ignored_;  // a line per record that does not hold any more
};

void Selector::Ask(const Known& known, std::string_view knobs) {
  CheckBudget();
  const Block& operations = *function_->region(0).front();
  auto loops = std::make_unique<Region>(function_);
  Block* body = AddBodyLike(operations, *loops);
  auto attempt = std::make_unique<Attempt>(Attempt{
      known.implementation, known.condition, std::move(loops),
      Lowering{operations, body, machine_, constant_, options_.precision, Knobs::Parse(knobs)}});
  Lowering& lowering = attempt->lowering;
  if (known.condition.Prove() == Truth::kFalse) {
    lowering.why = StrCat("it needs ", known.condition.ToString());
  } else {
    attempt->fits = LowerBy(known.implementation, *attempt);
    attempt->where = attempt->where && lowering.where;
  }
  attempts_.push_back(std::move(attempt));
}

// Whether it wrote loops. It writes into a region of its own: where it fails midway, nothing is
// left of it.
bool Selector::LowerBy(const OpImplementation& implementation, Attempt& attempt) {
  try {
    if (!implementation.lower(attempt.lowering)) return false;
    CheckOperations(attempt.lowering, options_.max_operations);
    return true;
  } catch (const Error& error) {
    if (error.id() == "lower/dim") {
      attempt.lowering.why = error.message();
    } else {
      GiveUp(error, attempt);
    }
  } catch (const std::exception& error) {
    GiveUp(error, attempt);
  }
  return false;
}

// Called where the error is handled.
void Selector::GiveUp(const std::exception& error, Attempt& attempt) {
  std::optional<Remark> remark = RemarkOn(error, attempt.implementation.name);
  if (!remark) throw;
  if (options_.strict) ThrowGivenUp(*remark, function_);
  attempt.lowering.why = remark->message;
  attempt.loops = std::make_unique<Region>(function_);
  remarks_.push_back(*std::move(remark));
}

// "matmul{rows=6}": the strategy, and the knobs behind it.
std::pair<std::string_view, std::string_view> SplitName(std::string_view implementation) {
  const size_t at = std::min(implementation.find('{'), implementation.size());
  return {implementation.substr(0, at), implementation.substr(at)};
}

// Asks for the fastest that was measured and that there still is. The number of the strategy.
std::optional<size_t> Selector::AskRecords(const std::vector<Known>& known) {
  if (workload_.empty()) return std::nullopt;
  for (const auto& [record, seconds] : options_.records->Ranked(workload_, options_.target)) {
    const auto split = SplitName(record);
    if (std::ranges::count(options_.without, split.first) != 0) continue;
    const auto k = std::ranges::find_if(
        known, [&](const Known& s) { return s.implementation.name == split.first; });
    std::string why = "there is no such strategy";
    if (k != known.end()) {
      Ask(*k, split.second);
      const Attempt& a = *attempts_.back();
      const std::vector<std::string> unused = a.lowering.knobs.Unused();
      if (a.fits && unused.empty()) return k - known.begin();
      why = unused.empty() ? a.lowering.why : StrCat("there is no ", unused[0]);
      attempts_.pop_back();
    }
    ignored_ += StrCat("the record of ", record, " is ignored: ", why, "\n");
  }
  return std::nullopt;
}

void Selector::AskAll() {
  const std::vector<Known> known = only_registered_ ? RegisteredStrategies(function_, target_)
                                                    : KnownStrategies(function_, target_);
  const std::string& only = options_.implementation;
  const auto [name, knobs] = SplitName(only);
  std::optional<size_t> asked;
  if (only.empty()) asked = AskRecords(known);
  const auto covers = [&]() {
    Condition covered = Condition::Always(false);
    for (const auto& a : attempts_) {
      if (a->fits) covered = covered || a->where;
    }
    return covered.Prove() == Truth::kTrue;
  };
  const auto fits = [](const auto& a) { return a->fits; };
  for (size_t i = 0; i < known.size() && !covers(); ++i) {
    if (i == asked || (!only.empty() && known[i].implementation.name != name)) continue;
    const std::string& strategy = known[i].implementation.name;
    if (std::ranges::count(options_.without, strategy) != 0) continue;
    if (rather_apart_ && strategy == kLastResort && std::ranges::none_of(attempts_, fits)) continue;
    Ask(known[i], knobs);
  }
}

Lowered Selector::Run() {
  AskAll();
  Lowered lowered;
  lowered.remarks = remarks_;
  Condition covered = Condition::Always(false);
  OpStrategy strategy;
  for (const auto& a : attempts_) {
    const std::string why = a->fits ? "" : a->lowering.why;
    strategy.Add(a->where, {.name = a->name(),
                            .plevel = a->implementation.plevel,
                            .refuse = [why](const OpCall&) { return why; }});
    if (a->fits) covered = covered || a->where;
    if (a->fits) continue;
    lowered.why_not += StrCat(lowered.why_not.empty() ? "" : "; ", a->name(), ": ", why);
  }
  if (covered.Prove() != Truth::kTrue) {
    for (const auto& a : attempts_) {
      lowered.candidates += StrCat(a->name(), "  plevel ", a->implementation.plevel, "  ",
                                   a->fits ? "valid" : "refused: " + a->lowering.why, "\n");
    }
    return lowered;
  }
  const OpCall call{function_, &target_, workload_};
  const Selection selection = SelectImplementation(strategy, call, options_.records);
  lowered.candidates = selection.Explain() + ignored_;
  Take(selection, lowered);
  return lowered;
}

using Pairs = std::vector<std::pair<size_t, size_t>>;

// What holds for every variant, of which one runs.
void KeepPairs(const Pairs& pairs, bool first, Pairs& kept) {
  if (first) kept = pairs;
  std::erase_if(kept, [&](const auto& p) { return std::ranges::count(pairs, p) == 0; });
}

void Selector::Take(const Selection& selection, Lowered& lowered) {
  std::vector<Attempt*> taken;
  std::vector<Lowering*> bodies;
  for (const size_t i : selection.dispatch) {
    const std::string& name = selection.candidates[i].implementation->name;
    taken.push_back(
        std::ranges::find_if(attempts_, [&](const auto& b) { return b->name() == name; })->get());
    bodies.push_back(&taken.back()->lowering);
  }
  ShareArguments(*function_->region(0).front(), bodies);
  std::vector<Variant> variants;
  Region* loops = nullptr;
  for (Attempt* attempt : taken) {
    Attempt& a = *attempt;
    const char* separator = variants.empty() ? "" : " | ";
    lowered.strategy += separator + a.implementation.name;
    lowered.implementation += separator + a.name();
    const auto& choices = a.lowering.knobs.choices();
    for (const std::string& knob : a.lowering.knobs.Unused()) {
      lowered.unused_knobs += StrCat(lowered.unused_knobs.empty() ? "" : ", ", knob);
    }
    lowered.knobs.insert(lowered.knobs.end(), choices.begin(), choices.end());
    lowered.packed = a.lowering.packed;
    KeepPairs(InPlacePairs(*a.lowering.body, constant_), variants.empty(), lowered.in_place);
    loops = a.loops.get();
    variants.push_back({a.where, a.lowering.body});
  }
  Region dispatch(function_);
  if (variants.size() > 1) {
    Block* body = AddBodyLike(*variants.back().body, dispatch);
    WriteDispatch(variants, body);
    loops = &dispatch;
  }
  Region& region = function_->region(0);
  region.Clear();
  region.TakeBody(*loops);
  lowered.done = true;
}

}  // namespace

std::string Remark::ToString() const {
  return StrCat(strategy.empty() ? "it" : strategy, " was given up (", code, "): ", message);
}

std::optional<Remark> RemarkOn(const std::exception& error, const std::string& strategy) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return std::nullopt;
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours == nullptr) return Remark{"internal/exception", strategy, error.what()};
  const bool is_limit = ours->code() == ErrorCode::kLimit && !ours->id().starts_with("lower/");
  const bool ends = is_limit || ours->code() == ErrorCode::kIo || ours->id() == "codegen/missing" ||
                    ours->id() == "codegen/target" || ours->id() == "codegen/host";
  if (ends) return std::nullopt;
  return Remark{ours->id(), strategy, ours->message()};
}

void ThrowGivenUp(const Remark& remark, const Operation* function) {
  throw Error(ErrorCode::kInternal, kGivenUp, remark.ToString())
      .At(function->location().ToString(*function->context()))
      .Note(Print(function, {.locations = false}))
      .Hint("without --strict, it is computed another way");
}

std::string OperationNames(const Operation* function, size_t few) {
  std::vector<std::string_view> names;
  std::map<std::string_view, size_t> counts;
  for (const Operation& op : *function->region(0).front()) {
    if (op.HasTrait<Terminator>() || op.HasTrait<ConstantLike>()) continue;
    if (op.isa<builtin::GetParameterOp>()) continue;
    names.push_back(op.name().substr(op.name().find('.') + 1));
    ++counts[names.back()];
  }
  std::string text;
  if (names.size() <= few) {
    for (const std::string_view name : names) text += StrCat(text.empty() ? "" : " ", name);
    return text;
  }
  std::vector<std::pair<std::string_view, size_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& c) { return c.second; });
  for (const auto& [name, count] : sorted) {
    text += StrCat(text.empty() ? "" : ", ", count, " ", name);
  }
  return text;
}

std::string WorkloadOf(const Operation* function) {
  char hash[17];
  snprintf(hash, sizeof(hash), "%016llx",
           static_cast<unsigned long long>(StructureHash(function->region(0))));
  return StrCat(OperationNames(function), " ", hash);
}

std::vector<std::string> StrategiesFor(Operation* function, const std::string& target) {
  std::vector<std::string> names;
  for (const Known& k : KnownStrategies(function, TargetKeys::Of(target))) {
    names.push_back(k.implementation.name);
  }
  return names;
}

Lowered LowerFunction(Operation* function, const Machine& machine,
                      const std::vector<bool>& constant, const LowerOptions& options) {
  Lowered refused;
  refused.why_not = WhyOpen(*function->region(0).front());
  if (!refused.why_not.empty()) return refused;
  const bool tuned = options.records != nullptr && options.records->size() > 0;
  const std::string workload = tuned ? WorkloadOf(function) : "";
  const bool rather_apart = options.may_split && options.implementation.empty() &&
                            IsBetterApart(*function->region(0).front());
  std::string refused_whole;
  if (HasWholeStrategy(*function->region(0).front(), machine, options.target)) {
    Lowered whole = Selector(function, machine, constant, options, workload, rather_apart,
                             /*only_registered=*/true)
                        .Run();
    if (whole.done) return whole;
    refused_whole = whole.candidates;
  }
  Decompose(*function->region(0).front(), machine);
  const auto lower = [&] {
    Lowered lowered = Selector(function, machine, constant, options, workload, rather_apart).Run();
    lowered.candidates = refused_whole + lowered.candidates;
    return lowered;
  };
  OwnSizes sizes(function);
  Lowered lowered = lower();
  lowered.own_sizes = sizes.symbols();
  if (lowered.done || sizes.symbols().empty()) return lowered;
  sizes.Restore();  // what is no longer known to be equal may be what was missing
  return lower();
}

}  // namespace lathe::lower
