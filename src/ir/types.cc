#include "lathe/ir/context.h"
#include "lathe/ir/type.h"
#include "lathe/support/error.h"
#include "src/ir/builtin_storage.h"

namespace lathe {

using detail::TensorTypeStorage;

namespace detail {

bool TensorTypeStorage::operator==(const Key& key) const {
  return element == key.element && ranked == key.ranked &&
         std::equal(key.dims.begin(), key.dims.end(), dims.begin(), dims.end());
}

uint64_t TensorTypeStorage::Hash(const Key& key) {
  uint64_t hash = HashCombine(static_cast<uint64_t>(key.element), key.ranked ? 1 : 0);
  for (const Dim& d : key.dims) hash = HashCombine(hash, d.Hash());
  return hash;
}

TensorTypeStorage* TensorTypeStorage::Create(Arena& arena, const Key& key) {
  Dim* copy = static_cast<Dim*>(arena.Allocate(key.dims.size_bytes(), alignof(Dim)));
  for (size_t i = 0; i < key.dims.size(); ++i) new (copy + i) Dim(key.dims[i]);
  return Place<TensorTypeStorage>(arena, key, std::span<Dim>(copy, key.dims.size()));
}

uint64_t ContainerTypeStorage::Hash(Key key) {
  uint64_t hash = key.size();
  for (Type t : key) hash = HashCombine(hash, HashPointer(t.storage()));
  return hash;
}

}  // namespace detail

void Type::detail_BadCast() const {
  LATHE_CHECK(impl_ != nullptr, "cast of a null type");
  LATHE_CHECK(false, "cast of type ", ToString(), " to another class");
  __builtin_unreachable();
}

ElemType ElemType::Get(IrContext& context, ElementType element) {
  return context.Get<ElemType>(element);
}
ElementType ElemType::element() const { return impl()->value; }

TokenType TokenType::Get(IrContext& context) {
  return TokenType(
      context.uniquer().Get<detail::SingletonTypeStorage>(context.GetKind<TokenType>(), {}));
}
NoneType NoneType::Get(IrContext& context) {
  return NoneType(
      context.uniquer().Get<detail::SingletonTypeStorage>(context.GetKind<NoneType>(), {}));
}

namespace {
const TensorTypeStorage* TensorStorage(Type t) {
  return static_cast<const TensorTypeStorage*>(t.storage());
}
}  // namespace

bool AnyTensorType::ClassOf(Type t) {
  return t.type_id() == TypeId::Get<VTensorType>() || t.type_id() == TypeId::Get<TensorType>();
}
ElementType AnyTensorType::element() const { return TensorStorage(*this)->element; }
bool AnyTensorType::has_rank() const { return TensorStorage(*this)->ranked; }
std::span<const Dim> AnyTensorType::dims() const { return TensorStorage(*this)->dims; }
bool AnyTensorType::is_value() const { return type_id() == TypeId::Get<VTensorType>(); }

SymShape AnyTensorType::shape() const {
  SymShape shape;
  shape.ranked = has_rank();
  shape.dims.assign(dims().begin(), dims().end());
  return shape;
}

bool AnyTensorType::is_static() const {
  if (!has_rank()) return false;
  for (const Dim& d : dims()) {
    if (!d.is_constant()) return false;
  }
  return true;
}

AnyTensorType AnyTensorType::With(ElementType element, const SymShape& shape) const {
  return is_value() ? AnyTensorType(VTensorType::Get(*context(), shape, element))
                    : AnyTensorType(TensorType::Get(*context(), shape, element));
}
AnyTensorType AnyTensorType::AsValue() const {
  return is_value() ? *this : VTensorType::Get(*context(), shape(), element());
}
AnyTensorType AnyTensorType::AsMutable() const {
  return is_value() ? AnyTensorType(TensorType::Get(*context(), shape(), element())) : *this;
}

TensorType TensorType::Get(IrContext& context, const SymShape& shape, ElementType element) {
  return context.Get<TensorType>({element, shape.ranked, shape.dims});
}
VTensorType VTensorType::Get(IrContext& context, const SymShape& shape, ElementType element) {
  return context.Get<VTensorType>({element, shape.ranked, shape.dims});
}

bool ContainerType::ClassOf(Type t) {
  return ListType::ClassOf(t) || DictType::ClassOf(t) || OptionalType::ClassOf(t) ||
         TupleType::ClassOf(t) || StackType::ClassOf(t);
}
std::span<const Type> ContainerType::elements() const {
  return static_cast<const detail::ContainerTypeStorage*>(impl_)->elements;
}

namespace {
template <class T>
T GetContainer(IrContext& context, std::span<const Type> elements, size_t wanted) {
  if (wanted != 0 && elements.size() != wanted) {
    throw Error(ErrorCode::kType, "type/elements",
                StrCat(context.GetKind<T>()->name, " takes ", wanted, " element type(s), not ",
                       elements.size()));
  }
  return context.Get<T>(elements);
}
}  // namespace

ListType ListType::Get(IrContext& c, std::span<const Type> e) {
  return GetContainer<ListType>(c, e, 1);
}
DictType DictType::Get(IrContext& c, std::span<const Type> e) {
  return GetContainer<DictType>(c, e, 2);
}
OptionalType OptionalType::Get(IrContext& c, std::span<const Type> e) {
  return GetContainer<OptionalType>(c, e, 1);
}
TupleType TupleType::Get(IrContext& c, std::span<const Type> e) {
  return GetContainer<TupleType>(c, e, 0);
}
StackType StackType::Get(IrContext& c, std::span<const Type> e) {
  return GetContainer<StackType>(c, e, 0);
}

namespace {

bool CompatibleTensors(AnyTensorType a, AnyTensorType b) {
  if (a.element() != b.element() && a.element() != ElementType::kUndefined &&
      b.element() != ElementType::kUndefined) {
    return false;
  }
  if (!a.has_rank() || !b.has_rank()) return true;
  if (a.rank() != b.rank()) return false;
  for (size_t i = 0; i < a.rank(); ++i) {
    if (ProvablyDifferent(a.dims()[i], b.dims()[i])) return false;
  }
  return true;
}

}  // namespace

bool Compatible(Type actual, Type expected) {
  std::vector<std::pair<Type, Type>> pairs{{actual, expected}};
  while (!pairs.empty()) {
    auto [a, b] = pairs.back();
    pairs.pop_back();
    if (a == b) continue;
    if (!a || !b || a.type_id() != b.type_id()) return false;
    if (auto tensor = a.dyn_cast<AnyTensorType>()) {
      if (!CompatibleTensors(tensor, b.cast<AnyTensorType>())) return false;
    } else if (auto container = a.dyn_cast<ContainerType>()) {
      const std::span<const Type> x = container.elements();
      const std::span<const Type> y = b.cast<ContainerType>().elements();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) pairs.emplace_back(x[i], y[i]);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace lathe
