#include "lathe/pass/pass_manager.h"

#include "src/pass/step_runner.h"

namespace lathe {

struct PassManager::Impl {
  explicit Impl(PassManagerOptions o) : options(std::move(o)), graph_attrs("graph") {}

  PassManagerOptions options;
  AnyAttrs graph_attrs;
  std::vector<Step> steps;
  std::vector<std::shared_ptr<PassInstrumentation>> instrumentations;
  std::vector<PassTiming> timings;
  std::vector<Remark> remarks;
};

PassManager::PassManager(PassManagerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
PassManager::~PassManager() = default;

void PassManager::Add(std::unique_ptr<Pass> pass) {
  impl_->steps.push_back({std::move(pass), {}, {}});
}

void PassManager::Add(std::string_view pipeline) {
  for (Step& step : MakeSteps(pipeline, impl_->options)) impl_->steps.push_back(std::move(step));
}

void PassManager::AddInstrumentation(std::shared_ptr<PassInstrumentation> instrumentation) {
  impl_->instrumentations.push_back(std::move(instrumentation));
}

AnyAttrs& PassManager::graph_attrs() { return impl_->graph_attrs; }

void PassManager::Run(Program& program) {
  EnableSteps(impl_->steps, impl_->options);
  std::optional<ThreadPool> threads;
  AnalysisManager analyses(program);
  StepRunner runner({impl_->options, impl_->instrumentations, threads}, analyses);
  Graph graph(program);
  static_cast<AnyAttrs&>(graph) = impl_->graph_attrs;
  const auto keep = [&] {
    impl_->timings = std::move(runner.timings());
    impl_->remarks = std::move(runner.remarks());
  };
  try {
    runner.Run(impl_->steps, graph, 0);
  } catch (...) {
    keep();
    throw;
  }
  keep();
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
