#pragma once

#include <span>
#include <string>

#include "lathe/ir/storage.h"
#include "lathe/support/dim.h"
#include "lathe/support/element_type.h"

namespace lathe {

/// A uniqued, immutable type: one pointer wide, passed by value, equal iff the pointers are.
/// Classes derived from it add functions, never members.
class Type {
 public:
  using StorageBaseType = TypeStorage;
  constexpr Type() = default;
  explicit constexpr Type(const TypeStorage* impl) : impl_(impl) {}

  bool operator==(const Type&) const = default;
  explicit operator bool() const { return impl_ != nullptr; }

  TypeId type_id() const { return impl_->kind->id; }
  IrContext* context() const { return impl_->kind->context; }
  Dialect& dialect() const { return *impl_->kind->dialect; }
  const TypeStorage* storage() const { return impl_; }

  template <class T>
  bool isa() const {
    return impl_ != nullptr && T::ClassOf(*this);
  }
  /// The type as a `T`, or a null `T`.
  template <class T>
  T dyn_cast() const {
    return isa<T>() ? T(impl_) : T();
  }
  /// The type as a `T`; a wrong class is an internal error.
  template <class T>
  T cast() const {
    if (!isa<T>()) detail_BadCast();
    return T(impl_);
  }
  /// Interface `I` of the type's class (see interface.h), or null.
  template <class I>
  const typename I::Concept* interface() const {
    return static_cast<const typename I::Concept*>(impl_->kind->FindInterface(TypeId::Get<I>()));
  }

  std::string ToString() const;

 protected:
  const TypeStorage* impl_ = nullptr;

 private:
  [[noreturn]] void detail_BadCast() const;
};

/// Ties a type class to its storage: `class FooType : public TypeBase<FooType, FooStorage>`.
template <class Concrete, class Storage, class Base = Type>
class TypeBase : public Base {
 public:
  using StorageType = Storage;
  constexpr TypeBase() = default;
  explicit constexpr TypeBase(const TypeStorage* impl) : Base(impl) {}
  static bool ClassOf(Type t) { return t.type_id() == TypeId::Get<Concrete>(); }

 protected:
  const Storage* impl() const { return static_cast<const Storage*>(this->impl_); }
};

// ---- builtin types -------------------------------------------------------------------------

namespace detail {
struct ElemTypeStorage;
struct TensorTypeStorage;
struct ContainerTypeStorage;
}  // namespace detail

/// A scalar element type as a type: `f32`, `i64`, `index`, `string`, ...
class ElemType : public TypeBase<ElemType, detail::ElemTypeStorage> {
 public:
  using TypeBase::TypeBase;
  static ElemType Get(IrContext& context, ElementType element);
  ElementType element() const;
};

/// Orders operations and carries no data: a control dependency is a value of this type.
class TokenType : public TypeBase<TokenType, TypeStorage> {
 public:
  using TypeBase::TypeBase;
  static TokenType Get(IrContext& context);
};

/// The type of an absent optional operand or result.
class NoneType : public TypeBase<NoneType, TypeStorage> {
 public:
  using TypeBase::TypeBase;
  static NoneType Get(IrContext& context);
};

/// Common face of `tensor<[dims], elem>` (mutable, may alias) and `v_tensor<[dims], elem>`
/// (an immutable value). A dim is a constant, a symbolic expression or unknown (`?`); the rank may
/// be unknown (`*`). Rank 0, an empty dim (0) and unknown are three different things.
class AnyTensorType : public Type {
 public:
  using Type::Type;
  static bool ClassOf(Type t);
  ElementType element() const;
  bool has_rank() const;
  /// Empty if the rank is unknown; ask `has_rank` first.
  std::span<const Dim> dims() const;
  size_t rank() const { return dims().size(); }
  SymShape shape() const;
  /// True if the rank and every dim are known constants.
  bool is_static() const;
  bool is_value() const;  ///< `v_tensor`?
  /// The same class (`tensor` or `v_tensor`) with another shape or element type.
  AnyTensorType With(ElementType element, const SymShape& shape) const;
  AnyTensorType AsValue() const;
  AnyTensorType AsMutable() const;
};

class TensorType : public TypeBase<TensorType, detail::TensorTypeStorage, AnyTensorType> {
 public:
  using TypeBase::TypeBase;
  static TensorType Get(IrContext& context, const SymShape& shape, ElementType element);
};

class VTensorType : public TypeBase<VTensorType, detail::TensorTypeStorage, AnyTensorType> {
 public:
  using TypeBase::TypeBase;
  static VTensorType Get(IrContext& context, const SymShape& shape, ElementType element);
};

/// Containers: list<T>, dict<K, V>, optional<T>, tuple<...>, stack<...>, nested as deep as wanted.
class ContainerType : public Type {
 public:
  using Type::Type;
  static bool ClassOf(Type t);
  std::span<const Type> elements() const;
};

#define LATHE_CONTAINER_TYPE(NAME)                                                  \
  class NAME : public TypeBase<NAME, detail::ContainerTypeStorage, ContainerType> { \
   public:                                                                          \
    using TypeBase::TypeBase;                                                       \
    static NAME Get(IrContext& context, std::span<const Type> elements);            \
  };
LATHE_CONTAINER_TYPE(ListType)      ///< list<T>: one element type
LATHE_CONTAINER_TYPE(DictType)      ///< dict<K, V>
LATHE_CONTAINER_TYPE(OptionalType)  ///< optional<T>
LATHE_CONTAINER_TYPE(TupleType)     ///< tuple<A, B, ...>
LATHE_CONTAINER_TYPE(StackType)     ///< stack<T...>: what a loop's forward pass pushes
#undef LATHE_CONTAINER_TYPE

/// True if a value of type `actual` may stand where `expected` is declared: equal, or tensors whose
/// known parts do not contradict each other.
bool Compatible(Type actual, Type expected);

}  // namespace lathe
