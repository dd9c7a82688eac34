#include <algorithm>
#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "src/transform/learned.h"
#include "src/transform/name_pattern.h"
#include "src/transform/wide_parameters.h"

namespace lathe {

namespace {

using builtin::GetParameterOp;

/// Micikevicius et al., Mixed Precision Training, section 3.1.
class MasterWeightsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    const int64_t widened = HoldInF32(rewriter, LearnedReads(graph.program()));
    Count("widened", widened);
    if (widened > 0) MarkChanged();
  }

 private:
  /// Of parameters that an optimizer may update; the statistics of a normalization are set already.
  std::vector<Operation*> LearnedReads(const Program& program) const {
    std::vector<std::string> names;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (op->isa<GetParameterOp>()) names.emplace_back(GetParameterOp(op).name());
    }
    const std::vector<std::string> frozen = option_list("frozen");
    CheckPatterns(frozen, names, "gradient/variable", "parameter");
    const Constants constants(program);
    std::vector<Operation*> reads = NarrowParameterReads(program);
    std::erase_if(reads, [&](Operation* op) {
      const std::string name(GetParameterOp(op).name());
      return MatchesAny(name, frozen) || constants.Contains(name);
    });
    return reads;
  }
};

REGISTER_PASS(master_weights, MasterWeightsPass)
    .Doc("keeps parameters of f16 and bf16 in f32, for an optimizer")
    .Details(
        "What is added to a weight in a step is often less than the last place of a number of 16 "
        "bits. The parameters become f32 and are rounded where they are read; so their gradients, "
        "and the states of an optimizer, are f32, too. Runs before append_backward. Constants, "
        "masks, and what the program sets by itself stay as they are.")
    .Option("frozen", PassOption::Kind::kStrings, "",
            "parameters that stay as they are: names, `*` and `?` as in file names");

}  // namespace

}  // namespace lathe
