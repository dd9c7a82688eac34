#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/support/rt_value.h"

namespace lathe::testing {

/// Evaluates operations one by one, those of regions too, with a hook for each: to see the values
/// of a graph that still grows, or to move them a little. Within regions it calls itself, which is
/// enough for graphs that are grown.
class Evaluator {
 public:
  /// Evaluates an op without regions.
  using One = std::function<std::vector<RtValue>(Operation*, const std::vector<RtValue>&)>;

  /// Rounds of regions above `most_rounds` are an error (limit/steps).
  Evaluator(const ParameterMap& parameters, One one, int most_rounds);

  /// Of what has run, and of what the caller puts here.
  std::unordered_map<Value, RtValue> values;

  void Run(Operation* op);

 private:
  class Context;
  std::vector<RtValue> RunRegion(Region& region, std::span<const RtValue> arguments);

  const ParameterMap& parameters_;
  One one_;
  int rounds_left_;
};

/// Erases what nobody reads, within regions too.
void EraseUnusedOps(Program& program);

}  // namespace lathe::testing
