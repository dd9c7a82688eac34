#include "lathe/pass/rewriter.h"

#include <algorithm>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"

namespace lathe {

namespace {

/// Attributes of `op` that its declaration does not list.
void AppendRuntimeAttributes(const Operation* op, std::vector<NamedAttribute>& out) {
  const std::span<const StrAttribute> required = op->info().impl()->attribute_names();
  for (const NamedAttribute& a : op->attributes().entries()) {
    if (op->info().def() == nullptr ||
        std::find(required.begin(), required.end(), a.name) != required.end()) {
      continue;
    }
    const auto same_name = [&](const NamedAttribute& other) { return other.name == a.name; };
    if (std::none_of(out.begin(), out.end(), same_name)) out.push_back(a);
  }
}

}  // namespace

namespace {
class ProgramConstants : public ValueFacts {
 public:
  explicit ProgramConstants(const Program& program) : program_(program) {}
  const Tensor* Constant(Value value) override { return ConstantValue(program_, value); }

 private:
  const Program& program_;
};
/// The operation of `block` that is `op` or holds it; null if there is none.
Operation* AncestorIn(const Block* block, Operation* op) {
  while (op != nullptr && op->block() != block) op = op->parent_op();
  return op;
}

/// What `b` sees, `a` sees too: it comes later in the same block, or in a region further in.
bool IsLater(Operation* a, Operation* b) {
  if (Operation* around = AncestorIn(b->block(), a)) return b->IsBefore(around);
  Operation* around = AncestorIn(a->block(), b);
  return around != nullptr && around->IsBefore(a);
}

}  // namespace

Rewriter::Rewriter(Program& program, Pass* pass)
    : Builder(program.context()),
      program_(program),
      pass_(pass),
      constants_(std::make_unique<ProgramConstants>(program)) {
  set_facts(constants_.get());
}

Rewriter::~Rewriter() = default;

void Rewriter::MarkChanged() {
  if (pass_ != nullptr) pass_->MarkChanged();
}

Rewriter::Replacing::Replacing(Rewriter& rewriter, std::span<Operation* const> ops)
    : rewriter_(rewriter),
      saved_location_(rewriter.location()),
      saved_attributes_(rewriter.carried_) {
  std::vector<Location> locations;
  rewriter.carried_.clear();
  Operation* last = ops.front();
  for (Operation* op : ops) {
    locations.push_back(op->location());
    AppendRuntimeAttributes(op, rewriter.carried_);
    if (IsLater(op, last)) last = op;
  }
  rewriter.set_location(Location::Fused(rewriter.context(), locations));
  rewriter.SetInsertionPoint(last);
}

Rewriter::Replacing::~Replacing() {
  rewriter_.set_location(saved_location_);
  rewriter_.carried_ = std::move(saved_attributes_);
}

Operation* Rewriter::Create(std::string_view op_name, std::span<const Value> operands,
                            std::span<const NamedAttribute> attributes, size_t num_results) {
  std::vector<NamedAttribute> all(attributes.begin(), attributes.end());
  for (const NamedAttribute& a : carried_) {
    const auto same_name = [&](const NamedAttribute& other) { return other.name == a.name; };
    if (std::none_of(all.begin(), all.end(), same_name)) all.push_back(a);
  }
  const OpInfo info = context().GetOrMakeOp(op_name);
  if (num_results == 0 && info.def() != nullptr) {
    for (const ValueDef& result : info.def()->results) num_results += result.optional ? 0 : 1;
  }
  return Announce(CreateInferred(info, operands, all, num_results));
}

Operation* Rewriter::Announce(Operation* op) {
  MarkChanged();
  if (listener_ != nullptr) listener_->Inserted(op);
  return op;
}

Value Rewriter::Constant(const Tensor& value) {
  const NamedAttribute attribute = Named("value", Attr(value));
  const OpInfo info = context().GetOrMakeOp(kConstantOp);
  return Announce(CreateInferred(info, {}, {&attribute, 1}, 1))->result(0);
}

Value Rewriter::Parameter(std::string_view base, Tensor data) {
  const Type type =
      VTensorType::Get(context(), SymShape::FromConstants(data.shape()), data.element_type());
  const StrAttribute name = program_.parameters().FreshName(context(), base);
  program_.parameters().Insert(name, {std::move(data), false});
  const NamedAttribute attribute = Named("name", name);
  const OpInfo info = context().GetOrMakeOp(kGetParameterOp);
  return Announce(Builder::Create(info, {}, {&attribute, 1}, {&type, 1}))->result(0);
}

void Rewriter::ReplaceAllUses(Value from, Value to) {
  if (from.use_empty()) return;
  LATHE_CHECK(Compatible(to.type(), from.type()), "a value of type ", to.type().ToString(),
              " cannot replace one of type ", from.type().ToString());
  MarkChanged();
  if (listener_ == nullptr) {
    from.ReplaceAllUsesWith(to);
    return;
  }
  if (from.defining_op() != nullptr) listener_->ResultsReplaced(from.defining_op());
  while (!from.use_empty()) {
    const OpOperand use = *from.uses().begin();
    use.Set(to);
    listener_->Modified(use.owner());
  }
}

void Rewriter::ReplaceOp(Operation* op, std::span<const Value> values) {
  LATHE_CHECK(values.size() == op->num_results(), op->Describe(), " has ", op->num_results(),
              " results");
  for (size_t i = 0; i < values.size(); ++i) ReplaceAllUses(op->result(i), values[i]);
  Erase(op);
}

void Rewriter::SetOperand(Operation* op, size_t i, Value value) {
  op->set_operand(i, value);
  MarkChanged();
  if (listener_ != nullptr) listener_->Modified(op);
}

void Rewriter::SetAttribute(Operation* op, std::string_view name, Attribute value) {
  op->SetAttribute(name, value);
  MarkChanged();
  if (listener_ != nullptr) listener_->Modified(op);
}

void Rewriter::SetResultType(Operation* op, size_t i, Type type) {
  if (op->result(i).type() == type) return;
  op->result(i).set_type(type);
  MarkChanged();
  if (listener_ != nullptr) listener_->Modified(op);
}

void Rewriter::Erase(Operation* op) {
  MarkChanged();
  if (listener_ != nullptr) {
    std::vector<Operation*> erased;
    for (OpWalker w(op); Operation* inner = w.Next();) erased.push_back(inner);
    // Last first: to hear of one may queue what makes its operands.
    for (size_t i = erased.size(); i-- > 0;) listener_->Erasing(erased[i]);
  }
  if (insertion_point() == op) {
    if (op->next() != nullptr) {
      SetInsertionPoint(op->next());
    } else {
      SetInsertionPointToEnd(op->block());
    }
  }
  op->Erase();
}

void Rewriter::EraseDead(Operation* root) {
  std::vector<Operation*> dead{root};
  while (!dead.empty()) {
    Operation* op = dead.back();
    dead.pop_back();
    if (!op->use_empty() || !IsRemovableWhenUnused(op)) continue;
    std::vector<Operation*> producers;
    for (const detail::OpOperandImpl& o : op->operands()) {
      Operation* maker = o.value == nullptr ? nullptr : Value(o.value).defining_op();
      if (maker != nullptr &&
          std::find(producers.begin(), producers.end(), maker) == producers.end()) {
        producers.push_back(maker);
      }
    }
    Erase(op);
    for (Operation* maker : producers) {
      if (maker->use_empty()) dead.push_back(maker);
    }
  }
}

void Rewriter::MoveBefore(Operation* op, Operation* other) {
  op->MoveBefore(other);
  MarkChanged();
}

bool Rewriter::wants_remarks() const {
  return pass_ != nullptr && pass_->context() != nullptr && pass_->context()->wants_remarks();
}

void Rewriter::Applied(const Operation* op, std::string message) {
  if (wants_remarks()) pass_->Applied(op, std::move(message));
}

void Rewriter::Missed(const Operation* op, std::string why) {
  if (wants_remarks() && missed_.insert(StrCat(op->Describe(), ": ", why)).second) {
    pass_->Missed(op, std::move(why));
  }
}

// ---- what may be removed or merged ----

bool TouchesMutableTensor(const Operation* op) {
  const auto is_mutable = [](Value v) { return v && v.type().isa<TensorType>(); };
  for (const detail::OpOperandImpl& o : op->operands()) {
    if (is_mutable(Value(o.value))) return true;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (is_mutable(op->result(i))) return true;
  }
  return false;
}

namespace {

bool IsPure(const Operation* op) {
  return (op->HasTrait<HasValueSemantics>() || op->HasTrait<ConstantLike>()) &&
         !op->HasTrait<SideEffect>() && !op->HasTrait<Terminator>();
}

}  // namespace

bool IsRemovableWhenUnused(const Operation* op) {
  if (op->HasTrait<SideEffect>() || op->HasTrait<Terminator>()) return false;
  if (op->HasTrait<Inplace>()) return false;
  if (op->num_regions() == 0) {
    return IsPure(op) || op->HasTrait<ReadOnly>() || op->HasTrait<ViewLike>();
  }
  for (OpWalker w(const_cast<Operation*>(op)); const Operation* inner = w.Next();) {
    if (inner == op || inner->HasTrait<Terminator>()) continue;
    if (inner->HasTrait<SideEffect>() || inner->HasTrait<Inplace>()) return false;
    if (inner->num_regions() == 0 && !IsPure(inner) && !inner->HasTrait<ReadOnly>()) return false;
  }
  return op->info().is_registered();
}

bool IsMergeable(const Operation* op) {
  return IsPure(op) && !op->HasTrait<Random>() && op->num_regions() == 0 &&
         !TouchesMutableTensor(op);
}

const Tensor* ConstantValue(const Program& program, Value value) {
  const Operation* op = value ? value.defining_op() : nullptr;
  if (op == nullptr) return nullptr;
  if (op->HasTrait<ConstantLike>()) {
    const auto constant = op->attribute("value").dyn_cast<TensorAttribute>();
    return constant ? &constant.value() : nullptr;
  }
  if (op->name() != kGetParameterOp) return nullptr;
  const auto name = op->attribute("name").dyn_cast<StrAttribute>();
  const Variable* v = name ? program.parameters().Find(name.value()) : nullptr;
  return v != nullptr && !v->is_mutable ? &v->data : nullptr;
}

}  // namespace lathe
