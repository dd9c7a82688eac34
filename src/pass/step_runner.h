#pragma once

#include <exception>
#include <optional>

#include "lathe/support/parallel.h"
#include "src/pass/detached.h"
#include "src/pass/steps.h"

namespace lathe {

/// What the runners of one PassManager::Run share.
struct RunSettings {
  const PassManagerOptions& options;
  const std::vector<std::shared_ptr<PassInstrumentation>>& instrumentations;
  std::optional<ThreadPool>& threads;  ///< started when first needed
};

/// Runs steps over one graph and keeps what they report. A nested pipeline over operations that are
/// isolated from above runs on several threads: each operation by itself, with passes of its own,
/// and what is reported is put together in program order, so that nothing depends on the number of
/// threads. Over other operations it runs in place, one after the other.
class StepRunner : public PassContext {
 public:
  StepRunner(const RunSettings& settings, AnalysisManager& analyses)
      : settings_(settings), analyses_(analyses) {}
  /// For a part that is on its own; instrumentations see it in its place.
  StepRunner(const RunSettings& settings, AnalysisManager& analyses, Detached& detached)
      : settings_(settings), analyses_(analyses), detached_(&detached) {}

  void Run(const std::vector<Step>& steps, Graph& graph, int depth);
  std::vector<PassTiming>& timings() { return timings_; }
  std::vector<Remark>& remarks() { return remarks_; }

  AnalysisManager& analyses() override { return analyses_; }
  bool wants_remarks() const override { return settings_.options.remarks; }
  void AddRemark(Remark remark) override { remarks_.push_back(std::move(remark)); }
  bool verify() const override { return settings_.options.verify_each; }

 private:
  struct Part;
  void RunPass(Pass& pass, Graph& graph, int depth);
  void ApplyTimed(Pass& pass, Graph& graph, int depth);
  void RunNested(const Step& step, Graph& graph, int depth);
  void RunInPlace(const Step& step, Graph& graph, const std::vector<Operation*>& ops, int depth,
                  std::vector<PassTiming>& rows);
  void RunApart(const Step& step, Graph& graph, const std::vector<Operation*>& ops, int depth,
                std::vector<PassTiming>& rows);
  void RunParts(std::vector<std::unique_ptr<Part>>& parts, int depth);
  void Finish(const Step& step, std::vector<std::unique_ptr<Part>>& parts,
              std::vector<PassTiming>& rows);
  /// Calls fn(program) with the whole program as it stands.
  template <class Fn>
  void Show(Graph& graph, const Fn& fn);

  RunSettings settings_;
  AnalysisManager& analyses_;
  Detached* detached_ = nullptr;
  std::optional<int64_t> ops_;  ///< in the graph, as far as nothing has changed since
  std::vector<PassTiming> timings_;
  std::vector<Remark> remarks_;
};

}  // namespace lathe
