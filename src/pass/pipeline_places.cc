#include "lathe/pass/pipeline_places.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "lathe/support/text.h"

namespace lathe {
namespace {

struct Joined {
  std::mutex mutex;
  std::vector<std::pair<const PassInfo*, PipelinePlace>> places;
};
// Never freed, as the registry of passes.
Joined& TheJoined() {
  static auto* joined = new Joined;
  return *joined;
}

Error Misplaced(const PassInfo& pass, const std::string& missing) {
  return {ErrorCode::kNotFound, "pass/place",
          StrCat("pass '", pass.name, "' joins an unknown ", missing)};
}

NamedPipeline& Find(const PassInfo& pass, const PipelinePlace& place,
                    std::vector<NamedPipeline>& pipelines) {
  std::vector<std::string> names;
  for (NamedPipeline& p : pipelines) {
    if (p.name == place.pipeline) return p;
    names.emplace_back(p.name);
  }
  Error error = Misplaced(pass, StrCat("pipeline '", place.pipeline, "'"));
  if (const std::string hint = DidYouMean(place.pipeline, names); !hint.empty()) error.Hint(hint);
  throw std::move(error);
}

bool Runs(const PipelineStep& step, const std::string& pass) {
  const std::vector<PipelineItem> items = ParsePipeline(step.passes);
  return std::ranges::find(items, pass, &PipelineItem::name) != items.end();
}

void Insert(const PassInfo& pass, const PipelinePlace& place,
            std::vector<NamedPipeline>& pipelines) {
  std::vector<PipelineStep>& steps = Find(pass, place, pipelines).steps;
  auto at = steps.end();
  if (!place.before.empty()) {
    at = std::ranges::find_if(steps, [&](const auto& s) { return Runs(s, place.before); });
    if (at == steps.end()) {
      throw Misplaced(pass, StrCat("step '", place.before, "' in '", place.pipeline, "'"));
    }
  }
  steps.insert(at, {place.level, pass.name.c_str(), pass.doc.c_str()});
}

}  // namespace

void JoinPipeline(const std::string& pass, PipelinePlace place) {
  const PassInfo& info = PassRegistry::Global().Find(pass);
  std::vector<NamedPipeline> pipelines = NamedPipelines();
  Insert(info, place, pipelines);  // an error of this call rather than of a later compilation
  Joined& joined = TheJoined();
  const std::lock_guard lock(joined.mutex);
  const bool is_there = std::ranges::any_of(joined.places, [&](const auto& entry) {
    return entry.first == &info && entry.second.pipeline == place.pipeline &&
           entry.second.before == place.before;
  });
  if (!is_there) joined.places.emplace_back(&info, std::move(place));
}

std::vector<NamedPipeline> WithJoined(std::vector<NamedPipeline> pipelines) {
  Joined& joined = TheJoined();
  const std::lock_guard lock(joined.mutex);
  for (const auto& [pass, place] : joined.places) Insert(*pass, place, pipelines);
  return pipelines;
}

}  // namespace lathe
