#pragma once

#include <string>
#include <vector>

#include "lathe/driver/summary.h"

namespace lathe {

/// An operation of a program, as a list of nodes shows it.
struct NodeSummary {
  std::string op;                    ///< "nn.conv"
  std::string name;                  ///< of the node in the file; empty if it has none
  std::vector<std::string> inputs;   ///< names as ValueNames gives them; "none" for absent ones
  std::vector<SummaryPort> outputs;  ///< the same, and types
  int depth = 0;                     ///< how many branches and loops it is in
};

/// In program order, those in regions behind the operation that has them; without inputs, outputs
/// and reads of parameters.
std::vector<NodeSummary> NodesOf(const Program& program);

/// A line for each: "conv1  nn.conv(image, conv1.weight) -> y v_tensor<...>".
std::string RenderNodes(const std::vector<NodeSummary>& nodes);

}  // namespace lathe
