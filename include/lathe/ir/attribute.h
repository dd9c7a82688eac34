#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/ir/location.h"
#include "lathe/ir/storage.h"
#include "lathe/ir/type.h"
#include "lathe/support/dim.h"
#include "lathe/support/tensor.h"

namespace lathe {

/// A uniqued, immutable compile-time constant: one pointer wide, equal iff the pointers are.
/// For small things; weights are never attributes (see program.h).
class Attribute {
 public:
  using StorageBaseType = AttributeStorage;
  constexpr Attribute() = default;
  explicit constexpr Attribute(const AttributeStorage* impl) : impl_(impl) {}

  bool operator==(const Attribute&) const = default;
  explicit operator bool() const { return impl_ != nullptr; }

  TypeId type_id() const { return impl_->kind->id; }
  IrContext* context() const { return impl_->kind->context; }
  const AttributeStorage* storage() const { return impl_; }

  template <class A>
  bool isa() const {
    return impl_ != nullptr && A::ClassOf(*this);
  }
  template <class A>
  A dyn_cast() const {
    return isa<A>() ? A(impl_) : A();
  }
  template <class A>
  A cast() const {
    if (!isa<A>()) detail_BadCast();
    return A(impl_);
  }
  /// Table of interface `I` that the class has, or null.
  template <class I>
  const typename I::Concept* interface() const {
    return static_cast<const typename I::Concept*>(impl_->kind->FindInterface(TypeId::Get<I>()));
  }

  std::string ToString() const;

 protected:
  const AttributeStorage* impl_ = nullptr;

 private:
  [[noreturn]] void detail_BadCast() const;
};

template <class Concrete, class Storage>
class AttrBase : public Attribute {
 public:
  using StorageType = Storage;
  constexpr AttrBase() = default;
  explicit constexpr AttrBase(const AttributeStorage* impl) : Attribute(impl) {}
  static bool ClassOf(Attribute a) { return a.type_id() == TypeId::Get<Concrete>(); }

 protected:
  const Storage* impl() const { return static_cast<const Storage*>(this->impl_); }
};

namespace detail {
struct BoolAttrStorage;
struct IntAttrStorage;
struct FloatAttrStorage;
struct StrAttrStorage;
struct ArrayAttrStorage;
struct DictAttrStorage;
struct TypeAttrStorage;
struct LocationAttrStorage;
struct DimAttrStorage;
struct TensorAttrStorage;
}  // namespace detail

class BoolAttribute : public AttrBase<BoolAttribute, detail::BoolAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static BoolAttribute Get(IrContext& context, bool value);
  bool value() const;
};

class IntAttribute : public AttrBase<IntAttribute, detail::IntAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static IntAttribute Get(IrContext& context, int64_t value);
  int64_t value() const;
};

/// A float, unique by its bits: NaNs with different payloads and -0.0 differ from 0.0.
class FloatAttribute : public AttrBase<FloatAttribute, detail::FloatAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static FloatAttribute Get(IrContext& context, double value);
  double value() const;
};

class StrAttribute : public AttrBase<StrAttribute, detail::StrAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static StrAttribute Get(IrContext& context, std::string_view value);
  std::string_view value() const;
};

class ArrayAttribute : public AttrBase<ArrayAttribute, detail::ArrayAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static ArrayAttribute Get(IrContext& context, std::span<const Attribute> values);
  static ArrayAttribute Get(IrContext& context, std::span<const int64_t> values);
  static ArrayAttribute Get(IrContext& context, std::span<const double> values);
  static ArrayAttribute Get(IrContext& context, std::span<const std::string> values);
  std::span<const Attribute> values() const;
  /// Elements as integers, floats (integers convert) or strings; nothing if one is of another kind.
  std::optional<std::vector<int64_t>> AsInts() const;
  std::optional<std::vector<double>> AsFloats() const;
  std::optional<std::vector<std::string>> AsStrings() const;
};

struct NamedAttribute {
  StrAttribute name;
  Attribute value;
  bool operator==(const NamedAttribute&) const = default;
};

/// Attributes sorted by name; look-up by binary search. A repeated name is an error.
class DictionaryAttribute : public AttrBase<DictionaryAttribute, detail::DictAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static DictionaryAttribute Get(IrContext& context, std::span<const NamedAttribute> entries);
  static DictionaryAttribute Empty(IrContext& context);
  std::span<const NamedAttribute> entries() const;
  size_t size() const { return entries().size(); }
  /// The value, or null.
  Attribute Find(std::string_view name) const;
  Attribute Find(StrAttribute name) const;
  /// A dictionary with `name` set to `value`; a null value removes the entry.
  DictionaryAttribute With(std::string_view name, Attribute value) const;
};

class TypeAttribute : public AttrBase<TypeAttribute, detail::TypeAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static TypeAttribute Get(Type type);
  Type value() const;
};

class LocationAttribute : public AttrBase<LocationAttribute, detail::LocationAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static LocationAttribute Get(IrContext& context, Location location);
  Location value() const;
};

class DimAttribute : public AttrBase<DimAttribute, detail::DimAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static DimAttribute Get(IrContext& context, const Dim& dim);
  const Dim& value() const;
};

/// A small dense tensor, unique by element type, shape and bytes.
class TensorAttribute : public AttrBase<TensorAttribute, detail::TensorAttrStorage> {
 public:
  using AttrBase::AttrBase;
  static TensorAttribute Get(IrContext& context, const Tensor& value);
  const Tensor& value() const;
};

}  // namespace lathe
