#include <algorithm>
#include <memory>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/learned_interface.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"
#include "lathe/support/text.h"
#include "lathe/transform/optimizer.h"
#include "src/transform/initializer.h"
#include "src/transform/learned.h"
#include "src/transform/name_pattern.h"

namespace lathe {

namespace {

constexpr uint64_t kSeeds = 1 << 24;  // integers that an f32 holds exactly

/// How a parameter is read.
struct Use {
  Operation* reader = nullptr;  ///< the first operation that computes with it
  size_t operand = 0;
  bool transposed = false;
};

Use UseOf(Value read) {
  Use use;
  while (!read.use_empty()) {
    for (const OpOperand operand : read.uses()) {  // newest first: the last one counts
      use.reader = operand.owner();
      use.operand = operand.index();
    }
    if (!use.reader->isa<nn::TransposeOp>() || use.reader->result(0).use_empty()) break;
    use.transposed = !use.transposed;
    read = use.reader->result(0);
  }
  return use;
}

/// Whether rank-2 weights are [in, out], as a product of matrices has them; layers have [out, in].
bool RowsAreInputs(const Use& use) {
  bool rows = false;
  if (use.reader != nullptr) {
    if (const auto product = use.reader->dyn_cast<nn::MatmulOp>()) rows = !product.transpose_y();
    if (const auto product = use.reader->dyn_cast<nn::GemmOp>()) rows = !product.transB();
  }
  return rows != use.transposed;
}

Fans FansOf(const Shape& shape, const Use& use) {
  if (shape.size() < 2) return {};
  const auto hidden = use.reader == nullptr
                          ? IntAttribute()
                          : use.reader->attribute("hidden_size").dyn_cast<IntAttribute>();
  if (hidden) {  // [directions, gates * hidden, ...]
    const auto size = static_cast<double>(hidden.value());
    return {size, size};
  }
  double field = 1;
  for (size_t i = 2; i < shape.size(); ++i) field *= static_cast<double>(shape[i]);
  Fans fans{static_cast<double>(shape[1]) * field, static_cast<double>(shape[0]) * field};
  if (shape.size() == 2 && RowsAreInputs(use)) std::swap(fans.in, fans.out);
  fans.in = std::max(fans.in, 1.0);
  fans.out = std::max(fans.out, 1.0);
  return fans;
}

/// The name that the declaration of the operation gives to the operand.
std::string_view OperandName(const Use& use) {
  const OpDef* def = use.reader == nullptr ? nullptr : use.reader->info().def();
  if (def == nullptr || use.operand >= def->operands.size()) return {};
  return def->operands[use.operand].name;
}

/// What a front end would fill the parameter with: scales and variances with ones, tables of
/// embeddings from a normal distribution, weights by their fan-in, all else with zeros.
std::string_view UsualMethod(const Shape& shape, const Use& use) {
  if (use.reader == nullptr) return "zeros";
  if (shape.size() < 2) {
    const std::string_view name = OperandName(use);
    const bool one = use.reader->HasInterface<LearnedInterface>() ? name == "scale" || name == "var"
                                                                  : use.reader->isa<nn::MulOp>();
    return one ? "ones" : "zeros";
  }
  const bool table = use.reader->isa<nn::GatherOp>() && use.operand == nn::GatherOp::kData;
  return table ? "normal" : "fan_in_uniform";
}

class InitializePass : public Pass {
 protected:
  /// Parameters that share all options.
  struct Rule {
    std::string name;
    std::unique_ptr<Pass> options;
    std::vector<std::string> patterns;
  };
  struct Target {
    std::string name;
    ElementType element;
    Shape shape;
    Use use;
  };

  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    CheckMethod(*this);
    std::vector<Target> targets = Targets(program);
    Select(targets);
    const std::vector<Rule> rules = Rules(targets);
    // Whatever is set is appended before what it is judged by goes.
    Rewriter rewriter(program, this);
    Operation* last = program.block()->back();
    rewriter.SetInsertionPointToEnd(program.block());
    for (const Target& t : targets) Set(rewriter, t, rules);
    EraseUntil(rewriter, program, last);
    program.RefreshMutability();
    Count("initialized", static_cast<int64_t>(targets.size()));
    MarkChanged();
  }

 private:
  [[noreturn]] static void Fail(std::string message, std::string hint) {
    Error error(ErrorCode::kInvalidArgument, "initialize/option", std::move(message));
    if (!hint.empty()) error.Hint(std::move(hint));
    throw error;
  }

  static void CheckMethod(const Pass& options) {
    const std::string& method = options.option("method");
    const std::vector<std::string> names = InitializerNames();
    if (method != "auto" && std::find(names.begin(), names.end(), method) == names.end()) {
      Fail(StrCat("there is no initializer '", method, "'"), DidYouMean(method, names));
    }
    const std::string& mode = options.option("mode");
    if (mode != "fan_in" && mode != "fan_out") {
      Fail(StrCat("mode is '", mode, "'"), "fan_in or fan_out");
    }
  }

  /// All parameters of floats that the program reads and that are learned, in program order, those
  /// within regions, too.
  static std::vector<Target> Targets(Program& program) {
    const Constants constants(program);
    std::vector<Target> targets;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      const auto get = op->dyn_cast<builtin::GetParameterOp>();
      if (!get) continue;
      const auto type = get.value().type().cast<AnyTensorType>();
      const bool known = std::any_of(targets.begin(), targets.end(),
                                     [&](const Target& t) { return t.name == get.name(); });
      if (known || (!IsFloat(type.element()) && !IsOptimizerState(get.name()))) continue;
      if (constants.Contains(get.name())) continue;
      if (!type.is_static()) {
        Fail(StrCat("parameter '", get.name(), "' has type ", type.ToString()),
             "a parameter has constant extents");
      }
      targets.push_back(
          {std::string(get.name()), type.element(), *type.shape().Constants(), UseOf(get.value())});
    }
    if (targets.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "initialize/missing",
                  "the program reads no parameters of floats");
    }
    return targets;
  }

  /// Leaves what the option `parameters` names.
  void Select(std::vector<Target>& targets) const {
    const std::vector<std::string> patterns = option_list("parameters");
    if (patterns.empty()) return;
    CheckPatterns(patterns, NamesOf(targets), "initialize/parameter", "parameter of floats");
    std::erase_if(targets, [&](const Target& t) { return !MatchesAny(t.name, patterns); });
  }

  static std::vector<std::string> NamesOf(const std::vector<Target>& targets) {
    std::vector<std::string> names;
    for (const Target& t : targets) names.push_back(t.name);
    return names;
  }

  std::vector<Rule> Rules(const std::vector<Target>& targets) const {
    const std::vector<std::string> names = NamesOf(targets);
    std::string_view text = option("rules");
    if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
    std::vector<Rule> rules;
    for (const PipelineItem& item : ParsePipeline(text)) {
      Rule rule{item.name, PassRegistry::Global().Clone(*this), {}};
      rule.options->SetOption("parameters", "");
      for (const auto& [name, value] : item.options) {
        if (name == "rules" || name == "seed") {
          Fail(StrCat("rule '", item.name, "' sets ", name), "it is of all parameters together");
        }
        rule.options->SetOption(name, value);
      }
      rule.patterns = rule.options->option_list("parameters");
      if (rule.patterns.empty()) {
        Fail(StrCat("rule '", item.name, "' has no parameters"),
             StrCat(item.name, "{parameters=[*.weight],method=orthogonal}"));
      }
      CheckMethod(*rule.options);
      CheckPatterns(rule.patterns, names, "initialize/parameter", "parameter of floats");
      rules.push_back(std::move(rule));
    }
    return rules;
  }

  /// The first rule that names the parameter counts.
  void Set(Rewriter& rewriter, const Target& t, const std::vector<Rule>& rules) {
    const Pass* options = this;
    for (const Rule& rule : rules) {
      if (!MatchesAny(t.name, rule.patterns)) continue;
      options = rule.options.get();
      break;
    }
    std::string_view method = options->option("method");
    if (method == "auto") method = UsualMethod(t.shape, t.use);
    const InitialTensor tensor{t.element, t.shape, FansOf(t.shape, t.use), SeedOf(t.name)};
    const Value value = IsOptimizerState(t.name) ? StateOf(rewriter, t)
                                                 : BuildInitial(rewriter, *options, method, tensor);
    builtin::SetParameterOp::Create(rewriter, value, {.name = t.name});
  }

  /// A seed of its own for each parameter, whatever other parameters there are.
  float SeedOf(const std::string& name) const {
    const auto seed = static_cast<uint64_t>(option_int("seed"));
    return static_cast<float>(HashString(StrCat(seed, "/", name)) % kSeeds);
  }

  /// What the optimizer filled its state with.
  static Value StateOf(Rewriter& rewriter, const Target& t) {
    const Variable* variable = rewriter.program().parameters().Find(t.name);
    double filling = 0;
    if (variable != nullptr && variable->data.num_elements() > 0) {
      filling = ToDoubles(variable->data)[0];
    }
    const Tensor value = Cast(Tensor::Of<double>({1}, {filling}), t.element);
    const Value shape =
        rewriter.Constant(Tensor::Of<int64_t>({static_cast<int64_t>(t.shape.size())}, t.shape));
    const NamedAttribute attribute = rewriter.Named("value", rewriter.Attr(value));
    return rewriter.Create(nn::kConstantOfShape, {&shape, 1}, {&attribute, 1})->result(0);
  }

  static void EraseUntil(Rewriter& rewriter, Program& program, Operation* last) {
    std::vector<Operation*> old;
    for (Operation& op : *program.block()) {
      old.push_back(&op);
      if (&op == last) break;
    }
    for (size_t i = old.size(); i-- > 0;) rewriter.Erase(old[i]);
  }
};

REGISTER_PASS(initialize, InitializePass)
    .Doc("makes the startup program of a program: it sets every parameter to its initial value")
    .Details(
        "Nothing else is left of the program; running it and moving its parameters to the program "
        "itself initializes that. `auto` fills scales and variances of layers with ones, tables of "
        "embeddings from a normal distribution, weights uniformly within 1 / sqrt(fan_in), as "
        "torch.nn does, and all else with zeros. State of optimizers gets what its optimizer "
        "begins "
        "with. Fans are those of torch.nn.init, of a product of matrices its inner and outer "
        "extent. Constants and masks, which append_backward leaves alone, stay what they are. "
        "Each parameter has random numbers of its own, which depend on `seed`, its name "
        "and its shape. Sources: Glorot and Bengio, Understanding the Difficulty of Training Deep "
        "Feedforward Neural Networks, 2010 (xavier); He et al., Delving Deep into Rectifiers, 2015 "
        "(kaiming); Saxe et al., Exact Solutions to the Nonlinear Dynamics of Learning, 2014 "
        "(orthogonal).")
    .Option(
        "parameters", PassOption::Kind::kStrings, "",
        "what is set: names, `*` and `?` as in file names; empty: all, others keep their values")
    .Option("seed", PassOption::Kind::kInt, "0", "of all random numbers")
    .AtLeast(0)
    .Option("method", PassOption::Kind::kString, "auto",
            "auto, zeros, ones, constant, uniform, normal, truncated_normal (at two deviations), "
            "xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, fan_in_uniform or "
            "orthogonal")
    .Option("gain", PassOption::Kind::kFloat, "0",
            "of xavier, kaiming and orthogonal; 0: 1, sqrt(2) and 1")
    .Option("mode", PassOption::Kind::kString, "fan_in", "of kaiming: fan_in or fan_out")
    .Option("mean", PassOption::Kind::kFloat, "0", "of uniform, normal and truncated_normal")
    .Option("std", PassOption::Kind::kFloat, "1", "of uniform, normal and truncated_normal")
    .Option("value", PassOption::Kind::kFloat, "0", "of constant")
    .Option(
        "rules", PassOption::Kind::kStrings, "",
        "parameters with options of their own: "
        "[NAME{parameters=[*.bias],method=constant,value=1},...]; the first that matches counts");

}  // namespace

}  // namespace lathe
