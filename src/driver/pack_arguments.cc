#include "src/driver/pack_arguments.h"

#include <sys/mman.h>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/group.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

// The tensor of a constant or of a parameter that nothing sets; null of anything else.
const Tensor* ConstantTensor(const Program& program, Operation* op) {
  if (op == nullptr) return nullptr;
  if (const auto constant = op->dyn_cast<builtin::ConstantOp>()) {
    const auto attribute = op->attribute("value").dyn_cast<TensorAttribute>();
    return attribute ? &attribute.value() : nullptr;
  }
  if (const auto read = op->dyn_cast<builtin::GetParameterOp>()) {
    const Variable* variable = program.parameters().Find(read.name());
    return variable == nullptr || variable->is_mutable ? nullptr : &variable->data;
  }
  return nullptr;
}

// Pages of a mapped file that were read need not stay in memory; whoever reads them again gets them
// from the file. Of other memory, nothing is lost either.
void Release(const Tensor& tensor) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.raw());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = (begin + tensor.byte_size()) / kPage * kPage;
  if (tensor.buffer() == nullptr || tensor.buffer()->is_writable() || last <= first) return;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_PAGEOUT);  // advice: may be ignored
}

}  // namespace

FunctionCalls::FunctionCalls(const Program& program) : program_(program) {
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (const auto call = op->dyn_cast<builtin::CallOp>()) calls_[call.callee()].push_back(op);
  }
}

const std::vector<Operation*>& FunctionCalls::Of(const Operation* function) const {
  static const std::vector<Operation*> none;
  const auto found = calls_.find(builtin::FuncOp(const_cast<Operation*>(function)).name());
  return found == calls_.end() ? none : found->second;
}

std::vector<bool> FunctionCalls::ConstantArguments(const Operation* function) const {
  const std::vector<Operation*>& calls = Of(function);
  std::vector<bool> constant(function->region(0).front()->num_arguments(), !calls.empty());
  for (Operation* call : calls) {
    for (size_t i = 0; i < constant.size(); ++i) {
      Operation* source = call->operand(i).defining_op();
      constant[i] = constant[i] && ConstantTensor(program_, source) != nullptr;
    }
  }
  return constant;
}

void ArgumentPacker::Apply(const std::vector<Operation*>& calls,
                           const std::vector<lower::PackedLayout>& layouts) {
  for (Operation* call : calls) {
    for (const lower::PackedLayout& layout : layouts) {
      Operation* source = call->operand(layout.argument).defining_op();
      call->set_operand(layout.argument, PackedOf(source, layout));
    }
  }
}

Value ArgumentPacker::PackedOf(Operation* source, const lower::PackedLayout& layout) {
  std::vector<Packed>& known = packed_[source];
  for (const Packed& p : known) {
    if (p.layout == layout) return p.value;
  }
  const Tensor* tensor = ConstantTensor(program_, source);
  LATHE_CHECK(tensor != nullptr, "only constants are packed");
  const auto read = source->dyn_cast<builtin::GetParameterOp>();
  const std::string base = StrCat(read ? read.name() : "constant", ".packed");
  const StrAttribute name = program_.parameters().FreshName(program_.context(), base);
  const auto old = source->result(0).type().cast<AnyTensorType>();
  const Shape shape = layout.shape();
  const Type type = VTensorType::Get(
      program_.context(), SymShape(std::vector<Dim>(shape.begin(), shape.end())), old.element());
  Tensor packed = lower::Pack(*tensor, layout);
  Release(*tensor);
  program_.parameters().Insert(name, {std::move(packed), false});
  Builder b = Builder::After(source);
  b.set_location(source->location());
  const Value value =
      builtin::GetParameterOp::Create(b, {&type, 1}, {.name = std::string(name.value())}).value();
  known.push_back({layout, value});
  return value;
}

}  // namespace lathe
