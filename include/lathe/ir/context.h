#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/op_info.h"
#include "lathe/ir/storage.h"
#include "lathe/ir/type_id.h"

namespace lathe {

class Dialect;

/// Owns the uniqued types and attributes, the dialects and the op table. An ordinary object:
/// several may live in one process, on several threads; what it owns is freed with it, and it must
/// outlive every program made in it.
///
/// Threads: look-ups and uniquing may run concurrently. Loading dialects, plug-ins and attaching
/// interfaces may not run while another thread uses the context.
class IrContext {
 public:
  IrContext();  ///< with the builtin types and attributes, and no dialect
  ~IrContext();
  IrContext(const IrContext&) = delete;
  IrContext& operator=(const IrContext&) = delete;

  // ---- dialects ----
  /// Loads dialect `D` (a class with a constructor from IrContext&) unless it is loaded.
  template <class D>
  D& LoadDialect() {
    if (Dialect* loaded = FindDialect(D::kName)) return static_cast<D&>(*loaded);
    auto dialect = std::make_unique<D>(*this);
    D& result = *dialect;
    AddDialect(std::move(dialect));
    return result;
  }
  /// Null if there is none of that name.
  Dialect* FindDialect(std::string_view name) const;
  /// In order of loading.
  std::vector<Dialect*> dialects() const;
  /// Opens a shared library and calls its `extern "C" void LathePlugin(lathe::IrContext&)`, which
  /// registers dialects, ops, types or interfaces. Errors: io/plugin, io/plugin-version.
  void LoadPlugin(const std::string& path);

  // ---- ops ----
  template <class OpT>
  void RegisterOp(Dialect& dialect) {
    const OpDef* def = OpT::Def();
    RegisterOp(dialect, TypeId::Get<OpT>(), OpT::kName, def, OpT::InterfaceTables(),
               OpT::TraitIds());
  }
  /// For op types that have no C++ class. A name registered twice is an error.
  OpInfo RegisterOp(Dialect& dialect, TypeId id, std::string_view name, const OpDef* def,
                    std::vector<InterfaceEntry> interfaces, std::vector<TypeId> traits);
  /// The op type of that name, or null. Unregistered ops are found only after `GetUnregistered`.
  OpInfo FindOp(std::string_view name) const;
  template <class OpT>
  OpInfo GetOp() {
    return GetOpById(TypeId::Get<OpT>(), OpT::kName);
  }
  /// The op type `name`; an unknown one is an error (ir/unknown-op, with the nearest names) unless
  /// unregistered ops are allowed, when it is made up with no traits, interfaces or declaration.
  OpInfo GetOrMakeOp(std::string_view name);
  /// All registered op types by name.
  std::vector<OpInfo> ops() const;
  bool allows_unregistered_ops() const { return allow_unregistered_; }
  void allow_unregistered_ops(bool allow) { allow_unregistered_ = allow; }

  // ---- types and attributes ----
  StorageUniquer& uniquer() { return uniquer_; }
  /// Registers a type or attribute class `T` (see storage.h) under `name`.
  template <class T>
  const AbstractKind* RegisterKind(std::string_view name, Dialect* dialect,
                                   void (*print)(const void*, PrinterBase&)) {
    return RegisterKind(TypeId::Get<T>(), name, dialect, print);
  }
  /// Gives type or attribute class `T` interface `I` with table `Model`; a second one is an error.
  template <class T, class I, class Model>
  void AttachInterface() {
    static const Model model;
    AttachKindInterface(TypeId::Get<T>(), TypeId::Get<I>(),
                        static_cast<const typename I::Concept*>(&model));
  }
  /// What instances of `T` share; an unregistered `T` is an internal error.
  template <class T>
  const AbstractKind* GetKind() const {
    return GetKind(TypeId::Get<T>());
  }
  /// The uniqued instance of registered class `T` for `key`.
  template <class T>
  T Get(const typename T::StorageType::Key& key) {
    return T(uniquer_.Get<typename T::StorageType>(GetKind<T>(), key));
  }

  /// Bytes held for types, attributes and tables.
  size_t memory_usage() const;

  struct Impl;
  Impl& impl() { return *impl_; }  ///< for the IR layer itself

 private:
  void AddDialect(std::unique_ptr<Dialect> dialect);
  OpInfo GetOpById(TypeId id, const char* name) const;
  const AbstractKind* RegisterKind(TypeId id, std::string_view name, Dialect* dialect,
                                   void (*print)(const void*, PrinterBase&));
  const AbstractKind* GetKind(TypeId id) const;
  void AttachKindInterface(TypeId kind, TypeId interface, const void* table);

  StorageUniquer uniquer_;
  std::unique_ptr<Impl> impl_;
  bool allow_unregistered_ = false;
};

}  // namespace lathe
