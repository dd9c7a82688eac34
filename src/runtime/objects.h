#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lathe/runtime/executor.h"
#include "lathe/runtime/function.h"
#include "lathe/runtime/plan.h"
#include "src/runtime/placement.h"

namespace lathe::runtime {

/// What a run keeps beside bytes whose number is known, and what it needs to work on that. Errors
/// of an object that is something else than its value or its step says: run/object.
struct RunObjects {
  std::vector<RtValue> all;  ///< by PlanValue::index
  FunctionRun functions;
  std::vector<RtValue> read;             ///< by the function that is being called
  std::vector<FunctionArgument> values;  ///< of it

  const RtValue& of(const PlanValue& value) const { return all[value.index]; }
  RtValue& of(const PlanValue& value) { return all[value.index]; }

  /// For a run of the plan.
  void Begin(const Plan& plan, std::span<const InputView> inputs, FunctionRun run);
  void Clear();
  /// What the step takes, if it has not moved that.
  void Release(const Plan& plan, const PlanStep& step);

  /// `buffers` are those of the step's values, of which that of an object is not looked at.
  void Call(const Function& function, const Plan& plan, const PlanStep& step,
            const KernelBuffer* buffers);
  /// Appends what step of kind kPutRow reads to the list that it writes.
  void Append(const Plan& plan, const PlanStep& step, const KernelBuffer* buffers);
  /// The list becomes a tensor.
  void Stack(const Placements& placements, const PlanStep& step, const Placement& placement);
  /// A copy of which one side at least is an object.
  void Copy(const Placements& placements, const PlanStep& step, const KernelBuffer* buffers,
            const Placement& placement);
};

/// The one element of a tensor that a step reads as a condition, a count or a size.
const void* OneElement(const RtValue& object, const PlanValue& value, const PlanStep& step);

/// As kernels take it: a tensor of the value's type, whose dims are made of these symbols.
KernelBuffer BufferOf(const RtValue& object, const PlanValue& value, const SymbolTable& table,
                      std::span<const int64_t> symbols, const PlanStep& step);

/// Of the axis that a step of kind kBindAxis binds.
int64_t ExtentOf(const RtValue& object, const PlanStep& step);

/// An output that is an object, in memory that is asked for (OutputView). Throws run/output-object,
/// run/output-data.
void PutOutput(const Plan& plan, size_t output, const RtValue& value, const OutputMemory& memory);

}  // namespace lathe::runtime
