#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/runtime/plan.h"
#include "src/driver/data_function.h"
#include "src/driver/pack_arguments.h"

namespace lathe {

class ObjectValues;

/// What becomes of the calls of a function.
struct PlannedFunction {
  std::string label;                   ///< for people: "conv relu"
  Dim flops, bytes;                    ///< as PlanStep
  std::string why_not_evaluated = {};  ///< WhyNotEvaluated
  const Operation* function = nullptr;
  std::optional<DataFunction> data;  ///< it only names memory; or it has a kernel:
  uint32_t kernel = runtime::kNone;  ///< index in PlanCode::entries; none: it is evaluated
  std::vector<lower::PackedLayout>
      packed;                   ///< operands that the kernel takes in an order of its own
  std::vector<Dim> workspaces;  ///< bytes of scratch memory that the kernel wants
  bool checks = false;          ///< the last of them is a KernelStatus
  bool may_fail = false;        ///< on what it reads, with a status or without
  bool is_collective = false;   ///< other ranks wait for each call
  /// Operands and results that may be the same memory.
  std::vector<std::pair<size_t, size_t>> in_place;
};
using PlannedFunctions = std::unordered_map<std::string_view, PlannedFunction>;  // by name

/// Something that a plan cannot hold.
struct PlanObstacle {
  const Operation* op;
  std::string why;
};

/// Why the program cannot run without the interpreter, in program order; empty if it can. What no
/// output depends on is no obstacle.
std::vector<PlanObstacle> FindObstacles(const Program& program, const PlannedFunctions& functions,
                                        const ObjectValues& objects);

/// The plan of a program without obstacles, but for its code. Views lie in what they show, operands
/// of concatenations along the outermost axis in the result, outputs in the caller's memory. A
/// tensor that two of them want goes to the first; the other one gets a copy. A result takes the
/// bytes of an operand that nothing reads afterwards, if its function allows that. `packed`: what
/// calls pass to kernels that take constants in an order of their own. `conditional`: what the
/// regions rely on, by kConditionsAttr.
///
/// A region is a stretch of steps that a branch leads into or around, or that is run again. What it
/// yields goes to the storages of the results; what a loop carries stays in these.
///
/// Reading a mutable parameter gives its variable or, after the program has set it, what it was set
/// to. The last of these goes to the variable at the end or, where the old value need not outlive
/// that step and no later step can fail, is computed there: an update in place.
///
/// `functions` of the plan have no text: `evaluated` gets what each of them is.
runtime::Plan BuildPlan(const Program& program, const PlannedFunctions& functions,
                        const ObjectValues& objects, const PackedConstants& packed,
                        std::span<const runtime::PlanConstraint> conditional,
                        std::vector<const Operation*>& evaluated);

/// What the storages of a plan take and the least that they could: the most that is alive at one
/// step.
struct PlanMemory {
  size_t peak = 0;
  size_t lower_bound = 0;
};
PlanMemory MemoryOf(const runtime::Plan& plan, std::span<const Dim::Binding> symbols = {});

}  // namespace lathe
