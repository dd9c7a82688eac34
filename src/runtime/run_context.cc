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

void ContextPool::Release(RunContext& context, size_t stage) {
  bytes_.fetch_sub(context.arena_bytes(stage));
  context.arenas[stage].reset();
  if (stage == 0) context.placement.reset();
}

void ContextPool::Trim() {
  std::vector<std::unique_ptr<RunContext>> idle;
  {
    const std::lock_guard lock(mutex_);
    idle.swap(idle_);
  }
  for (const auto& context : idle) {
    for (size_t stage = 0; stage < context->arenas.size(); ++stage) Release(*context, stage);
  }
}

bool ContextPool::Claim(uint64_t bytes) {
  uint64_t held = bytes_.load();
  do {
    if (max_bytes_ != 0 && (bytes > max_bytes_ || held > max_bytes_ - bytes)) return false;
  } while (!bytes_.compare_exchange_weak(held, held + bytes));
  return true;
}

void ContextPool::Reserve(RunContext& context, uint32_t stage, uint64_t bytes) {
  if (context.arenas.size() <= stage) context.arenas.resize(stage + 1);
  const uint64_t before = context.arena_bytes(stage);
  if (bytes <= before) return;
  Release(context, stage);
  // Each round of a loop may ask for a little more.
  const uint64_t ample = before + before / 2;
  if (bytes < ample && Claim(ample)) {
    bytes = ample;
  } else if (!Claim(bytes)) {
    Trim();
    if (!Claim(bytes)) {
      throw Error(
          ErrorCode::kLimit, "limit/memory",
          StrCat("a run needs ", HumanBytes(bytes), " for its tensors; the limit is ",
                 HumanBytes(max_bytes_), ", of which other runs hold ", HumanBytes(bytes_.load())));
    }
  }
  try {
    context.arenas[stage] = allocate_ ? allocate_(bytes) : Buffer::Allocate(bytes);
  } catch (...) {
    bytes_.fetch_sub(bytes);
    throw;
  }
}

}  // namespace lathe::runtime
