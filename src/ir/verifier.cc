#include "src/ir/verifier.h"

#include <algorithm>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/stated_constraints.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"

namespace lathe {

using detail::OpOperandImpl;
using detail::ValueImpl;

namespace {
constexpr size_t kMaxShownText = 300;
}  // namespace

Error OpError(const Operation* op, std::string id, std::string_view message) {
  Error error(ErrorCode::kVerify, std::move(id), StrCat(op->name(), ": ", message));
  if (!op->location().is_unknown()) error.At(op->location().ToString(*op->context()));
  std::string text = op->ToString();
  if (text.size() > kMaxShownText) text = text.substr(0, kMaxShownText) + " ...";
  error.Note(std::move(text));
  return error;
}

// ---- signatures that are known to be fine ----

bool CheckedSignatures::Gather(const Operation* op) {
  size_t n = 0;
  key_.fill(nullptr);
  key_[n++] = op->info().impl();
  key_[n++] = op->attributes().storage();
  // Zero is the type of an absent operand and the end of the list; the count tells them apart.
  key_[n++] = reinterpret_cast<const void*>(op->num_operands());
  if (op->num_operands() + op->num_results() > kWords - n || op->num_regions() > 0) return false;
  for (const OpOperandImpl& operand : op->operands()) {
    if (operand.value != nullptr) key_[n] = operand.value->type.storage();
    ++n;
  }
  for (size_t i = 0; i < op->num_results(); ++i) key_[n++] = op->result(i).type().storage();
  return true;
}

bool CheckedSignatures::Contains(const Operation* op) {
  slot_ = kSlots;
  if (!Gather(op)) return false;
  uint64_t hash = 0;
  for (const void* word : key_) {
    hash = (hash + reinterpret_cast<uintptr_t>(word)) * 0x9e3779b97f4a7c15U;
  }
  slot_ = hash >> 32 & (kSlots - 1);
  return slots_[slot_] == key_;
}

void CheckedSignatures::Enter() {
  if (slot_ != kSlots) slots_[slot_] = key_;
}

// ---- the walk ----

std::vector<Error> Verifier::Run(Operation* root) {
  get_parameter_ = root->context()->FindOp(kGetParameterOp);
  set_parameter_ = root->context()->FindOp(kSetParameterOp);
  func_ = root->context()->FindOp(kFuncOp);
  call_ = root->context()->FindOp(kCallOp);
  return_ = root->context()->FindOp(kReturnOp);
  OpenOuterScopes(root);
  Walk(root);
  while (!scopes_.empty()) Close();
  if (root->block() == nullptr && root->name() == kModuleOp) {
    CheckInputNames();
    CheckFunctions(root);
  }
  return std::move(errors_);
}

// What is visible at `root` when it is part of something larger.
void Verifier::OpenOuterScopes(Operation* root) {
  std::vector<Operation*> chain;
  for (Operation* op = root; op != nullptr && op->block() != nullptr; op = op->parent_op()) {
    chain.push_back(op);
  }
  uint32_t visible = 0;
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    const Operation* parent = (*it)->parent_op();
    if (parent != nullptr && parent->HasTrait<IsolatedFromAbove>()) {
      visible = static_cast<uint32_t>(scopes_.size());
    }
    Open((*it)->block(), 0, visible);
    scopes_.back().current = *it;
  }
}

void Verifier::Open(Block* block, size_t region, uint32_t visible) {
  scopes_.push_back({block, nullptr, region, visible});
  block->mark = static_cast<uint32_t>(scopes_.size());
}

void Verifier::Close() {
  scopes_.back().block->mark = 0;
  scopes_.pop_back();
}

void Verifier::Walk(Operation* root) {
  const size_t bottom = scopes_.size();
  Visit(root);
  EnterRegions(root, 0);
  while (scopes_.size() > bottom && !full()) {
    Scope& top = scopes_.back();
    Operation* next = top.current == nullptr ? top.block->front() : top.current->next();
    if (next == nullptr) {
      NextBlock();
      continue;
    }
    top.current = next;
    Visit(next);
    if (next->num_regions() > 0) EnterRegions(next, 0);
  }
}

// Opens the first block of the regions of `op` from `region` on.
bool Verifier::EnterRegions(Operation* op, size_t region) {
  const bool isolated = op->HasTrait<IsolatedFromAbove>();
  for (; region < op->num_regions(); ++region) {
    Block* block = op->region(region).front();
    if (block == nullptr) continue;
    uint32_t visible = scopes_.empty() ? 0 : scopes_.back().visible;
    if (isolated) visible = static_cast<uint32_t>(scopes_.size());
    Open(block, region, visible);
    CheckArguments(block);
    return true;
  }
  return false;
}

// Leaves the top block for the next one of its owner.
void Verifier::NextBlock() {
  const Scope top = scopes_.back();
  Close();
  Operation* owner = top.block->parent_op();
  if (Block* block = top.block->next()) {
    Open(block, top.region, top.visible);
    CheckArguments(block);
  } else {
    EnterRegions(owner, top.region + 1);
  }
}

void Verifier::Visit(Operation* op) {
  CheckLinks(op);
  CheckOperands(op);
  CheckResults(op);
  CheckTerminator(op);
  CheckLocal(op);
  CheckStatement(op);
  if (parameters_ != nullptr) CheckParameter(op);
  if (func_) CheckFunctionPart(op);
}

// ---- errors ----

void Verifier::Add(Error error) {
  if (full()) return;
  if (!options_.after.empty()) error.Note(StrCat("found after pass '", options_.after, "'"));
  errors_.push_back(std::move(error));
}

// ---- structure ----

void Verifier::CheckLinks(Operation* op) {
  const Block* block = op->block();
  const bool before =
      op->prev() == nullptr ? block == nullptr || block->front() == op : op->prev()->next() == op;
  if (!before) Add(OpError(op, "verify/links", "the list of operations is broken before it"));
  for (const Region& region : op->regions()) {
    if (region.parent_op() != op) {
      Add(OpError(op, "verify/links", "a region does not know it as its parent"));
    }
  }
}

void Verifier::CheckArguments(Block* block) {
  Operation* op = block->parent_op();
  for (size_t i = 0; i < block->num_arguments(); ++i) {
    const Value argument = block->argument(i);
    if (!argument.type()) {
      Add(OpError(op, "verify/type", StrCat("block argument ", i, " has no type")));
    } else if (argument.index() != i || argument.argument_block() != block) {
      Add(OpError(op, "verify/links", StrCat("block argument ", i, " is numbered wrongly")));
    }
  }
}

void Verifier::CheckOperands(Operation* op) {
  const std::span<OpOperandImpl> operands = op->operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    const OpOperandImpl& operand = operands[i];
    if (operand.value == nullptr) continue;
    const auto self = reinterpret_cast<uintptr_t>(&operand);
    if (operand.owner != op || operand.back == nullptr ||
        (*operand.back & ~ValueImpl::kKindMask) != self) {
      Add(OpError(op, "verify/use-list", StrCat("operand ", i, " is not in its value's use list"))
              .Hint("operands are set through OpOperand::Set"));
      continue;
    }
    CheckVisible(op, i, Value(operand.value));
  }
}

void Verifier::CheckVisible(Operation* op, size_t i, Value value) {
  Operation* def = value.defining_op();
  const Block* block = def == nullptr ? value.argument_block() : def->block();
  // The root itself may stand alone.
  if (scopes_.empty() && op->block() == nullptr) return;
  auto fail = [&](std::string_view why) {
    Error error = OpError(op, "verify/dominance", StrCat("operand ", i, " ", why));
    if (def != nullptr) error.Note(StrCat("defined by ", def->Describe()));
    Add(std::move(error).Hint(
        "a value is defined before its uses, in the same or an enclosing block"));
  };
  if (block == nullptr) return fail("is a result of an operation that is in no block");
  const uint32_t mark = block->mark;
  if (mark == 0 || mark > scopes_.size() || scopes_[mark - 1].block != block) {
    return fail("is defined in a block that its user is not in");
  }
  if (mark - 1 < scopes_.back().visible) {
    return fail("is defined outside an operation whose regions see nothing around them");
  }
  if (def != nullptr && !def->IsBefore(scopes_[mark - 1].current)) {
    fail(def == op ? "is a result of the operation itself" : "is used before it is defined");
  }
}

void Verifier::CheckResults(Operation* op) {
  for (size_t i = 0; i < op->num_results(); ++i) {
    const Value result = op->result(i);
    if (!result.type()) Add(OpError(op, "verify/type", StrCat("result ", i, " has no type")));
    if (result.use_empty()) continue;
    const OpOperand first = *result.uses().begin();
    if (first.impl()->value != result.impl()) {
      Add(OpError(op, "verify/use-list",
                  StrCat("result ", i, " has a use that reads another value")));
    }
  }
}

void Verifier::CheckTerminator(Operation* op) {
  if (op->next() == nullptr || op->block() == nullptr || !op->HasTrait<Terminator>()) return;
  Add(OpError(op, "verify/terminator", "it ends its block, but operations follow")
          .Note(StrCat("followed by ", op->next()->Describe())));
}

// ---- what the op type says ----

void Verifier::CheckLocal(Operation* op) {
  const bool plain = op->num_regions() == 0;
  if (!plain || !checked_.Contains(op)) {
    const bool fine = Collect(op, [&] {
      VerifyDeclaration(op);
      VerifyTraits(op);
      if (options_.infer_types) VerifyInferredTypes(op);
    });
    if (!fine) return;
    if (plain) checked_.Enter();
  }
  if (auto rule = op->dyn_cast<VerifyInterface>()) Collect(op, [&] { rule.Verify(); });
}

void Verifier::CheckStatement(Operation* op) {
  const Block* block = op->HasTrait<Terminator>() ? op->block() : nullptr;
  const bool is_top = op->block() == nullptr && op->name() == kModuleOp && op->num_regions() == 1;
  if (is_top) block = op->region(0).front();
  if (block != nullptr) Collect(op, [&] { (void)StatedConstraints(*block); });
}

// A program without any weights is a structure that goes with many sets of them.
void Verifier::CheckParameter(Operation* op) {
  const bool reads = op->info() == get_parameter_;
  if (!get_parameter_ || (!reads && op->info() != set_parameter_)) return;
  const auto name = op->attribute("name").dyn_cast<StrAttribute>();
  if (!name || parameters_->empty()) return;
  if (!reads) set_names_.push_back(name.storage());
  const Variable* variable = parameters_->Find(name.value());
  if (variable == nullptr) {
    const bool set =
        std::find(set_names_.begin(), set_names_.end(), name.storage()) != set_names_.end();
    if (!reads || set) return;
    std::vector<std::string_view> names;
    for (const ParameterMap::Entry& entry : *parameters_) names.push_back(entry.name.value());
    Error error = OpError(op, "verify/parameter",
                          StrCat("the program has no parameter '", name.value(), "'"));
    const std::string near = DidYouMean(name.value(), names);
    Add(std::move(error).Hint(near.empty() ? "load the weights with the program" : near));
    return;
  }
  const size_t values = reads ? op->num_results() : op->num_operands();
  if (values != 1) return;
  const Value value = reads ? op->result(0) : op->operand(0);
  const auto declared = value ? value.type().dyn_cast<AnyTensorType>() : AnyTensorType();
  if (!declared) return;
  const Type actual =
      declared.With(variable->data.element_type(), SymShape::FromConstants(variable->data.shape()));
  if (Compatible(actual, declared)) return;
  Add(OpError(op, "verify/parameter",
              StrCat("parameter '", name.value(), "' holds ", variable->data.TypeString(),
                     ", but the operation says ", declared.ToString())));
}

// ---- entry points ----

std::vector<Error> Verify(const Program& program, const VerifyOptions& options) {
  return Verifier(options, &program.parameters()).Run(program.module());
}

std::vector<Error> Verify(Operation* op, const VerifyOptions& options) {
  return Verifier(options, nullptr).Run(op);
}

void VerifyOrThrow(const Program& program, const VerifyOptions& options) {
  std::vector<Error> errors = Verify(program, options);
  if (errors.empty()) return;
  Error first = std::move(errors.front());
  first.others.assign(std::make_move_iterator(errors.begin() + 1),
                      std::make_move_iterator(errors.end()));
  throw first;
}

}  // namespace lathe
