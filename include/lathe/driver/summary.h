#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lathe/ir/metadata.h"
#include "lathe/ir/program.h"

namespace lathe {

/// An input or an output.
struct SummaryPort {
  std::string name;
  std::string type;
};

/// What `lathe inspect` shows of a program.
struct ModelSummary {
  struct OpCount {
    std::string op;
    int64_t count = 0;
    double flops = 0;  ///< of those whose shapes are known; one multiply-add counts as two
  };
  std::vector<SummaryPort> inputs;
  std::vector<SummaryPort> outputs;
  std::vector<OpCount> ops;  ///< most frequent first, nested ones included
  int64_t num_ops = 0;
  int64_t num_parameters = 0;          ///< variables
  int64_t num_parameter_elements = 0;  ///< numbers in them
  int64_t parameter_bytes = 0;
  std::vector<std::pair<std::string, int64_t>> parameter_types;  ///< bytes by element type
  double flops = 0;
  int64_t ops_without_flops = 0;     ///< ops that count FLOPs but whose shapes are not all known
  std::vector<std::string> symbols;  ///< symbolic dims of the inputs
  Metadata metadata;
};

/// Work is counted for these extents of symbols.
ModelSummary Summarize(const Program& program, std::span<const Dim::Binding> symbols = {});
std::string RenderSummary(const ModelSummary& summary);
std::string SummaryToJson(const ModelSummary& summary);

}  // namespace lathe
