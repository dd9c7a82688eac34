#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/codegen/target.h"
#include "lathe/driver/compile_engine.h"
#include "lathe/ir/operation.h"
#include "lathe/lower/lower_function.h"

namespace lathe {

inline constexpr const char* kKernelEntry = "kernel";  ///< of the image of one function

/// A copy of the body of a function, which lowering replaces.
class SavedBody {
 public:
  explicit SavedBody(Operation* function);
  /// Gives the function its operations back; once.
  void Restore();

 private:
  Operation* function_;
  OwningOp copy_;
};

/// Lowers a function, and generates its code. Where the code generator fails on the loops of a
/// strategy, the next strategy is taken; where lowering itself fails, none: the function keeps its
/// operations. Either leaves a remark, or with `options.strict` is an error.
class FunctionCompiler {
 public:
  FunctionCompiler(Operation* function, const lower::Machine& machine,
                   const std::vector<bool>& constant, lower::LowerOptions options)
      : function_(function), machine_(machine), constant_(constant), options_(std::move(options)) {}

  /// Loops in place of the operations.
  lower::Lowered ToLoops();
  /// Loops and their code, and what became of the function in either case.
  std::optional<CompileEngine::Made> ToCode(const codegen::Target& target, bool check_accesses,
                                            lower::Lowered& how);

 private:
  lower::Lowered Lower();

  Operation* function_;
  const lower::Machine& machine_;
  const std::vector<bool>& constant_;
  lower::LowerOptions options_;
  std::vector<lower::Remark> remarks_;  // on what was given up so far
};

}  // namespace lathe
