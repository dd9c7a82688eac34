#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

std::string_view NameOf(const Operation* op) {
  const auto name = op->attribute("name").dyn_cast<StrAttribute>();
  return name ? name.value() : std::string_view();
}

}  // namespace

/// Keeps what the wanted outputs need. Operations are walked backwards once; what has a side effect
/// stays, an input of the program goes like any other op that nobody reads.
class PrunePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    Rewriter rewriter(program, this);
    DropOutputs(program, rewriter);
    DropOperations(graph.block(), rewriter);
    DropParameters(program);
  }

 private:
  void DropOutputs(Program& program, Rewriter& rewriter) {
    const std::vector<std::string> wanted = option_list("outputs");
    if (wanted.empty()) return;
    std::vector<std::string> names;
    for (const Operation* fetch : program.fetches()) names.emplace_back(NameOf(fetch));
    for (const std::string& name : wanted) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      throw Error(ErrorCode::kNotFound, "prune/output",
                  StrCat("the program has no output '", name, "'"))
          .Hint(StrCat("its outputs are ", fmt::format("{}", fmt::join(names, ", "))));
    }
    for (Operation* fetch : program.fetches()) {
      if (std::find(wanted.begin(), wanted.end(), NameOf(fetch)) != wanted.end()) continue;
      rewriter.Erase(fetch);
      Count("outputs");
    }
  }

  void DropOperations(Block* block, Rewriter& rewriter) {
    for (Operation* op = block->back(); op != nullptr;) {
      Operation* const before = op->prev();
      const bool input = op->name() == nn::kFeed && !option_bool("keep_inputs");
      if (op->use_empty() && (input || IsRemovableWhenUnused(op))) {
        rewriter.Erase(op);
        Count(input ? "inputs" : "operations");
      }
      op = before;
    }
  }

  /// No op of the program names it.
  void DropParameters(Program& program) {
    std::unordered_set<std::string_view> named;  // look-up only
    for (OpWalker w(program.module()); const Operation* op = w.Next();) {
      if (op->name() == builtin::kGetParameter || op->name() == builtin::kSetParameter) {
        named.insert(NameOf(op));
      }
    }
    ParameterMap& all = program.parameters();
    ParameterMap kept;
    for (const auto& [name, variable] : all) {
      if (named.count(name.value()) != 0) kept.Insert(name, variable);
    }
    if (kept.size() == all.size()) return;
    Count("parameters", static_cast<int64_t>(all.size() - kept.size()));
    all = std::move(kept);
    MarkChanged();
  }
};

REGISTER_PASS(prune, PrunePass)
    .Doc("keeps what the given outputs need: drops other outputs, unread inputs and parameters")
    .Details("Operations with a side effect, such as `builtin.set_parameter`, are kept.")
    .Option("outputs", PassOption::Kind::kStrings, "[]", "names of outputs to keep; empty: all")
    .Option("keep_inputs", PassOption::Kind::kBool, "false", "inputs stay, read or not");

}  // namespace lathe
