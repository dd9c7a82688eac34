#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lathe/codegen/target.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/program.h"
#include "lathe/lower/lower_function.h"

namespace lathe {

struct CompileOptions {
  std::string target;        ///< name of a codegen::Target; empty: the best of this machine
  int level = 2;             ///< of the inference pipeline
  int threads = 0;           ///< for parallel loops; 0: one per processor
  bool machine_code = true;  ///< false: what is lowered stays loops, run by the interpreter
};

/// What lowering must know of a target. Loads the code generator when it is asked for instructions.
lower::Machine MachineOf(const codegen::Target& target);

/// A function of a compiled program: operations that were grouped, and what became of them.
struct CompiledFunctionInfo {
  std::string name;
  std::string operations;  ///< "matmul add gelu"
  size_t calls = 0;        ///< in the program
  std::string strategy;    ///< that made the loops; empty: the interpreter runs it
  std::string why_not;     ///< strategy by strategy, if it is not lowered
};

/// A program ready to run: optimised, its operations grouped into functions, these lowered to loops
/// and to machine code where a strategy fits, the others left to the interpreter, which also calls
/// everything. One run at a time.
class Executable {
 public:
  /// The program is copied. Errors: those of the passes, codegen/missing, codegen/target.
  explicit Executable(const Program& program, CompileOptions options = {});
  ~Executable();
  Executable(Executable&&) noexcept;

  /// As Interpreter::Run.
  NamedValues Run(const NamedValues& inputs);

  const std::vector<CompiledFunctionInfo>& functions() const;
  /// Operations outside of functions, which the interpreter runs, by name.
  std::vector<std::pair<std::string, size_t>> interpreted_operations() const;
  /// The program as it runs.
  const Program& program() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe
