#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lathe/codegen/target.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/ir/block.h"
#include "src/codegen/llvm/emit.h"
#include "src/codegen/llvm/indices.h"

namespace lathe::codegen {

/// Where a tensor lies: a pointer and an extent per axis.
struct Memory {
  llvm::Value* data = nullptr;
  std::vector<llvm::Value*> extents;
  ElementType element = ElementType::kUndefined;
  // Where accesses are checked:
  llvm::Value* bytes = nullptr;  ///< that may be accessed
  std::string name = {};         ///< for messages: "input 0, v_tensor<[3], f32>"
};

/// A scalar, vector or tile in registers, or memory. What loop.index gives becomes a value when
/// somebody needs one.
struct Slot {
  llvm::Value* value = nullptr;
  std::optional<IndexSum> index = {};
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
  /// Has each access checked against Memory::bytes before it is made. One that is out of bounds is
  /// not made: it ends the function, and `status` says so.
  void CheckAccesses(llvm::Value* status) { faults_ = status; }

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
  void EmitInterleaved(Operation* op);
  void EmitDot(Operation* op);
  void EmitNarrow(Operation* op);
  void EmitDotPairs(Operation* op);

  // function_parallel.cc
  void EmitFor(Operation* op);
  void EmitParallel(Operation* op, llvm::Value* extent);
  llvm::Function* NewFunction(std::span<llvm::Type* const> types, const char* suffix);
  llvm::Value* FieldOfTeam(unsigned field);
  llvm::Value* NumThreads();
  const StopQuestion& Question();
  void EmitStop(llvm::Value* counter, int64_t interval);
  void CallTeam(llvm::Function* part, std::span<llvm::Value* const> fields, llvm::Value* extent);

  // function_idle.cc
  llvm::Value* ExtentAhead(const loop::ForOp& loop);
  llvm::Value* EmitIsIdle(const loop::ForOp& loop);

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
  void EmitSlice(Operation* op);
  std::vector<llvm::Value*> GroupedExtents(const Memory& memory, std::span<const int64_t> groups);
  void EmitLoad(Operation* op);
  void EmitGather(Operation* op);
  bool IsByteTable(const loop::GatherOp& gather) const;
  void EmitStore(Operation* op);
  void EmitPrefetch(Operation* op);
  void EmitExpect(Operation* op);
  IndexSum ElementAt(const Memory& memory, const Operation* op, size_t first_index);
  llvm::Value* AddressOf(const Memory& memory, const IndexSum& element);
  llvm::Value* LaneMask(llvm::Value* live, const llvm::FixedVectorType* vector);
  llvm::Value* LoadNeighbors(llvm::Value* address, llvm::FixedVectorType* type, llvm::Value* live);
  llvm::Value* LoadStrided(llvm::Value* address, llvm::FixedVectorType* type, int64_t stride,
                           llvm::Value* live);
  llvm::Value* LanesAlong(const Memory& memory, unsigned lanes, int64_t axis, int64_t stride);
  llvm::Value* LoadApart(const Operation* op, const Memory& memory, const IndexSum& first,
                         llvm::Value* lanes, Value live);
  llvm::Value* MaskOrAll(Value live, const llvm::FixedVectorType* vector);
  llvm::Value* FromMemory(llvm::Value* value, ElementType element);

  // function_checks.cc: nothing unless accesses are checked
  void CheckRun(const Operation* op, const Memory& memory, const IndexSum& first,
                unsigned lanes = 1, Value live = {}, int64_t stride = 1);
  void CheckLanes(const Operation* op, const Memory& memory, const IndexSum& first,
                  llvm::Value* lanes, llvm::Value* mask);
  void CheckRows(const Operation* op, const Memory& memory, const IndexSum& first,
                 llvm::Value* pitch, int64_t rows, int64_t row_bytes);
  void CheckBytes(const Operation* op, const Memory& memory, llvm::Value* offsets,
                  llvm::Value* bytes, llvm::Value* mask);
  llvm::Value* BytesOf(const Memory& memory, llvm::Value* elements);
  void EndIfFailed();
  void EndIf(llvm::Value* wrong, const std::string& text, llvm::Value* offset, llvm::Value* size);
  llvm::BasicBlock* FaultBlock();
  llvm::Constant* TextOf(const std::string& text);
  llvm::Value* FirstWhere(llvm::Value* mask, llvm::Value* x, unsigned lanes);

  llvm::Value* ValueOf(Value v);
  IndexSum IndexOf(Value v);
  const Memory& MemoryOf(Value v) { return slots_.at(v).memory; }
  llvm::Type* ValueType(Value v);
  llvm::Value* Widen(llvm::Value* value, llvm::Type* type);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_;
  llvm::Value* team_;
  llvm::Value* status_ = nullptr;
  StopQuestion question_;          // empty until somebody needs it
  llvm::Value* faults_ = nullptr;  // KernelStatus for accesses; null: they are not checked
  const Target& target_;
  int& outlined_;
  int64_t stack_bytes_ = 0;
  llvm::BasicBlock* entry_ = nullptr;
  llvm::BasicBlock* start_ = nullptr;
  llvm::BasicBlock* fault_ = nullptr;             // begins with a phi per field of the status
  std::map<std::string, llvm::Constant*> texts_;  // of faults
  Indices indices_;
  std::unordered_map<const Block*, size_t> depths_;  // of loops; others are the function's
  std::unordered_map<Value, Slot> slots_;            // looked up, never iterated
  std::unordered_set<llvm::Value*> shared_;          // the same
};

}  // namespace lathe::codegen
