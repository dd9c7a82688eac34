#include "lathe/train/training_program.h"

#include <algorithm>
#include <array>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/loss.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/transform/multi_devices.h"
#include "lathe/transform/optimizer.h"
#include "src/dialect/nn/term.h"
#include "src/transform/learned.h"

namespace lathe::train {
namespace {

using Names = std::vector<std::string>;

std::string NameOf(const Operation* op) {
  return std::string(op->attribute("name").cast<StrAttribute>().value());
}

Names NamesOf(const std::vector<Operation*>& ops) {
  Names names;
  for (const Operation* op : ops) names.push_back(NameOf(op));
  return names;
}

bool Has(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::unique_ptr<Pass> LossPass(const Program& program, const TrainingRecipe& recipe) {
  std::unique_ptr<Pass> pass = PassRegistry::Global().Make("append_loss");
  constexpr std::array<std::string_view, 4> kKinds = {"cross_entropy", "binary_cross_entropy",
                                                      "mse", "l1"};
  const bool is_kind = std::ranges::find(kKinds, recipe.loss) != kKinds.end();
  const bool is_output = !is_kind && Has(NamesOf(program.fetches()), recipe.loss);
  pass->SetOption("kind", is_output ? "output" : recipe.loss);
  pass->SetOption("output", is_output ? recipe.loss : recipe.output);
  pass->SetOption("class_axis", StrCat(recipe.class_axis));
  pass->SetOption("target", recipe.target);
  return pass;
}

std::string PatternsOf(const TrainingRecipe& recipe) {
  std::string patterns;
  for (const std::string& p : recipe.freeze) patterns += (patterns.empty() ? "" : ",") + p;
  return StrCat("[", patterns, "]");
}

void AppendLoss(Program& program, const TrainingRecipe& recipe) {
  PassManager manager;
  manager.Add("inline{max_ops=-1}");
  manager.Add(LossPass(program, recipe));
  manager.Run(program);
}

void RunPass(Program& program, const char* name, const TrainingRecipe& recipe) {
  PassManager manager;
  std::unique_ptr<Pass> pass = PassRegistry::Global().Make(name);
  pass->SetOption("frozen", PatternsOf(recipe));
  manager.Add(std::move(pass));
  manager.Run(program);
}

// Whether gradients are numbers of f16, which end at 65,504 and at 6e-8: a parameter is rounded to
// it.
bool HasHalfWeights(const Program& program) {
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    const auto cast = op->dyn_cast<nn::CastOp>();
    if (!cast || cast.to() != ElementType::kF16) continue;
    const Operation* from = cast.input().defining_op();
    if (from != nullptr && from->isa<builtin::GetParameterOp>()) return true;
  }
  return false;
}

void AppendGradients(Program& program, const TrainingRecipe& recipe) {
  RunPass(program, "training_mode", recipe);
  RunPass(program, "master_weights", recipe);
  const bool scaled = recipe.loss_scale > 0 && HasHalfWeights(program);
  PassManager manager;
  // Their gradients need what they read alone, not what they are spelled with.
  manager.Add("fuse_activation{exact=true,smooth=true},fuse_gelu");
  if (scaled) manager.Add(StrCat("scale_loss{initial=", recipe.loss_scale, "}"));
  std::unique_ptr<Pass> backward = PassRegistry::Global().Make("append_backward");
  backward->SetOption("frozen", PatternsOf(recipe));
  backward->SetOption("loss", StrCat("[", scaled ? kScaledLoss : kLossOutput, "]"));
  manager.Add(std::move(backward));
  manager.Run(program);
}

// Which reductions still look for.
void EraseScaledLoss(Program& program) {
  for (Operation* fetch : program.fetches()) {
    if (NameOf(fetch) == kScaledLoss) fetch->Erase();
  }
}

// ---- what is trained ----

bool IsGradient(const Operation* fetch) {
  const std::string name = NameOf(fetch);
  return name != kLossOutput && name != kCorrectOutput && name != kScaledLoss;
}

Names ConstantsOf(const Program& program) {
  Names names;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    if (ReadsConstant(op)) names.push_back(NameOf(op));
  }
  return names;
}

[[noreturn]] void NothingToTrain(const Program& program) {
  const Names constants = ConstantsOf(program);
  Names floats, others;
  for (const auto& [name, variable] : program.parameters()) {
    if (Has(constants, std::string(name.value()))) continue;
    (IsFloat(variable.data.element_type()) ? floats : others).emplace_back(name.value());
  }
  std::string why = "the model has no parameters";
  if (!constants.empty()) why += StrCat(" but constants, such as '", constants[0], "'");
  if (!others.empty()) {
    const Tensor& first = program.parameters().Find(others[0])->data;
    why = StrCat("no parameter is of floats; '", others[0], "' is ", first.TypeString());
  }
  if (!floats.empty()) why = StrCat("all ", floats.size(), " parameters are frozen, or unread");
  Error error(ErrorCode::kInvalidArgument, "train/no-parameters",
              StrCat("there is nothing to train: ", why));
  if (floats.empty() && !others.empty()) error.Hint("train the model before it is quantized");
  if (floats.empty() && others.empty() && !constants.empty()) {
    error.Hint(
        "initializers of ONNX are trained, Constant nodes are not; or take `constant = true` out "
        "of the text that `lathe opt` writes");
  }
  throw error;
}

Names ParametersSet(const Program& program) {
  Names names;
  std::set<std::string> seen;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    if (op->isa<builtin::SetParameterOp>() && seen.insert(NameOf(op)).second) {
      names.push_back(NameOf(op));
    }
  }
  return names;
}

void ReduceGradients(Program& step, int64_t nranks, bool shard) {
  PassManager manager;
  manager.Add(StrCat("reduce_gradients{nranks=", nranks, ",shard=", shard ? "true" : "false", "}"));
  manager.Run(step);
}

void Optimize(Program& step, const TrainingRecipe& recipe) {
  const size_t before = ParametersSet(step).size();
  PassManager manager;
  manager.Add(recipe.optimizer);
  manager.Run(step);
  if (ParametersSet(step).size() == before) {
    throw Error(ErrorCode::kInvalidArgument, "train/optimizer",
                StrCat("'", recipe.optimizer, "' updates no parameter"))
        .Hint("it is a pipeline of passes that ends in an optimizer: 'adamw{lr=1e-3}'");
  }
  step.RefreshMutability();
}

void FindShards(TrainingProgram& made) {
  for (OpWalker w(made.step.block()); const Operation* op = w.Next();) {
    const auto whole = op->attribute(kShardOf).dyn_cast<StrAttribute>();
    if (!whole) continue;
    const Tensor& parameter = made.step.parameters().Find(whole.value())->data;
    made.shards.emplace_back(NameOf(op), parameter.shape());
  }
}

// ---- evaluation ----

Names ParametersRead(const Program& program) {
  Names names;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    if (op->isa<builtin::GetParameterOp>() && !Has(names, NameOf(op))) names.push_back(NameOf(op));
  }
  return names;
}

// The parameters become inputs.
void ShareParameters(TrainingProgram& made) {
  Program& program = made.evaluation;
  const Names set = ParametersSet(made.step), inputs = NamesOf(program.feeds());
  Builder builder(program.context());
  for (const std::string& name : ParametersRead(program)) {
    if (!Has(set, name)) continue;
    const std::string input = Has(inputs, name) ? name + "@parameter" : name;
    made.shared.emplace_back(name, input);
    const ElementType element = program.parameters().Find(name)->data.element_type();
    const Tensor& data = made.step.parameters().Find(name)->data;
    const Type type = VTensorType::Get(program.context(), SymShape::FromConstants(data.shape()),
                                       data.element_type());
    builder.SetInsertionPoint(program.block()->front());
    const Value whole = nn::FeedOp::Create(builder, {&type, 1}, {.name = input}).value();
    const Value feed = nn::As(nn::Term(builder, whole), element);
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (!op->isa<builtin::GetParameterOp>() || NameOf(op) != name) continue;
      op->result(0).ReplaceAllUsesWith(feed);
      op->Erase();
    }
    program.parameters().Erase(StrAttribute::Get(program.context(), name));
  }
}

void DescribeTarget(TrainingProgram& made, const Program& inference) {
  const Names before = NamesOf(inference.feeds());
  for (const std::string& name : NamesOf(made.step.feeds())) {
    if (!Has(before, name) && name != kRankWeight) made.target = name;
  }
  for (OpWalker w(made.evaluation.block()); Operation* op = w.Next();) {
    const auto loss = op->dyn_cast<nn::SoftmaxCrossEntropyLossOp>();
    if (!loss) continue;
    const Operation* labels = loss.labels().defining_op();
    const bool reshaped = labels != nullptr && labels->isa<nn::ReshapeOp>();
    if (reshaped) labels = labels->operand(0).defining_op();
    if (labels == nullptr || !labels->isa<nn::FeedOp>() || NameOf(labels) != made.target) continue;
    made.is_classes = true;
    const Dim classes = loss.scores().type().cast<AnyTensorType>().dims()[1];
    if (classes.is_constant()) made.num_classes = classes.value();
  }
}

}  // namespace

TrainingProgram MakeTrainingProgram(const Program& inference, const TrainingRecipe& recipe,
                                    int64_t nranks, bool shard) {
  TrainingProgram made{inference.Clone(), inference.Clone(), {}, {}, {}};
  if (!recipe.sizes.empty()) {
    SpecializeShapes(made.step, {.symbols = {recipe.sizes.begin(), recipe.sizes.end()}});
  }
  AppendLoss(made.step, recipe);
  AppendGradients(made.step, recipe);
  if (std::ranges::none_of(made.step.fetches(), IsGradient)) NothingToTrain(inference);
  if (nranks > 1) ReduceGradients(made.step, nranks, shard);
  EraseScaledLoss(made.step);
  Optimize(made.step, recipe);
  FindShards(made);
  AppendLoss(made.evaluation, recipe);
  ShareParameters(made);
  DescribeTarget(made, inference);
  return made;
}

}  // namespace lathe::train
