#pragma once

#include <span>
#include <string>
#include <vector>

#include "lathe/runtime/executor.h"
#include "src/runtime/placement.h"

namespace lathe::runtime {

/// The type of an input in the words of the program: "v_tensor<[N, 3], f32>".
std::string TypeOf(const PlanValue& value);

/// The named values in the order of the plan; views of them. Throws run/input-name,
/// run/input-twice, run/input-missing, run/input-type of one that is not a tensor.
std::vector<InputView> ViewsInOrder(const Plan& plan, const NamedValues& inputs);

/// Checks element types, ranks, fixed dims and dims of one symbol, and reads the symbols' values.
/// Throws run/input-count, run/input-type, run/input-shape.
void BindSymbols(const Plan& plan, std::span<const InputView> inputs, std::span<int64_t> symbols);

/// What remains to be checked once shapes are known: dims that are expressions, and the memory.
/// Throws run/input-shape, run/input-data.
void CheckPlaced(const Placements& placements, const Placement& placement,
                 std::span<const InputView> inputs);
void CheckInputMemory(const Plan& plan, const Placement& placement,
                      std::span<const InputView> inputs);
/// Throws run/output-count.
void CheckOutputCount(const Plan& plan, std::span<const OutputView> outputs);
/// Looks at the memory for output `i`. Throws run/output-data.
void CheckOutput(const Plan& plan, const Placement& placement, std::span<const InputView> inputs,
                 std::span<const OutputView> outputs, size_t i);

}  // namespace lathe::runtime
