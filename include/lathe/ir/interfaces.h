#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lathe/ir/op.h"
#include "lathe/support/dim.h"
#include "lathe/support/rt_value.h"
#include "lathe/support/tensor.h"

/// The core interfaces of op types. Each method is a static function of the op class:
///   static void InferShape(InferShapeContext& c);
///   static void Eval(EvalContext& c);
///   static void Fold(FoldContext& c);
///   static void Effects(EffectsContext& c);
namespace lathe {

class Builder;

/// What is known about values at compile time. The verifier knows nothing; the shape inferencer
/// knows constants and the symbolic contents of small integer tensors.
class ValueFacts {
 public:
  virtual ~ValueFacts() = default;
  /// The value as a constant, or null.
  virtual const Tensor* Constant(Value) { return nullptr; }
  /// The contents of an integer tensor of rank 0 or 1, element by element, if any is known.
  virtual const std::vector<Dim>* Contents(Value) { return nullptr; }
};

/// Given to `InferShape`: one symbolic rule per op; a static shape is its evaluation. The rule sets
/// the type of each result. Element types of results whose YAML rule determines them (a type
/// variable, a fixed type, an attribute) are set beforehand, so that `SetShape` is enough there.
class InferShapeContext {
 public:
  InferShapeContext(Operation* op, ValueFacts& facts);

  Operation* op() const { return op_; }
  IrContext& context() const { return *op_->context(); }
  size_t num_inputs() const { return op_->num_operands(); }
  size_t num_outputs() const { return op_->num_results(); }
  /// Operand `i` exists and is not absent.
  bool HasInput(size_t i) const;
  Type input_type(size_t i) const { return op_->operand(i).type(); }
  /// Element type of tensor operand `i` (kUndefined if it is no tensor).
  ElementType element(size_t i) const;
  /// Shape of tensor operand `i`.
  SymShape shape(size_t i) const;
  const Tensor* Constant(size_t i) const;
  /// Contents of integer operand `i` (a shape, a list of axes, a scalar) element by element;
  /// unknown elements are unknown dims. Nothing if even the number of elements is unknown.
  std::optional<std::vector<Dim>> Contents(size_t i) const;
  /// The same if every element is a known constant.
  std::optional<std::vector<int64_t>> ConstantInts(size_t i) const;

  /// Sets the shape of result `i`, whose element type the op's declaration determines.
  void SetShape(size_t i, SymShape shape);
  void SetTensor(size_t i, ElementType element, SymShape shape);
  void SetType(size_t i, Type type);
  /// Publishes the contents of small integer result `i` (ops that compute shapes).
  void SetContents(size_t i, std::vector<Dim> contents);

  /// Reports that the op cannot be right; `id` like "shape/conv-groups".
  [[noreturn]] void Fail(std::string id, std::string message, std::string hint = "") const;

  // ---- for the caller ----
  const std::vector<Type>& result_types() const { return types_; }
  const std::optional<std::vector<Dim>>& contents(size_t i) const { return contents_[i]; }

 private:
  Operation* op_;
  ValueFacts& facts_;
  std::vector<Type> types_;
  std::vector<std::optional<std::vector<Dim>>> contents_;
};

class InferShapeInterface : public OpInterface<InferShapeInterface> {
 public:
  struct Concept {
    void (*infer_shape)(InferShapeContext&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::InferShape} {}
  };
  using OpInterface::OpInterface;
  void InferShape(InferShapeContext& c) const { table()->infer_shape(c); }
};

/// Given to `Eval`, the reference meaning of an op: plain loops, obviously right. Inputs are
/// checked against the op's declaration before; sizes that only appear at run time are checked by
/// the op.
class EvalContext {
 public:
  virtual ~EvalContext() = default;
  Operation* op() const { return op_; }
  size_t num_inputs() const { return inputs_.size(); }
  size_t num_outputs() const { return outputs_.size(); }
  /// Operand `i` exists, is not absent and is not an empty optional.
  bool HasInput(size_t i) const;
  const Tensor& input(size_t i) const;
  const RtValue& input_value(size_t i) const { return inputs_[i]; }
  std::span<const RtValue> inputs() const { return inputs_; }
  /// Moves operand `i` out, for an op that writes it in place: writing copies it only if others
  /// share it. The operand is absent afterwards.
  Tensor TakeInput(size_t i);
  void SetOutput(size_t i, Tensor value);
  void SetOutputValue(size_t i, RtValue value);
  /// Result `i` exists and somebody reads it.
  bool WantsOutput(size_t i) const;
  /// Runs the single block of a region with `args` as its arguments; returns what it yields.
  virtual std::vector<RtValue> RunRegion(Region& region, std::span<const RtValue> args) = 0;
  /// Parameters of the program (get_parameter, set_parameter); null when there are none.
  virtual class ParameterMap* parameters() = 0;
  /// Seed for a random op: its `seed` attribute if given, else drawn from the run's seed.
  virtual uint64_t RandomSeed(std::optional<double> seed_attribute) = 0;
  /// Named program inputs and outputs (feed, fetch).
  virtual const RtValue* Feed(std::string_view name) = 0;
  virtual void Fetch(std::string_view name, const RtValue& value) = 0;
  [[noreturn]] void Fail(std::string id, std::string message, std::string hint = "") const;

 protected:
  Operation* op_ = nullptr;
  std::span<RtValue> inputs_;
  std::span<RtValue> outputs_;
};

class EvalInterface : public OpInterface<EvalInterface> {
 public:
  struct Concept {
    void (*eval)(EvalContext&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Eval} {}
  };
  using OpInterface::OpInterface;
  void Eval(EvalContext& c) const { table()->eval(c); }
};

/// Given to `Fold`: may replace results by existing values or attributes; creates no operations.
class FoldContext {
 public:
  FoldContext(Operation* op, ValueFacts& facts)
      : op_(op), facts_(facts), results_(op->num_results()) {}
  struct Result {
    Value value;
    Attribute constant;
  };
  Operation* op() const { return op_; }
  const Tensor* Constant(size_t i) const { return facts_.Constant(op_->operand(i)); }
  void Replace(size_t i, Value value) { results_[i].value = value; }
  void Replace(size_t i, Attribute constant) { results_[i].constant = constant; }
  std::span<const Result> results() const { return results_; }

 private:
  Operation* op_;
  ValueFacts& facts_;
  std::vector<Result> results_;
};

class FoldInterface : public OpInterface<FoldInterface> {
 public:
  struct Concept {
    void (*fold)(FoldContext&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Fold} {}
  };
  using OpInterface::OpInterface;
  void Fold(FoldContext& c) const { table()->fold(c); }
};

/// Given to `Effects`: what an op reads, writes and aliases, operand by operand. Ops without the
/// interface have the effects that their traits state.
class EffectsContext {
 public:
  explicit EffectsContext(Operation* op) : op_(op) {}
  struct Alias {
    size_t result;
    size_t operand;
    bool maybe;
  };
  Operation* op() const { return op_; }
  void Reads(size_t operand) { reads_.push_back(operand); }
  void Writes(size_t operand) { writes_.push_back(operand); }
  void Aliases(size_t result, size_t operand, bool maybe = false) {
    aliases_.push_back({result, operand, maybe});
  }
  /// State outside the values: a parameter, a file, a stream of random numbers.
  void ReadsResource(std::string name) { resource_reads_.push_back(std::move(name)); }
  void WritesResource(std::string name) { resource_writes_.push_back(std::move(name)); }
  std::span<const size_t> reads() const { return reads_; }
  std::span<const size_t> writes() const { return writes_; }
  std::span<const Alias> aliases() const { return aliases_; }
  std::span<const std::string> resource_reads() const { return resource_reads_; }
  std::span<const std::string> resource_writes() const { return resource_writes_; }

 private:
  Operation* op_;
  std::vector<size_t> reads_, writes_;
  std::vector<Alias> aliases_;
  std::vector<std::string> resource_reads_, resource_writes_;
};

class EffectsInterface : public OpInterface<EffectsInterface> {
 public:
  struct Concept {
    void (*effects)(EffectsContext&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Effects} {}
  };
  using OpInterface::OpInterface;
  void Effects(EffectsContext& c) const { table()->effects(c); }
};

/// Checks that an op's own rules hold beyond what its declaration says:
///   static void Verify(Operation* op);   // throws Error
class VerifyInterface : public OpInterface<VerifyInterface> {
 public:
  struct Concept {
    void (*verify)(Operation*);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Verify} {}
  };
  using OpInterface::OpInterface;
  void Verify() const { table()->verify(op_); }
};

/// Rewrites the op into simpler ones at the builder's insertion point; returns the new results.
class DecomposeInterface : public OpInterface<DecomposeInterface> {
 public:
  struct Concept {
    std::vector<Value> (*decompose)(Operation*, Builder&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Decompose} {}
  };
  using OpInterface::OpInterface;
  std::vector<Value> Decompose(Builder& b) const { return table()->decompose(op_, b); }
};

/// Builds the gradient: given the gradients of the results (null where none is needed), returns
/// one gradient per operand (null where none flows).
class GradInterface : public OpInterface<GradInterface> {
 public:
  struct Concept {
    std::vector<Value> (*grad)(Operation*, std::span<const Value>, Builder&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Grad} {}
  };
  using OpInterface::OpInterface;
  std::vector<Value> Grad(std::span<const Value> result_grads, Builder& b) const {
    return table()->grad(op_, result_grads, b);
  }
};

/// Counts the arithmetic of one run: `static Dim Flops(Operation*)`, a number or an expression over
/// the symbols of the op's types; unknown where a shape is. One multiply-add counts as two; an exp,
/// a log, a power and a root as one.
class FlopsInterface : public OpInterface<FlopsInterface> {
 public:
  struct Concept {
    Dim (*flops)(Operation*);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Flops} {}
  };
  using OpInterface::OpInterface;
  Dim Flops() const { return table()->flops(op_); }
};

}  // namespace lathe
