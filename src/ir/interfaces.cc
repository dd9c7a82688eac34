#include "lathe/ir/interfaces.h"

#include <utility>

#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/op_error.h"

namespace lathe {
namespace {

// Contents are for shapes, axes and the like; longer ones are not worth following.
constexpr int64_t kMaxContents = 4096;

ErrorCode CodeOf(std::string_view id) {
  struct Entry {
    std::string_view prefix;
    ErrorCode code;
  };
  static constexpr Entry kCodes[] = {
      {"shape/", ErrorCode::kShape}, {"type/", ErrorCode::kType},
      {"limit/", ErrorCode::kLimit}, {"verify/", ErrorCode::kVerify},
      {"parse/", ErrorCode::kParse}, {"unsupported/", ErrorCode::kUnsupported},
      {"io/", ErrorCode::kIo},       {"internal/", ErrorCode::kInternal},
  };
  for (const Entry& e : kCodes) {
    if (id.starts_with(e.prefix)) return e.code;
  }
  return ErrorCode::kInvalidArgument;
}

const ValueDef* Declared(std::span<const ValueDef> defs, size_t i) {
  if (i < defs.size()) return &defs[i];
  return !defs.empty() && defs.back().variadic ? &defs.back() : nullptr;
}

std::string MadeBy(Value value) {
  const Operation* op = value.defining_op();
  if (op == nullptr || op->location().is_unknown()) return "";
  return StrCat("   made by ", op->location().ToString(*op->context()));
}

// One note per operand: its name, its type and where it comes from.
void NoteOperands(Error& error, const Operation* op) {
  const OpDef* def = op->info().def();
  for (size_t i = 0; i < op->num_operands() && i < 8; ++i) {
    const Value value = op->operand(i);
    if (!value || !value.type()) continue;
    const ValueDef* declared = def == nullptr ? nullptr : Declared(def->operands, i);
    const std::string name = declared == nullptr ? StrCat("operand ", i) : declared->name;
    error.Note(StrCat(name, " : ", value.type().ToString(), MadeBy(value)));
  }
}

[[noreturn]] void FailAt(const Operation* op, std::string id, const std::string& message,
                         std::string hint) {
  throw ErrorAt(op, std::move(id), message, std::move(hint));
}

bool IsAbsent(Value value) { return !value || !value.type() || value.type().isa<NoneType>(); }

// ---- types that the declaration determines ----

ElementType ElementWithin(Type type) {
  while (type.isa<ContainerType>()) {
    const std::span<const Type> inner = type.cast<ContainerType>().elements();
    if (inner.size() != 1) return ElementType::kUndefined;
    type = inner[0];
  }
  return type.isa<AnyTensorType>() ? type.cast<AnyTensorType>().element() : ElementType::kUndefined;
}

bool Mentions(const TypeRule& rule, uint16_t variable) {
  const TypeRule* r = &rule;
  while (r->inner != nullptr) r = r->inner;
  return r->kind == TypeRule::Kind::kVariable && r->index == variable;
}

ElementType ElementOfVariable(const Operation* op, uint16_t variable) {
  const OpDef* def = op->info().def();
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const ValueDef* declared = Declared(def->operands, i);
    if (declared == nullptr || declared->heterogeneous || IsAbsent(op->operand(i))) continue;
    if (!Mentions(declared->type, variable)) continue;
    const ElementType element = ElementWithin(op->operand(i).type());
    if (element != ElementType::kUndefined) return element;
  }
  return ElementType::kUndefined;
}

ElementType ElementOfAttribute(const Operation* op, uint16_t index) {
  const Attribute value = op->attribute(op->info().def()->attributes[index].name);
  if (!value.isa<TypeAttribute>()) return ElementType::kUndefined;
  const auto type = value.cast<TypeAttribute>().value().dyn_cast<ElemType>();
  return type ? type.element() : ElementType::kUndefined;
}

ElementType ElementOf(const Operation* op, const TypeRule& rule) {
  switch (rule.kind) {
    case TypeRule::Kind::kVariable:
      return ElementOfVariable(op, rule.index);
    case TypeRule::Kind::kElement:
      return rule.element;
    case TypeRule::Kind::kFromAttr:
      return ElementOfAttribute(op, rule.index);
    default:
      return ElementType::kUndefined;
  }
}

// Results are immutable values unless an operand is a mutable tensor.
Type TensorLike(const Operation* op, ElementType element, const SymShape& shape) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value value = op->operand(i);
    if (value && value.type().isa<TensorType>()) {
      return TensorType::Get(*op->context(), shape, element);
    }
  }
  return VTensorType::Get(*op->context(), shape, element);
}

Type DeclaredType(const Operation* op, const TypeRule& rule, const SymShape& shape) {
  if (rule.kind == TypeRule::Kind::kToken) return TokenType::Get(*op->context());
  if (rule.inner != nullptr) {
    const Type inner = DeclaredType(op, *rule.inner, shape);
    if (!inner) return inner;
    const std::span<const Type> elements(&inner, 1);
    if (rule.kind == TypeRule::Kind::kList) return ListType::Get(*op->context(), elements);
    return OptionalType::Get(*op->context(), elements);
  }
  const ElementType element = ElementOf(op, rule);
  return element == ElementType::kUndefined ? Type() : TensorLike(op, element, shape);
}

Type DeclaredType(const Operation* op, size_t result, const SymShape& shape) {
  const OpDef* def = op->info().def();
  const ValueDef* declared = def == nullptr ? nullptr : Declared(def->results, result);
  return declared == nullptr ? Type() : DeclaredType(op, declared->type, shape);
}

}  // namespace

Error ErrorAt(const Operation* op, std::string id, const std::string& message, std::string hint) {
  const ErrorCode code = CodeOf(id);
  Error error(code, std::move(id), StrCat(op->name(), ": ", message));
  if (!op->location().is_unknown()) error.At(op->location().ToString(*op->context()));
  NoteOperands(error, op);
  if (!hint.empty()) error.Hint(std::move(hint));
  return error;
}

// ---- InferShapeContext ----

InferShapeContext::InferShapeContext(Operation* op, ValueFacts& facts)
    : op_(op), facts_(facts), types_(op->num_results()), contents_(op->num_results()) {
  for (size_t i = 0; i < types_.size(); ++i) types_[i] = DeclaredType(op, i, SymShape::Unranked());
}

bool InferShapeContext::HasInput(size_t i) const {
  return i < op_->num_operands() && !IsAbsent(op_->operand(i));
}

ElementType InferShapeContext::element(size_t i) const {
  if (!HasInput(i) || !input_type(i).isa<AnyTensorType>()) return ElementType::kUndefined;
  return input_type(i).cast<AnyTensorType>().element();
}

SymShape InferShapeContext::shape(size_t i) const {
  if (!HasInput(i) || !input_type(i).isa<AnyTensorType>()) return SymShape::Unranked();
  return input_type(i).cast<AnyTensorType>().shape();
}

const Tensor* InferShapeContext::Constant(size_t i) const {
  return HasInput(i) ? facts_.Constant(op_->operand(i)) : nullptr;
}

std::optional<std::vector<Dim>> InferShapeContext::Contents(size_t i) const {
  if (!HasInput(i)) return std::nullopt;
  if (const Tensor* constant = Constant(i)) {
    const ElementType type = constant->element_type();
    const bool integers = IsInteger(type) || type == ElementType::kBool;
    if (!integers || constant->rank() > 1 || constant->num_elements() > kMaxContents) {
      return std::nullopt;
    }
    const std::vector<int64_t> values = ToInt64s(*constant);
    return std::vector<Dim>(values.begin(), values.end());
  }
  if (const std::vector<Dim>* known = facts_.Contents(op_->operand(i))) return *known;
  const SymShape s = shape(i);
  if (!s.ranked || s.rank() > 1) return std::nullopt;
  const Dim count = s.rank() == 0 ? Dim(1) : s.dims[0];
  if (!count.is_constant() || count.value() < 0 || count.value() > kMaxContents) {
    return std::nullopt;
  }
  return std::vector<Dim>(static_cast<size_t>(count.value()));
}

std::optional<std::vector<int64_t>> InferShapeContext::ConstantInts(size_t i) const {
  const std::optional<std::vector<Dim>> contents = Contents(i);
  return contents ? SymShape(*contents).Constants() : std::nullopt;
}

void InferShapeContext::SetShape(size_t i, SymShape shape) {
  if (i >= types_.size()) return;
  const Type type = DeclaredType(op_, i, shape);
  if (type) {
    types_[i] = type;
    return;
  }
  const ValueDef* declared = Declared(op_->info().def()->results, i);
  LATHE_CHECK(declared != nullptr && declared->type.kind != TypeRule::Kind::kAny &&
                  declared->type.kind != TypeRule::Kind::kTensor,
              op_->name(), ": the declaration of result ", i,
              " gives no element type; use SetTensor");
  Fail("type/undetermined", StrCat("the element type of result '", declared->name,
                                   "' cannot be told from the operands"));
}

void InferShapeContext::SetTensor(size_t i, ElementType element, SymShape shape) {
  if (i < types_.size()) types_[i] = TensorLike(op_, element, shape);
}

void InferShapeContext::SetType(size_t i, Type type) {
  if (i < types_.size()) types_[i] = type;
}

void InferShapeContext::SetContents(size_t i, std::vector<Dim> contents) {
  if (i < contents_.size()) contents_[i] = std::move(contents);
}

void InferShapeContext::Fail(std::string id, std::string message, std::string hint) const {
  FailAt(op_, std::move(id), message, std::move(hint));
}

// ---- EvalContext ----

bool EvalContext::HasInput(size_t i) const {
  return i < inputs_.size() && !inputs_[i].is_none() && !inputs_[i].is_absent_optional();
}

const Tensor& EvalContext::input(size_t i) const {
  if (i >= inputs_.size() || !inputs_[i].is_tensor()) {
    Fail("type/operand", StrCat("operand ", i, " must be a tensor, not ",
                                i < inputs_.size() ? inputs_[i].KindName() : "absent"));
  }
  return inputs_[i].tensor();
}

Tensor EvalContext::TakeInput(size_t i) {
  (void)input(i);
  return std::move(std::exchange(inputs_[i], RtValue()).mutable_tensor());
}

void EvalContext::SetOutput(size_t i, Tensor value) {
  if (i < outputs_.size()) outputs_[i] = RtValue(std::move(value));
}

void EvalContext::SetOutputValue(size_t i, RtValue value) {
  if (i < outputs_.size()) outputs_[i] = std::move(value);
}

bool EvalContext::WantsOutput(size_t i) const {
  return i < outputs_.size() && !op_->result(i).use_empty();
}

void EvalContext::Fail(std::string id, std::string message, std::string hint) const {
  FailAt(op_, std::move(id), message, std::move(hint));
}

// ---- inference ----

namespace {

void RunInferShape(Operation* op, InferShapeContext& c) {
  const auto rule = op->dyn_cast<InferShapeInterface>();
  if (!rule) return;
  try {
    rule.InferShape(c);
  } catch (const Error& error) {
    const bool placed = error.message().starts_with(StrCat(op->name(), ":"));
    if (placed || !error.where().empty() || error.code() == ErrorCode::kInternal) throw;
    FailAt(op, error.id(), error.message(), error.hints().empty() ? "" : error.hints().front());
  }
}

bool IsUnset(Type type) { return !type || type.isa<NoneType>(); }

}  // namespace

std::vector<Type> InferResultTypes(Operation* op, ValueFacts& facts) {
  InferShapeContext c(op, facts);
  RunInferShape(op, c);
  return c.result_types();
}

void InferAndSetTypes(Operation* op, ValueFacts& facts) {
  InferShapeContext c(op, facts);
  InferAndSetTypes(op, c);
}

void InferAndSetTypes(Operation* op, InferShapeContext& c) {
  RunInferShape(op, c);
  const std::vector<Type>& types = c.result_types();
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i]) op->result(i).set_type(types[i]);
    if (IsUnset(op->result(i).type()) && !op->HasInterface<InferShapeInterface>()) {
      FailAt(op, "verify/no-inference", "the types of its results cannot be inferred",
             "give the result types when the op is created");
    }
  }
}

}  // namespace lathe
