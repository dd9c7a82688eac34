#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lathe/frontend/symbol.h"
#include "lathe/runtime/artifacts.h"
#include "lathe/support/dim.h"

namespace lathe {

/// What Build makes code for where it is not told, on this thread, while the scope lives. Nests.
///
///     const TargetScope scope("avx2");
///     runtime::Artifacts parts = Build(graph, {.shape = {{"x", {1, 784}}}});
class TargetScope {
 public:
  /// Errors: codegen/target.
  explicit TargetScope(const std::string& target);
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;
  ~TargetScope();

  /// The innermost; empty if there is none.
  static const std::string& Current();

 private:
  std::string outer_;
};

struct BuildArguments {
  std::string target = {};  ///< a codegen::Target; empty: that of the scope
  /// Of variables. Those without shape and without data are an error.
  std::vector<std::pair<std::string, SymShape>> shape = {};
  /// Of all variables with a shape, or of each by name (f32 if it is not there).
  std::variant<ElementType, std::vector<std::pair<std::string, ElementType>>> dtype =
      ElementType::kF32;
  /// Data of variables, which are then no inputs. What passes compute from these alone is computed
  /// now and becomes a parameter of the result.
  runtime::NamedTensors params = {};
  /// Of the processor that runs the graph: the same family as the target. Empty: the target.
  std::string target_host = {};

  /// Steps at this level and below run, of the "inference" pipeline and, from 1 on, the fusion of
  /// operations (graph_fuse_partition); but for `disabled` ones, and with `enabled` ones.
  int opt_level = 2;
  std::vector<std::string> disabled = {}, enabled = {};
  std::string cache = {};  ///< folder for machine code, as CompileOptions::cache
};

/// Optimizes and compiles a network: NNVM's build. The target need not run here. Errors:
/// build/target (none, neither here nor in a scope), build/host, build/shape (a variable has none,
/// or two that differ), build/state-data (a state that no operation sets has none), pass/unknown,
/// those of Symbol::ToProgram, of passes and of compilation.
runtime::Artifacts Build(const Symbol& graph, const BuildArguments& arguments = {});

}  // namespace lathe
