#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lathe/codegen/target.h"
#include "lathe/ir/block.h"
#include "src/codegen/llvm/emit.h"

namespace lathe::codegen {

/// Where a tensor lies: a pointer and an extent per axis.
struct Memory {
  llvm::Value* data = nullptr;
  std::vector<llvm::Value*> extents;
  ElementType element = ElementType::kUndefined;
};

/// A scalar, vector or tile in registers, or memory.
struct Slot {
  llvm::Value* value = nullptr;
  Memory memory;
};

/// Whom a kernel asks whether to end early: a team, and its function for that
/// (KernelTeam::stopped), which is null if the kernel is never to end.
struct StopQuestion {
  llvm::Value* team = nullptr;
  llvm::Value* function = nullptr;
};

/// Emits one LLVM function from a block: a kernel, or the body of a parallel loop, which becomes a
/// function of its own that gets what it captures as arguments.
class FunctionEmitter {
 public:
  /// `outlined` counts the functions made from the loops of one kernel.
  FunctionEmitter(llvm::Module& module, llvm::Function* function, llvm::Value* team,
                  const Target& target, int& outlined);
  /// Where the kernel says what went wrong; not known within parallel loops.
  void set_status(llvm::Value* status) { status_ = status; }

  std::unordered_map<Value, Slot>& slots() { return slots_; }
  /// Pointers to memory that others of them may point to, too; all other memory has one name.
  std::unordered_set<llvm::Value*>& shared() { return shared_; }

  void EmitBlock(const Block& block);
  /// A loop from `begin` to `end` around `body`, whose first argument is the counter. `runs`: at
  /// least once. With a `stop_interval`, the function may end early each time that so many (a power
  /// of two) have passed.
  std::vector<llvm::Value*> EmitLoop(const Block& body, llvm::Value* begin, llvm::Value* end,
                                     bool runs, std::vector<llvm::Value*> carried,
                                     int64_t stop_interval = 0);
  void Finish();

 private:
  void EmitOp(Operation* op);
  bool EmitMemoryOp(Operation* op);
  void EmitConstant(Operation* op);
  void EmitTable(Operation* op, std::span<llvm::Constant* const> elements);
  void EmitIndex(Operation* op);
  void EmitElementwise(Operation* op);
  void EmitReduce(Operation* op);
  void EmitTransposed(Operation* op);

  // function_parallel.cc
  void EmitFor(Operation* op);
  void EmitParallel(Operation* op, llvm::Value* extent);
  llvm::Function* NewFunction(std::span<llvm::Type* const> types, const char* suffix);
  const StopQuestion& Question();
  void EmitStop(llvm::Value* counter, int64_t interval);
  void CallTeam(llvm::Function* part, std::span<llvm::Value* const> fields, llvm::Value* extent);

  // function_tiles.cc
  bool EmitTileOp(Operation* op);
  void EmitTileZero(Operation* op);
  void EmitTileLoad(Operation* op);
  void EmitTileStore(Operation* op);
  void EmitTileMma(Operation* op);
  llvm::Value* RowBytes(const Memory& memory, int64_t axis);

  // function_memory.cc
  void EmitAlloc(Operation* op);
  llvm::Value* StackMemory(const Operation* op, AnyTensorType type);
  void EmitReshape(Operation* op);
  void EmitLoad(Operation* op);
  void EmitGather(Operation* op);
  void EmitStore(Operation* op);
  void EmitPrefetch(Operation* op);
  void EmitExpect(Operation* op);
  llvm::Value* Address(const Memory& memory, const Operation* op, size_t first_index);
  llvm::Value* LaneMask(llvm::Value* live, unsigned lanes);
  llvm::Value* LoadNeighbours(llvm::Value* address, llvm::FixedVectorType* type, llvm::Value* live);
  llvm::Value* LoadStrided(llvm::Value* address, llvm::FixedVectorType* type, int64_t stride,
                           llvm::Value* live);
  llvm::Value* Scattered(const Memory& memory, llvm::Value* address, unsigned lanes, int64_t axis,
                         int64_t stride);
  llvm::Value* MaskOrAll(Value live, unsigned lanes);
  llvm::Value* FromMemory(llvm::Value* value, ElementType element);

  llvm::Value* ValueOf(Value v);
  const Memory& MemoryOf(Value v) { return slots_.at(v).memory; }
  llvm::Type* ValueType(Value v);
  llvm::Value* Widen(llvm::Value* value, llvm::Type* type);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_;
  llvm::Value* team_;
  llvm::Value* status_ = nullptr;
  StopQuestion question_;  // empty until somebody needs it
  const Target& target_;
  int& outlined_;
  int64_t stack_bytes_ = 0;
  llvm::BasicBlock* entry_ = nullptr;
  llvm::BasicBlock* start_ = nullptr;
  std::unordered_map<Value, Slot> slots_;    // looked up, never iterated
  std::unordered_set<llvm::Value*> shared_;  // the same
};

}  // namespace lathe::codegen
