#include "src/transform/widening.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/matmul_nbits.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

bool IsNarrower(ElementType element, ElementType wide) {
  return IsFloat(element) && BitWidth(element) >= 16 && BitWidth(element) < BitWidth(wide);
}

template <class Holds>
bool AnyOperand(const Operation* op, const Holds& holds) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (holds(op->operand(i))) return true;
  }
  return false;
}

class OpWidening {
 public:
  OpWidening(Program& program, const Widening& widening) : program_(program), widening_(widening) {}

  WideningResult Run() {
    for (OpWalker w(program_.block()); Operation* op = w.Next();) {
      if (op->name() == builtin::kFunc) {
        w.SkipRegions();
      } else {
        Visit(op);
      }
    }
    return std::move(result_);
  }

 private:
  void Visit(Operation* op) {
    if (made_.contains(op) || (!widening_.rounds && IsSpelledRounding(op))) return;
    if (op->HasTrait<ProgramOutput>() && !widening_.keeps_outputs) return;
    if (op->num_regions() > 0 || op->HasTrait<Terminator>()) return WidenRegions(op);
    if (!Computes(op)) return Narrow(op);
    if (!TryWiden(op)) {
      ++result_.kept[std::string(op->name())];
      return Narrow(op);
    }
    if (widening_.rounds) RoundResults(op);
  }

  // Whether it computes with what may become wide. Leaves make what they made: nothing that they
  // take has been rounded. Bits are those of a type, and integers are made of what was rounded.
  bool Computes(const Operation* op) const {
    if (op->HasTrait<Random>() || op->HasTrait<SideEffect>() || op->info().def() == nullptr ||
        op->name() == nn::kBitCast || op->name() == builtin::kCall) {
      return false;
    }
    if (op->isa<nn::CastOp>()) {
      return NarrowElement(op->result(0)) ||
             (IsWidened(op->operand(0)) && IsFloat(TensorOf(op->result(0)).element()));
    }
    return AnyOperand(op, [&](Value v) { return NarrowElement(v) || IsWidened(v); }) &&
           !MovesNarrow(op) && !IsKeptProduct(op);
  }

  // A cast to a smaller float that another one takes back, with nothing but moves in between: it is
  // there for its rounding.
  bool IsSpelledRounding(const Operation* op) const {
    if (!op->isa<nn::CastOp>() || !NarrowElement(op->result(0))) return false;
    const ElementType own = TensorOf(op->result(0)).element();
    std::vector<const Operation*> moved{op};
    for (size_t i = 0; i < moved.size(); ++i) {
      for (const OpOperand use : moved[i]->result(0).uses()) {
        const Operation* user = use.owner();
        if (user->isa<nn::CastOp>()) {
          const ElementType to = TensorOf(user->result(0)).element();
          if (IsFloat(to) && IsNarrower(own, to)) return true;
        } else if (KindOf(user) == OpKind::kInjective && std::ranges::count(moved, user) == 0) {
          moved.push_back(user);
        }
      }
    }
    return false;
  }

  bool IsKeptProduct(const Operation* op) const {
    if (!widening_.keeps_products) return false;
    const bool is_packed = op->isa<nn::MatmulNbitsOp>();
    if (!is_packed && !op->isa<nn::MatmulOp>() && !op->isa<nn::GemmOp>()) return false;
    return NarrowElement(op->operand(is_packed ? nn::MatmulNbitsOp::kScales : 1)).has_value();
  }

  // Elements of inputs and parameters to other places.
  bool MovesNarrow(const Operation* op) const {
    return KindOf(op) == OpKind::kInjective && NarrowElement(op->operand(0)) &&
           !AnyOperand(op, [&](Value v) { return IsWidened(v); });
  }

  // Of a tensor of a smaller float; none of anything else.
  std::optional<ElementType> NarrowElement(Value value) const {
    const auto tensor = value ? value.type().dyn_cast<VTensorType>() : VTensorType();
    if (!tensor || !IsNarrower(tensor.element(), widening_.wide)) return std::nullopt;
    return tensor.element();
  }

  bool IsWidened(Value value) const { return value && was_.contains(value); }

  // Whatever leaves a region, or goes into one, is wide.
  void WidenRegions(Operation* op) {
    for (size_t i = 0; i < op->num_operands(); ++i) WidenOperand(op, i);
    for (Region& region : op->regions()) {
      for (Block& block : region) {
        for (size_t i = 0; i < block.num_arguments(); ++i) Retype(block.argument(i));
      }
    }
    for (size_t i = 0; i < op->num_results(); ++i) Retype(op->result(i));
  }

  void Retype(Value value) {
    const auto element = NarrowElement(value);
    if (!element) return;
    result_.changed = true;
    was_.emplace(value, *element);
    const auto tensor = value.type().cast<VTensorType>();
    value.set_type(tensor.With(widening_.wide, tensor.shape()));
  }

  // False if the operation does not take the wide type; then it is as it was.
  bool TryWiden(Operation* op) {
    const bool was_changed = result_.changed;
    const DictionaryAttribute attributes = op->attributes();
    std::vector<Value> operands;
    std::vector<Type> types;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
    for (size_t i = 0; i < op->num_results(); ++i) types.push_back(op->result(i).type());
    for (size_t i = 0; i < op->num_operands(); ++i) {
      IsOfFixedType(op, i) ? Narrow(op, i) : WidenOperand(op, i);
    }
    WidenAttributes(op);
    if (TryWidenResults(op)) return true;
    result_.changed = was_changed;
    op->set_attributes(attributes);
    for (size_t i = 0; i < operands.size(); ++i) {
      Operation* const cast =
          op->operand(i) == operands[i] ? nullptr : op->operand(i).defining_op();
      op->set_operand(i, operands[i]);
      if (cast != nullptr) cast->Erase();
    }
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
        if (!types[i]) continue;
        const auto tensor = types[i].dyn_cast<AnyTensorType>();
        if (tensor && tensor.element() == widening_.wide) Retype(op->result(i));
        if (!tensor && types[i] != op->result(i).type()) return false;  // a list of tensors
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

  void WidenAttributes(Operation* op) const {
    for (const NamedAttribute& named : op->attributes().entries()) {
      const auto type = named.value.dyn_cast<TypeAttribute>();
      const auto element = type ? type.value().dyn_cast<ElemType>() : ElemType();
      if (!element || !IsNarrower(element.element(), widening_.wide)) continue;
      op->SetAttribute(named.name.value(),
                       TypeAttribute::Get(ElemType::Get(*op->context(), widening_.wide)));
    }
  }

  // What follows reads the results as they were rounded.
  void RoundResults(Operation* op) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value result = op->result(i);
      const auto found = was_.find(result);
      if (found == was_.end()) continue;
      Builder b = Builder::After(op);
      b.set_location(op->location());
      const Value rounded = nn::CastOp::Create(b, result, {.to = found->second}).output();
      result.ReplaceAllUsesWith(rounded);
      rounded.defining_op()->set_operand(0, result);
      made_.insert(rounded.defining_op());
      was_.erase(found);
    }
  }

  void Narrow(Operation* op) {
    for (size_t i = 0; i < op->num_operands(); ++i) Narrow(op, i);
  }

  void WidenOperand(Operation* op, size_t i) {
    const Value value = op->operand(i);
    if (!NarrowElement(value)) return;
    result_.changed = true;
    op->set_operand(i, As(widening_.wide, value, op));
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

  Program& program_;
  const Widening widening_;
  ValueFacts facts_;
  std::unordered_map<Value, ElementType> was_;  // of what is wide now; looked up, never iterated
  std::unordered_set<const Operation*> made_;   // roundings; looked up, never iterated
  WideningResult result_;
};

}  // namespace

WideningResult Widen(Program& program, const Widening& widening) {
  return OpWidening(program, widening).Run();
}

}  // namespace lathe
