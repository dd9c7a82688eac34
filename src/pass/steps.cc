#include "src/pass/steps.h"

#include <algorithm>

#include "lathe/support/text.h"

namespace lathe {

namespace {

std::unique_ptr<Pass> MakePass(const PipelineItem& item) {
  std::unique_ptr<Pass> pass = PassRegistry::Global().Make(item.name);
  for (const auto& [name, value] : item.options) pass->SetOption(name, value);
  return pass;
}

/// Makes the steps of pipelines; named ones as far as the level and the names switched on reach.
class StepMaker {
 public:
  explicit StepMaker(const PassManagerOptions& options) : options_(options) {
    for (const std::string& name : options.enabled) {
      if (name != kFastMath) (void)PassRegistry::Global().Find(name);
    }
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
        steps.push_back({nullptr, item.name, Make(item.nested, depth + 1), true});
        continue;
      }
      const auto named = NamedPipelines();
      const auto at = std::find_if(named.begin(), named.end(),
                                   [&](const auto& p) { return p.name == item.name; });
      if (at == named.end()) {
        steps.push_back({MakePass(item), {}, {}, true});
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
                  StrCat("the optimization level is 0, 1, 2 or 3, not ", level));
    }
    return level;
  }

  std::vector<PipelineItem> ItemsOf(const NamedPipeline& pipeline, int64_t level) const {
    std::vector<PipelineItem> items;
    const auto is_on = [&](const std::string& name) {
      const auto& on = options_.enabled;
      return std::find(on.begin(), on.end(), name) != on.end();
    };
    const bool fast_math = is_on(kFastMath);
    for (const PipelineStep& step : pipeline.steps) {
      const bool reached = step.level <= level || (fast_math && step.level == kByFastMath);
      for (PipelineItem& item : ParsePipeline(step.passes)) {
        if (!reached && !is_on(item.name)) continue;
        if (fast_math) {
          std::erase_if(item.options, [](const auto& option) { return option.first == "exact"; });
        }
        items.push_back(std::move(item));
      }
    }
    return items;
  }

  const PassManagerOptions& options_;
};

void Enable(std::vector<Step>& steps, const PassManagerOptions& options, int64_t& count) {
  const auto& off = options.disabled;
  for (Step& step : steps) {
    if (step.pass == nullptr) {
      Enable(step.nested, options, count);
      continue;
    }
    step.enabled = std::find(off.begin(), off.end(), step.pass->name()) == off.end() &&
                   (options.stop_after < 0 || count < options.stop_after);
    count += step.enabled ? 1 : 0;
  }
}

void AddEmptyTimings(const std::vector<Step>& steps, int depth, std::vector<PassTiming>& rows) {
  for (const Step& step : steps) {
    if (step.pass == nullptr) {
      AddEmptyTimings(step.nested, depth + 1, rows);
    } else if (step.enabled) {
      rows.push_back({step.pass->name(), 0, 0, 0, false, depth});
    }
  }
}

bool Has(const std::vector<Step>& steps, std::string_view pass) {
  return std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
    return step.pass != nullptr ? step.pass->name() == pass : Has(step.nested, pass);
  });
}

/// Each pass that is switched on must be in reach: in a named pipeline, or listed.
void CheckEnabled(const std::vector<Step>& steps, std::string_view pipeline,
                  const PassManagerOptions& options) {
  for (const std::string& name : options.enabled) {
    if (name == kFastMath || Has(steps, name)) continue;
    throw Error(ErrorCode::kInvalidArgument, "pass/not-in-pipeline",
                StrCat("pass '", name, "' is enabled, but not in the pipeline '", pipeline, "'"))
        .Hint("passes of named pipelines can be enabled; list others in the pipeline");
  }
}

}  // namespace

std::vector<Step> MakeSteps(std::string_view pipeline, const PassManagerOptions& options) {
  std::vector<Step> steps = StepMaker(options).Make(ParsePipeline(pipeline));
  CheckEnabled(steps, pipeline, options);
  return steps;
}

std::string StepsToText(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& s : steps) {
    if (!text.empty()) text += ',';
    text += s.pass != nullptr ? s.pass->ToText() : StrCat(s.op, "(", StepsToText(s.nested), ")");
  }
  return text;
}

void EnableSteps(std::vector<Step>& steps, const PassManagerOptions& options) {
  int64_t count = 0;
  Enable(steps, options, count);
}

std::vector<Step> CloneSteps(const std::vector<Step>& steps) {
  std::vector<Step> copies;
  for (const Step& step : steps) {
    std::unique_ptr<Pass> pass;
    if (step.pass != nullptr) pass = PassRegistry::Global().Clone(*step.pass);
    copies.push_back({std::move(pass), step.op, CloneSteps(step.nested), step.enabled});
  }
  return copies;
}

void AbsorbStatistics(const std::vector<Step>& steps, const std::vector<Step>& parts) {
  for (size_t i = 0; i < steps.size(); ++i) {
    AbsorbStatistics(steps[i].nested, parts[i].nested);
    if (steps[i].pass == nullptr) continue;
    for (const auto& [name, count] : parts[i].pass->statistics()) {
      steps[i].pass->Count(name, count);
    }
  }
}

std::vector<PassTiming> EmptyTimings(const std::vector<Step>& steps, int depth) {
  std::vector<PassTiming> rows;
  AddEmptyTimings(steps, depth, rows);
  return rows;
}

}  // namespace lathe
