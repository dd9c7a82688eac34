#include "src/driver/wide_program.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

// What shows the program as operations on values.
constexpr const char* kPrepare =
    "random_state,inline,lift_parameters,maximize_value_semantics,infer_shape";

bool IsNarrow(ElementType element) {
  return element == ElementType::kF32 || element == ElementType::kF16 ||
         element == ElementType::kBF16;
}

// Of a tensor of a narrow float; none of anything else.
std::optional<ElementType> NarrowElement(Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  if (!tensor || !IsNarrow(tensor.element())) return std::nullopt;
  return tensor.element();
}

Type WithElement(Type type, ElementType element) {
  const auto tensor = type.cast<AnyTensorType>();
  return tensor.With(element, tensor.shape());
}

class Widening {
 public:
  explicit Widening(const Program& program) : wide_{program.Clone(), {}} {}

  WideProgram Run() {
    PassManager manager;
    manager.Add(kPrepare);
    manager.Run(wide_.program);
    for (OpWalker w(wide_.program.block()); Operation* op = w.Next();) {
      if (op->name() == builtin::kFunc) {
        w.SkipRegions();
      } else {
        Visit(op);
      }
    }
    VerifyOrThrow(wide_.program);
    return std::move(wide_);
  }

 private:
  void Visit(Operation* op) {
    if (op->name() == nn::kFetch) return;
    if (op->num_regions() > 0 || op->HasTrait<Terminator>()) return WidenRegions(op);
    if (!MayWiden(op)) return Narrow(op);
    if (!TryWiden(op)) {
      ++wide_.kept[std::string(op->name())];
      Narrow(op);
    }
  }

  // Leaves make what they made: nothing that they take has been rounded.
  static bool MayWiden(const Operation* op) {
    if (op->HasTrait<Random>() || op->HasTrait<SideEffect>() || op->info().def() == nullptr) {
      return false;
    }
    if (op->isa<nn::CastOp>()) return NarrowElement(op->result(0).type()).has_value();
    for (size_t i = 0; i < op->num_operands(); ++i) {
      if (op->operand(i) && IsFloatTensor(op->operand(i).type())) return true;
    }
    return false;
  }

  static bool IsFloatTensor(Type type) {
    const auto tensor = type.dyn_cast<AnyTensorType>();
    return tensor && (IsNarrow(tensor.element()) || tensor.element() == ElementType::kF64);
  }

  // Whatever leaves a region, or goes into one, is wide.
  void WidenRegions(Operation* op) {
    for (size_t i = 0; i < op->num_operands(); ++i) Widen(op, i);
    for (Region& region : op->regions()) {
      for (Block& block : region) {
        for (size_t i = 0; i < block.num_arguments(); ++i) Retype(block.argument(i));
      }
    }
    for (size_t i = 0; i < op->num_results(); ++i) Retype(op->result(i));
  }

  void Retype(Value value) {
    const auto element = NarrowElement(value.type());
    if (!element) return;
    was_.emplace(value, *element);
    value.set_type(WithElement(value.type(), ElementType::kF64));
  }

  // False if the operation does not take f64; then it is as it was, but for its operands.
  bool TryWiden(Operation* op) {
    const DictionaryAttribute attributes = op->attributes();
    std::vector<Type> types;
    for (size_t i = 0; i < op->num_results(); ++i) types.push_back(op->result(i).type());
    for (size_t i = 0; i < op->num_operands(); ++i) {
      IsOfFixedType(op, i) ? Narrow(op, i) : Widen(op, i);
    }
    WidenAttributes(op);
    if (TryWidenResults(op)) return true;
    op->set_attributes(attributes);
    for (size_t i = 0; i < types.size(); ++i) {
      op->result(i).set_type(types[i]);
      was_.erase(op->result(i));
    }
    return false;
  }

  bool TryWidenResults(Operation* op) {
    try {
      const std::vector<Type> types = InferResultTypes(op, facts_);
      for (size_t i = 0; i < types.size(); ++i) {
        const auto inferred = types[i] ? types[i].dyn_cast<AnyTensorType>() : AnyTensorType();
        if (inferred && inferred.element() == ElementType::kF64) Retype(op->result(i));
      }
    } catch (const Error&) {
      return false;
    }
    return Verify(op).empty();
  }

  static bool IsOfFixedType(const Operation* op, size_t operand) {
    const auto& declared = op->info().def()->operands;
    if (declared.empty()) return false;
    return declared[std::min(operand, declared.size() - 1)].type.kind == TypeRule::Kind::kElement;
  }

  static void WidenAttributes(Operation* op) {
    for (const NamedAttribute& named : op->attributes().entries()) {
      const auto type = named.value.dyn_cast<TypeAttribute>();
      const auto element = type ? type.value().dyn_cast<ElemType>() : ElemType();
      if (!element || !IsNarrow(element.element())) continue;
      op->SetAttribute(named.name.value(),
                       TypeAttribute::Get(ElemType::Get(*op->context(), ElementType::kF64)));
    }
  }

  void Narrow(Operation* op) {
    for (size_t i = 0; i < op->num_operands(); ++i) Narrow(op, i);
  }

  void Widen(Operation* op, size_t i) {
    const Value value = op->operand(i);
    if (value && NarrowElement(value.type())) op->set_operand(i, As(ElementType::kF64, value, op));
  }

  void Narrow(Operation* op, size_t i) {
    const Value value = op->operand(i);
    const auto found = value ? was_.find(value) : was_.end();
    if (found != was_.end()) op->set_operand(i, As(found->second, value, op));
  }

  static Value As(ElementType element, Value value, Operation* before) {
    Builder b = Builder::Before(before);
    b.set_location(before->location());
    return nn::CastOp::Create(b, value, {.to = element}).output();
  }

  WideProgram wide_;
  ValueFacts facts_;
  std::unordered_map<Value, ElementType> was_;  // of what is wide now; looked up, never iterated
};

}  // namespace

WideProgram Widened(const Program& program) { return Widening(program).Run(); }

}  // namespace lathe
