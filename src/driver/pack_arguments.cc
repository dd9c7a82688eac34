#include "src/driver/pack_arguments.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/group.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "lathe/support/shared_chunks.h"
#include "src/lower/pack.h"

namespace lathe {
const Tensor* ConstantTensor(const Program& program, const Operation* source) {
  auto* op = const_cast<Operation*>(source);
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

ArgumentPacker::ArgumentPacker(Program& program) : program_(program) {
  for (OpWalker w(program.module()); const Operation* op = w.Next();) {
    for (const char* name : {"builtin.get_parameter", "builtin.set_parameter"}) {
      if (op->name() == name) ++readers_[op->attribute("name").cast<StrAttribute>().value()];
    }
  }
}

void ArgumentPacker::Apply(const std::vector<Operation*>& calls,
                           const std::vector<lower::PackedLayout>& layouts) {
  for (Operation* call : calls) {
    for (const lower::PackedLayout& layout : layouts) {
      MakeForm(call->operand(layout.argument).defining_op(), layout);
      Use(call, layout.argument, layout);
    }
  }
}

const std::vector<ArgumentPacker::Packed>& ArgumentPacker::FormsOf(const Operation* source) const {
  static const std::vector<Packed> none;
  const auto found = packed_.find(source);
  return found == packed_.end() ? none : found->second;
}

const ArgumentPacker::Packed* ArgumentPacker::Find(const Operation* source,
                                                   const lower::PackedLayout& layout) const {
  const std::vector<Packed>& forms = FormsOf(source);
  const auto found = std::ranges::find(forms, layout, &Packed::layout);
  return found == forms.end() ? nullptr : &*found;
}

void ArgumentPacker::Use(Operation* call, size_t argument, const lower::PackedLayout& layout) {
  Operation* source = call->operand(argument).defining_op();
  call->set_operand(argument, Find(source, layout)->value);
  if (source->result(0).use_empty()) Drop(source);
}

void ArgumentPacker::Drop(Operation* source) {
  if (const auto read = source->dyn_cast<builtin::GetParameterOp>()) {
    if (--readers_.at(read.name()) == 0) program_.parameters().Find(read.name())->data = Tensor();
  }
  packed_.erase(source);
  source->Erase();
}

void ArgumentPacker::MakeForm(Operation* source, const lower::PackedLayout& layout) {
  if (Find(source, layout) != nullptr) return;
  const Tensor* tensor = ConstantTensor(program_, source);
  LATHE_CHECK(tensor != nullptr, "only constants are packed");
  const auto read = source->dyn_cast<builtin::GetParameterOp>();
  const std::string base = StrCat(read ? read.name() : "constant", ".packed");
  const StrAttribute name = program_.parameters().FreshName(program_.context(), base);
  const auto old = source->result(0).type().cast<AnyTensorType>();
  const Shape shape = layout.shape();
  const Type type = VTensorType::Get(
      program_.context(), SymShape(std::vector<Dim>(shape.begin(), shape.end())), old.element());
  jobs_.push_back({*tensor, layout, name, Tensor()});
  program_.parameters().Insert(name, {Tensor(), false});
  readers_[name.value()] = 1;
  Builder b = Builder::After(source);
  b.set_location(source->location());
  const Value value =
      builtin::GetParameterOp::Create(b, {&type, 1}, {.name = std::string(name.value())}).value();
  packed_[source].push_back({layout, value});
}

void ArgumentPacker::Pack(ThreadPool& pool) {
  {
    const SharedChunks chunks;  // memory is named by one thread, and comes when it is written to
    for (Job& job : jobs_) job.packed = Tensor(job.tensor.element_type(), job.layout.shape());
  }
  pool.ParallelFor(0, std::ssize(jobs_), 1, [&](int64_t i, int64_t) {
    Job& job = jobs_[static_cast<size_t>(i)];
    lower::PackInto(job.tensor, job.layout, job.packed, ReleaseFilePages);
    ReleaseFilePages(job.tensor.bytes());
    job.tensor = Tensor();
  });
  for (Job& job : jobs_) program_.parameters().Find(job.name)->data = std::move(job.packed);
  jobs_.clear();
}

}  // namespace lathe
