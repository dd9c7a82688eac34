#include "lathe/driver/summary.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lathe/dialect/arithmetic.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/walk.h"
#include "lathe/support/printable.h"
#include "lathe/support/text.h"
#include "src/driver/port_list.h"

namespace lathe {

namespace {

void SummarizePorts(const Program& program, ModelSummary& s) {
  for (const Operation* feed : program.feeds()) {
    const Type type = feed->result(0).type();
    s.inputs.push_back({PortName(feed), type.ToString()});
    if (const auto tensor = type.dyn_cast<AnyTensorType>()) {
      for (const Dim& d : tensor.dims()) d.CollectSymbols(s.symbols);
    }
  }
  for (const Operation* fetch : program.fetches()) {
    s.outputs.push_back({PortName(fetch), fetch->operand(0).type().ToString()});
  }
}

void SummarizeOps(const Program& program, std::span<const Dim::Binding> symbols, ModelSummary& s) {
  std::map<std::string_view, ModelSummary::OpCount> counts;
  for (OpWalker w(program.module()); Operation* op = w.Next();) {
    if (op == program.module()) continue;
    ModelSummary::OpCount& count = counts[op->name()];
    ++count.count;
    ++s.num_ops;
    if (const auto flops = ArithmeticOf(op).Evaluate(symbols)) {
      count.flops += static_cast<double>(*flops);
      s.flops += static_cast<double>(*flops);
    } else {
      ++s.ops_without_flops;
    }
  }
  for (auto& [name, count] : counts) {
    count.op = name;
    s.ops.push_back(std::move(count));
  }
  std::stable_sort(s.ops.begin(), s.ops.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
}

void SummarizeParameters(const Program& program, ModelSummary& s) {
  std::map<std::string, int64_t> by_type;
  for (const ParameterMap::Entry& e : program.parameters()) {
    const Tensor& data = e.variable.data;
    ++s.num_parameters;
    s.num_parameter_elements += data.num_elements();
    s.parameter_bytes += static_cast<int64_t>(data.byte_size());
    by_type[std::string(Name(data.element_type()))] += static_cast<int64_t>(data.byte_size());
  }
  s.parameter_types.assign(by_type.begin(), by_type.end());
}

std::string HumanCount(double n) {
  static constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  for (; n >= 1000 && unit + 1 < std::size(kUnits); ++unit) n /= 1000;
  char text[32];
  snprintf(text, sizeof(text), unit == 0 ? "%.0f%s" : "%.2f%s", n, kUnits[unit]);
  return text;
}

}  // namespace

ModelSummary Summarize(const Program& program, std::span<const Dim::Binding> symbols) {
  ModelSummary s;
  SummarizePorts(program, s);
  SummarizeOps(program, symbols, s);
  SummarizeParameters(program, s);
  s.metadata = MetadataOf(program);
  return s;
}

std::string RenderSummary(const ModelSummary& s) {
  std::string out;
  AppendPorts(out, "inputs", s.inputs);
  AppendPorts(out, "outputs", s.outputs);
  AppendMetadata(out, s.metadata);
  out += StrCat("parameters\n  ", s.num_parameters, " tensors, ",
                HumanCount(static_cast<double>(s.num_parameter_elements)), " numbers, ",
                HumanBytes(static_cast<uint64_t>(s.parameter_bytes)));
  for (const auto& [type, bytes] : s.parameter_types) {
    out += StrCat("; ", type, " ", HumanBytes(static_cast<uint64_t>(bytes)));
  }
  out += StrCat("\nwork\n  ", HumanCount(s.flops), "FLOP a run");
  if (s.ops_without_flops != 0) {
    out += StrCat(", without ", s.ops_without_flops, " ops whose shapes are not all known");
  }
  out += StrCat("\nops  ", s.num_ops, "\n");
  for (const auto& op : s.ops) {
    const std::string count = StrCat(op.count);
    out += StrCat(std::string(count.size() < 6 ? 6 - count.size() : 0, ' '), count, "  ",
                  PrintableLine(op.op));
    if (op.flops > 0) {
      out += StrCat(std::string(op.op.size() < 30 ? 30 - op.op.size() : 1, ' '),
                    HumanCount(op.flops), "FLOP");
    }
    out += '\n';
  }
  return out;
}

std::string SummaryToJson(const ModelSummary& s) {
  nlohmann::ordered_json json;
  json["inputs"] = PortsToJson(s.inputs);
  json["outputs"] = PortsToJson(s.outputs);
  json["symbols"] = s.symbols;
  json["metadata"] = MetadataToJson(s.metadata);
  json["num_ops"] = s.num_ops;
  json["ops"] = nlohmann::ordered_json::array();
  for (const auto& op : s.ops) {
    json["ops"].push_back({{"op", op.op}, {"count", op.count}, {"flops", op.flops}});
  }
  json["parameters"] = {{"tensors", s.num_parameters},
                        {"elements", s.num_parameter_elements},
                        {"bytes", s.parameter_bytes}};
  for (const auto& [type, bytes] : s.parameter_types)
    json["parameters"]["bytes_by_type"][type] = bytes;
  json["flops"] = s.flops;
  json["ops_without_flops"] = s.ops_without_flops;
  return JsonText(json, 2) + "\n";
}

}  // namespace lathe
