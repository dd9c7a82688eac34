#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "lathe/driver/executable.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/runtime/executor.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "test/differential/judge.h"
#include "test/differential/trial.h"

namespace lathe::testing {

namespace {

namespace fs = std::filesystem;

/// A folder that is gone at the end.
class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "lathe-differential-XXXXXX").string()) {
    LATHE_CHECK(mkdtemp(path_.data()) != nullptr, path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(std::string_view name) const { return StrCat(path_, "/", name); }

 private:
  std::string path_;
};

template <class F>
Outcome OutcomeOf(F&& run) {
  try {
    return {run(), std::nullopt};
  } catch (const Error& e) {
    return {{}, e};
  }
}

bool SameBits(const Outcome& a, const Outcome& b) {
  if (a.error || b.error) return a.error.has_value() == b.error.has_value();
  return std::ranges::equal(a.values, b.values,
                            [](const auto& x, const auto& y) { return x.second == y.second; });
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

class Trial {
 public:
  Trial(const Case& trial, uint64_t seed, const DifferentialOptions& options)
      : case_(trial), options_(options) {
    for (const InputSet& set : case_.inputs) {
      expected_.emplace_back(case_.program, set.values, seed);
    }
  }

  TrialResult Run() {
    result_.coverage.push_back(expected_[0].error()        ? "graph that is refused"
                               : expected_[0].comparable() ? "graph that is compared"
                                                           : "graph that overflows");
    for (size_t i = 1; i < expected_.size(); ++i) {
      result_.coverage.push_back(expected_[i].error() ? "graph with sizes that are refused"
                                                      : "graph with other sizes that run");
    }
    for (const int level : options_.levels) {
      level_ = level;
      for (const std::string& tier : options_.tiers) RunTier(tier);
    }
    return std::move(result_);
  }

 private:
  void RunTier(const std::string& tier) {
    const Folder folder;
    place_ = StrCat(tier, options_.levels.size() > 1 ? StrCat(" level ", level_) : "");
    std::unique_ptr<Executable> cold =
        Compile(case_.program, tier, folder / "cache", 1, "compiling");
    if (cold == nullptr) return;
    if (options_.coverage) Cover(*cold);
    std::vector<Outcome> first;
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      first.push_back(OutcomeOf([&] { return cold->Run(case_.inputs[i].values); }));
      JudgeRun(i, first.back(), "first run");
    }
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      Same(i, OutcomeOf([&] { return cold->Run(case_.inputs[i].values); }), first[i], "second run");
    }
    if (const auto warm =
            Compile(case_.program, tier, folder / "cache", 2, "compiling, warm cache")) {
      for (size_t i = 0; i < case_.inputs.size(); ++i) {
        Same(i, OutcomeOf([&] { return warm->Run(case_.inputs[i].values); }), first[i],
             "warm cache, two threads");
      }
    }
    if (cold->CanSave()) RunSaved(*cold, folder / "saved.lx", first);
    if (tier == options_.tiers.front()) RunOptimized(tier, folder / "cache");
  }

  // What passes have merged or dropped still has to fit, also where the program has been text
  // since.
  void RunOptimized(const std::string& tier, const std::string& cache) {
    Program optimized = case_.program.Clone();
    const Outcome outcome = OutcomeOf([&] {
      Optimize(optimized, "inference", level_, {.disabled = {"skip_rounding"}});
      Program read = ParseProgram(optimized.context(), Print(optimized));
      read.parameters() = optimized.parameters();
      optimized = std::move(read);
      return NamedValues();
    });
    if (outcome.error) return ReportRefusal(*outcome.error, "optimizing");
    const auto exe = Compile(optimized, tier, cache, 1, "compiling what is optimized");
    for (size_t i = 0; exe != nullptr && i < case_.inputs.size(); ++i) {
      JudgeRun(i, OutcomeOf([&] { return exe->Run(case_.inputs[i].values); }), "optimized before");
    }
  }

  void RunSaved(const Executable& executable, const std::string& path,
                const std::vector<Outcome>& first) {
    const Outcome outcome = OutcomeOf([&] {
      executable.Save(path);
      const runtime::Executor loaded(runtime::LoadPlan(path), {.threads = 1, .poison = true});
      for (size_t i = case_.inputs.size(); i-- > 0;) {
        Same(i, OutcomeOf([&] { return RunLoaded(loaded, case_.inputs[i].values); }), first[i],
             "saved, loaded, poisoned");
      }
      return NamedValues();
    });
    if (outcome.error) Report("error saving", outcome.error->Render());
    result_.coverage.emplace_back("graph that is saved");
  }

  static NamedValues RunLoaded(const runtime::Executor& executor, const NamedValues& inputs) {
    runtime::NamedTensors tensors;
    for (const auto& [name, value] : inputs) tensors.emplace_back(name, value.tensor());
    NamedValues outputs;
    for (auto& [name, tensor] : executor.Run(tensors)) outputs.emplace_back(name, tensor);
    return outputs;
  }

  std::unique_ptr<Executable> Compile(const Program& program, const std::string& tier,
                                      const std::string& cache, int threads,
                                      std::string_view when) {
    try {
      return std::make_unique<Executable>(program,
                                          CompileOptions{.target = tier,
                                                         .cache = cache,
                                                         .level = level_,
                                                         .threads = threads,
                                                         .external = options_.external,
                                                         .check_accesses = options_.check_accesses,
                                                         .max_bytes = uint64_t{1} << 29});
    } catch (const Error& e) {
      ReportRefusal(e, when);
      return nullptr;
    }
  }

  // What cannot be right for any input may be refused at once; where sizes were made up, it may be
  // right for these alone.
  void ReportRefusal(const Error& e, std::string_view when) {
    const bool refused = e.code() != ErrorCode::kInternal &&
                         std::ranges::all_of(expected_, [](const Expectation& x) {
                           return x.error().has_value() || x.vague();
                         });
    if (!refused) Report(StrCat("error ", e.id(), " ", when), e.Render());
  }

  void JudgeRun(size_t set, const Outcome& got, std::string_view when) {
    const Verdict verdict = Judge(expected_[set], got);
    if (!verdict.finding.empty()) Report(verdict.finding, StrCat(Where(set, when), verdict.detail));
    if (!verdict.excuse.empty()) result_.coverage.push_back(verdict.excuse);
  }

  void Same(size_t set, const Outcome& got, const Outcome& first, std::string_view when) {
    const bool accepted = expected_[set].error() && !first.error;  // reported; has no right answer
    if (accepted || SameBits(got, first)) return;
    std::string detail = Where(set, when);
    if (got.error) {
      detail += got.error->Render();
    } else if (first.error) {
      detail += StrCat("runs, but did not at first: ", first.error->Render());
    } else {
      detail += "other bits than in the first run";
      for (size_t i = 0; i < got.values.size(); ++i) {
        if (!(got.values[i].second == first.values[i].second)) {
          const Closeness c = AllClose(got.values[i].second, first.values[i].second, 0, 0);
          detail += StrCat(", ", got.values[i].first, ": ", c.description);
        }
      }
    }
    Report(StrCat(when, got.error ? StrCat(" error ", got.error->id()) : " differs"), detail);
  }

  std::string Where(size_t set, std::string_view when) const {
    const std::string& label = case_.inputs[set].label;
    return StrCat(when, label.empty() ? "" : StrCat(" with ", label), ": ");
  }

  void Report(std::string kind, const std::string& detail) {
    result_.findings.push_back({std::move(kind), StrCat(place_, ": ", detail)});
  }

  void Cover(const Executable& executable) {
    std::vector<std::string>& lines = result_.coverage;
    lines.emplace_back(executable.executor() != nullptr ? "graph with a plan"
                                                        : "graph without a plan");
    for (const CompiledFunctionInfo& info : executable.functions()) {
      if (!info.strategy.empty()) lines.push_back(StrCat("strategy ", info.strategy));
      std::string_view rest = info.strategy.empty() ? info.why_not : info.candidates;
      while (!rest.empty()) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, end);
        if (line.find("refused: ") != std::string_view::npos) lines.push_back(Refusal(line));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    for (const auto& [op, count] : executable.interpreted()) {
      lines.push_back(StrCat("interpreted ", op));
    }
  }

  /// "conv: extents N and N may differ": with numbers and symbols left out.
  static std::string Refusal(std::string_view line) {
    const size_t at = line.find("refused: ");
    std::string text = StrCat("refused ", line.substr(0, line.find(' ')), ": ");
    for (const char c : FirstLine(std::string(line.substr(at + 9)))) {
      const bool digit = c >= '0' && c <= '9';
      if (digit && text.ends_with('N')) continue;
      text += digit ? 'N' : c;
    }
    return text.substr(0, 100);
  }

  const Case& case_;
  const DifferentialOptions& options_;
  std::vector<Expectation> expected_;
  int level_ = 2;
  std::string place_;
  TrialResult result_;
};

}  // namespace

TrialResult RunDifferentialTrial(const Case& trial, uint64_t seed,
                                 const DifferentialOptions& options) {
  TrialResult result = Trial(trial, seed, options).Run();
  if (!options.coverage) return result;
  for (OpWalker walk(trial.program.block()); const Operation* op = walk.Next();) {
    result.coverage.push_back(StrCat("op ", op->name()));
  }
  for (const std::string& kind : trial.kinds) {
    result.coverage.push_back(StrCat("graph ", kind));
  }
  return result;
}

}  // namespace lathe::testing
