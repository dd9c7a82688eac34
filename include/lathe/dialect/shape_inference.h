#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lathe/ir/interfaces.h"
#include "lathe/ir/program.h"

namespace lathe {

class FunctionTable;

/// Sets result types in program order and remembers what is known about values: constants
/// (`builtin.constant`, immutable parameters, results of small computations on constants) and the
/// symbolic contents of small integer tensors. Not recursive.
///
/// An importer sets it as the builder's facts and calls `Visit` for each op it creates. Facts about
/// a value hold as long as its defining op is not changed.
class ShapeInferencer : public ValueFacts {
 public:
  /// Without parameters, `builtin.get_parameter` is no constant.
  explicit ShapeInferencer(const ParameterMap* parameters = nullptr) : parameters_(parameters) {}

  /// Infers `op` and, if it has regions, first all within, but for the branch of an `if` whose
  /// condition is known to rule it out. Arguments of repeated regions are
  /// widened until they cover what the region yields. Throws Error where an op cannot be right.
  void Visit(Operation* op);
  /// The whole program. What all calls of a function agree on refines its arguments; what it
  /// returns types its calls.
  void Visit(Program& program);

  const Tensor* Constant(Value value) override;
  const std::vector<Dim>* Contents(Value value) override;
  /// Makes `value` known.
  void SetConstant(Value value, Tensor constant);

 private:
  struct Frame;
  void InferOne(Operation* op);
  void Learn(Operation* op, const InferShapeContext& c);
  void LearnContents(Value value, const std::vector<Dim>& contents);
  void TryEvaluate(Operation* op);
  std::optional<Tensor> KnownResult(Operation* op) const;
  void Forget(Operation* op);
  bool IsNeverRun(const Operation* op, size_t region);
  bool NextBlock(Frame& frame, size_t depth);
  void VisitTop(Program& program);
  void InferCall(Operation* call);

  const ParameterMap* parameters_;
  const FunctionTable* functions_ = nullptr;  ///< while a whole program is visited
  std::unordered_map<Value, Tensor> constants_;
  std::unordered_map<Value, std::vector<Dim>> contents_;
};

/// What a user says about sizes: symbols by name, and whole shapes of inputs by name.
struct ShapeBindings {
  std::vector<std::pair<std::string, int64_t>> symbols = {};
  std::vector<std::pair<std::string, std::vector<int64_t>>> inputs = {};
};

/// Puts numbers for symbols and unknown dims of the inputs, and infers all types again. Errors:
/// shape/unknown-symbol, shape/unknown-input (with the nearest names), shape/contradiction.
void SpecializeShapes(Program& program, const ShapeBindings& bindings);

/// Values of symbols, gathered by matching shapes.
class SymbolBinder {
 public:
  /// Notes what `dims` against the type's dims says; throws `id` if it contradicts what is known.
  /// `what` names the value in messages.
  void Match(const SymShape& expected, const std::vector<int64_t>& dims, const std::string& what,
             const std::string& id);
  void Bind(std::string_view symbol, int64_t value, const std::string& what, const std::string& id);
  /// Checks dims that are expressions, once all symbols are known.
  void Finish(const std::string& id) const;
  std::optional<int64_t> Lookup(std::string_view symbol) const;

 private:
  struct Entry {
    std::string symbol;
    int64_t value;
    std::string from;
  };
  struct Pending {
    Dim dim;
    int64_t value;
    std::string what;
  };
  const Entry* FindEntry(std::string_view symbol) const;
  // Of a dim without a value: throws if its symbols have one, such as broadcast(2, 3).
  void CheckValue(const Pending& p, const std::string& id) const;
  std::vector<Entry> entries_;
  std::vector<Pending> pending_;
};

}  // namespace lathe
