#include <algorithm>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/learned.h"
#include "src/transform/name_pattern.h"

namespace lathe {

namespace {

using builtin::GetParameterOp;

bool IsNarrow(Value parameter) {
  const auto type = parameter.type().dyn_cast<AnyTensorType>();
  return type && IsFloat(type.element()) && BitWidth(type.element()) == 16;
}

/// Micikevicius et al., Mixed Precision Training, section 3.1.
class MasterWeightsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    Rewriter rewriter(program, this);
    std::set<std::string> widened;
    for (Operation* read : NarrowReads(program)) {
      const std::string name(GetParameterOp(read).name());
      Variable* variable = program.parameters().Find(name);  // null: it has no data yet
      const bool first = widened.insert(name).second;
      if (first && variable != nullptr) variable->data = Cast(variable->data, ElementType::kF32);
      Widen(rewriter, read);
    }
    Count("widened", static_cast<int64_t>(widened.size()));
    if (!widened.empty()) MarkChanged();
  }

 private:
  /// Of parameters that an optimizer may update; the statistics of a normalization are set already.
  std::vector<Operation*> NarrowReads(const Program& program) const {
    std::vector<Operation*> reads;
    std::vector<std::string> names;
    std::set<std::string_view> set;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (const auto write = op->dyn_cast<builtin::SetParameterOp>()) set.insert(write.name());
      if (!op->isa<GetParameterOp>()) continue;
      names.emplace_back(GetParameterOp(op).name());
      if (IsNarrow(op->result(0))) reads.push_back(op);
    }
    const std::vector<std::string> frozen = option_list("frozen");
    CheckPatterns(frozen, names, "gradient/variable", "parameter");
    const Constants constants(program);
    std::erase_if(reads, [&](Operation* op) {
      const std::string name(GetParameterOp(op).name());
      return set.contains(name) || MatchesAny(name, frozen) || constants.Contains(name);
    });
    return reads;
  }

  static void Widen(Rewriter& rewriter, Operation* read) {
    const auto narrow = read->result(0).type().cast<AnyTensorType>();
    const Type wide = narrow.With(ElementType::kF32, narrow.shape());
    rewriter.SetInsertionPoint(read);
    const std::string name(GetParameterOp(read).name());
    const auto whole = GetParameterOp::Create(rewriter, {&wide, 1}, {.name = name});
    const auto cast = nn::CastOp::Create(rewriter, whole.value(), {.to = narrow.element()});
    rewriter.ReplaceOp(read, {cast.output()});
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
