#pragma once

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "lathe/codegen/code_generator.h"
#include "lathe/dialect/size_constraints.h"
#include "lathe/driver/compile_engine.h"
#include "lathe/driver/executable.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/budget.h"
#include "src/driver/pack_arguments.h"
#include "src/driver/plan_builder.h"

namespace lathe {

/// A function of a compiled program.
struct CompiledFunction {
  /// Its operations, on arguments as the program passes them: what the interpreter runs. Without
  /// machine code these may be loops.
  Operation* function = nullptr;
  std::optional<DataFunction> data;  ///< it computes nothing
  KernelFunction code = nullptr;
  std::function<void(const KernelBuffer*, KernelTeam*)> external;  ///< of an external compiler
  /// Symbols of `code` alone, and what they are in the program.
  std::vector<std::pair<std::string, Dim>> own_sizes;
  std::vector<AnyTensorType> arguments, results;    ///< as `code` takes and gives them
  std::vector<lower::PackedLayout> packed;          ///< constants that `code` takes in an order
  std::vector<Dim> workspaces;                      ///< bytes of scratch memory that `code` takes
  bool checks = false;                              ///< the last of them is a KernelStatus
  std::vector<std::pair<size_t, size_t>> in_place;  ///< as Lowered::in_place
  /// What held of sizes before its operations were decomposed or split from others: simpler ones
  /// may accept more, such as broadcasts.
  std::vector<SizeConstraint> required;

  /// Otherwise the interpreter runs it.
  bool has_code() const { return code != nullptr || external; }
  void Call(const KernelBuffer* buffers, KernelTeam* team) const {
    external ? external(buffers, team) : code(buffers, team);
  }
};

/// A program on its way to an executable: optimized, its operations grouped into functions, these
/// lowered to loops and to machine code where a strategy fits.
struct CompiledProgram {
  explicit CompiledProgram(Program p) : program(std::move(p)) {}

  Program program;
  const codegen::Target* target = nullptr;
  int threads = 0;                           ///< to compile with; 0: one per processor
  Precision precision = Precision::kStrict;  ///< of its kernels
  uint64_t seed = 0;                         ///< of random numbers
  /// Of the program as it was given, because passes drop operations that still have to be right.
  std::vector<runtime::PlanConstraint> constraints;
  /// Those of operations in regions as they are compiled, by kConditionsAttr of terminators.
  std::vector<runtime::PlanConstraint> conditional;
  std::vector<CompiledFunction> functions;
  std::vector<CompiledFunctionInfo> infos;                            ///< parallel to `functions`
  std::vector<std::shared_ptr<const CompileEngine::Kernel>> kernels;  ///< parallel; null: no code

  /// Of that name; null if there is none.
  const CompiledFunction* Find(std::string_view name) const;
  std::unordered_map<std::string_view, size_t> by_name;  ///< looked up, never iterated
};

/// Fills in `arguments` and `results`.
void ReadTypes(CompiledFunction& f);
/// The constants that code of these calls takes in orders of its own.
PackedConstants PackedFor(const CompiledProgram& compiled, std::span<Operation* const> calls);

const codegen::Target& TargetOf(const CompileOptions& options);
/// The options, if this machine can run code of their target (codegen/host).
const CompileOptions& CheckHost(const CompileOptions& options);

/// The inference pipeline as the options say; `instrumentation` may be null.
void OptimizeFor(const CompileOptions& options, Program& program,
                 std::shared_ptr<PassInstrumentation> instrumentation = nullptr);
/// The first steps: the inference pipeline, what goes to an external compiler, and operations into
/// functions.
void GroupOperations(Program& program, const CompileOptions& options);
/// The same of `compiled.program`, and what that relies on of sizes.
void GroupOperations(CompiledProgram& compiled, const CompileOptions& options);

/// What a compilation may take, its plan and packed weights included.
inline Limits LimitsOf(const CompileOptions& options) {
  return {.seconds = options.timeout_seconds, .bytes = options.max_bytes, .cancel = options.cancel};
}

/// Errors: those of the passes, codegen/missing, codegen/target.
std::unique_ptr<CompiledProgram> CompileProgram(const Program& source,
                                                const CompileOptions& options);

}  // namespace lathe
