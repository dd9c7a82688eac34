#include "src/pass/step_runner.h"

#include <algorithm>
#include <unordered_set>

#include "lathe/ir/context.h"
#include "lathe/ir/observer.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/budget.h"
#include "lathe/support/clock.h"

namespace lathe {

namespace {

constexpr const char* kPassesRun = "passes_run";

int64_t CountOps(const Graph& graph) {
  int64_t count = 0;
  for (OpWalker w(graph.block()); w.Next() != nullptr;) ++count;
  return count;
}

/// Adds where it happened to an error of pass `name`.
Error InPass(Error error, const std::string& name) {
  error.Note(StrCat("in pass '", name, "'"));
  return error;
}

/// Attributes of the graph around are seen inside; which passes have run is counted apart.
Graph InnerGraph(const Graph& outer, Program& program, Block* block) {
  Graph inner(program, block);
  static_cast<AnyAttrs&>(inner) = static_cast<const AnyAttrs&>(outer);
  if (inner.Has(kPassesRun)) {
    auto run = inner.MoveCopyAttr<std::vector<std::string>>(kPassesRun);
    inner.Set<std::vector<std::string>>(kPassesRun, std::move(run));
  }
  return inner;
}

void AddTimings(const std::vector<PassTiming>& part, std::vector<PassTiming>& rows) {
  LATHE_CHECK(part.size() == rows.size(), "parts of a pipeline ran different passes");
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].seconds += part[i].seconds;
    rows[i].ops_before += part[i].ops_before;
    rows[i].ops_after += part[i].ops_after;
    rows[i].changed |= part[i].changed;
  }
}

template <class T>
void Append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  from.clear();
}

/// Operations that were freed; membership only.
class Gone : public DestructionObserver {
 public:
  void Destroying(Operation* op) override { ops_.insert(op); }
  bool Holds(const Operation* op) const { return ops_.count(op) != 0; }

 private:
  std::unordered_set<const Operation*> ops_;
};

}  // namespace

// ---- one pass ----

template <class Fn>
void StepRunner::Show(Graph& graph, const Fn& fn) {
  if (settings_.instrumentations.empty()) return;
  if (detached_ == nullptr) return fn(graph.program());
  detached_->PutBack();
  detached_->MergeParameters();
  fn(detached_->whole());
  detached_->TakeOut();
}

void StepRunner::RunPass(Pass& pass, Graph& graph, int depth) {
  const auto& all = settings_.instrumentations;
  pass.set_context(this);
  try {
    Show(graph, [&](Program& program) {
      for (const auto& i : all) i->BeforePass(pass, program);
    });
    CheckBudget();
    ApplyTimed(pass, graph, depth);
    // A check among them may fail, which is a failure of the pass.
    Show(graph, [&](Program& program) {
      for (auto it = all.rbegin(); it != all.rend(); ++it) (*it)->AfterPass(pass, program);
    });
  } catch (Stopped& stopped) {
    stopped.error() = InPass(std::move(stopped.error()), pass.name());
    throw;
  } catch (const std::bad_alloc&) {
    throw InPass(internal::OutOfMemory(), pass.name());
  } catch (const Error& error) {
    Show(graph, [&](Program& program) {
      for (const auto& i : all) i->AfterFailure(pass, program, error);
    });
    throw InPass(error, pass.name());
  } catch (const std::exception& thrown) {
    const Error error(ErrorCode::kInternal, "pass/exception", thrown.what());
    Show(graph, [&](Program& program) {
      for (const auto& i : all) i->AfterFailure(pass, program, error);
    });
    throw InPass(error, pass.name());
  }
}

void StepRunner::ApplyTimed(Pass& pass, Graph& graph, int depth) {
  if (!ops_) ops_ = CountOps(graph);
  PassTiming timing{pass.name(), 0, *ops_, 0, false, depth};
  const double start = SecondsNow();
  pass.Apply(graph);
  timing.seconds = SecondsNow() - start;
  if (pass.changed()) ops_ = CountOps(graph);
  timing.ops_after = *ops_;
  timing.changed = pass.changed();
  timings_.push_back(timing);
  analyses_.Invalidate(pass.Preserved());
}

void StepRunner::Run(const std::vector<Step>& steps, Graph& graph, int depth) {
  for (const Step& step : steps) {
    if (step.pass == nullptr) {
      RunNested(step, graph, depth);
    } else if (step.enabled) {
      RunPass(*step.pass, graph, depth);
    }
  }
}

// ---- nested pipelines ----

void StepRunner::RunNested(const Step& step, Graph& graph, int depth) {
  const OpInfo kind = graph.context().FindOp(step.op);
  if (!kind) (void)graph.context().GetOrMakeOp(step.op);  // reports the nearest names
  if (kind == graph.program().module()->info()) return Run(step.nested, graph, depth + 1);
  std::vector<Operation*> inner_first;
  for (Operation& top : *graph.block()) {
    if (top.num_regions() == 0) continue;
    WalkPostOrder(&top, [&](Operation* op) {
      if (op->info() == kind) inner_first.push_back(op);
    });
  }
  std::vector<PassTiming> rows = EmptyTimings(step.nested, depth + 1);
  if (kind.HasTrait<IsolatedFromAbove>()) {
    RunApart(step, graph, inner_first, depth, rows);
  } else {
    RunInPlace(step, graph, inner_first, depth, rows);
  }
  const bool changed =
      std::any_of(rows.begin(), rows.end(), [](const PassTiming& row) { return row.changed; });
  Append(timings_, rows);
  ops_.reset();
  if (!changed) return;
  analyses_.Invalidate(PreservedAnalyses::None());
  if (verify() && detached_ == nullptr) {
    VerifyOrThrow(graph.program(), {.after = StrCat(step.op, "(", StepsToText(step.nested), ")")});
  }
}

/// What one operation's passes do may free operations around it.
void StepRunner::RunInPlace(const Step& step, Graph& graph, const std::vector<Operation*>& ops,
                            int depth, std::vector<PassTiming>& rows) {
  const Gone gone;
  for (Operation* op : ops) {
    for (size_t r = 0; !gone.Holds(op) && r < op->num_regions(); ++r) {
      for (Block* block = op->region(r).front(); block != nullptr;) {
        StepRunner inner = detached_ == nullptr ? StepRunner(settings_, analyses_)
                                                : StepRunner(settings_, analyses_, *detached_);
        Graph inner_graph = InnerGraph(graph, graph.program(), block);
        inner.Run(step.nested, inner_graph, depth + 1);
        AddTimings(inner.timings(), rows);
        Append(remarks_, inner.remarks());
        block = gone.Holds(op) ? nullptr : block->next();
      }
    }
  }
}

/// One isolated operation and all that its passes need.
struct StepRunner::Part {
  Part(const RunSettings& settings, const Graph& outer, Operation* op, const Step& step)
      : detached(outer.program(), op),
        graph_attrs(InnerGraph(outer, outer.program(), outer.block())),
        analyses(detached.part()),
        steps(CloneSteps(step.nested)),
        runner(settings, analyses, detached) {}

  void Run(int depth) {
    try {
      for (Region& region : detached.op()->regions()) {
        for (Block& block : region) {
          Graph graph = InnerGraph(graph_attrs, detached.part(), &block);
          runner.Run(steps, graph, depth);
        }
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }

  Detached detached;
  Graph graph_attrs;
  AnalysisManager analyses;
  std::vector<Step> steps;
  StepRunner runner;
  std::exception_ptr failure;
};

void StepRunner::RunApart(const Step& step, Graph& graph, const std::vector<Operation*>& ops,
                          int depth, std::vector<PassTiming>& rows) {
  std::vector<std::unique_ptr<Part>> parts;
  for (Operation* op : ops) {
    if (op->block() == graph.block()) {
      parts.push_back(std::make_unique<Part>(settings_, graph, op, step));
    }
  }
  if (settings_.instrumentations.empty()) {
    RunParts(parts, depth + 1);
    return Finish(step, parts, rows);
  }
  // Instrumentations look at the whole program after each pass, and hear of one pass at a time.
  size_t done = 0;
  while (done < parts.size() && (done == 0 || parts[done - 1]->failure == nullptr)) {
    parts[done]->detached.TakeOut();
    parts[done]->Run(depth + 1);
    parts[done]->detached.PutBack();
    parts[done++]->detached.MergeParameters();
  }
  parts.resize(done);
  Finish(step, parts, rows);
}

void StepRunner::RunParts(std::vector<std::unique_ptr<Part>>& parts, int depth) {
  for (auto& part : parts) part->detached.TakeOut();
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) parts[static_cast<size_t>(i)]->Run(depth);
  };
  const auto count = static_cast<int64_t>(parts.size());
  if (settings_.options.threads == 1 || count < 2) {
    run(0, count);
  } else {
    if (!settings_.threads) settings_.threads.emplace(settings_.options.threads);
    settings_.threads->ParallelFor(0, count, 1, run);
  }
  for (auto it = parts.rbegin(); it != parts.rend(); ++it) (*it)->detached.PutBack();
  for (auto& part : parts) part->detached.MergeParameters();
}

/// In program order; the first failure, too, is the first one there.
void StepRunner::Finish(const Step& step, std::vector<std::unique_ptr<Part>>& parts,
                        std::vector<PassTiming>& rows) {
  for (auto& part : parts) {
    Append(remarks_, part->runner.remarks());
    AbsorbStatistics(step.nested, part->steps);
    if (part->failure != nullptr) std::rethrow_exception(part->failure);
    AddTimings(part->runner.timings(), rows);
  }
}

}  // namespace lathe
