#include "src/driver/outline_operations.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/block.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "src/driver/plan_operations.h"

namespace lathe {
namespace {

// Which a plan holds as bytes, or that may change.
bool IsOfBytes(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  return type && (BitWidth(type.element()) != 0 || !type.is_value());
}

bool MayChange(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  return type && !type.is_value();
}

bool IsOutlined(const Operation* op) {
  if (op->HasTrait<ConstantLike>() || op->isa<builtin::GetParameterOp>()) {
    return !IsOfBytes(op->result(0));
  }
  if (op->HasTrait<Terminator>() || op->HasTrait<SideEffect>() || op->isa<builtin::CallOp>() ||
      op->isa<nn::FeedOp>() || op->isa<nn::BindSizesOp>() || op->isa<cf::IfOp>() ||
      op->isa<cf::WhileOp>() || !op->HasInterface<EvalInterface>()) {
    return false;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (MayChange(op->result(i))) return false;
  }
  return true;
}

// What the operation and those in its regions read from outside, each once.
std::vector<Value> ReadFromOutside(Operation* op) {
  std::vector<Value> read;
  const auto add = [&](const Operation* reader) {
    for (size_t i = 0; i < reader->num_operands(); ++i) {
      const Value v = reader->operand(i);
      if (!v || std::ranges::find(read, v) != read.end()) continue;
      const Operation* owner = v.parent_block()->parent_op();
      while (owner != nullptr && owner != op) owner = owner->parent_op();
      if (owner != op) read.push_back(v);
    }
  };
  add(op);
  for (OpWalker w(op); const Operation* inner = w.Next();) {
    if (inner != op) add(inner);
  }
  return read;
}

class Outline {
 public:
  explicit Outline(CompiledProgram& compiled) : compiled_(compiled) {}

  void Run() {
    for (Operation* op : PlannedOrder(compiled_.program)) {
      if (!IsOutlined(op)) continue;
      const std::vector<Value> arguments = ReadFromOutside(op);
      if (std::ranges::none_of(arguments, MayChange)) MakeCall(op, arguments);
    }
  }

 private:
  void MakeCall(Operation* op, std::span<const Value> arguments) {
    Operation* function = MakeFunction(op, arguments);
    std::vector<Type> types;
    for (size_t i = 0; i < op->num_results(); ++i) types.push_back(op->result(i).type());
    Builder b = Builder::Before(op);
    b.set_location(op->location());
    const NamedAttribute callee =
        b.Named(builtin::CallOp::kCalleeAttr, b.Attr(function->cast<builtin::FuncOp>().name()));
    Operation* call =
        b.Create(b.context().GetOp<builtin::CallOp>(), arguments, {&callee, 1}, types);
    for (size_t i = 0; i < op->num_results(); ++i) {
      op->result(i).ReplaceAllUsesWith(call->result(i));
    }
    op->Erase();
  }

  Operation* MakeFunction(Operation* op, std::span<const Value> arguments) {
    Builder b = Builder::AtEnd(compiled_.program.block());
    b.set_location(op->location());
    const NamedAttribute name = b.Named(builtin::FuncOp::kNameAttr, b.Attr(FreshName(op)));
    Operation* function = b.Create(b.context().GetOp<builtin::FuncOp>(), {}, {&name, 1}, {}, 1);
    Block* body = function->region(0).AddBlock();
    IrMapping mapping;
    for (const Value v : arguments) mapping.Map(v, body->AddArgument(v.type()));
    Builder inside = Builder::AtEnd(body);
    inside.set_location(op->location());
    const Operation* copy = CopyInto(inside, op, mapping);
    std::vector<Value> results;
    for (size_t i = 0; i < copy->num_results(); ++i) results.push_back(copy->result(i));
    inside.Create(b.context().GetOp<builtin::ReturnOp>(), results, {}, {});
    const std::string_view full = op->name();
    Register(function, std::string(full.substr(full.find('.') + 1)));
    return function;
  }

  // Of a parameter its value.
  Operation* CopyInto(Builder& b, Operation* op, IrMapping& mapping) const {
    const auto read = op->dyn_cast<builtin::GetParameterOp>();
    if (!read) return b.Insert(Clone(op, mapping));
    const Variable* variable = compiled_.program.parameters().Find(read.name());
    const NamedAttribute value = b.Named(builtin::ConstantOp::kValueAttr, b.Attr(variable->data));
    const Type type = op->result(0).type();
    return b.Create(b.context().GetOp<builtin::ConstantOp>(), {}, {&value, 1}, {&type, 1});
  }

  void Register(Operation* function, std::string operations) {
    const std::string_view name = function->cast<builtin::FuncOp>().name();
    compiled_.by_name[name] = compiled_.functions.size();
    compiled_.functions.emplace_back().function = function;
    CompiledFunctionInfo& info = compiled_.infos.emplace_back();
    info.name = std::string(name);
    info.operations = std::move(operations);
    info.why_not = "its operations have no loops";
    compiled_.kernels.emplace_back();
  }

  std::string FreshName(const Operation* op) {
    const std::string base = StrCat("evaluated_", op->name().substr(op->name().find('.') + 1));
    std::string name;
    do {
      name = StrCat(base, "_", count_++);
    } while (compiled_.by_name.contains(name));
    return name;
  }

  CompiledProgram& compiled_;
  size_t count_ = 0;
};

}  // namespace

void OutlineOperations(CompiledProgram& compiled) { Outline(compiled).Run(); }

}  // namespace lathe
