#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lathe/runtime/executor.h"
#include "src/driver/compiled_program.h"

namespace lathe {

/// A compiled program with its plan, if it has one.
struct PlannedProgram {
  std::shared_ptr<runtime::Plan> plan;  ///< null if there are obstacles
  std::vector<std::string> obstacles;   ///< by operation
  std::vector<std::string> external;    ///< functions of other compilers: their operations
  std::vector<std::string> foreign;     ///< operations of plug-ins that are evaluated
  /// Of the plan, if some come from another compiler.
  std::vector<runtime::Executor::Kernel> kernels;
  std::vector<const Operation*> functions;  ///< of the plan, by PlanStep::function

  /// Ready to run, on `compiled`, which must live as long if the plan has functions.
  runtime::Executor MakeExecutor(runtime::ExecutorOptions options) &&;
  /// Plan and code are all there is to the program.
  bool saves() const { return obstacles.empty() && external.empty() && foreign.empty(); }
  /// Throws save/interpreted, save/external or save/plug-in unless it saves.
  void CheckSaves(const std::string& path) const;
};

/// Makes the plan. If there is one, the tensors of parameters and the code move there.
PlannedProgram PlanProgram(CompiledProgram& compiled);

}  // namespace lathe
