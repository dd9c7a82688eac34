#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "src/ir/verifier.h"

namespace lathe {

namespace {

AnyTensorType TensorOperand(const Operation* op, size_t i) {
  if (i >= op->num_operands() || !op->operand(i)) return {};
  return op->operand(i).type().dyn_cast<AnyTensorType>();
}

AnyTensorType TensorResult(const Operation* op, size_t i) {
  return i < op->num_results() ? op->result(i).type().dyn_cast<AnyTensorType>() : AnyTensorType();
}

void CheckInplace(Operation* op) {
  if (!op->name().ends_with('_')) {
    throw OpError(op, "verify/inplace", "an in-place operation has a name that ends in '_'");
  }
  if (op->num_operands() == 0 || op->num_results() == 0 || !op->operand(0)) {
    throw OpError(op, "verify/inplace", "an in-place operation has an operand and a result");
  }
  const Type written = op->operand(0).type();
  if (written.isa<VTensorType>()) {
    throw OpError(op, "verify/inplace",
                  StrCat("operand 0 is written, but ", written.ToString(), " is immutable"))
        .Hint("copy it with builtin.to_tensor, or use the operation without '_'");
  }
  if (op->result(0).type() != written) {
    throw OpError(op, "verify/inplace",
                  StrCat("result 0 is operand 0 written, but has type ",
                         op->result(0).type().ToString(), " instead of ", written.ToString()));
  }
}

// A view of a mutable tensor is one too; of an immutable one it cannot be written.
void CheckView(Operation* op) {
  const AnyTensorType from = TensorOperand(op, 0);
  const AnyTensorType to = TensorResult(op, 0);
  if (!from || !to || from.is_value() == to.is_value()) return;
  throw OpError(op, "verify/view",
                StrCat("a view of ", from.ToString(), " cannot be a ", to.ToString()))
      .Hint("copy with builtin.to_tensor or builtin.to_vtensor");
}

enum class Same { kType, kShape, kElement };

bool Agree(AnyTensorType a, AnyTensorType b, Same what) {
  if (what == Same::kElement) return a.element() == b.element();
  const AnyTensorType other = what == Same::kShape ? b.With(a.element(), b.shape()) : b;
  return Compatible(a.AsValue(), other.AsValue());
}

void CheckSame(Operation* op, Same what, const char* text) {
  AnyTensorType first;
  auto check = [&](AnyTensorType type) {
    if (!type) return;
    if (!first) first = type;
    if (Agree(first, type, what)) return;
    throw OpError(op, "verify/same",
                  StrCat("its operands and results have one ", text, ", but ", first.ToString(),
                         " and ", type.ToString(), " differ"));
  };
  for (size_t i = 0; i < op->num_operands(); ++i) check(TensorOperand(op, i));
  for (size_t i = 0; i < op->num_results(); ++i) check(TensorResult(op, i));
}

// The constants that operations take. Nothing is known in regions that may never run, nor in
// functions, which such a region may call: what is wrong there with these is an error of a run that
// comes to it.
class ConstantOperands : public ValueFacts {
 public:
  explicit ConstantOperands(const Operation* op)
      : always_runs_(op->parent_op() == nullptr || op->parent_op()->parent_op() == nullptr) {}
  const Tensor* Constant(Value value) override {
    const Operation* op = value.defining_op();
    if (!always_runs_ || op == nullptr || !op->HasTrait<ConstantLike>()) return nullptr;
    const auto tensor = op->attribute("value").dyn_cast<TensorAttribute>();
    return tensor ? &tensor.value() : nullptr;
  }

 private:
  bool always_runs_;
};

}  // namespace

void VerifyTraits(Operation* op) {
  if (op->HasTrait<Inplace>()) CheckInplace(op);
  if (op->HasTrait<ViewLike>()) CheckView(op);
  if (op->HasTrait<SameOperandsAndResultType>()) CheckSame(op, Same::kType, "type");
  if (op->HasTrait<SameOperandsAndResultShape>()) CheckSame(op, Same::kShape, "shape");
  if (op->HasTrait<SameOperandsAndResultElementType>()) {
    CheckSame(op, Same::kElement, "element type");
  }
}

void VerifyInferredTypes(Operation* op) {
  if (!op->HasInterface<InferShapeInterface>()) return;
  ConstantOperands constants(op);
  const std::vector<Type> inferred = InferResultTypes(op, constants);
  for (size_t i = 0; i < inferred.size(); ++i) {
    const Type declared = op->result(i).type();
    const bool known = inferred[i] && !inferred[i].isa<NoneType>() && !declared.isa<NoneType>();
    if (!known || Compatible(declared, inferred[i])) continue;
    throw OpError(op, "verify/inferred",
                  StrCat("result ", i, " is declared as ", declared.ToString(),
                         ", but its operands and attributes make it ", inferred[i].ToString()));
  }
}

}  // namespace lathe
