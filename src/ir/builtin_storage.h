#pragma once

#include <bit>
#include <cstring>
#include <new>

#include "lathe/ir/attribute.h"
#include "lathe/ir/type.h"
#include "lathe/support/arena.h"
#include "lathe/support/hash.h"

/// Storages of the builtin types and attributes. Hashes may use the address of a uniqued storage:
/// they only place an entry in the context's table, whose order nobody sees.
namespace lathe::detail {

inline uint64_t HashPointer(const void* p) { return HashMix(reinterpret_cast<uintptr_t>(p)); }

template <class S, class... Args>
S* Place(Arena& arena, Args&&... args) {
  return new (arena.Allocate(sizeof(S), alignof(S))) S(std::forward<Args>(args)...);
}

/// Storage of a kind with one plain member.
template <class Base, class T>
struct PlainStorage : Base {
  using Key = T;
  explicit PlainStorage(const Key& key) : value(key) {}
  bool operator==(const Key& key) const { return value == key; }
  T value;
};

struct ElemTypeStorage : PlainStorage<TypeStorage, ElementType> {
  using PlainStorage::PlainStorage;
  static uint64_t Hash(Key key) { return static_cast<uint64_t>(key); }
  static ElemTypeStorage* Create(Arena& a, Key key) { return Place<ElemTypeStorage>(a, key); }
};

struct SingletonTypeStorage : TypeStorage {
  struct Key {};
  bool operator==(const Key&) const { return true; }
  static uint64_t Hash(Key) { return 1; }
  static SingletonTypeStorage* Create(Arena& a, Key) { return Place<SingletonTypeStorage>(a); }
};

struct TensorTypeStorage : TypeStorage {
  struct Key {
    ElementType element;
    bool ranked;
    std::span<const Dim> dims;
  };
  explicit TensorTypeStorage(const Key& key, std::span<Dim> copy)
      : element(key.element), ranked(key.ranked), dims(copy) {}
  ~TensorTypeStorage() {
    for (Dim& d : dims) d.~Dim();
  }
  TensorTypeStorage(const TensorTypeStorage&) = delete;
  TensorTypeStorage& operator=(const TensorTypeStorage&) = delete;
  bool operator==(const Key& key) const;
  static uint64_t Hash(const Key& key);
  static TensorTypeStorage* Create(Arena& arena, const Key& key);
  ElementType element;
  bool ranked;
  std::span<Dim> dims;
};

struct ContainerTypeStorage : TypeStorage {
  using Key = std::span<const Type>;
  explicit ContainerTypeStorage(Key key) : elements(key) {}
  bool operator==(Key key) const {
    return std::equal(key.begin(), key.end(), elements.begin(), elements.end());
  }
  static uint64_t Hash(Key key);
  static ContainerTypeStorage* Create(Arena& a, Key key) {
    return Place<ContainerTypeStorage>(a, a.Copy(key));
  }
  std::span<const Type> elements;
};

struct BoolAttrStorage : PlainStorage<AttributeStorage, bool> {
  using PlainStorage::PlainStorage;
  static uint64_t Hash(Key key) { return key ? 1 : 2; }
  static BoolAttrStorage* Create(Arena& a, Key key) { return Place<BoolAttrStorage>(a, key); }
};

struct IntAttrStorage : PlainStorage<AttributeStorage, int64_t> {
  using PlainStorage::PlainStorage;
  static uint64_t Hash(Key key) { return HashMix(static_cast<uint64_t>(key)); }
  static IntAttrStorage* Create(Arena& a, Key key) { return Place<IntAttrStorage>(a, key); }
};

/// Keyed by bits, so that NaN payloads and -0.0 stay apart.
struct FloatAttrStorage : PlainStorage<AttributeStorage, uint64_t> {
  using PlainStorage::PlainStorage;
  static uint64_t Hash(Key key) { return HashMix(key); }
  static FloatAttrStorage* Create(Arena& a, Key key) { return Place<FloatAttrStorage>(a, key); }
};

struct StrAttrStorage : PlainStorage<AttributeStorage, std::string_view> {
  using PlainStorage::PlainStorage;
  static uint64_t Hash(Key key) { return HashString(key); }
  static StrAttrStorage* Create(Arena& a, Key key) { return Place<StrAttrStorage>(a, a.Copy(key)); }
};

struct ArrayAttrStorage : AttributeStorage {
  using Key = std::span<const Attribute>;
  explicit ArrayAttrStorage(Key key) : values(key) {}
  bool operator==(Key key) const {
    return std::equal(key.begin(), key.end(), values.begin(), values.end());
  }
  static uint64_t Hash(Key key);
  static ArrayAttrStorage* Create(Arena& a, Key key) {
    return Place<ArrayAttrStorage>(a, a.Copy(key));
  }
  std::span<const Attribute> values;
};

struct DictAttrStorage : AttributeStorage {
  using Key = std::span<const NamedAttribute>;  ///< sorted by name
  explicit DictAttrStorage(Key key) : entries(key) {}
  bool operator==(Key key) const {
    return std::equal(key.begin(), key.end(), entries.begin(), entries.end());
  }
  static uint64_t Hash(Key key);
  static DictAttrStorage* Create(Arena& a, Key key) {
    return Place<DictAttrStorage>(a, a.Copy(key));
  }
  std::span<const NamedAttribute> entries;
};

struct TypeAttrStorage : PlainStorage<AttributeStorage, Type> {
  using PlainStorage::PlainStorage;
  static uint64_t Hash(Key key) { return HashPointer(key.storage()); }
  static TypeAttrStorage* Create(Arena& a, Key key) { return Place<TypeAttrStorage>(a, key); }
};

struct LocationAttrStorage : PlainStorage<AttributeStorage, Location> {
  using PlainStorage::PlainStorage;
  static uint64_t Hash(Key key) { return HashMix(key.bits()); }
  static LocationAttrStorage* Create(Arena& a, Key key) {
    return Place<LocationAttrStorage>(a, key);
  }
};

struct DimAttrStorage : PlainStorage<AttributeStorage, Dim> {
  using PlainStorage::PlainStorage;
  static uint64_t Hash(const Key& key) { return key.Hash(); }
  static DimAttrStorage* Create(Arena& a, const Key& key) { return Place<DimAttrStorage>(a, key); }
};

struct TensorAttrStorage : AttributeStorage {
  using Key = Tensor;
  explicit TensorAttrStorage(const Key& key) : value(key.Clone()) {}
  bool operator==(const Key& key) const { return value == key; }
  static uint64_t Hash(const Key& key);
  static TensorAttrStorage* Create(Arena& a, const Key& key) {
    return Place<TensorAttrStorage>(a, key);
  }
  Tensor value;
};

/// A location's name (`parts` empty) or a fusion of other locations.
struct LocationStorage : AttributeStorage {
  struct Key {
    std::string_view name;
    std::span<const Location> parts;
    std::string_view values = {};  ///< names of results, a NUL between two
  };
  LocationStorage(std::string_view n, std::span<const Location> p, std::string_view v)
      : name(n), parts(p), values(v) {}
  bool operator==(const Key& key) const {
    return name == key.name && values == key.values &&
           std::equal(key.parts.begin(), key.parts.end(), parts.begin(), parts.end());
  }
  static uint64_t Hash(const Key& key);
  static LocationStorage* Create(Arena& a, const Key& key) {
    return Place<LocationStorage>(a, a.Copy(key.name), a.Copy(key.parts), a.Copy(key.values));
  }
  std::string_view name;
  std::span<const Location> parts;
  std::string_view values;
};

}  // namespace lathe::detail
