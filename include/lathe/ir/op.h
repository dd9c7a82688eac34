#pragma once

#include <type_traits>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/ir/traits.h"

namespace lathe {

/// Base of op classes and interfaces: a nullable view of an `Operation*`. It may be made of a
/// constant operation, which must not be changed through it then.
class OpBase {
 public:
  constexpr OpBase() = default;
  explicit constexpr OpBase(const Operation* op) : op_(const_cast<Operation*>(op)) {}
  explicit operator bool() const { return op_ != nullptr; }
  operator Operation*() const { return op_; }  // NOLINT: a view converts to what it views
  Operation* operator->() const { return op_; }
  Operation* operation() const { return op_; }

 protected:
  Operation* op_ = nullptr;
};

/// Base of interfaces. An interface `I` declares
///   struct Concept { function pointers };
///   template <class ConcreteOp> struct Model : Concept { Model() : Concept{...} {} };
/// and member functions that call through `table_`. An op class that lists an interface but lacks
/// a required method does not compile.
template <class Interface>
class OpInterface : public OpBase {
 public:
  static Interface DynCast(Operation* op) {
    if (op == nullptr) return Interface();
    const auto* table = op->info().template GetInterface<Interface>();
    return table == nullptr ? Interface() : Interface(op, table);
  }
  static bool ClassOf(const Operation* op) {
    return op->info().template GetInterface<Interface>() != nullptr;
  }
  constexpr OpInterface() = default;

 protected:
  template <class Concept>
  OpInterface(Operation* op, const Concept* table) : OpBase(op), table_(table) {}
  template <class I = Interface>
  const typename I::Concept* table() const {
    return static_cast<const typename I::Concept*>(table_);
  }
  const void* table_ = nullptr;
};

/// Marks interfaces among the template arguments of `Op`: they have a nested `Concept`.
template <class T>
concept InterfaceClass = requires { typename T::Concept; };

/// Base of op classes: `class ConvOp : public Op<ConvOp, HasValueSemantics, InferShapeInterface>`.
/// `Concrete` has `static constexpr const char* kName` and `static const OpDef* Def()`.
template <class Concrete, class... TraitsAndInterfaces>
class Op : public OpBase {
 public:
  using OpBase::OpBase;
  static bool ClassOf(const Operation* op) { return op->info().id() == TypeId::Get<Concrete>(); }
  static Concrete DynCast(Operation* op) {
    return op != nullptr && ClassOf(op) ? Concrete(op) : Concrete();
  }
  static std::vector<TypeId> TraitIds() {
    std::vector<TypeId> ids;
    (AddTrait<TraitsAndInterfaces>(ids), ...);
    return ids;
  }
  static std::vector<InterfaceEntry> InterfaceTables() {
    std::vector<InterfaceEntry> tables;
    (AddInterface<TraitsAndInterfaces>(tables), ...);
    return tables;
  }

 private:
  template <class T>
  static void AddTrait(std::vector<TypeId>& ids) {
    if constexpr (!InterfaceClass<T>) ids.push_back(TypeId::Get<T>());
  }
  template <class T>
  static void AddInterface(std::vector<InterfaceEntry>& tables) {
    if constexpr (InterfaceClass<T>) {
      static const typename T::template Model<Concrete> model;
      tables.emplace_back(TypeId::Get<T>(), static_cast<const typename T::Concept*>(&model));
    }
  }
};

}  // namespace lathe
