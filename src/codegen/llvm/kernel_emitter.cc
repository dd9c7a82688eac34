#include "src/codegen/llvm/kernel_emitter.h"

#include <algorithm>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/codegen/llvm/function_emitter.h"

namespace lathe::codegen {
namespace {

// The tensors of a kernel in the order of its buffers: arguments, then the memory of its outputs.
std::vector<Value> BuffersOf(const KernelSource& source) {
  std::vector<Value> buffers;
  for (size_t i = 0; i < source.body->num_arguments(); ++i) {
    buffers.push_back(source.body->argument(i));
  }
  const Operation* end = source.body->terminator();
  LATHE_CHECK(end != nullptr, "a kernel without a terminator");
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const Operation* copy = end->operand(i).defining_op();
    LATHE_CHECK(copy != nullptr && copy->name() == builtin::kToVtensor &&
                    copy->operand(0).defining_op() != nullptr &&
                    copy->operand(0).defining_op()->isa<loop::AllocOp>(),
                "output ", i, " of kernel ", source.name, " is no loop.alloc");
    buffers.push_back(copy->operand(0));
  }
  return buffers;
}

constexpr int64_t kSmallMemory = 16 << 10;  // on the stack

bool IsWorkspace(const Operation& op) {
  if (!op.isa<loop::AllocOp>()) return false;
  const auto type = op.result(0).type().cast<AnyTensorType>();
  const Dim elements = type.shape().NumElements();
  return !elements.is_constant() || elements.value() > kSmallMemory * 8 / BitWidth(type.element());
}

// Memory outside of parallel loops that the caller gives, in program order.
std::vector<Value> WorkspaceMemory(const KernelSource& source, const std::vector<Value>& outputs) {
  std::vector<Value> memory;
  std::vector<const Operation*> next{source.body->front()};
  while (!next.empty()) {
    const Operation* op = next.back();
    if (op == nullptr) {
      next.pop_back();
      continue;
    }
    next.back() = op->next();
    if (IsWorkspace(*op) && std::ranges::find(outputs, op->result(0)) == outputs.end()) {
      memory.push_back(op->result(0));
    }
    const bool serial = op->isa<loop::ForOp>() && !loop::ForOp(op).parallel();
    if (serial) next.push_back(op->region(0).front()->front());
  }
  return memory;
}

// Whether the kernel may end with a KernelStatus.
bool MayFail(const KernelSource& source) {
  if (source.check_accesses) return true;
  for (OpWalker walker(const_cast<Block*>(source.body)); const Operation* op = walker.Next();) {
    if (op->isa<loop::ExpectOp>()) return true;
  }
  return false;
}

// One argument per pointer and per symbolic extent; the values behind them, from the structure that
// the caller hands over.
class KernelShell {
 public:
  KernelShell(llvm::Module& module, const KernelSource& source, const Target& target)
      : module_(module),
        source_(source),
        target_(target),
        buffers_(BuffersOf(source)),
        workspaces_(WorkspaceMemory(source, buffers_)),
        checks_(MayFail(source)),
        b_(module.getContext()) {}

  void Emit() {
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getPtrTy()}, false);
    shell_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, source_.name, module_);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", shell_));
    arguments_ = {shell_->getArg(1)};
    for (size_t i = 0; i < buffers_.size(); ++i) Unpack(i);
    for (size_t i = 0; i < workspaces_.size(); ++i) {
      llvm::Value* at = UnpackData(buffers_.size() + i);
      if (source_.check_accesses) UnpackBytes(at, 1, 1);
    }
    if (checks_) UnpackData(buffers_.size() + workspaces_.size());
    std::vector<llvm::Type*> types;
    for (llvm::Value* v : arguments_) types.push_back(v->getType());
    auto* inner =
        llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                               llvm::Function::InternalLinkage, source_.name + ".inner", module_);
    EmitInner(inner);
    if (checks_) b_.CreateStore(b_.getInt64(0), arguments_.back());
    b_.CreateCall(inner, arguments_);
    b_.CreateRetVoid();
  }

 private:
  llvm::StructType* BufferType() {
    return llvm::StructType::get(module_.getContext(), {b_.getPtrTy(), b_.getPtrTy()});
  }
  llvm::Value* UnpackData(size_t i) {
    llvm::Value* at = b_.CreateConstInBoundsGEP1_64(BufferType(), shell_->getArg(0), i);
    arguments_.push_back(b_.CreateLoad(b_.getPtrTy(), at));
    return at;
  }
  void Unpack(size_t i) {
    llvm::Value* at = UnpackData(i);
    const auto type = buffers_[i].type().cast<AnyTensorType>();
    llvm::Value* shape = nullptr;
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      if (type.dims()[axis].is_constant()) continue;
      if (shape == nullptr) {
        shape = b_.CreateLoad(b_.getPtrTy(), b_.CreateStructGEP(BufferType(), at, 1));
      }
      arguments_.push_back(b_.CreateLoad(
          b_.getInt64Ty(), b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), shape, axis)));
    }
    if (source_.check_accesses) UnpackBytes(at, type.rank(), BitWidth(type.element()) / 8);
  }
  // How much there is in the buffer at `at`, whatever its type says.
  void UnpackBytes(llvm::Value* at, size_t rank, int64_t element_bytes) {
    llvm::Value* bytes = b_.getInt64(static_cast<uint64_t>(element_bytes));
    llvm::Value* shape = b_.CreateLoad(b_.getPtrTy(), b_.CreateStructGEP(BufferType(), at, 1));
    for (size_t axis = 0; axis < rank; ++axis) {
      llvm::Value* extent = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), shape, axis);
      bytes = b_.CreateMul(bytes, b_.CreateLoad(b_.getInt64Ty(), extent));
    }
    arguments_.push_back(bytes);
  }
  // "input 0, v_tensor<[3], f32>"
  std::string NameOf(size_t i) const {
    const size_t inputs = source_.body->num_arguments();
    const bool is_input = i < inputs;
    return StrCat(is_input ? "input " : "output ", is_input ? i : i - inputs, ", ",
                  buffers_[i].type().ToString());
  }

  // Whether buffer `i` may be the same memory as another one.
  bool MayShare(size_t i) const {
    const size_t inputs = source_.body->num_arguments();
    return std::ranges::any_of(source_.in_place, [&](const auto& pair) {
      return i < inputs ? pair.first == i : inputs + pair.second == i;
    });
  }

  void EmitInner(llvm::Function* inner) {
    int outlined = 0;
    FunctionEmitter emitter(module_, inner, inner->getArg(0), target_, outlined);
    unsigned next = 1;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const Value v = buffers_[i];
      const auto type = v.type().cast<AnyTensorType>();
      Memory& memory = emitter.slots()[v].memory;
      memory.element = type.element();
      if (MemoryType(module_.getContext(), type.element()) == nullptr) {
        FailUnsupported(source_.body->terminator(), StrCat("tensors of ", type.ToString()));
      }
      memory.data = inner->getArg(next++);
      if (MayShare(i)) {
        emitter.shared().insert(memory.data);
      } else {
        inner->getArg(next - 1)->addAttr(llvm::Attribute::NoAlias);
      }
      for (const Dim& dim : type.dims()) {
        memory.extents.push_back(dim.is_constant()
                                     ? b_.getInt64(static_cast<uint64_t>(dim.value()))
                                     : static_cast<llvm::Value*>(inner->getArg(next++)));
      }
      if (!source_.check_accesses) continue;
      memory.bytes = inner->getArg(next++);
      memory.name = NameOf(i);
    }
    for (const Value v : workspaces_) {
      llvm::Argument* argument = inner->getArg(next++);
      argument->addAttr(llvm::Attribute::NoAlias);
      argument->addAttr(llvm::Attribute::getWithAlignment(module_.getContext(),
                                                          llvm::Align(CodeImage::kAlignment)));
      Memory& memory = emitter.slots()[v].memory;
      memory.data = argument;
      if (!source_.check_accesses) continue;
      memory.bytes = inner->getArg(next++);
      memory.name = StrCat("a workspace, ", v.type().ToString());
    }
    if (checks_) {
      llvm::Argument* status = inner->getArg(next++);
      status->addAttr(llvm::Attribute::NoAlias);
      emitter.set_status(status);
      if (source_.check_accesses) emitter.CheckAccesses(status);
    }
    emitter.EmitBlock(*source_.body);
    emitter.Finish();
  }

  llvm::Module& module_;
  const KernelSource& source_;
  const Target& target_;
  std::vector<Value> buffers_, workspaces_;
  bool checks_;
  llvm::IRBuilder<> b_;
  llvm::Function* shell_ = nullptr;
  std::vector<llvm::Value*> arguments_;
};

}  // namespace

void DescribeMemory(const KernelSource& source, CodeImage::Entry& entry) {
  std::vector<Dim>& bytes = entry.workspaces;
  for (const Value v : WorkspaceMemory(source, BuffersOf(source))) {
    const auto type = v.type().cast<AnyTensorType>();
    bytes.push_back(type.shape().NumElements() * (BitWidth(type.element()) / 8));
  }
  entry.checks = MayFail(source);
  if (entry.checks) bytes.emplace_back(static_cast<int64_t>(sizeof(KernelStatus)));
}

void EmitKernel(llvm::Module& module, const KernelSource& source, const Target& target) {
  KernelShell(module, source, target).Emit();
}

}  // namespace lathe::codegen
