#include "lathe/ir/program.h"

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {

// ---- parameters ----

Variable* ParameterMap::Find(StrAttribute name) {
  auto at = index_.find(name.storage());
  return at == index_.end() ? nullptr : &entries_[at->second].variable;
}

Variable* ParameterMap::Find(std::string_view name) {
  return const_cast<Variable*>(std::as_const(*this).Find(name));
}

const Variable* ParameterMap::Find(std::string_view name) const {
  if (entries_.empty()) return nullptr;
  const StrAttribute key = StrAttribute::Get(*entries_[0].name.context(), name);
  auto at = index_.find(key.storage());
  return at == index_.end() ? nullptr : &entries_[at->second].variable;
}

Variable& ParameterMap::Insert(StrAttribute name, Variable variable) {
  if (!index_.emplace(name.storage(), entries_.size()).second) {
    throw Error(ErrorCode::kInvalidArgument, "ir/duplicate-parameter",
                StrCat("the program has a parameter '", name.value(), "' already"));
  }
  entries_.push_back({name, std::move(variable)});
  return entries_.back().variable;
}

void ParameterMap::Set(StrAttribute name, Variable variable) {
  if (Variable* old = Find(name)) {
    *old = std::move(variable);
  } else {
    Insert(name, std::move(variable));
  }
}

bool ParameterMap::Erase(StrAttribute name) {
  auto at = index_.find(name.storage());
  if (at == index_.end()) return false;
  const size_t gone = at->second;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(gone));
  index_.erase(at);
  for (size_t i = gone; i < entries_.size(); ++i) index_[entries_[i].name.storage()] = i;
  return true;
}

StrAttribute ParameterMap::FreshName(IrContext& context, std::string_view base) const {
  const StrAttribute plain = StrAttribute::Get(context, base);
  if (index_.count(plain.storage()) == 0) return plain;
  const auto numbered = [&](uint64_t i) {
    return StrAttribute::Get(context, StrCat(base, ".", i));
  };
  // Numbers are taken from 1 on: a free one is found without trying all of them.
  uint64_t taken = 0, free = 1;
  for (; index_.count(numbered(free).storage()) != 0; free *= 2) taken = free;
  while (free - taken > 1) {
    const uint64_t middle = taken + (free - taken) / 2;
    (index_.count(numbered(middle).storage()) != 0 ? taken : free) = middle;
  }
  return numbered(free);
}

// ---- programs ----

namespace {
Operation* MakeModule(IrContext& context) {
  Operation* module = Operation::Create({.info = context.GetOrMakeOp(kModuleOp),
                                         .operands = {},
                                         .result_types = {},
                                         .attributes = {},
                                         .num_regions = 1,
                                         .location = {}});
  module->region(0).AddBlock();
  return module;
}

template <class Trait>
std::vector<Operation*> TopLevelOps(const Program& program) {
  std::vector<Operation*> found;
  for (Operation& op : *program.block()) {
    if (op.HasTrait<Trait>()) found.push_back(&op);
  }
  return found;
}
}  // namespace

Program::Program(IrContext& context) : context_(&context), module_(MakeModule(context)) {}
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;
Program::~Program() = default;

Block* Program::block() const { return module_->region(0).front(); }

Program Program::Clone() const {
  Program copy(*context_);
  IrMapping mapping;
  copy.module_ = OwningOp(lathe::Clone(module(), mapping));
  copy.parameters_ = parameters_;
  return copy;
}

void Program::RefreshMutability() {
  for (ParameterMap::Entry& e : parameters_) e.variable.is_mutable = false;
  const OpInfo set_parameter = context_->FindOp(kSetParameterOp);
  for (OpWalker w(module()); Operation* op = w.Next();) {
    if (op->info() != set_parameter) continue;
    if (auto name = op->attribute("name").dyn_cast<StrAttribute>()) {
      if (Variable* v = parameters_.Find(name)) v->is_mutable = true;
    }
  }
}

std::vector<Operation*> Program::feeds() const { return TopLevelOps<ProgramInput>(*this); }
std::vector<Operation*> Program::fetches() const { return TopLevelOps<ProgramOutput>(*this); }

}  // namespace lathe
