#include "lathe/pass/pass_manager.h"

#include <algorithm>
#include <chrono>

#include "lathe/ir/context.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/parallel.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t CountOps(const Program& program) {
  int64_t count = -1;  // not the module
  for (OpWalker w(program.module()); w.Next() != nullptr;) ++count;
  return count;
}

/// Adds where it happened to an error of pass `name`.
Error InPass(Error error, const std::string& name) {
  error.Note(StrCat("in pass '", name, "'"));
  return error;
}

/// One step of a pipeline: a pass, or a pipeline for the regions of an op kind.
struct Step {
  std::unique_ptr<Pass> pass;
  std::string op;
  std::vector<Step> nested;
};

std::unique_ptr<Pass> MakePass(const PipelineItem& item) {
  std::unique_ptr<Pass> pass = PassRegistry::Global().Make(item.name);
  for (const auto& [name, value] : item.options) pass->SetOption(name, value);
  return pass;
}

/// Makes the steps of pipelines; named ones as far as the level and the names switched on reach.
class StepMaker {
 public:
  explicit StepMaker(const PassManagerOptions& options) : options_(options) {
    for (const std::string& name : options.enabled) (void)PassRegistry::Global().Find(name);
    for (const std::string& name : options.disabled) (void)PassRegistry::Global().Find(name);
  }

  std::vector<Step> Make(const std::vector<PipelineItem>& items, int depth = 0) const {
    if (depth > kMaxDepth) {
      throw Error(ErrorCode::kInvalidArgument, "pipeline/cycle",
                  "named pipelines contain one another");
    }
    std::vector<Step> steps;
    for (const PipelineItem& item : items) {
      if (!item.nested.empty()) {
        steps.push_back({nullptr, item.name, Make(item.nested, depth + 1)});
        continue;
      }
      const auto named = NamedPipelines();
      const auto at = std::find_if(named.begin(), named.end(),
                                   [&](const auto& p) { return p.name == item.name; });
      if (at == named.end()) {
        steps.push_back({MakePass(item), {}, {}});
        continue;
      }
      for (Step& step : Make(ItemsOf(*at, LevelOf(item)), depth + 1))
        steps.push_back(std::move(step));
    }
    return steps;
  }

 private:
  static constexpr int kMaxDepth = 20;

  int64_t LevelOf(const PipelineItem& item) const {
    int64_t level = options_.level;
    for (const auto& [name, value] : item.options) {
      const auto number = ParseInt(value);
      if (name != "level" || !number) {
        throw Error(ErrorCode::kInvalidArgument, "pass/option",
                    StrCat("pipeline '", item.name, "' has one option, level=0..3, not '", name,
                           "=", value, "'"));
      }
      level = *number;
    }
    if (level < 0 || level > 3) {
      throw Error(ErrorCode::kInvalidArgument, "pass/level",
                  StrCat("the optimisation level is 0, 1, 2 or 3, not ", level));
    }
    return level;
  }

  std::vector<PipelineItem> ItemsOf(const NamedPipeline& pipeline, int64_t level) const {
    std::vector<PipelineItem> items;
    for (const PipelineStep& step : pipeline.steps) {
      for (PipelineItem& item : ParsePipeline(step.passes)) {
        const auto& on = options_.enabled;
        if (step.level <= level || std::find(on.begin(), on.end(), item.name) != on.end()) {
          items.push_back(std::move(item));
        }
      }
    }
    return items;
  }

  const PassManagerOptions& options_;
};

std::string StepsToText(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& s : steps) {
    if (!text.empty()) text += ',';
    text += s.pass != nullptr ? s.pass->ToText() : StrCat(s.op, "(", StepsToText(s.nested), ")");
  }
  return text;
}

}  // namespace

struct PassManager::Impl : PassContext {
  explicit Impl(PassManagerOptions o) : options(std::move(o)), graph_attrs("graph") {}

  AnalysisManager& analyses() override { return *analysis_manager; }
  bool wants_remarks() const override { return options.remarks; }
  void AddRemark(Remark remark) override { remarks.push_back(std::move(remark)); }
  bool verify() const override { return options.verify_each; }

  void RunPass(Pass& pass, Graph& graph, int depth);
  void ApplyTimed(Pass& pass, Graph& graph, int depth);
  void RunNested(const Step& step, Graph& graph, int depth);
  void RunSteps(const std::vector<Step>& steps, Graph& graph, int depth);

  PassManagerOptions options;
  AnyAttrs graph_attrs;
  std::vector<Step> steps;
  std::vector<std::shared_ptr<PassInstrumentation>> instrumentations;
  std::vector<PassTiming> timings;
  std::vector<Remark> remarks;
  std::optional<AnalysisManager> analysis_manager;
  int64_t passes_run = 0;
};

void PassManager::Impl::RunPass(Pass& pass, Graph& graph, int depth) {
  const auto& off = options.disabled;
  if (std::find(off.begin(), off.end(), pass.name()) != off.end()) return;
  if (options.stop_after >= 0 && passes_run >= options.stop_after) return;
  ++passes_run;
  Program& program = graph.program();
  pass.set_context(this);
  for (const auto& i : instrumentations) i->BeforePass(pass, program);
  try {
    ApplyTimed(pass, graph, depth);
    // A check among them may fail, which is a failure of the pass.
    for (auto it = instrumentations.rbegin(); it != instrumentations.rend(); ++it) {
      (*it)->AfterPass(pass, program);
    }
  } catch (const Error& error) {
    for (const auto& i : instrumentations) i->AfterFailure(pass, program, error);
    throw InPass(error, pass.name());
  }
}

void PassManager::Impl::ApplyTimed(Pass& pass, Graph& graph, int depth) {
  PassTiming timing{pass.name(), 0, CountOps(graph.program()), 0, false, depth};
  const double start = Now();
  pass.Apply(graph);
  timing.seconds = Now() - start;
  timing.ops_after = CountOps(graph.program());
  timing.changed = pass.changed();
  timings.push_back(timing);
  analysis_manager->Invalidate(pass.Preserved());
}

void PassManager::Impl::RunNested(const Step& step, Graph& graph, int depth) {
  const OpInfo kind = graph.context().FindOp(step.op);
  if (!kind) (void)graph.context().GetOrMakeOp(step.op);  // reports the nearest names
  std::vector<Operation*> owners;
  for (OpWalker w(graph.program().module()); Operation* op = w.Next();) {
    if (op->info() == kind) owners.push_back(op);
  }
  for (Operation* op : owners) {
    for (Region& region : op->regions()) {
      for (Block& block : region) {
        Graph inner(graph.program(), &block);
        RunSteps(step.nested, inner, depth + 1);
      }
    }
  }
}

void PassManager::Impl::RunSteps(const std::vector<Step>& all, Graph& graph, int depth) {
  for (const Step& step : all) {
    if (step.pass != nullptr) {
      RunPass(*step.pass, graph, depth);
    } else {
      RunNested(step, graph, depth);
    }
  }
}

PassManager::PassManager(PassManagerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
PassManager::~PassManager() = default;

void PassManager::Add(std::unique_ptr<Pass> pass) {
  impl_->steps.push_back({std::move(pass), {}, {}});
}

void PassManager::Add(std::string_view pipeline) {
  for (Step& step : StepMaker(impl_->options).Make(ParsePipeline(pipeline))) {
    impl_->steps.push_back(std::move(step));
  }
}

void PassManager::AddInstrumentation(std::shared_ptr<PassInstrumentation> instrumentation) {
  impl_->instrumentations.push_back(std::move(instrumentation));
}

AnyAttrs& PassManager::graph_attrs() { return impl_->graph_attrs; }

void PassManager::Run(Program& program) {
  impl_->timings.clear();
  impl_->remarks.clear();
  impl_->passes_run = 0;
  impl_->analysis_manager.emplace(program);
  Graph graph(program);
  static_cast<AnyAttrs&>(graph) = impl_->graph_attrs;
  impl_->RunSteps(impl_->steps, graph, 0);
  impl_->graph_attrs = static_cast<AnyAttrs&>(graph);
}

std::string PassManager::ToText() const { return StepsToText(impl_->steps); }

namespace {
void Collect(const std::vector<Step>& steps, std::vector<const Pass*>& out) {
  for (const Step& s : steps) {
    if (s.pass != nullptr) out.push_back(s.pass.get());
    Collect(s.nested, out);
  }
}
}  // namespace

std::vector<const Pass*> PassManager::passes() const {
  std::vector<const Pass*> all;
  Collect(impl_->steps, all);
  return all;
}
size_t PassManager::num_passes() const { return passes().size(); }
const std::vector<PassTiming>& PassManager::timings() const { return impl_->timings; }
const std::vector<Remark>& PassManager::remarks() const { return impl_->remarks; }

}  // namespace lathe
