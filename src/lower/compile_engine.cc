#include "lathe/lower/compile_engine.h"

#include <algorithm>
#include <optional>

#include "lathe/ir/structure.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"

namespace lathe {

namespace {

std::string Hex(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

}  // namespace

std::string KernelName(const Region& function, uint64_t hash) {
  std::string name = "fused";
  for (const Operation& op : *function.front()) {
    if (op.HasTrait<Terminator>() || op.HasTrait<ConstantLike>()) continue;
    const std::string_view full = op.name();
    name += StrCat("_", full.substr(full.find('.') + 1));
    if (name.size() > 80) break;
  }
  return StrCat(name.substr(0, 80), "_", Hex(hash));
}

CompileKey::CompileKey(const Region& function, const TargetKeys& for_target)
    : structure(StructureText(function)),
      target(for_target.name),
      hash(HashString(target, HashString(structure))) {}

CompileEngine::CompileEngine(Lower lower, std::shared_ptr<const DiskCache> disk)
    : lower_(std::move(lower)), disk_(std::move(disk)) {
  if (!lower_) {
    lower_ = [](const Region& function, const TargetKeys&, std::string_view) {
      return StructureText(function);
    };
  }
}

std::shared_ptr<const CompiledFunction> CompileEngine::Compile(const Region& function,
                                                               const TargetKeys& target) {
  const CompileKey key(function, target);
  std::promise<Result> promise;
  std::shared_future<Result> result;
  bool mine = false;
  {
    Shard& shard = ShardOf(key);
    const std::lock_guard<std::mutex> lock(shard.mutex);
    const auto [first, last] = shard.entries.equal_range(key.hash);
    const auto at = std::find_if(first, last, [&](const auto& e) { return e.second.key == key; });
    mine = at == last;
    result = mine ? promise.get_future().share() : at->second.result;
    if (mine) shard.entries.emplace(key.hash, Entry{key, result});
  }
  ++(mine ? misses_ : hits_);
  if (!mine) return result.get();
  try {
    promise.set_value(Make(key, function, target));
  } catch (...) {
    Forget(key);
    promise.set_exception(std::current_exception());
  }
  return result.get();
}

/// The name says what is computed, not when it was first asked for.
CompileEngine::Result CompileEngine::Make(const CompileKey& key, const Region& function,
                                          const TargetKeys& target) {
  auto made = std::make_shared<CompiledFunction>();
  made->name = KernelName(function, HashString(key.structure));
  made->target = target.name;
  const std::string on_disk = StrCat(key.target, "\n", key.structure);
  std::optional<std::string> found = disk_ ? disk_->Load(on_disk) : std::nullopt;
  if (found) {
    ++disk_hits_;
    made->bytes = std::move(*found);
    return made;
  }
  made->bytes = lower_(function, target, made->name);
  if (disk_) disk_->Store(on_disk, made->bytes);
  return made;
}

void CompileEngine::Forget(const CompileKey& key) {
  Shard& shard = ShardOf(key);
  const std::lock_guard<std::mutex> lock(shard.mutex);
  const auto [first, last] = shard.entries.equal_range(key.hash);
  const auto at = std::find_if(first, last, [&](const auto& e) { return e.second.key == key; });
  if (at != last) shard.entries.erase(at);
}

std::vector<std::shared_ptr<const CompiledFunction>> CompileEngine::Items() const {
  std::vector<std::shared_future<Result>> pending;
  for (const Shard& shard : shards_) {
    const std::lock_guard<std::mutex> lock(shard.mutex);
    for (const auto& [hash, entry] : shard.entries) pending.push_back(entry.result);
  }
  std::vector<Result> items;
  for (const auto& result : pending) items.push_back(result.get());
  std::sort(items.begin(), items.end(), [](const Result& a, const Result& b) {
    return std::pair(a->name, a->target) < std::pair(b->name, b->target);
  });
  return items;
}

void CompileEngine::Clear() {
  for (Shard& shard : shards_) {
    const std::lock_guard<std::mutex> lock(shard.mutex);
    shard.entries.clear();
  }
}

}  // namespace lathe
