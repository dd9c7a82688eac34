#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lathe/ir/functions.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/verify.h"

namespace lathe {

/// An error about `op` in one style: `op.name: message`, its place, its text.
Error OpError(const Operation* op, std::string id, std::string_view message);

/// Operand counts and types, result types, attributes and regions against the declaration. Throws.
void VerifyDeclaration(Operation* op);
/// What the traits of the op promise about its types and its name. Throws.
void VerifyTraits(Operation* op);
/// Declared result types against InferShape. Throws.
void VerifyInferredTypes(Operation* op);

/// One block that ends in builtin.return, immutable arguments and results. Throws.
void VerifyFunction(Operation* function);
/// Operands and results against the callee; null: there is none. Throws.
void VerifyCall(Operation* call, const FunctionTable& functions);

/// Remembers signatures (op type, attributes, operand and result types) that are fine, as all three
/// checks above depend on nothing else where there are no regions. A fixed number of slots.
class CheckedSignatures {
 public:
  /// True if the signature of `op` was entered before; remembers it as the next one to enter.
  bool Contains(const Operation* op);
  /// Enters the signature that Contains saw last.
  void Enter();

 private:
  static constexpr size_t kSlots = 1024;
  static constexpr size_t kWords = 12;
  using Key = std::array<const void*, kWords>;
  bool Gather(const Operation* op);

  Key key_{};
  size_t slot_ = kSlots;
  std::vector<Key> slots_{kSlots};
};

/// One verification. Walks with its own stack; dominance takes O(1) per operand.
class Verifier {
 public:
  Verifier(const VerifyOptions& options, const ParameterMap* parameters)
      : options_(options), parameters_(parameters) {}
  std::vector<Error> Run(Operation* root);

 private:
  /// An open block and the operation in it that is being looked at.
  struct Scope {
    Block* block;
    Operation* current;
    size_t region;     ///< index of the block's region in its owner
    uint32_t visible;  ///< scopes below this one are hidden by an isolated operation
  };

  void OpenOuterScopes(Operation* root);
  void Walk(Operation* root);
  void Open(Block* block, size_t region, uint32_t visible);
  void Close();
  bool EnterRegions(Operation* op, size_t region);
  void NextBlock();
  void Visit(Operation* op);

  void CheckLinks(Operation* op);
  void CheckArguments(Block* block);
  void CheckOperands(Operation* op);
  void CheckVisible(Operation* op, size_t i, Value value);
  void CheckResults(Operation* op);
  void CheckTerminator(Operation* op);
  void CheckLocal(Operation* op);
  void CheckStatement(Operation* op);
  void CheckParameter(Operation* op);
  void CheckFunctionPart(Operation* op);
  void CheckInputNames();
  void CheckFunctions(Operation* module);

  bool full() const { return errors_.size() >= options_.max_errors; }
  void Add(Error error);
  /// Runs one check; its error is collected.
  template <class Fn>
  bool Collect(Operation* op, Fn&& fn) {
    try {
      fn();
      return true;
    } catch (Error& error) {
      if (error.where().empty() && !op->location().is_unknown()) {
        error.At(op->location().ToString(*op->context()));
      }
      Add(std::move(error));
      return false;
    }
  }

  const VerifyOptions& options_;
  const ParameterMap* parameters_;
  OpInfo get_parameter_;
  OpInfo set_parameter_;
  OpInfo func_, call_, return_;
  std::vector<Operation*> calls_, feeds_;
  std::vector<const void*> set_names_;
  std::vector<Scope> scopes_;
  CheckedSignatures checked_;
  std::vector<Error> errors_;
};

}  // namespace lathe
