#include <unordered_map>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "src/ir/verifier.h"

namespace lathe {

namespace {

/// A mutable tensor, or a container of such.
bool HoldsMutable(Type type) {
  std::vector<Type> open{type};
  while (!open.empty()) {
    const Type t = open.back();
    open.pop_back();
    if (t.isa<TensorType>()) return true;
    if (const auto container = t.dyn_cast<ContainerType>()) {
      open.insert(open.end(), container.elements().begin(), container.elements().end());
    }
  }
  return false;
}

void CheckImmutable(Operation* function, std::string_view what, size_t i, Type type) {
  if (!HoldsMutable(type)) return;
  throw OpError(function, "verify/function-mutable",
                StrCat(what, " ", i, " is ", type.ToString(),
                       ", but functions take and give immutable values"))
      .Hint("copy it with builtin.to_vtensor, and back with builtin.to_tensor");
}

Error CallError(Operation* call, const Operation* callee, std::string_view what) {
  return OpError(call, "verify/call",
                 StrCat("function '", FunctionTable::NameOf(callee), "' ", what))
      .Note(StrCat("the function: ", callee->Describe()));
}

}  // namespace

void VerifyFunction(Operation* function) {
  const Block* body = FunctionTable::Body(function);
  if (body == nullptr || body->next() != nullptr) {
    throw OpError(function, "verify/function", "its region must hold one block");
  }
  const Operation* last = body->terminator();
  if (last == nullptr || last->name() != kReturnOp) {
    throw OpError(function, "verify/terminator", "its block must end in builtin.return");
  }
  for (size_t i = 0; i < body->num_arguments(); ++i) {
    CheckImmutable(function, "argument", i, body->argument(i).type());
  }
  for (size_t i = 0; i < last->num_operands(); ++i) {
    if (!last->operand(i)) {
      throw OpError(function, "verify/function", StrCat("it returns no value ", i));
    }
    CheckImmutable(function, "result", i, last->operand(i).type());
  }
}

void VerifyCall(Operation* call, const FunctionTable& functions) {
  const Operation* callee = functions.Callee(call);
  if (callee == nullptr) {
    const auto name = call->attribute("callee").dyn_cast<StrAttribute>();
    if (!name) return;
    std::vector<std::string> names;
    for (const Operation* f : functions.functions()) names.push_back(FunctionTable::NameOf(f));
    Error error =
        OpError(call, "verify/callee", StrCat("the program has no function '", name.value(), "'"));
    if (const std::string near = DidYouMean(name.value(), names); !near.empty()) error.Hint(near);
    throw error;
  }
  const Block* body = FunctionTable::Body(callee);
  const Operation* last = FunctionTable::Return(callee);
  if (body == nullptr || last == nullptr) return;  // reported with the function
  if (call->num_operands() != body->num_arguments()) {
    throw CallError(call, callee,
                    StrCat("takes ", body->num_arguments(), " values, not ", call->num_operands()));
  }
  if (call->num_results() != last->num_operands()) {
    throw CallError(call, callee,
                    StrCat("gives ", last->num_operands(), " values, not ", call->num_results()));
  }
  for (size_t i = 0; i < call->num_operands(); ++i) {
    const Type wanted = body->argument(i).type();
    if (!call->operand(i)) {
      throw CallError(call, callee, StrCat("takes a value ", i, ", which is absent"));
    }
    if (Compatible(call->operand(i).type(), wanted)) continue;
    throw CallError(call, callee,
                    StrCat("takes ", wanted.ToString(), " as value ", i, ", not ",
                           call->operand(i).type().ToString()));
  }
  for (size_t i = 0; i < call->num_results(); ++i) {
    const Value given = last->operand(i);
    if (!given || Compatible(given.type(), call->result(i).type())) continue;
    throw CallError(call, callee,
                    StrCat("gives ", given.type().ToString(), " as value ", i, ", not ",
                           call->result(i).type().ToString()));
  }
}

// What can be said where the op stands; calls wait until all functions are known.
void Verifier::CheckFunctionPart(Operation* op) {
  const OpInfo info = op->info();
  if (info == call_) {
    calls_.push_back(op);
  } else if (info == func_) {
    const Operation* parent = op->parent_op();
    if (parent != nullptr && parent->name() != kModuleOp) {
      Add(OpError(op, "verify/function", "a function stands in the top block of a program"));
    } else {
      Collect(op, [&] { VerifyFunction(op); });
    }
  } else if (info == return_) {
    const Operation* parent = op->parent_op();
    if (parent != nullptr && parent->info() == func_) return;
    Add(OpError(op, "verify/function", "it ends functions and nothing else"));
  } else if (op->HasTrait<ProgramInput>() || op->HasTrait<ProgramOutput>()) {
    const Operation* outer = op->parent_op();
    while (outer != nullptr && outer->info() != func_) outer = outer->parent_op();
    if (outer == nullptr) {
      if (op->HasTrait<ProgramInput>()) feeds_.push_back(op);
      return;
    }
    Add(OpError(op, "verify/function", "inputs and outputs of the program are not for functions")
            .Hint("give it to the function as an argument, or return it"));
  }
}

// Those who run the program give values by name.
void Verifier::CheckInputNames() {
  std::unordered_map<const void*, const Operation*> first;  // by name; looked up only
  for (Operation* feed : feeds_) {
    const auto name = feed->attribute("name").dyn_cast<StrAttribute>();
    if (!name) continue;
    const auto [at, is_new] = first.emplace(name.storage(), feed);
    if (is_new) continue;
    Add(OpError(feed, "verify/input-name", StrCat("there is an input '", name.value(), "' already"))
            .Note(StrCat("the other one: ", at->second->Describe())));
  }
}

void Verifier::CheckFunctions(Operation* module) {
  const FunctionTable functions(module);
  std::unordered_map<const void*, const Operation*> first;  // by name; looked up only
  for (Operation* function : functions.functions()) {
    const auto name = function->attribute("name").dyn_cast<StrAttribute>();
    if (!name) continue;
    const auto [at, is_new] = first.emplace(name.storage(), function);
    if (is_new) continue;
    Add(OpError(function, "verify/function-name",
                StrCat("there is a function '", name.value(), "' already"))
            .Note(StrCat("the other one: ", at->second->Describe())));
  }
  for (Operation* call : calls_) {
    Collect(call, [&] { VerifyCall(call, functions); });
  }
  if (!functions.empty()) Collect(module, [&] { (void)functions.CalleesFirst(); });
}

}  // namespace lathe
