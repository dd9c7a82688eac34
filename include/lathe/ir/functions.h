#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/ir/program.h"

namespace lathe {

/// Attribute of a `builtin.func` that an external compiler takes: its name. Such a function stays
/// one.
inline constexpr const char* kCompilerAttr = "compiler";

/// The external compiler that a function is marked for; empty: none.
std::string_view CompilerOf(const Operation* function);

/// The functions of a module: `builtin.func` operations of its top block, which `builtin.call` runs
/// by name. A snapshot; made in one walk over the top block.
class FunctionTable {
 public:
  explicit FunctionTable(Operation* module);
  explicit FunctionTable(const Program& program) : FunctionTable(program.module()) {}

  bool IsFunction(const Operation* op) const { return func_ && op->info() == func_; }
  bool IsCall(const Operation* op) const { return call_ && op->info() == call_; }
  bool IsReturn(const Operation* op) const { return return_ && op->info() == return_; }

  bool empty() const { return functions_.empty(); }
  /// In program order.
  const std::vector<Operation*>& functions() const { return functions_; }
  /// The function that a call runs; null if there is none of that name. Of several with one name
  /// the first.
  Operation* Callee(const Operation* call) const;
  /// Calls in the top block or, given a function, in it; in program order, those in regions too.
  std::vector<Operation*> CallsIn(Operation* function = nullptr) const;
  /// Each function after those that it calls. Recursion is an error (verify/recursion) that names
  /// the cycle.
  std::vector<Operation*> CalleesFirst() const;
  /// Functions that some call reaches from the top block, in program order.
  std::vector<Operation*> Reachable() const;

  static std::string NameOf(const Operation* function);
  /// The block of a function, and its return; null if it is malformed.
  static Block* Body(const Operation* function);
  static Operation* Return(const Operation* function);

 private:
  Operation* module_;
  OpInfo func_, call_, return_;
  std::vector<Operation*> functions_;
  std::unordered_map<const void*, Operation*> by_name_;  ///< looked up, never iterated
};

}  // namespace lathe
