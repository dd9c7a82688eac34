#include <algorithm>

#include "lathe/dialect/nn/io.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "lathe/transform/optimizer.h"
#include "src/dialect/nn/term.h"
#include "src/transform/optimizer/training_step.h"

namespace lathe {

namespace {

using nn::Term;

/// Micikevicius et al., Mixed Precision Training, section 3.2.
class ScaleLossPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    const double initial = option_float("initial");
    if (!(initial > 0)) {
      throw Error(ErrorCode::kInvalidArgument, "loss/scale",
                  StrCat("the loss cannot be scaled by ", option("initial")))
          .Hint("a power of two, such as 65536");
    }
    Rewriter rewriter(program, this);
    rewriter.SetInsertionPointToEnd(program.block());
    const Term loss = As(Term(rewriter, Loss(program)), ElementType::kF32);
    const Value scale =
        ReadVariable(program, rewriter, std::string(kLossScale), ElementType::kF32, {}, initial);
    scale.set_property("stop_gradient", rewriter.Attr(true));
    const Term scaled = loss * Term(rewriter, scale);
    nn::FetchOp::Create(rewriter, scaled, {.name = std::string(kScaledLoss)});
    MarkChanged();
  }

 private:
  Value Loss(const Program& program) const {
    std::vector<std::string> names;
    for (Operation* fetch : program.fetches()) {
      names.emplace_back(nn::FetchOp(fetch).name());
      if (names.back() == option("loss")) return fetch->operand(0);
    }
    Error error(ErrorCode::kNotFound, "loss/output",
                StrCat("the program has no output '", option("loss"), "'"));
    if (const std::string near = DidYouMean(option("loss"), names); !near.empty()) error.Hint(near);
    throw std::move(error);
  }
};

REGISTER_PASS(scale_loss, ScaleLossPass)
    .Doc("multiplies a loss, so that gradients of f16 are not too small to be numbers of f16")
    .Details(
        "The output `scaled_loss` is the loss times the parameter `optimizer@loss_scale`; "
        "`append_backward{loss=[scaled_loss]}` takes its gradients. An optimizer then divides "
        "them by the scale before anything else. Where one of them is not finite, it leaves all "
        "parameters as they are and halves the scale; after 2,000 steps in which all were, it "
        "doubles it (PyTorch's GradScaler).")
    .Option("loss", PassOption::Kind::kString, "loss", "name of the output that is the loss")
    .Option("initial", PassOption::Kind::kFloat, "65536", "the scale of the first step");

}  // namespace

}  // namespace lathe
