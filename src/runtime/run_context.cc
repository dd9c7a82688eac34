#include "src/runtime/run_context.h"

#include <mutex>

#include "lathe/support/error.h"

namespace lathe::runtime {

std::unique_ptr<RunContext> ContextPool::Take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<RunContext> context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
  }
  return std::make_unique<RunContext>();
}

void ContextPool::GiveBack(std::unique_ptr<RunContext> context) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(context));
}

void ContextPool::Release(RunContext& context) {
  bytes_.fetch_sub(context.arena_bytes());
  context.arena.reset();
  context.placement.reset();
}

void ContextPool::Trim() {
  std::vector<std::unique_ptr<RunContext>> idle;
  {
    const std::lock_guard lock(mutex_);
    idle.swap(idle_);
  }
  for (const auto& context : idle) Release(*context);
}

bool ContextPool::Claim(uint64_t bytes) {
  uint64_t held = bytes_.load();
  do {
    if (max_bytes_ != 0 && (bytes > max_bytes_ || held > max_bytes_ - bytes)) return false;
  } while (!bytes_.compare_exchange_weak(held, held + bytes));
  return true;
}

void ContextPool::Reserve(RunContext& context, uint64_t bytes) {
  if (bytes <= context.arena_bytes()) return;
  Release(context);
  if (!Claim(bytes)) {
    Trim();
    if (!Claim(bytes)) {
      throw Error(
          ErrorCode::kLimit, "limit/memory",
          StrCat("a run needs ", HumanBytes(bytes), " for its tensors; the limit is ",
                 HumanBytes(max_bytes_), ", of which other runs hold ", HumanBytes(bytes_.load())));
    }
  }
  try {
    context.arena = Buffer::Allocate(bytes);
  } catch (...) {
    bytes_.fetch_sub(bytes);
    throw;
  }
}

}  // namespace lathe::runtime
