#include <mutex>
#include <vector>

#include "lathe/ir/storage.h"
#include "lathe/support/arena.h"
#include "lathe/support/hash.h"

namespace lathe {

struct StorageUniquer::Shard {
  struct Slot {
    uint64_t hash = 0;
    StorageBase* storage = nullptr;
  };
  struct Owned {
    StorageBase* storage;
    Destructor destroy;
  };

  ~Shard() {
    for (const Owned& o : owned) o.destroy(o.storage);
  }

  void Grow() {
    std::vector<Slot> old = std::exchange(slots, std::vector<Slot>(slots.size() * 2));
    for (const Slot& s : old) {
      if (s.storage != nullptr) *FreeSlot(s.hash) = s;
    }
  }

  Slot* FreeSlot(uint64_t hash) {
    size_t i = hash & (slots.size() - 1);
    while (slots[i].storage != nullptr) i = (i + 1) & (slots.size() - 1);
    return &slots[i];
  }

  std::mutex mutex;
  Arena arena{8 * 1024};
  std::vector<Slot> slots = std::vector<Slot>(64);
  size_t count = 0;
  std::vector<Owned> owned;
};

StorageUniquer::StorageUniquer() : shards_(new Shard[kShards]) {}
StorageUniquer::~StorageUniquer() = default;

const StorageBase* StorageUniquer::Lookup(const AbstractKind* kind, uint64_t hash,
                                          const void* request, Equal equal, Create create,
                                          Destructor destroy) {
  hash = HashCombine(hash, reinterpret_cast<uintptr_t>(kind));  // of the table only: never ordered
  Shard& shard = shards_[hash >> 60];
  const std::lock_guard lock(shard.mutex);
  size_t i = hash & (shard.slots.size() - 1);
  for (; shard.slots[i].storage != nullptr; i = (i + 1) & (shard.slots.size() - 1)) {
    const Shard::Slot& slot = shard.slots[i];
    if (slot.hash == hash && slot.storage->kind == kind && equal(slot.storage, request)) {
      return slot.storage;
    }
  }
  StorageBase* storage = create(shard.arena, request);
  storage->kind = kind;
  if (destroy != nullptr) shard.owned.push_back({storage, destroy});
  if (++shard.count * 4 > shard.slots.size() * 3) {
    shard.Grow();
    *shard.FreeSlot(hash) = {hash, storage};
  } else {
    shard.slots[i] = {hash, storage};
  }
  return storage;
}

size_t StorageUniquer::memory_usage() const {
  size_t bytes = 0;
  for (size_t i = 0; i < kShards; ++i) {
    const std::lock_guard lock(shards_[i].mutex);
    bytes += shards_[i].arena.bytes_reserved() + shards_[i].slots.capacity() * sizeof(Shard::Slot);
  }
  return bytes;
}

}  // namespace lathe
