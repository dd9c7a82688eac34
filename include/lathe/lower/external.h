#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/functions.h"
#include "lathe/ir/program.h"
#include "lathe/support/kernel.h"

/// External compilers, which take parts of a program.
namespace lathe {

/// What a function of one operation of the dialect dist names as its compiler. It needs none: the
/// function is a call of the library (lathe/support/collectives.h) on the communicator of the
/// thread that runs it.
inline constexpr const char* kCollectives = "collectives";

/// What an external compiler makes of a function.
struct ExternalKernel {
  using Function = std::function<void(const KernelBuffer* buffers, KernelTeam* team)>;
  /// As a kernel: arguments, results, workspaces. Any number of threads may call it at once; the
  /// same arguments give the same bits, with any team or none.
  Function run;
  std::vector<int64_t> workspaces;  ///< bytes of scratch memory that a call takes
  std::string steps;                ///< for people, a line each
};

struct ExternalCompiler {
  std::string name;  ///< "onednn"
  /// Why it does not take this op (with its types and attributes); empty if it does. Asked only for
  /// ops with value semantics on immutable tensors.
  std::function<std::string(const Operation*)> refuse;
  /// Makes code of a `builtin.func`, which reads its weights by name from the program. What it
  /// needs of them it keeps: the program need not outlive the call.
  std::function<ExternalKernel(const Operation* function, const Program& program)> compile;
  /// Why a set of ops that it takes is better left where it is; empty if it is not. May be absent.
  std::function<std::string(std::span<Operation* const> region)> refuse_region = {};
};

/// External compilers by name.
class ExternalCompilers {
 public:
  /// Those of the process: registered before main and by plug-ins, and those that come with Lathe
  /// as libraries of their own, which are loaded when a name is asked for that is not there.
  static ExternalCompilers& Global();
  /// A name registered twice is an error (lower/duplicate-compiler).
  void Register(ExternalCompiler compiler);
  /// An unknown one is an error that lists those there are (lower/no-compiler).
  const ExternalCompiler& Find(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  const ExternalCompiler* Registered(std::string_view name) const;

  mutable std::mutex mutex_;
  std::map<std::string, ExternalCompiler, std::less<>> compilers_;
};

/// What the library of an external compiler exports, as `LatheExternalCompiler`: it registers
/// there.
using ExternalCompilerEntry = void (*)(ExternalCompilers& compilers);

/// The largest sets of supported operations of a block that can be run as one: connected, and no
/// path leaves a set and comes back, nor is there a cycle of sets. Operations of a set, and sets,
/// are in order of what they compute, whatever the order of the block. Operations with effects keep
/// their order. Near linear.
std::vector<std::vector<Operation*>> FindRegions(
    const Program& program, Block* block, const std::function<bool(const Operation*)>& supported);

/// Moves each function for an external compiler through it, in program order.
struct ExternalModule {
  std::string symbol;  ///< name of the function
  std::string compiler;
  ExternalKernel kernel;
};
std::vector<ExternalModule> CompileExternalFunctions(
    const Program& program, const ExternalCompilers& compilers = ExternalCompilers::Global());

}  // namespace lathe
