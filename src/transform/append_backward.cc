#include <algorithm>
#include <optional>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/gradient.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "lathe/transform/multi_devices.h"
#include "src/transform/learned.h"
#include "src/transform/name_pattern.h"
#include "src/transform/scan_as_loop.h"

namespace lathe {

namespace {

constexpr const char* kSuffix = "@GRAD";

bool IsFloatTensor(Value value) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  return type && IsFloat(type.element());
}

bool IsStopped(Value value) {
  const auto stop = value.property("stop_gradient").dyn_cast<BoolAttribute>();
  return stop && stop.value();
}

/// One variable: all that reads it, as if it were one value.
struct Independent {
  std::string name;
  std::vector<Value> reads;
};

class AppendBackwardPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    CheckStore();
    CheckValueSemantics(program);
    LoopsForScans(program, program.block(), this);
    std::vector<std::string> loss_names;
    const std::vector<Value> losses = Losses(program, loss_names);
    const std::vector<Independent> variables = Variables(program, ValuesBehind(losses));
    if (variables.empty()) return;
    std::vector<Value> xs;
    for (const Independent& v : variables) xs.insert(xs.end(), v.reads.begin(), v.reads.end());
    Rewriter rewriter(program, this);
    rewriter.SetInsertionPointToEnd(program.block());
    std::vector<Operation*> replaced;
    std::vector<Value> seeds;
    const std::vector<Value> gradients = BuildGradients(rewriter, losses, xs, {}, replaced, &seeds);
    for (size_t i = 0; i < seeds.size(); ++i) Mark(rewriter, seeds[i], loss_names[i]);
    size_t next = 0;
    for (const Independent& v : variables) {
      Value sum;
      for (size_t i = 0; i < v.reads.size(); ++i) {
        const Value part = gradients[next++];
        sum = sum ? nn::AddOp::Create(rewriter, sum, part).c() : part;
      }
      Give(rewriter, v, sum);
    }
    for (Operation* op : replaced) {
      if (op->use_empty()) rewriter.Erase(op);
    }
    Count("gradients", static_cast<int64_t>(variables.size()));
    MarkChanged();
  }

 private:
  [[noreturn]] static void Fail(const char* id, std::string message, std::string hint) {
    throw Error(ErrorCode::kInvalidArgument, id, std::move(message)).Hint(std::move(hint));
  }

  void CheckStore() const {
    const std::vector<std::string> known{"fetch", "parameter", "none"};
    if (std::find(known.begin(), known.end(), option("store")) != known.end()) return;
    const std::string near = DidYouMean(option("store"), known);
    Fail("gradient/option", StrCat("a gradient is not stored as '", option("store"), "'"),
         near.empty() ? "fetch, parameter or none" : near);
  }

  static void CheckValueSemantics(const Program& program) {
    for (OpWalker w(program.block()); const Operation* op = w.Next();) {
      if (!op->HasTrait<Inplace>()) continue;
      throw Error(ErrorCode::kUnsupported, "gradient/in-place",
                  StrCat(op->name(), " writes a tensor: its old contents have gradients too"))
          .At(op->location().ToString(*op->context()))
          .Hint("run maximize_value_semantics first");
    }
  }

  // ---- losses ----

  /// `names` receives what the outputs are called.
  std::vector<Value> Losses(const Program& program, std::vector<std::string>& names) const {
    names = option_list("loss");
    const std::vector<Operation*> fetches = program.fetches();
    std::vector<std::string> known;
    for (Operation* fetch : fetches) known.emplace_back(nn::FetchOp(fetch).name());
    if (names.empty() && fetches.size() == 1) {
      names = known;
      return {fetches[0]->operand(0)};
    }
    if (names.empty()) {
      Fail("gradient/loss", StrCat("the program has ", fetches.size(), " outputs"),
           "say which is the loss: append_backward{loss=[name]}");
    }
    std::vector<Value> losses;
    for (const std::string& name : names) {
      const auto at = std::find(known.begin(), known.end(), name);
      if (at == known.end()) {
        Fail("gradient/loss", StrCat("the program has no output '", name, "'"),
             DidYouMean(name, known));
      }
      losses.push_back(fetches[static_cast<size_t>(at - known.begin())]->operand(0));
    }
    return losses;
  }

  // ---- variables ----

  std::vector<Independent> Variables(Program& program, const std::unordered_set<Value>& behind) {
    const std::vector<Independent> all = AllVariables(program);
    std::vector<std::string> known;
    for (const Independent& v : all) known.push_back(v.name);
    const std::vector<std::string> names = option_list("parameters");
    if (names.empty()) return Trainable(program, all, behind);
    std::vector<Independent> wanted;
    for (const std::string& name : names) {
      const auto at = std::find(known.begin(), known.end(), name);
      if (at == known.end()) {
        Fail("gradient/variable", StrCat("the program reads no parameter or input '", name, "'"),
             DidYouMean(name, known));
      }
      wanted.push_back(all[static_cast<size_t>(at - known.begin())]);
      CheckReached(wanted.back(), behind);
    }
    return wanted;
  }

  /// Parameters and inputs in program order. Those read within a region are read outside of it.
  static std::vector<Independent> AllVariables(Program& program) {
    std::vector<Independent> variables;
    std::set<std::string, std::less<>> set;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      const auto feed = op->dyn_cast<nn::FeedOp>();
      const auto get = op->dyn_cast<builtin::GetParameterOp>();
      if (op->isa<builtin::SetParameterOp>()) {
        set.emplace(op->cast<builtin::SetParameterOp>().name());
      }
      if (!feed && !get) continue;
      const std::string_view name = feed ? feed.name() : get.name();
      // What is read after it was set is another value.
      if (op->block() != program.block() || set.count(name) != 0) continue;
      const auto at = std::find_if(variables.begin(), variables.end(),
                                   [&](const Independent& v) { return v.name == name; });
      if (at != variables.end()) {
        at->reads.push_back(op->result(0));
      } else {
        variables.push_back({std::string(name), {op->result(0)}});
      }
    }
    return variables;
  }

  /// Parameters that a loss depends on, that are learned, and whose gradient is not stopped.
  std::vector<Independent> Trainable(const Program& program, const std::vector<Independent>& all,
                                     const std::unordered_set<Value>& behind) {
    const Constants constants(program);
    const std::vector<std::string> frozen = option_list("frozen");
    std::vector<std::string> names;
    for (const Independent& v : all) names.push_back(v.name);
    CheckPatterns(frozen, names, "gradient/variable", "parameter");
    std::vector<Independent> trainable;
    for (const Independent& v : all) {
      Operation* read = v.reads[0].defining_op();
      if (!read->isa<builtin::GetParameterOp>() || !IsFloatTensor(v.reads[0])) continue;
      if (IsStopped(v.reads[0])) {
        Missed(read, "no gradient: it is stopped");
      } else if (MatchesAny(v.name, frozen)) {
        Missed(read, "no gradient: it is frozen");
      } else if (!Reached(v, behind)) {
        Missed(read, "no gradient: no loss depends on it");
      } else if (const std::string_view why = constants.Why(v.name); !why.empty()) {
        Missed(read, StrCat("no gradient: ", why));
      } else {
        trainable.push_back(v);
      }
    }
    return trainable;
  }

  static bool Reached(const Independent& v, const std::unordered_set<Value>& behind) {
    return std::any_of(v.reads.begin(), v.reads.end(),
                       [&](Value read) { return behind.count(read) != 0; });
  }

  static void CheckReached(const Independent& v, const std::unordered_set<Value>& behind) {
    if (Reached(v, behind)) return;
    Fail("gradient/unreachable", StrCat("the loss does not depend on '", v.name, "'"),
         "leave it out of `parameters`, or give the loss that it is part of");
  }

  // ---- results ----

  /// Marks the value as the gradient of that parameter or loss; a value of its own if it is one of
  /// another already.
  static Value Mark(Rewriter& rewriter, Value gradient, std::string_view name) {
    Operation* maker = gradient.defining_op();
    if (maker == nullptr || gradient.property(kGradOf) || maker->isa<nn::FeedOp>() ||
        maker->isa<builtin::GetParameterOp>()) {
      gradient = rewriter.Create(nn::kIdentity, {&gradient, 1})->result(0);
    }
    gradient.set_property(kGradOf, StrAttribute::Get(rewriter.context(), name));
    return gradient;
  }

  void Give(Rewriter& rewriter, const Independent& v, Value sum) {
    const Value gradient = Mark(rewriter, sum, v.name);
    Applied(v.reads[0].defining_op(), "its gradient is computed");
    if (option("store") != "none") Store(rewriter, v, gradient);
  }

  void Store(Rewriter& rewriter, const Independent& v, Value gradient) {
    const std::string name = StrCat(v.name, kSuffix);
    const NamedAttribute attributes[] = {
        rewriter.Named("name", rewriter.Attr(std::string_view(name))),
        rewriter.Named(kGradOf, rewriter.Attr(std::string_view(v.name)))};
    Program& program = rewriter.program();
    if (option("store") == "parameter") {
      const auto type = gradient.type().cast<AnyTensorType>();
      if (!type.is_static()) {
        Fail("gradient/unknown-shape", StrCat("'", name, "' has type ", type.ToString()),
             "a parameter has constant extents; fetch the gradient instead");
      }
      program.parameters().Insert(
          StrAttribute::Get(program.context(), name),
          {.data = Tensor(type.element(), *type.shape().Constants()), .is_mutable = true});
      rewriter.Create(builtin::kSetParameter, {&gradient, 1}, attributes);
    } else {
      for (Operation* fetch : program.fetches()) {
        if (nn::FetchOp(fetch).name() == name) {
          Fail("gradient/output", StrCat("there is an output '", name, "' already"),
               "has append_backward run before?");
        }
      }
      rewriter.Create(nn::kFetch, {&gradient, 1}, attributes);
    }
  }
};

REGISTER_PASS(append_backward, AppendBackwardPass)
    .Doc("appends the gradients of a loss with respect to parameters and inputs")
    .Details(
        "The loss is the sum of the elements of all that `loss` names. Each gradient is the "
        "output, "
        "or with `store=parameter` the parameter, `<name>@GRAD`. The property `grad_of` of the "
        "value "
        "that is the gradient, and the attribute of its output, say whose it is; optimizers look "
        "for them. A value whose property "
        "`stop_gradient` is true, and nn.block_gradient, let none through. Without `parameters`: "
        "all that a loss depends on and that are neither stopped nor frozen, nor constants, nor "
        "masks, which hold minus infinity or the lowest number of their type; one that is named "
        "and "
        "that no loss depends on is an error. `cf.if`, `cf.while` and `cf.scan`, which becomes a "
        "loop, "
        "are differentiated too; programs that write tensors in place are refused. "
        "[gradients.md](gradients.md) lists the operations without a gradient.")
    .Option("loss", PassOption::Kind::kStrings, "", "names of outputs; empty: the only one")
    .Option("parameters", PassOption::Kind::kStrings, "", "names of parameters and inputs")
    .Option("frozen", PassOption::Kind::kStrings, "",
            "parameters that get no gradient: names, `*` and `?` as in file names")
    .Option("store", PassOption::Kind::kString, "fetch",
            "fetch or parameter; none: gradients are only marked");

/// Marks what needs no gradient: inputs, constants, and what is computed from such alone.
class InferStopGradientPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    int64_t marked = 0;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->num_results() == 0 || op->result(0).property("stop_gradient")) continue;
      const bool stop = Stops(op);
      for (size_t i = 0; i < op->num_results(); ++i) {
        op->result(i).set_property("stop_gradient", BoolAttribute::Get(graph.context(), stop));
      }
      marked += static_cast<int64_t>(op->num_results());
    }
    Count("marked", marked);
    if (marked > 0) MarkChanged();
  }

 private:
  static bool Stops(Operation* op) {
    if (op->isa<builtin::GetParameterOp>()) return !IsFloatTensor(op->result(0));
    if (op->num_regions() > 0) return false;  // what its regions read is not looked at
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value operand = op->operand(i);
      if (operand && (operand.is_block_argument() || !IsStopped(operand))) return false;
    }
    return true;
  }
};

REGISTER_PASS(infer_stop_gradient, InferStopGradientPass)
    .Doc("marks each result whether it needs a gradient: property stop_gradient")
    .Details(
        "Inputs and constants need none, parameters do; an op's results need one if an operand "
        "does. What is marked already stays. Every result of an op has its own entry.");

}  // namespace

}  // namespace lathe
