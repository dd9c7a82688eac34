#include "lathe/ir/attribute.h"
#include "lathe/ir/traits.h"
#include "src/codegen/llvm/function_emitter.h"

namespace lathe::codegen {
namespace {

// What a value in the body of a loop is if no loop of that body runs: each gives what it got.
Value IfNoneRuns(Value v, const Block& body) {
  while (v.defining_op() != nullptr && v.parent_block() == &body &&
         v.defining_op()->isa<loop::ForOp>()) {
    v = v.defining_op()->operand(loop::ForOp::kCarried + v.index());
  }
  return v;
}

// Whether a loop does nothing if the loops in its body, of which there are some, do not run.
bool IsAllInLoops(const Block& body) {
  bool has_loop = false;
  for (const Operation& op : body) {
    const bool is_loop = op.isa<loop::ForOp>();
    if (!is_loop && !op.HasTrait<HasValueSemantics>() && !op.HasTrait<Terminator>()) return false;
    has_loop = has_loop || is_loop;
  }
  if (!has_loop) return false;
  for (size_t i = 0; i < body.back()->num_operands(); ++i) {
    if (IfNoneRuns(body.back()->operand(i), body) != body.argument(1 + i)) return false;
  }
  return true;
}

}  // namespace

// The extent of a loop within others, where the outermost of them begins; null if it is not known
// there, or is never 0.
llvm::Value* FunctionEmitter::ExtentAhead(const loop::ForOp& loop) {
  if (loop.extent()) return *loop.extent() == 0 ? b_.getInt64(0) : nullptr;
  if (slots_.contains(loop.size())) return ValueOf(loop.size());
  const Operation* size = loop.size().defining_op();
  if (size == nullptr || !size->isa<loop::IndexOp>()) return nullptr;
  std::vector<IndexSum> symbols;
  for (size_t i = 0; i < size->num_operands(); ++i) {
    if (!slots_.contains(size->operand(i))) return nullptr;
    symbols.push_back(IndexOf(size->operand(i)));
  }
  return indices_.ValueOf(
      indices_.Of(size->attribute("expr").cast<DimAttribute>().value(), symbols));
}

// Whether a loop has nothing to do however often it runs, because none of those in it runs; null
// if that is not to be known. A tensor [2^40, 0] is a few bytes, its rows are not to be walked.
llvm::Value* FunctionEmitter::EmitIsIdle(const loop::ForOp& loop) {
  const Block& body = *loop.operation()->region(0).front();
  if (!IsAllInLoops(body)) return nullptr;
  llvm::Value* is_idle = nullptr;
  for (Operation& op : body) {
    if (!op.isa<loop::ForOp>()) continue;
    const loop::ForOp inner(&op);
    llvm::Value* extent = ExtentAhead(inner);
    llvm::Value* does_nothing = extent == nullptr ? nullptr : b_.CreateIsNull(extent);
    if (llvm::Value* is_inner_idle = EmitIsIdle(inner)) {
      does_nothing =
          does_nothing == nullptr ? is_inner_idle : b_.CreateOr(does_nothing, is_inner_idle);
    }
    if (does_nothing == nullptr) return nullptr;
    is_idle = is_idle == nullptr ? does_nothing : b_.CreateAnd(is_idle, does_nothing);
  }
  return is_idle;
}

}  // namespace lathe::codegen
