#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/driver/model_file.h"
#include "lathe/driver/node_list.h"
#include "lathe/driver/peak_memory.h"
#include "lathe/driver/plan_summary.h"
#include "lathe/driver/summary.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/printable.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/statistics_text.h"
#include "tools/lathe/structure.h"

namespace lathe::command {
namespace {

using Json = nlohmann::ordered_json;

struct InspectArguments {
  ModelOptions model;
  bool nodes = false;
  bool parameters = false;
  bool memory = false;
  bool json = false;
};

int InspectExecutable(const InspectArguments& o) {
  if (o.nodes || o.parameters) {
    throw UsageError("--nodes and --parameters are for models; an executable has steps");
  }
  IrContext context;
  const auto plan = runtime::LoadPlan(o.model.path);
  const PlanSummary summary = Summarize(*plan, GivenSizes(o.model, InputsOf(*plan, context)));
  const PeakMemory peak = o.memory ? PeakOf(*plan, summary.symbols) : PeakMemory();
  if (o.json) {
    Json json = Json::parse(SummaryToJson(summary));
    if (o.memory) json["memory"]["peak"] = PeakToJson(peak);
    Out(JsonText(json, 2) + "\n");
  } else {
    Out(RenderSummary(summary) + (o.memory ? RenderPeak(peak) : ""));
  }
  return kFine;
}

std::string DomainName(const std::string& domain) { return domain.empty() ? "ai.onnx" : domain; }

// "onnx  ir version 8, ai.onnx 17, com.acme 1"
std::string OnnxText(const OnnxModelInfo& info) {
  std::string text = StrCat("onnx\n  ir version ", info.ir_version);
  for (const auto& [domain, version] : info.opsets) {
    text += StrCat(", ", PrintableLine(DomainName(domain)), " ", version);
  }
  return StrCat(text, "; ", info.num_nodes, " nodes", info.producer.empty() ? "" : " by ",
                PrintableLine(info.producer), "\n");
}

Json OnnxJson(const OnnxModelInfo& info) {
  Json json = {{"ir_version", info.ir_version}, {"opsets", Json::object()}};
  for (const auto& [domain, version] : info.opsets) json["opsets"][DomainName(domain)] = version;
  json["producer"] = info.producer;
  json["num_nodes"] = info.num_nodes;
  json["operators"] = info.operators;
  json["external_files"] = info.external_files;
  return json;
}

Json NodeJson(const NodeSummary& node) {
  Json json = {
      {"op", node.op}, {"name", node.name}, {"depth", node.depth}, {"inputs", node.inputs}};
  json["outputs"] = Json::array();
  for (const SummaryPort& output : node.outputs) {
    json["outputs"].push_back({{"name", output.name}, {"type", output.type}});
  }
  return json;
}

void ShowParameters(const Program& program, bool as_json, Json& json) {
  if (as_json) json["parameter_list"] = Json::array();
  if (!as_json) Out(StrCat("parameters  ", program.parameters().size(), "\n"));
  for (const auto& [name, variable] : program.parameters()) {
    const Tensor& data = variable.data;
    const auto statistics = StatisticsOf(data);
    if (as_json) {
      Json entry = {
          {"name", name.value()}, {"type", data.TypeString()}, {"bytes", data.byte_size()}};
      if (statistics) AddStatistics(entry, *statistics);
      json["parameter_list"].push_back(std::move(entry));
    } else {
      Out(StrCat("  ", PrintableLine(name.value()), " ", data.TypeString(), "   ",
                 statistics ? StatisticsText(*statistics) : "", "\n"));
    }
  }
}

int InspectModel(const InspectArguments& o) {
  if (o.memory) {
    throw UsageError("--memory is for executables", "lathe compile MODEL -o FILE.lx makes one");
  }
  IrContext context;
  const Program program = LoadStructure(o.model, context);
  const ModelSummary summary = Summarize(program);
  Json json;
  if (o.json) {
    json = Json::parse(SummaryToJson(summary));
  } else {
    Out(RenderSummary(summary));
  }
  if (DetectModelFormat(o.model.path) == ModelFormat::kOnnx) {
    const OnnxModelInfo info = ReadOnnxModelInfo(o.model.path);
    if (o.json) json["onnx"] = OnnxJson(info);
    if (!o.json) Out(OnnxText(info));
  }
  if (o.nodes && o.json) {
    json["nodes"] = Json::array();
    for (const NodeSummary& node : NodesOf(program)) json["nodes"].push_back(NodeJson(node));
  } else if (o.nodes) {
    Out(RenderNodes(NodesOf(program)));
  }
  if (o.parameters) ShowParameters(program, o.json, json);
  if (o.json) Out(JsonText(json, 2) + "\n");
  return kFine;
}

}  // namespace

Run AddInspect(CLI::App& app) {
  auto o = std::make_shared<InspectArguments>();
  o->model.AddTo(app, "a model (.onnx, .lathe) or an executable (.lx, .json)");
  app.add_flag("--nodes", o->nodes, "list the operations, with the names of their values");
  app.add_flag("--parameters", o->parameters,
               "list the parameters, and what their numbers are like");
  app.add_flag("--memory", o->memory,
               "list what takes the memory of a run where it takes most; of executables");
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] {
    const bool executable = DetectModelFormat(o->model.path) == ModelFormat::kExecutable;
    return executable ? InspectExecutable(*o) : InspectModel(*o);
  };
}

}  // namespace lathe::command
