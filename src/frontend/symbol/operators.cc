#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/support/text.h"
#include "src/frontend/symbol/node.h"

namespace lathe {

namespace {

Symbol Apply(const char* op, const Symbol& a, const Symbol& b) {
  return Symbol::CreateFunctor(*a.outputs().front().node->context, op)({a, b});
}

Symbol ScalarFor(const Symbol& other, double value) {
  return Symbol::CreateScalar(*other.outputs().front().node->context, value);
}

}  // namespace

Symbol Symbol::CreateScalar(IrContext& context, double value) {
  std::string text;
  AppendDouble(text, value);
  Symbol scalar = CreateFunctor(context, builtin::kConstant, {{"value", text}});
  scalar.Compose({});
  return scalar;
}

Symbol operator+(const Symbol& a, const Symbol& b) { return Apply(nn::kAdd, a, b); }
Symbol operator-(const Symbol& a, const Symbol& b) { return Apply(nn::kSub, a, b); }
Symbol operator*(const Symbol& a, const Symbol& b) { return Apply(nn::kMul, a, b); }
Symbol operator/(const Symbol& a, const Symbol& b) { return Apply(nn::kDiv, a, b); }
Symbol Pow(const Symbol& a, const Symbol& b) { return Apply(nn::kPow, a, b); }
Symbol Assign(const Symbol& variable, const Symbol& value) {
  return Apply(nn::kCopyInplace, variable, value);
}
Symbol operator-(const Symbol& a) { return Symbol::CreateFunctor(a.context(), nn::kNeg)({a}); }

Symbol operator+(const Symbol& a, double b) { return a + ScalarFor(a, b); }
Symbol operator+(double a, const Symbol& b) { return ScalarFor(b, a) + b; }
Symbol operator-(const Symbol& a, double b) { return a - ScalarFor(a, b); }
Symbol operator-(double a, const Symbol& b) { return ScalarFor(b, a) - b; }
Symbol operator*(const Symbol& a, double b) { return a * ScalarFor(a, b); }
Symbol operator*(double a, const Symbol& b) { return ScalarFor(b, a) * b; }
Symbol operator/(const Symbol& a, double b) { return a / ScalarFor(a, b); }
Symbol operator/(double a, const Symbol& b) { return ScalarFor(b, a) / b; }
Symbol Pow(const Symbol& a, double b) { return Pow(a, ScalarFor(a, b)); }

}  // namespace lathe
