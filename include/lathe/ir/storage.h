#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lathe/ir/type_id.h"
#include "lathe/support/arena.h"

/// Uniquing of types and attributes.
///
/// A storage class `S` describes one kind of type or attribute:
///
///   struct S : TypeStorage {                       // or AttributeStorage
///     using Key = ...;                             // cheap, may hold views
///     static uint64_t Hash(const Key&);            // deterministic, never from addresses of data
///     bool operator==(const Key&) const;
///     static S* Create(Arena&, const Key&);        // copies what the key views into the arena
///   };
///
/// Storages are immutable after creation and live as long as the context.
namespace lathe {

class IrContext;
class Dialect;
struct AbstractKind;
class PrinterBase;

/// What every instance of one type or attribute class shares within a context.
/// The function pointers form its concept table; `print` appends the text form.
struct AbstractKind {
  TypeId id;
  IrContext* context = nullptr;
  Dialect* dialect = nullptr;
  const char* name = "";  ///< "tensor", "my_dialect.my_type"
  void (*print)(const void* storage, PrinterBase& out) = nullptr;
  std::vector<std::pair<TypeId, const void*>> interfaces = {};  ///< few: searched in order
  const void* FindInterface(TypeId interface) const {
    for (const auto& [key, table] : interfaces) {
      if (key == interface) return table;
    }
    return nullptr;
  }
};

struct StorageBase {
  const AbstractKind* kind = nullptr;
};
struct TypeStorage : StorageBase {};
struct AttributeStorage : StorageBase {};

/// Thread-safe hash-consing table of one context: shards by hash, each with a lock and an arena.
class StorageUniquer {
 public:
  StorageUniquer();
  ~StorageUniquer();
  StorageUniquer(const StorageUniquer&) = delete;
  StorageUniquer& operator=(const StorageUniquer&) = delete;

  /// The one storage equal to `key`, created on first use.
  template <class S>
  const S* Get(const AbstractKind* kind, const typename S::Key& key) {
    struct Request {
      const typename S::Key* key;
    } request{&key};
    auto equal = [](const StorageBase* s, const void* r) {
      return *static_cast<const S*>(s) == *static_cast<const Request*>(r)->key;
    };
    auto create = [](Arena& arena, const void* r) -> StorageBase* {
      return S::Create(arena, *static_cast<const Request*>(r)->key);
    };
    Destructor destroy = nullptr;
    if constexpr (!std::is_trivially_destructible_v<S>) {
      destroy = [](StorageBase* s) { static_cast<S*>(s)->~S(); };
    }
    return static_cast<const S*>(Lookup(kind, S::Hash(key), &request, equal, create, destroy));
  }

  /// Bytes held by the table and its storages.
  size_t memory_usage() const;

 private:
  using Equal = bool (*)(const StorageBase*, const void*);
  using Create = StorageBase* (*)(Arena&, const void*);
  using Destructor = void (*)(StorageBase*);
  struct Shard;
  const StorageBase* Lookup(const AbstractKind* kind, uint64_t hash, const void* request,
                            Equal equal, Create create, Destructor destroy);
  static constexpr size_t kShards = 16;
  std::unique_ptr<Shard[]> shards_;
};

}  // namespace lathe
