#include "lathe/dialect/cf/cf.h"
#include "lathe/support/error.h"
#include "src/dialect/cf/regions.h"

namespace lathe::cf {

namespace {

StackType StackOf(Operation* op) {
  const Value stack = op->num_operands() > 0 ? op->operand(0) : Value();
  const auto type = stack ? stack.type().dyn_cast<StackType>() : StackType();
  if (!type) VerifyFail(op, "verify/stack", "operand 0 is not a stack");
  return type;
}

}  // namespace

// ---- stack ----

void StackOp::InferShape(InferShapeContext& c) {
  const auto type = StackOp(c.op()).type().dyn_cast<TypeAttribute>();
  if (type && type.value().isa<StackType>()) c.SetType(kEmpty, type.value());
}

void StackOp::Eval(EvalContext& c) { c.SetOutputValue(kEmpty, RtValue::OfList({})); }

void StackOp::Verify(Operation* op) {
  const auto type = StackOp(op).type().dyn_cast<TypeAttribute>();
  if (!type || !type.value().isa<StackType>()) {
    VerifyFail(op, "verify/stack", "attribute 'type' is not a stack<...>");
  }
}

// ---- push ----

void PushOp::InferShape(InferShapeContext& c) { c.SetType(kPushed, c.input_type(kStack)); }

void PushOp::Eval(EvalContext& c) {
  RtValue::List entries = c.input_value(kStack).list();
  entries.push_back(RtValue::OfList({c.inputs().begin() + kValues, c.inputs().end()}));
  c.SetOutputValue(kPushed, RtValue::OfList(std::move(entries)));
}

void PushOp::Verify(Operation* op) {
  const std::span<const Type> types = StackOf(op).elements();
  if (op->num_operands() != kValues + types.size()) {
    VerifyFail(op, "verify/stack",
               StrCat("an entry of the stack has ", types.size(), " values; given are ",
                      op->num_operands() - kValues));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    CheckCovered(op, OperandType(op, kValues + i), types[i], StrCat("value ", i));
  }
}

// ---- pop ----

void PopOp::InferShape(InferShapeContext& c) {
  c.SetType(kRest, c.input_type(kStack));
  const auto type = c.input_type(kStack).dyn_cast<StackType>();
  for (size_t i = kValues; type && i < c.num_outputs(); ++i) {
    if (i - kValues < type.elements().size()) c.SetType(i, type.elements()[i - kValues]);
  }
}

void PopOp::Eval(EvalContext& c) {
  RtValue::List entries = c.input_value(kStack).list();
  if (entries.empty())
    c.Fail("run/stack", "there is nothing on the stack", "more pops than pushes");
  const RtValue::List values = entries.back().list();
  entries.pop_back();
  c.SetOutputValue(kRest, RtValue::OfList(std::move(entries)));
  for (size_t i = 0; i < values.size(); ++i) c.SetOutputValue(kValues + i, values[i]);
}

void PopOp::Verify(Operation* op) {
  const size_t values = StackOf(op).elements().size();
  if (op->num_results() != kValues + values) {
    VerifyFail(
        op, "verify/stack",
        StrCat("an entry of the stack has ", values, " values, not ", op->num_results() - kValues));
  }
  const Operation* maker = op->operand(0).defining_op();
  if (maker != nullptr && maker->isa<StackOp>()) {
    VerifyFail(op, "verify/stack", "nothing was pushed on the stack");
  }
}

// ---- has_entries ----

void HasEntriesOp::InferShape(InferShapeContext& c) { c.SetShape(kResult, SymShape::OfRank(0)); }

void HasEntriesOp::Eval(EvalContext& c) {
  c.SetOutput(kResult, Tensor::Scalar(!c.input_value(kStack).list().empty()));
}

void HasEntriesOp::Verify(Operation* op) { (void)StackOf(op); }

}  // namespace lathe::cf
