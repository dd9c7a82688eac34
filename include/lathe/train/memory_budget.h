#pragma once

#include <cstdint>
#include <span>

#include "lathe/driver/executable.h"
#include "lathe/ir/program.h"

namespace lathe::train {

/// What a training step takes within a budget of memory, and what that costs. Bytes are those of
/// the plan: parameters, states of the optimizer, and what is alive at the worst moment of a step;
/// inputs, outputs and code come on top.
struct MemoryTrade {
  uint64_t budget = 0;
  uint64_t held = 0;      ///< of that parameters and states, whatever is done
  uint64_t before = 0;    ///< the peak if everything is kept
  uint64_t after = 0;     ///< the peak with values that are computed twice
  double added_work = 0;  ///< arithmetic that is added, as a part of that of a step
  bool has_changes() const { return after < before; }
};

/// Has `options` compute as little twice as lets a step of these sizes fit into the budget, by the
/// pass `recompute`. Compiles the step, several times if it does not fit as it is; kernels are kept
/// in the engine of `options`, which is made if there is none. Errors: train/memory if there is no
/// way, with the least peak that there is, or if a size is not known; those of compilation.
MemoryTrade FitMemory(const Program& step, std::span<const Dim::Binding> sizes, uint64_t budget,
                      CompileOptions& options);

}  // namespace lathe::train
