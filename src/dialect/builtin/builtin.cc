#include "lathe/dialect/builtin/builtin.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/ir/builtin_names.h"
#include "lathe/ir/program.h"
#include "lathe/support/error.h"

namespace lathe::builtin {
namespace {

// The layers below the dialects name these without the generated constants.
constexpr std::pair<std::string_view, std::string_view> kNamesOfTheIr[] = {
    {kModuleOp, kModule},
    {kFuncOp, kFunc},
    {kCallOp, kCall},
    {kReturnOp, kReturn},
    {kConstantOp, kConstant},
    {kGetParameterOp, kGetParameter},
    {kSetParameterOp, kSetParameter},
    {kTokenOfOp, kTokenOf},
    {kDependOp, kDepend},
    {kEmptyOp, kEmpty}};
static_assert(std::ranges::all_of(kNamesOfTheIr, [](auto& n) { return n.first == n.second; }));

std::string MissingHint(const ParameterMap& parameters, std::string_view name) {
  std::vector<std::string_view> names;
  for (const ParameterMap::Entry& e : parameters) names.push_back(e.name.value());
  return DidYouMean(name, names);
}

ParameterMap& Parameters(EvalContext& c) {
  if (c.parameters() == nullptr) c.Fail("parameter/none", "there is no program with parameters");
  return *c.parameters();
}

void SetTypeLikeInput(InferShapeContext& c, bool is_value) {
  const auto type = c.HasInput(0) ? c.input_type(0).dyn_cast<AnyTensorType>() : AnyTensorType();
  if (!type) c.Fail("type/operand", "the operand must be a tensor");
  c.SetType(0, is_value ? type.AsValue() : type.AsMutable());
}

}  // namespace

void GetParameterOp::Eval(EvalContext& c) {
  const std::string_view name = GetParameterOp(c.op()).name();
  const Variable* found = Parameters(c).Find(name);
  if (found == nullptr) {
    c.Fail("parameter/missing", StrCat("the program has no parameter '", name, "'"),
           MissingHint(Parameters(c), name));
  }
  c.SetOutput(kValue, found->data);
}

void GetParameterOp::Effects(EffectsContext& c) {
  c.ReadsResource(std::string(GetParameterOp(c.op()).name()));
}

void SetParameterOp::Eval(EvalContext& c) {
  const Attribute name = c.op()->attribute(kNameAttr);
  Parameters(c).Set(name.cast<StrAttribute>(), {c.input(kValue), true});
}

void SetParameterOp::Effects(EffectsContext& c) {
  c.Reads(kValue);
  c.WritesResource(std::string(SetParameterOp(c.op()).name()));
}

void ConstantOp::InferShape(InferShapeContext& c) {
  const Tensor value = ConstantOp(c.op()).value();
  c.SetTensor(kResult, value.element_type(), SymShape::FromConstants(value.shape()));
}

void ConstantOp::Eval(EvalContext& c) { c.SetOutput(kResult, ConstantOp(c.op()).value()); }

void ToTensorOp::InferShape(InferShapeContext& c) { SetTypeLikeInput(c, false); }
// Tensors copy when written while shared, so that sharing the data here is a deep copy.
void ToTensorOp::Eval(EvalContext& c) { c.SetOutput(kY, c.input(kX)); }

void ToVtensorOp::InferShape(InferShapeContext& c) { SetTypeLikeInput(c, true); }
void ToVtensorOp::Eval(EvalContext& c) { c.SetOutput(kY, c.input(kX)); }

void TokenOfOp::Eval(EvalContext& c) { c.SetOutputValue(kToken, RtValue()); }

void DependOp::InferShape(InferShapeContext& c) { c.SetType(kY, c.input_type(kX)); }
void DependOp::Eval(EvalContext& c) { c.SetOutputValue(kY, c.input_value(kX)); }

void EmptyOp::Eval(EvalContext& /*c*/) {}

}  // namespace lathe::builtin
