#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/ir/block.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/support/error.h"

/// Runs one op: infers its types twice, with and without knowing what is in its operands, evaluates
/// it, and checks that the shape rule holds for what came out.
namespace lathe::test {

class RunOp {
 public:
  explicit RunOp(std::string name) : name_(std::move(name)) { LoadAllDialects(context_); }

  RunOp& In(Tensor value) { return InValue(std::move(value)); }
  RunOp& InValue(RtValue value) {
    inputs_.push_back(std::move(value));
    return *this;
  }
  RunOp& Ints(const std::vector<int64_t>& values) {
    return In(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
  }
  RunOp& Floats(Shape shape, const std::vector<float>& values) {
    return In(Tensor::Of<float>(std::move(shape), values));
  }
  RunOp& Absent() { return InValue(RtValue()); }
  template <class T>
  RunOp& Attr(std::string_view name, const T& value) {
    attributes_.push_back(builder_.Named(name, ToAttribute(value)));
    return *this;
  }
  RunOp& Outputs(size_t count) {
    num_outputs_ = count;
    return *this;
  }

  /// The results; throws what inference or evaluation throws.
  std::vector<RtValue> Values() {
    MakeOp();
    CheckInference(true);
    CheckInference(false);
    return outputs_;
  }
  Tensor Run() { return Values().at(0).tensor(); }
  /// The id of the error that evaluation alone reports, "" if it succeeds.
  std::string EvalError() {
    MakeOp(false);
    return error_;
  }
  /// The id of the error of inference with known operands, "" if it succeeds.
  std::string InferError() {
    try {
      Values();
    } catch (const Error& e) {
      return e.id();
    }
    return "";
  }

 private:
  class Evaluation : public EvalContext {
   public:
    Evaluation(Operation* op, std::vector<RtValue>& inputs, std::vector<RtValue>& outputs) {
      op_ = op;
      inputs_ = inputs;
      outputs_ = outputs;
    }
    std::vector<RtValue> RunRegion(Region&, std::span<const RtValue>) override { return {}; }
    ParameterMap* parameters() override { return nullptr; }
    uint64_t RandomSeed(std::optional<double> seed) override {
      return seed ? std::bit_cast<uint64_t>(*seed) : 42;
    }
    const RtValue* Feed(std::string_view) override { return nullptr; }
    void Fetch(std::string_view, const RtValue&) override {}
  };

  struct Facts : ValueFacts {
    std::map<size_t, Tensor> constants;
    const Tensor* Constant(Value value) override {
      const auto found = constants.find(value.index());
      return found == constants.end() ? nullptr : &found->second;
    }
  };

  Attribute ToAttribute(bool value) { return builder_.Attr(value); }
  Attribute ToAttribute(int value) { return builder_.Attr(static_cast<int64_t>(value)); }
  Attribute ToAttribute(int64_t value) { return builder_.Attr(value); }
  Attribute ToAttribute(double value) { return builder_.Attr(value); }
  Attribute ToAttribute(const char* value) { return builder_.Attr(std::string_view(value)); }
  Attribute ToAttribute(const std::vector<int64_t>& v) {
    return builder_.Attr(std::span<const int64_t>(v));
  }
  Attribute ToAttribute(const std::vector<double>& v) { return ArrayAttribute::Get(context_, v); }
  Attribute ToAttribute(const std::vector<std::string>& v) {
    return ArrayAttribute::Get(context_, v);
  }
  Attribute ToAttribute(const Tensor& value) { return builder_.Attr(value); }
  Attribute ToAttribute(ElementType value) {
    return TypeAttribute::Get(ElemType::Get(context_, value));
  }

  Type TypeOf(const RtValue& value, bool with_shape) {
    if (value.is_list()) {
      const Type inner = value.list().empty()
                             ? Type(VTensorType::Get(context_, {}, ElementType::kF32))
                             : TypeOf(value.list().front(), false);
      return ListType::Get(context_, std::span<const Type>(&inner, 1));
    }
    if (value.is_absent_optional()) {
      const Type inner = VTensorType::Get(context_, {}, ElementType::kF32);
      return OptionalType::Get(context_, std::span<const Type>(&inner, 1));
    }
    const Tensor& t = value.tensor();
    return VTensorType::Get(context_, with_shape ? SymShape::FromConstants(t.shape()) : SymShape(),
                            t.element_type());
  }

  // The op with operands of the given knowledge; evaluates the first time.
  Operation* MakeWith(bool known, Facts& facts) {
    block_ = std::make_unique<Block>();
    builder_.SetInsertionPointToEnd(block_.get());
    builder_.set_facts(&facts);
    std::vector<Value> operands;
    for (const RtValue& input : inputs_) {
      if (input.is_none()) {
        operands.emplace_back();
        continue;
      }
      operands.push_back(block_->AddArgument(TypeOf(input, known)));
      if (known && input.is_tensor()) {
        facts.constants.emplace(operands.back().index(), input.tensor());
      }
    }
    return builder_.CreateInferred(context_.GetOrMakeOp(name_), operands, attributes_,
                                   num_outputs_);
  }

  void MakeOp(bool rethrow = true) {
    Facts facts;
    Operation* op = nullptr;
    try {
      op = MakeWith(false, facts);
      outputs_.assign(op->num_results(), RtValue());
      Evaluation evaluation(op, inputs_, outputs_);
      op->dyn_cast<EvalInterface>().Eval(evaluation);
    } catch (const Error& e) {
      error_ = e.id();
      if (rethrow) throw;
    }
  }

  void CheckInference(bool known) {
    Facts facts;
    Operation* op = MakeWith(known, facts);
    for (size_t i = 0; i < op->num_results(); ++i) {
      if (outputs_[i].is_none() || outputs_[i].is_absent_optional()) continue;
      const Type actual = TypeOf(outputs_[i], true);
      Type declared = op->result(i).type();
      if (const auto optional = declared.dyn_cast<OptionalType>())
        declared = optional.elements()[0];
      if (outputs_[i].is_list() && outputs_[i].list().empty()) continue;
      EXPECT_TRUE(Compatible(actual, declared))
          << name_ << ": " << actual.ToString() << " is not a " << declared.ToString();
    }
  }

  IrContext context_;
  std::string name_;
  Builder builder_{context_};
  std::unique_ptr<Block> block_;
  std::vector<RtValue> inputs_;
  std::vector<RtValue> outputs_;
  std::vector<NamedAttribute> attributes_;
  size_t num_outputs_ = 1;
  std::string error_;
};

inline std::vector<float> FloatsOf(const Tensor& t) {
  const auto data = t.data<float>();
  return {data.begin(), data.end()};
}

}  // namespace lathe::test
