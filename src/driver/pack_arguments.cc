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
  const auto found = calls_.find(builtin::FuncOp(function).name());
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

namespace {

// Of a parameter whoever reads it.
const void* IdentityOf(const Operation* source) {
  auto* op = const_cast<Operation*>(source);
  if (!op->isa<builtin::GetParameterOp>()) return op;
  return op->attribute("name").storage();
}

}  // namespace

void PackedOrders::Add(const std::vector<Operation*>& calls,
                       std::span<const lower::PackedLayout> layouts) {
  for (const Operation* call : calls) {
    for (const lower::PackedLayout& layout : layouts) {
      const Operation* source = call->operand(layout.argument).defining_op();
      if (!Has(source, layout)) orders_[IdentityOf(source)].push_back(layout);
    }
  }
}

std::span<const lower::PackedLayout> PackedOrders::Of(const Operation* source) const {
  if (source == nullptr) return {};
  const auto found = orders_.find(IdentityOf(source));
  if (found == orders_.end()) return {};
  return found->second;
}

bool PackedOrders::Has(const Operation* source, const lower::PackedLayout& order) const {
  return std::ranges::any_of(
      Of(source), [&](const lower::PackedLayout& l) { return lower::IsSameOrder(l, order); });
}

void PackedConstants::Add(const Operation* call, std::span<const lower::PackedLayout> layouts) {
  for (const lower::PackedLayout& layout : layouts) {
    const size_t index = IndexOf(call->operand(layout.argument).defining_op(), layout);
    of_call_[call].emplace_back(layout.argument, index);
  }
}

std::optional<size_t> PackedConstants::Find(const Operation* call, size_t argument) const {
  const auto found = of_call_.find(call);
  if (found == of_call_.end()) return std::nullopt;
  for (const auto& [at, index] : found->second) {
    if (at == argument) return index;
  }
  return std::nullopt;
}

size_t PackedConstants::IndexOf(Operation* source, const lower::PackedLayout& layout) {
  std::vector<size_t>& known = of_source_[IdentityOf(source)];
  for (const size_t i : known) {
    if (lower::IsSameOrder(all_[i].layout, layout)) return i;
  }
  const Tensor* tensor = ConstantTensor(program_, source);
  LATHE_CHECK(tensor != nullptr, "only constants are packed");
  const auto read = source->dyn_cast<builtin::GetParameterOp>();
  const std::string base = StrCat(read ? read.name() : "constant", ".packed");
  all_.push_back({FreshName(base), source, layout, Tensor()});
  raw_.push_back(*tensor);
  known.push_back(all_.size() - 1);
  return known.back();
}

std::string PackedConstants::FreshName(const std::string& base) {
  for (size_t& next = numbers_[base];; ++next) {
    std::string name = next == 0 ? base : StrCat(base, ".", next);
    if (program_.parameters().Find(name) == nullptr && names_.insert(name).second) return name;
  }
}

void PackedConstants::Pack(int threads) {
  if (raw_.empty()) return;
  const size_t done = all_.size() - raw_.size();
  {
    const SharedChunks chunks;  // memory is named by one thread, and comes when it is written to
    for (size_t i = 0; i < raw_.size(); ++i) {
      const lower::PackedLayout& layout = all_[done + i].layout;
      all_[done + i].tensor = Tensor(layout.element_of(raw_[i].element_type()), layout.shape());
    }
  }
  ThreadPool pool(threads);
  pool.ParallelFor(0, std::ssize(raw_), 1, [&](int64_t i, int64_t) {
    const auto at = static_cast<size_t>(i);
    Packed& packed = all_[done + at];
    lower::PackInto(raw_[at], packed.layout, packed.tensor, ReleaseFilePages);
    ReleaseFilePages(raw_[at].bytes());
    raw_[at] = Tensor();
  });
  raw_.clear();
}

void PassPacked(Program& program, const PackedConstants& constants) {
  for (const PackedConstants::Packed& packed : constants.all()) {
    const StrAttribute name = StrAttribute::Get(program.context(), packed.name);
    program.parameters().Insert(name, {packed.tensor, false});
  }
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const auto index = constants.Find(op, i);
      if (!index) continue;
      const PackedConstants::Packed& packed = constants.all()[*index];
      const auto raw = op->operand(i).type().cast<AnyTensorType>();
      const Type type = lower::PackedType(raw, packed.layout);
      Builder b = Builder::Before(op);
      b.set_location(packed.source->location());
      const auto read = builtin::GetParameterOp::Create(b, {&type, 1}, {.name = packed.name});
      op->set_operand(i, read.value());
    }
  }
}

}  // namespace lathe
