#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lathe/ir/attribute.h"
#include "lathe/ir/op_def.h"
#include "lathe/ir/type_id.h"

namespace lathe {

class Dialect;
class Operation;

using InterfaceEntry = std::pair<TypeId, const void*>;

/// What all operations of one type share, in one allocation owned by the context:
///
///   interfaces (id, table), sorted | OpInfoImpl | trait ids, sorted | required attribute names
///
/// Interfaces attached later, possibly from another library, hang on a short list beside it.
class OpInfoImpl {
 public:
  struct Args {
    IrContext* context;
    Dialect* dialect;
    TypeId id;              ///< null for an unregistered op
    std::string_view name;  ///< "nn.conv"
    const OpDef* def;       ///< null if the op has no declaration
    std::vector<InterfaceEntry> interfaces;
    std::vector<TypeId> traits;
    std::vector<std::string_view> attribute_names;
  };
  static OpInfoImpl* Create(const Args& args);
  static void Destroy(OpInfoImpl* info);

  bool HasTrait(TypeId trait) const;
  const void* GetInterface(TypeId interface) const;
  /// Adds an interface to an op type after registration; a second one of the kind is an error.
  /// Not while other threads use the context.
  void AttachInterface(TypeId interface, const void* table);

  std::span<const TypeId> traits() const;
  std::span<const StrAttribute> attribute_names() const;
  /// Default of required attribute `i`, or null.
  Attribute default_value(size_t i) const { return defaults_.empty() ? Attribute() : defaults_[i]; }
  bool has_defaults() const { return has_defaults_; }

  IrContext* context;
  Dialect* dialect;
  TypeId id;
  std::string_view name;
  StrAttribute name_attr;
  const OpDef* def;

 private:
  friend class OpInfo;
  OpInfoImpl() = default;
  ~OpInfoImpl() = default;
  uint32_t num_interfaces_ = 0;
  uint32_t num_traits_ = 0;
  uint32_t num_attributes_ = 0;
  bool has_defaults_ = false;
  std::vector<Attribute> defaults_;
  std::vector<InterfaceEntry> attached_;
};

/// Handle of an op type: one pointer, passed by value.
class OpInfo {
 public:
  constexpr OpInfo() = default;
  explicit constexpr OpInfo(OpInfoImpl* impl) : impl_(impl) {}
  explicit operator bool() const { return impl_ != nullptr; }
  bool operator==(const OpInfo&) const = default;

  std::string_view name() const { return impl_->name; }
  TypeId id() const { return impl_->id; }
  IrContext* context() const { return impl_->context; }
  Dialect* dialect() const { return impl_->dialect; }
  const OpDef* def() const { return impl_->def; }
  bool is_registered() const { return static_cast<bool>(impl_->id); }

  template <class Trait>
  bool HasTrait() const {
    return impl_->HasTrait(TypeId::Get<Trait>());
  }
  template <class Interface>
  const typename Interface::Concept* GetInterface() const {
    return static_cast<const typename Interface::Concept*>(
        impl_->GetInterface(TypeId::Get<Interface>()));
  }
  /// Attaches `Interface` with `Model` as its table, e.g. from a plug-in.
  template <class Interface, class Model>
  void AttachInterface() const {
    static const Model model;
    impl_->AttachInterface(TypeId::Get<Interface>(),
                           static_cast<const typename Interface::Concept*>(&model));
  }
  OpInfoImpl* impl() const { return impl_; }

 private:
  OpInfoImpl* impl_ = nullptr;
};

}  // namespace lathe
