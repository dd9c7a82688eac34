#include "src/transform/optimizer/training_step.h"

#include <algorithm>
#include <map>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "lathe/transform/multi_devices.h"
#include "src/dialect/nn/grad_util.h"
#include "src/transform/learned.h"
#include "src/transform/name_pattern.h"
#include "src/transform/optimizer/clip.h"
#include "src/transform/optimizer/loss_scaling.h"
#include "src/transform/optimizer/schedule.h"
#include "src/transform/sharding.h"

namespace lathe {

namespace {

/// What concerns all parameters at once, so that a group cannot have its own.
constexpr const char* kOfAllParameters[] = {"frozen",        "groups",    "accumulate",
                                            "clip_value",    "clip_norm", "clip_global_norm",
                                            "keep_gradients"};

std::string_view GradOf(Attribute mark) {
  const auto name = mark.dyn_cast<StrAttribute>();
  return name ? name.value() : std::string_view();
}

/// The parameter whose gradient the operation gives to the caller; empty if it does not.
std::string_view OutputGradient(const Operation& op) {
  if (op.num_results() != 0 || op.num_operands() != 1) return {};
  return GradOf(op.attribute(kGradOf));
}

[[noreturn]] void Fail(const char* id, std::string message, std::string hint) {
  Error error(ErrorCode::kInvalidArgument, id, std::move(message));
  if (!hint.empty()) error.Hint(std::move(hint));
  throw error;
}

}  // namespace

Value ReadVariable(Program& program, Builder& reads, const std::string& name, ElementType element,
                   const Shape& shape, double initial) {
  IrContext& context = program.context();
  const StrAttribute key = StrAttribute::Get(context, name);
  if (program.parameters().Find(key) == nullptr) {
    std::vector<double> values(static_cast<size_t>(NumElements(shape)), initial);
    Tensor data(element, shape);
    if (initial != 0) data = Cast(Tensor::Of<double>(shape, values), element);
    program.parameters().Insert(key, {.data = std::move(data), .is_mutable = true});
  }
  const Type type = VTensorType::Get(context, SymShape::FromConstants(shape), element);
  return builtin::GetParameterOp::Create(reads, {&type, 1}, {.name = name}).value();
}

TrainingStep::TrainingStep(OptimizerPass& optimizer, Program& program)
    : optimizer_(optimizer),
      program_(program),
      rewriter_(program, &optimizer),
      reads_(Builder::AtEnd(program.block())) {
  rewriter_.SetInsertionPointToEnd(program.block());
}

void TrainingStep::Build() {
  FindTargets();
  ReadGroups();
  AssignGroups();
  CheckNotUpdated();
  if (optimizer_.option_int("accumulate") > 1) {
    Accumulate();
  } else {
    std::vector<nn::Term> gradients;
    for (const Target& t : targets_) gradients.emplace_back(rewriter_, t.gradient);
    BuildUpdates(std::move(gradients));
  }
  SetAll();
  if (!optimizer_.option_bool("keep_gradients")) EraseGradientOutputs();
  program_.RefreshMutability();
}

// ---- which parameters ----

/// All parameters with a gradient but constants, in the order in which the program reads them. The
/// output of a gradient counts more than the mark on a value: what has been done to it since
/// reaches outputs.
void TrainingStep::FindTargets() {
  std::map<std::string, size_t, std::less<>> number;
  std::set<std::string_view> constants;
  for (Operation& op : *program_.block()) {
    if (ReadsConstant(&op)) constants.insert(builtin::GetParameterOp(&op).name());
  }
  for (Operation& op : *program_.block()) {
    const auto get = op.dyn_cast<builtin::GetParameterOp>();
    if (!get || constants.contains(get.name()) ||
        !number.emplace(get.name(), targets_.size()).second)
      continue;
    targets_.push_back({.name = std::string(get.name()), .read = get.value()});
  }
  const auto target = [&](std::string_view name) -> Target* {
    const auto at = name.empty() ? number.end() : number.find(name);
    return at == number.end() ? nullptr : &targets_[at->second];
  };
  for (Operation& op : *program_.block()) {
    for (size_t i = 0; i < op.num_results(); ++i) {
      Target* t = target(GradOf(op.result(i).property(kGradOf)));
      if (t != nullptr && t->outputs.empty()) t->gradient = op.result(i);
    }
    const std::string_view name = OutputGradient(op);
    if (Target* t = target(name); t != nullptr) {
      t->outputs.push_back(&op);
      t->gradient = op.operand(0);
    } else if (!name.empty() && !constants.contains(name)) {
      CheckIsInput(name);
    }
  }
  std::erase_if(targets_, [](const Target& t) { return !t.gradient; });
  for (Target& t : targets_) {
    t.shape = *t.read.type().cast<AnyTensorType>().shape().Constants();
    const auto shards = t.gradient.property(kShards).dyn_cast<IntAttribute>();
    if (shards) t.nranks = shards.value();
  }
  if (targets_.empty()) {
    Fail("gradient/missing", "the program has no gradients of parameters",
         StrCat("append_backward makes them: append_backward,", optimizer_.name()));
  }
}

/// A gradient of what is neither parameter, constant nor input is one of a parameter that was
/// folded.
void TrainingStep::CheckIsInput(std::string_view name) const {
  for (Operation* feed : program_.feeds()) {
    if (nn::FeedOp(feed).name() == name) return;
  }
  Fail("gradient/parameter",
       StrCat("there is a gradient of '", name, "', but the program reads no such parameter"),
       StrCat("until an optimizer sets them, parameters are folded as constants: optimize behind ",
              optimizer_.name()));
}

void TrainingStep::ReadGroups() {
  std::string_view text = optimizer_.option("groups");
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  for (const PipelineItem& item : ParsePipeline(text)) {
    auto group = std::make_unique<Group>();
    group->name = item.name;
    group->owned = PassRegistry::Global().Clone(optimizer_);
    group->owned->SetOption("parameters", "");
    for (const auto& [name, value] : item.options) {
      if (std::find(std::begin(kOfAllParameters), std::end(kOfAllParameters), name) !=
          std::end(kOfAllParameters)) {
        Fail("optimizer/group", StrCat("group '", item.name, "' sets ", name),
             StrCat(name, " is an option of all parameters together"));
      }
      group->owned->SetOption(name, value);
    }
    group->patterns = group->owned->option_list("parameters");
    if (group->patterns.empty()) {
      Fail("optimizer/group", StrCat("group '", item.name, "' has no parameters"),
           StrCat(item.name, "{parameters=[*.bias],lr=0.1}"));
    }
    group->rule = static_cast<const OptimizerPass*>(group->owned.get());
    groups_.push_back(std::move(group));
  }
  auto rest = std::make_unique<Group>();
  rest->rule = &optimizer_;
  rest->patterns = optimizer_.option_list("parameters");
  groups_.push_back(std::move(rest));
  for (const auto& group : groups_) {
    group->rule->CheckOptions();
    CheckSchedule(*group->rule);
  }
}

/// The group that names the parameter, else the last one if that takes it; null: not updated.
TrainingStep::Group* TrainingStep::GroupOf(const std::string& name) const {
  Group* found = nullptr;
  for (size_t i = 0; i + 1 < groups_.size(); ++i) {
    if (!MatchesAny(name, groups_[i]->patterns)) continue;
    if (found != nullptr) {
      Fail("optimizer/two-groups",
           StrCat("'", name, "' is in the groups '", found->name, "' and '", groups_[i]->name, "'"),
           "a parameter has one rate: make the patterns narrower");
    }
    found = groups_[i].get();
  }
  if (found != nullptr) return found;
  Group& rest = *groups_.back();
  return rest.patterns.empty() || MatchesAny(name, rest.patterns) ? &rest : nullptr;
}

void TrainingStep::AssignGroups() {
  std::vector<std::string> names;
  for (const Target& t : targets_) names.push_back(t.name);
  for (const auto& group : groups_) {
    CheckPatterns(group->patterns, names, "optimizer/parameter", "parameter with a gradient");
  }
  const std::vector<std::string> frozen = optimizer_.option_list("frozen");
  CheckPatterns(frozen, names, "optimizer/parameter", "parameter with a gradient");
  std::erase_if(targets_, [&](Target& t) {
    t.group = GroupOf(t.name);
    const bool is_frozen = MatchesAny(t.name, frozen);
    if (is_frozen || t.group != nullptr) {
      outputs_.insert(outputs_.end(), t.outputs.begin(), t.outputs.end());
    }
    return is_frozen || t.group == nullptr;
  });
  if (targets_.empty()) {
    Fail("optimizer/parameter", "no parameter is left to be updated", "all of them are frozen");
  }
}

void TrainingStep::CheckNotUpdated() const {
  for (OpWalker w(program_.block()); const Operation* op = w.Next();) {
    if (!op->isa<builtin::SetParameterOp>()) continue;
    const std::string_view name = GradOf(op->attribute("name"));
    if (name == kStepCounter) {
      Fail("optimizer/twice", "the program has an optimizer already",
           "give parameters that differ in their options groups of one optimizer");
    }
    for (const Target& t : targets_) {
      if (t.name != name) continue;
      Fail("optimizer/twice", StrCat("the program sets the parameter '", name, "' already"),
           "freeze it: frozen=[...]");
    }
  }
}

// ---- updates ----

/// reduce_gradients makes shards of all gradients, or of none.
int64_t TrainingStep::NumShards() const { return targets_[0].nranks; }

Value TrainingStep::ReadCounter(std::string_view name) {
  return ReadVariable(program_, reads_, std::string(name), ElementType::kI64, {}, 0);
}

Scalar TrainingStep::RateOf(const Group& group, const Scalar& done) {
  const Scalar rate = ScheduledRate(*group.rule, done);
  if (group.rule->option("schedule") != "plateau") return rate;
  const auto at = std::find_if(updates_.begin(), updates_.end(),
                               [](const VariableUpdate& u) { return u.name == kRateFactor; });
  if (at != updates_.end()) return rate * Scalar(nn::Term(rewriter_, at->before));
  const Value factor =
      ReadVariable(program_, reads_, std::string(kRateFactor), ElementType::kF64, {}, 1);
  // Set to what it is: a variable that is never set would be taken for a constant.
  updates_.push_back({std::string(kRateFactor), factor, factor});
  return rate * Scalar(nn::Term(rewriter_, factor));
}

void TrainingStep::BuildUpdates(std::vector<nn::Term> gradients) {
  LossScaling scaling(program_, reads_, rewriter_);
  scaling.Unscale(gradients, NumShards());
  ClipGradients(optimizer_, gradients, NumShards());
  const Value done = ReadCounter(kStepCounter);
  const Value one = nn::IntConstant(rewriter_, 1);
  const Value next = nn::AddOp::Create(rewriter_, done, one).c();
  updates_.push_back({std::string(kStepCounter), done, next});
  const auto as_scalar = [&](Value count) {
    const auto cast = nn::CastOp::Create(rewriter_, count, {.to = ElementType::kF64});
    return Scalar(nn::Term(rewriter_, cast.output()));
  };
  const Scalar before = as_scalar(done), step = as_scalar(next);
  ShardGatherer shards(NumShards());
  std::vector<size_t> gathered;  // of updates_
  for (size_t i = 0; i < targets_.size(); ++i) {
    const Target& t = targets_[i];
    if (!t.group->rate) t.group->rate = RateOf(*t.group, before);
    const ElementType element = t.read.type().cast<AnyTensorType>().element();
    VariableUpdate parameter{t.name, ReadVariable(program_, reads_, t.name, element, t.shape, 0),
                             Value()};
    VariableUpdate mine = parameter;
    if (t.nranks > 1) {
      mine.before = ShardOfRank(rewriter_, parameter.before, t.shape, t.nranks);
      mine.shard_of = t.name;
    }
    const bool up = t.group->rule->option_bool("maximize");
    std::vector<VariableUpdate> states;
    ParameterUpdate u(program_, reads_, optimizer_.name(), mine, up ? -gradients[i] : gradients[i],
                      *t.group->rate, step, states, t.nranks);
    t.group->rule->Update(u);
    parameter.after = mine.after;
    if (t.nranks > 1) shards.Add(rewriter_, mine.after, t.shape);
    if (t.nranks > 1) gathered.push_back(updates_.size());
    updates_.push_back(std::move(parameter));
    updates_.insert(updates_.end(), states.begin(), states.end());
  }
  const std::vector<Value> whole = shards.Finish(rewriter_);
  for (size_t i = 0; i < whole.size(); ++i) updates_[gathered[i]].after = whole[i];
  scaling.Guard(updates_);
}

/// Adds to a sum per gradient; each k-th run updates by their mean, within a `cf.if`.
void TrainingStep::Accumulate() {
  const int64_t k = optimizer_.option_int("accumulate");
  std::vector<VariableUpdate> sums;
  for (const Target& t : targets_) {
    const auto type = t.gradient.type().cast<AnyTensorType>();
    const std::string name = OptimizerStateName(t.name, "gradient", "sum");
    const Value before =
        ReadVariable(program_, reads_, name, type.element(), *type.shape().Constants(), 0);
    sums.push_back({name, before, nn::AddOp::Create(rewriter_, before, t.gradient).c(),
                    t.nranks > 1 ? t.name : ""});
  }
  const Value done = ReadCounter(kMicroStepCounter);
  const Value count = nn::AddOp::Create(rewriter_, done, nn::IntConstant(rewriter_, 1)).c();
  sums.push_back({std::string(kMicroStepCounter), done, count});
  const nn::Term runs(rewriter_, count);
  const Value apply = nn::Equal(runs, nn::Term(rewriter_, nn::IntConstant(rewriter_, k)));

  // What the branch gives is known when it has been built: it is built in another first.
  Operation* holder = rewriter_.Builder::Create(rewriter_.context().FindOp(cf::kIf), {&apply, 1},
                                                {}, std::span<const Type>(), 2);
  reads_.SetInsertionPoint(holder);
  rewriter_.SetInsertionPointToEnd(holder->region(0).AddBlock());
  std::vector<nn::Term> means;
  for (size_t i = 0; i < targets_.size(); ++i) {
    means.push_back(nn::Term(rewriter_, sums[i].after) * (1.0 / static_cast<double>(k)));
  }
  BuildUpdates(std::move(means));
  YieldEach(holder, apply, sums);
}

/// Makes the `cf.if` whose results are the variables after the run, and `updates_` these.
void TrainingStep::YieldEach(Operation* holder, Value apply,
                             const std::vector<VariableUpdate>& sums) {
  std::vector<Value> updated, kept;
  std::vector<Type> types;
  for (const VariableUpdate& u : updates_) {
    updated.push_back(u.after);
    kept.push_back(u.before);
  }
  for (const VariableUpdate& sum : sums) {
    updated.push_back(nn::FilledLike(rewriter_, sum.after, 0));
    kept.push_back(sum.after);
  }
  for (const Value v : kept) types.push_back(v.type());
  rewriter_.Builder::Create(cf::kYield, updated);
  rewriter_.SetInsertionPointToEnd(program_.block());
  Operation* branch = rewriter_.Builder::Create(holder->info(), {&apply, 1}, {}, types, 2);
  branch->region(0).TakeBody(holder->region(0));
  holder->Erase();
  rewriter_.SetInsertionPointToEnd(branch->region(1).AddBlock());
  rewriter_.Builder::Create(cf::kYield, kept);
  rewriter_.SetInsertionPointToEnd(program_.block());
  updates_.insert(updates_.end(), sums.begin(), sums.end());
  for (size_t i = 0; i < updates_.size(); ++i) updates_[i].after = branch->result(i);
}

void TrainingStep::SetAll() {
  for (const VariableUpdate& u : updates_) {
    const auto set = builtin::SetParameterOp::Create(rewriter_, u.after, {.name = u.name});
    if (!u.shard_of.empty()) {
      set->SetAttribute(kShardOf, StrAttribute::Get(rewriter_.context(), u.shard_of));
    }
  }
}

void TrainingStep::EraseGradientOutputs() {
  for (Operation* op : outputs_) rewriter_.Erase(op);
}

}  // namespace lathe
