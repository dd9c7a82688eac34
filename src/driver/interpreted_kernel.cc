#include "src/driver/interpreted_kernel.h"

#include <cstring>
#include <unordered_map>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/block.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "src/dialect/prepared.h"

namespace lathe {
namespace {

// The tensor in memory of somebody else's, which outlives it.
Tensor View(const KernelBuffer& buffer, AnyTensorType type) {
  Shape shape(buffer.shape, buffer.shape + type.rank());
  const size_t bytes = StorageBytes(type.element(), static_cast<size_t>(NumElements(shape)));
  if (bytes == 0) return Tensor(type.element(), std::move(shape));
  return Tensor::FromBuffer(type.element(), std::move(shape),
                            Buffer::Wrap(buffer.data, bytes, nullptr));
}

void Evaluate(const Block& block, const KernelBuffer* buffers, PreparedOps& prepared) {
  std::unordered_map<Value, RtValue> values;  // looked up, never iterated
  for (size_t i = 0; i < block.num_arguments(); ++i) {
    values[block.argument(i)] = View(*buffers++, TensorOf(block.argument(i)));
  }
  for (Operation* op = block.front(); !op->HasTrait<Terminator>(); op = op->next()) {
    std::vector<RtValue> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      operands.push_back(op->operand(i) ? values.at(op->operand(i)) : RtValue());
    }
    const std::vector<RtValue> results = EvalOp(op, operands, prepared);
    for (size_t i = 0; i < results.size(); ++i) values[op->result(i)] = results[i];
  }
  const Operation* end = block.back();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const KernelBuffer& out = *buffers++;
    const Tensor& t = values.at(end->operand(i)).tensor();
    const Shape planned(out.shape, out.shape + TensorOf(end->operand(i)).rank());
    LATHE_CHECK(t.shape() == planned, "result ", i, " is ", t.TypeString(), ", planned was ",
                ShapeToString(planned));
    if (t.byte_size() > 0) std::memcpy(out.data, t.raw(), t.byte_size());
  }
}

}  // namespace

std::string WhyNotInterpreted(const Operation* function) {
  const Block& block = *function->region(0).front();
  for (size_t i = 0; i < block.num_arguments(); ++i) {
    if (!block.argument(i).type().isa<AnyTensorType>())
      return "it takes a value that is not a tensor";
  }
  for (const Operation& op : block) {
    if (op.HasTrait<Terminator>()) continue;
    if (op.num_regions() != 0) return StrCat(op.name(), " has a region");
    if (op.HasTrait<Random>()) return StrCat(op.name(), " draws random numbers");
    if (!op.HasInterface<EvalInterface>()) return StrCat(op.name(), " has no value");
    if (op.HasTrait<SideEffect>()) return StrCat(op.name(), " has a side effect");
  }
  return {};
}

runtime::Executor::Kernel InterpretedKernel(const Operation* function) {
  const Block* block = function->region(0).front();
  return [block, prepared = std::make_shared<PreparedOps>()](
             const KernelBuffer* buffers, KernelTeam*) { Evaluate(*block, buffers, *prepared); };
}

}  // namespace lathe
