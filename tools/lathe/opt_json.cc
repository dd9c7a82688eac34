#include "tools/lathe/opt_json.h"

#include <nlohmann/json.hpp>

namespace lathe::command {
namespace {

using Json = nlohmann::ordered_json;

Json TimingsJson(const PassManager& manager) {
  Json list = Json::array();
  for (const PassTiming& t : manager.timings()) {
    list.push_back({{"name", t.name},
                    {"depth", t.depth},
                    {"seconds", t.seconds},
                    {"changed", t.changed},
                    {"operations_before", t.ops_before},
                    {"operations_after", t.ops_after}});
  }
  return list;
}

Json StatisticsJson(const PassManager& manager) {
  Json list = Json::array();
  for (const Pass* pass : manager.passes()) {
    for (const auto& [what, count] : pass->statistics()) {
      if (count != 0) list.push_back({{"pass", pass->name()}, {"what", what}, {"count", count}});
    }
  }
  return list;
}

Json ChangesJson(const OpCountInstrumentation& counts) {
  Json list = Json::array();
  for (const OpCountChange& change : counts.changes()) {
    if (!change.delta.empty()) list.push_back({{"pass", change.pass}, {"ops", change.delta}});
  }
  return list;
}

Json RemarksJson(const PassManager& manager) {
  static constexpr const char* kKinds[] = {"applied", "missed", "note"};
  Json list = Json::array();
  for (const Remark& r : manager.remarks()) {
    list.push_back({{"kind", kKinds[static_cast<size_t>(r.kind)]},
                    {"pass", r.pass},
                    {"where", r.where},
                    {"message", r.message}});
  }
  return list;
}

Json PassJson(const PassInfo& pass) {
  static constexpr const char* kKinds[] = {"bool", "integer", "number", "text", "list"};
  Json options = Json::array();
  for (const PassOption& o : pass.options) {
    options.push_back({{"name", o.name},
                       {"kind", kKinds[static_cast<size_t>(o.kind)]},
                       {"default", o.default_text},
                       {"doc", o.doc}});
  }
  return {{"name", pass.name}, {"doc", pass.doc}, {"options", std::move(options)}};
}

Json PipelineJson(const NamedPipeline& pipeline) {
  Json steps = Json::array();
  for (const PipelineStep& step : pipeline.steps) {
    steps.push_back({{"level", step.level}, {"passes", step.passes}, {"why", step.why}});
  }
  return {{"name", pipeline.name}, {"doc", pipeline.doc}, {"steps", std::move(steps)}};
}

}  // namespace

Json RunJson(const PassManager& manager, const OpCountInstrumentation& counts) {
  return {{"passes", TimingsJson(manager)},
          {"statistics", StatisticsJson(manager)},
          {"changes", ChangesJson(counts)},
          {"remarks", RemarksJson(manager)}};
}

Json PassListJson() {
  Json passes = Json::array(), pipelines = Json::array();
  for (const PassInfo* pass : PassRegistry::Global().All()) passes.push_back(PassJson(*pass));
  for (const NamedPipeline& p : NamedPipelines()) pipelines.push_back(PipelineJson(p));
  return {{"passes", std::move(passes)}, {"pipelines", std::move(pipelines)}};
}

}  // namespace lathe::command
