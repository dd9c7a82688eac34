#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/program.h"

/// Compilers of others, which take parts of a program.
namespace lathe {

struct ExternalCompiler {
  std::string name;  ///< "onednn"
  /// Why it does not take this op (with its types and attributes); empty if it does. Asked only for
  /// ops with value semantics on immutable tensors.
  std::function<std::string(const Operation*)> refuse;
  /// Turns a `builtin.func` into code. The function reads its weights by name from the program.
  std::function<std::string(const Operation* function, const Program& program)> compile;
};

/// External compilers by name.
class ExternalCompilers {
 public:
  /// Those of the process. Filled before main and by plug-ins; read-only afterwards.
  static ExternalCompilers& Global();
  /// A name registered twice is an error (lower/duplicate-compiler).
  void Register(ExternalCompiler compiler);
  /// An unknown one is an error that lists those there are (lower/no-compiler).
  const ExternalCompiler& Find(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, ExternalCompiler, std::less<>> compilers_;
};

/// Attribute of a `builtin.func` that an external compiler takes: its name.
inline constexpr const char* kCompilerAttr = "compiler";

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
  std::string code;
};
std::vector<ExternalModule> CompileExternalFunctions(
    const Program& program, const ExternalCompilers& compilers = ExternalCompilers::Global());

}  // namespace lathe
