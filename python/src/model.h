#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/context.h"
#include "lathe/ir/program.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"

namespace lathe {
class Executable;
}  // namespace lathe

namespace lathe::python {

/// A program and the context that owns its types. Any number of threads may read it while none
/// changes it; what Python holds of it (views.h) knows when it is outdated.
struct ProgramHolder {
  ProgramHolder();
  ProgramHolder(std::shared_ptr<IrContext> c, Program p)
      : context(std::move(c)), own(std::move(p)) {}

  Program& program() { return lent != nullptr ? *lent : own; }
  const Program& program() const { return lent != nullptr ? *lent : own; }

  std::shared_ptr<IrContext> context;
  Program own;
  Program* lent = nullptr;            ///< what a pass or a rule lends (lent.h); else `own` is it
  Pass* pass = nullptr;               ///< that lends it
  Rewriter* rewriter = nullptr;       ///< through which it is changed; null: one for each change
  bool hidden = false;                ///< operations are lent, and not the program that they are of
  bool ended = false;                 ///< it is not lent any more
  std::atomic<uint64_t> version = 0;  ///< counts changes
  std::atomic<uint64_t> replaced = 0;  ///< the version since which its operations are other ones
  std::unordered_map<const Operation*, uint64_t> erased = {};  ///< the versions, since `replaced`
  std::unique_ptr<ShapeInferencer> facts = nullptr;  ///< of what was built; null: not known
  Block* block = nullptr;           ///< where operations are built; null: the program's
  Operation* before = nullptr;      ///< of that block; null: at its end
  mutable std::shared_mutex mutex;  ///< of all of the above; versions may be looked at without
  mutable std::atomic<std::thread::id> writer = {};  ///< holds the mutex exclusively
};

/// Whether a thread has the interpreter's lock, which it lets go of while it waits for another.
enum class Gil : uint8_t { kHeld, kReleased };

/// Hold the mutex of a program. Errors: program/changed if the pass that has lent the program has
/// ended; program/busy if this thread is changing it, as a function of a user may find that is
/// called meanwhile.
class ReadLock {
 public:
  explicit ReadLock(const ProgramHolder& holder, Gil gil = Gil::kHeld);

 private:
  std::shared_lock<std::shared_mutex> lock_;
};
class WriteLock {
 public:
  explicit WriteLock(const ProgramHolder& holder, Gil gil = Gil::kHeld);
  ~WriteLock() { holder_.writer = std::thread::id(); }
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

 private:
  const ProgramHolder& holder_;
  std::unique_lock<std::shared_mutex> lock_;
};

/// A copy that shares the weights.
Program CloneOf(const ProgramHolder& holder, Gil gil);
/// One where symbolic dims have these sizes, for who does not have the interpreter's lock. Errors:
/// shape/unknown-symbol.
Program SpecializedCopy(const ProgramHolder& holder, const std::map<std::string, int64_t>& dims);

/// An empty context with all dialects.
std::shared_ptr<IrContext> NewContext();
/// What owns a context that NewContext has made.
std::shared_ptr<IrContext> OwnerOf(const IrContext& context);

/// The context of symbols, which meet one another: the same until `RenewSharedContext`.
std::shared_ptr<IrContext> SharedContext();
void RenewSharedContext();

/// A program as a file gives it. The program may be changed through `holder`.
struct ModelHandle {
  std::shared_ptr<ProgramHolder> holder;
  std::string name;                  ///< its path, or what it came from
  std::vector<Error> warnings = {};  ///< of the import
};

void BindModel(nanobind::module_& m);
void BindOpTable(nanobind::module_& m);
void BindOnnxInterface(nanobind::module_& m);
void BindReduce(nanobind::module_& m);
void BindProgram(nanobind::module_& m);
/// What builds and changes programs.
void BindBuild(nanobind::module_& m, nanobind::class_<ProgramHolder>& program);
void BindSymbol(nanobind::module_& m);
void BindExecutable(nanobind::module_& m);
/// What a lathe.Executable holds, as long as that lives. Errors: type/python.
const Executable& ExecutableOf(nanobind::handle object);
void BindGenerator(nanobind::module_& m);
void BindQuantize(nanobind::module_& m);
void BindTools(nanobind::module_& m);
void BindTune(nanobind::module_& m);

}  // namespace lathe::python
