#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/target.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/program.h"
#include "lathe/lower/lower_function.h"
#include "lathe/lower/precision.h"
#include "lathe/runtime/executor.h"

namespace lathe {

class CompileEngine;

/// What the pass `recompute` is told, behind all others: the part of the peak that it estimates
/// which may be used, and the sizes of symbols that this is of.
struct RecomputeOptions {
  double keep = 1;
  std::vector<Dim::Binding> sizes = {};
};

struct CompileOptions {
  std::string target = {};  ///< name of a codegen::Target; empty: the best of this machine
  /// Folder where machine code is kept for the next time; empty: nowhere. A missing one is made,
  /// for its owner alone; one that others may write is not used (DiskCache::WhyRefused says so).
  std::string cache = {};
  uint64_t cache_limit = uint64_t{1} << 30;  ///< bytes in it; the oldest go; 0: no limit
  /// Keeps kernels for other programs of this process (compile_engine.h); it has its own folder.
  /// None: one for this program alone, with `cache`.
  std::shared_ptr<CompileEngine> engine = {};
  /// Of the inference pipeline; from 1 on, operations are fused.
  int level = 2;
  /// What kernels may do to the arithmetic of f32.
  Precision precision = Precision::kF32;
  /// Passes to leave out, and to run at any level; graph_fuse_partition is fusion.
  std::vector<std::string> disabled = {}, enabled = {};
  /// What is computed twice so that less memory is needed. Nothing unless told.
  RecomputeOptions recompute = {};
  int threads = 0;  ///< for parallel loops; 0: one per processor
  /// For runs, shared with other executables; null: a team of its own, of `threads` threads.
  std::shared_ptr<runtime::WorkerTeam> team = {};
  decltype(runtime::ExecutorOptions::allocate) allocate = {};  ///< as there
  std::string records = {};  ///< file of `lathe tune`: what was fastest is taken; empty: none
  /// Name of an external compiler (lower/external.h), which gets all that it takes; empty: none.
  std::string external = {};
  /// False: what is lowered stays loops, run by the interpreter, for whatever target.
  bool machine_code = true;
  /// Each access of compiled code is checked against the sizes of the buffers of its function; one
  /// that is out of bounds is not made: run/out-of-bounds, a defect of ours. Slow; for tests.
  bool check_accesses = false;
  /// A function that had to be computed another way than its best strategy wanted, because of a
  /// defect or a budget of the compiler, is an error (lower/given-up) and no remark.
  bool strict = false;
  /// Of tensors alive at once, within compilation and within runs; 0: four fifths of the machine's
  /// memory, or of what control groups allow, within runs.
  uint64_t max_bytes = 0;
  /// Of what the interpreter runs (but for max_bytes and run_call).
  InterpreterOptions interpreter = {};
  double timeout_seconds = 0;           ///< of the compilation; 0: any time
  const CancelToken* cancel = nullptr;  ///< ends the compilation, from any thread
  /// Called after each function that was compiled, by one thread at a time, with how many are done
  /// and how many are known of; what it throws ends the compilation.
  std::function<void(size_t done, size_t total)> progress = {};
};

/// What lowering must know of a target. Loads the code generator when it is asked for instructions.
lower::Machine MachineOf(const codegen::Target& target);

/// The strategy of functions that only name memory: reshapes and the like.
inline constexpr const char* kMemoryStrategy = "memory";

/// A function of a compiled program: operations that were grouped, and what became of them.
struct CompiledFunctionInfo {
  std::string name;
  std::string operations;  ///< "matmul add gelu"
  size_t calls = 0;        ///< in the program
  std::string strategy;    ///< that made the loops; empty: its operators are evaluated
  std::string why_not;     ///< strategy by strategy, if it is not lowered
  std::string candidates;  ///< a line per strategy that was asked; empty: code of the cache
  std::vector<lower::Remark> remarks = {};  ///< on ways to compute it that were given up
  Dim flops;                ///< of a call, made of the program's symbols; unknown: not known
  Dim bytes;                ///< that a call reads and writes at least
  uint32_t kernel = ~0u;    ///< its PlanStep::kernel; none if it is not called
  uint32_t function = ~0u;  ///< instead, PlanStep::function
};

/// An input or an output of an executable.
struct Port {
  std::string name;
  ElementType element = ElementType::kUndefined;  ///< undefined: it is no tensor
  std::vector<Dim> dims;                          ///< unknown: any
};

/// What symbols are for these inputs: of each name the first dim that is it.
std::vector<Dim::Binding> BindSymbols(std::span<const Port> ports, const NamedValues& inputs);

struct LoadOptions {
  int threads = 0;  ///< for parallel loops; 0: one per processor
  /// Shared with other executables; null: a team of its own, of `threads` threads.
  std::shared_ptr<runtime::WorkerTeam> team = {};
  uint64_t max_bytes = 0;  ///< of tensors alive at once; 0: as CompileOptions::max_bytes
  /// Instead of those in the file, by name; errors: artifact/parameter.
  runtime::NamedTensors parameters = {};
};

/// A program ready to run: optimized, its operations grouped into functions, these lowered to loops
/// and to machine code where a strategy fits.
///
/// It has a plan, in which operations without machine code are evaluated, but for a few programs
/// (`obstacles`) that the interpreter goes through, which then calls the code. Any number of
/// threads may run it; without a plan, or with mutable parameters, they take turns. Outputs have
/// the same bits in every run that begins with the same parameters, whatever the number of threads.
/// All but the mutable parameters, those that the program sets, is immutable; the parameters are
/// the executable's own, not those of the program that it was made of.
class Executable {
 public:
  /// The program is copied; `owner`, if any, of its context lives as long. Errors: those of the
  /// passes, codegen/missing, codegen/target, codegen/host, limit/time, limit/memory,
  /// run/cancelled.
  explicit Executable(const Program& program, CompileOptions options = {},
                      std::shared_ptr<const void> owner = nullptr);
  ~Executable();
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;

  /// From a file that Save has written. Needs no compiler. Errors as runtime::LoadPlan.
  static Executable Load(const std::string& path, const LoadOptions& options = {});
  /// Writes one file that holds all there is: plan, code, weights, mutable ones as they are now; or
  /// three, if the path ends in
  /// .json: a graph, a library, parameters (lathe/runtime/artifacts.h). Errors: save/interpreted,
  /// if the interpreter runs a part; io/...
  void Save(const std::string& path) const;
  bool CanSave() const;

  /// In the order of the program.
  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;

  /// As Interpreter::Run. A profile needs a plan.
  NamedValues Run(const NamedValues& inputs, const runtime::RunOptions& options = {}) const;
  /// On tensors in the order of the program's inputs and outputs: writes into `outputs`, which have
  /// the types and shapes that the program gives. Allocates nothing once shapes were run before.
  /// Needs a plan (run/no-plan). Errors as runtime::Executor::Run.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs,
           const runtime::RunOptions& options = {}) const;

  /// Sorted names of the parameters that runs set.
  std::vector<std::string> MutableParameters() const;
  /// A parameter as it is between two runs, in bytes of its own: a mutable one, or one that the
  /// compiled program still has as it was. Errors: as runtime::Executor.
  Tensor GetParameter(std::string_view name) const;
  /// The next run begins with it. Errors: as runtime::Executor.
  void SetParameter(std::string_view name, const Tensor& value) const;

  /// Null without a plan.
  const runtime::Executor* executor() const;
  /// Why there is no plan, by operation; empty if there is one.
  const std::vector<std::string>& obstacles() const;
  const std::vector<CompiledFunctionInfo>& functions() const;
  /// Operations outside of functions, which the interpreter runs, by name.
  std::vector<std::pair<std::string, size_t>> interpreted_operations() const;
  /// All that the interpreter runs, and how often: the same, and the operations of functions that
  /// have no code, "unique" or "string_split add".
  std::vector<std::pair<std::string, size_t>> interpreted() const;
  /// The program as it runs; its parameters, if there is a plan, lie in that alone. Not of one that
  /// was loaded.
  const Program& program() const;

 private:
  struct Impl;
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe
