#include <algorithm>
#include <bit>

#include "lathe/ir/attribute.h"
#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "src/ir/builtin_storage.h"

namespace lathe {

namespace detail {

uint64_t ArrayAttrStorage::Hash(Key key) {
  uint64_t hash = key.size();
  for (Attribute a : key) hash = HashCombine(hash, HashPointer(a.storage()));
  return hash;
}

uint64_t DictAttrStorage::Hash(Key key) {
  uint64_t hash = key.size();
  for (const NamedAttribute& e : key) {
    hash = HashCombine(hash, HashPointer(e.name.storage()));
    hash = HashCombine(hash, HashPointer(e.value.storage()));
  }
  return hash;
}

uint64_t TensorAttrStorage::Hash(const Key& key) {
  uint64_t hash = static_cast<uint64_t>(key.element_type());
  for (int64_t d : key.shape()) hash = HashCombine(hash, static_cast<uint64_t>(d));
  if (key.element_type() == ElementType::kString) {
    for (const std::string& s : key.data<std::string>()) hash = HashCombine(hash, HashString(s));
    return hash;
  }
  return HashCombine(hash, HashBytes(key.raw(), key.byte_size()));
}

}  // namespace detail

void Attribute::detail_BadCast() const {
  LATHE_CHECK(impl_ != nullptr, "cast of a null attribute");
  LATHE_CHECK(false, "cast of attribute ", ToString(), " to another class");
  __builtin_unreachable();
}

BoolAttribute BoolAttribute::Get(IrContext& c, bool value) { return c.Get<BoolAttribute>(value); }
bool BoolAttribute::value() const { return impl()->value; }

IntAttribute IntAttribute::Get(IrContext& c, int64_t value) { return c.Get<IntAttribute>(value); }
int64_t IntAttribute::value() const { return impl()->value; }

FloatAttribute FloatAttribute::Get(IrContext& c, double value) {
  return c.Get<FloatAttribute>(std::bit_cast<uint64_t>(value));
}
double FloatAttribute::value() const { return std::bit_cast<double>(impl()->value); }

StrAttribute StrAttribute::Get(IrContext& c, std::string_view value) {
  return c.Get<StrAttribute>(value);
}
std::string_view StrAttribute::value() const { return impl()->value; }

ArrayAttribute ArrayAttribute::Get(IrContext& c, std::span<const Attribute> values) {
  return c.Get<ArrayAttribute>(values);
}

namespace {
template <class A, class T>
ArrayAttribute GetArray(IrContext& c, std::span<const T> values) {
  std::vector<Attribute> elements;
  elements.reserve(values.size());
  for (const T& v : values) elements.push_back(A::Get(c, v));
  return ArrayAttribute::Get(c, elements);
}
}  // namespace

ArrayAttribute ArrayAttribute::Get(IrContext& c, std::span<const int64_t> values) {
  return GetArray<IntAttribute>(c, values);
}
ArrayAttribute ArrayAttribute::Get(IrContext& c, std::span<const double> values) {
  return GetArray<FloatAttribute>(c, values);
}
ArrayAttribute ArrayAttribute::Get(IrContext& c, std::span<const std::string> values) {
  return GetArray<StrAttribute>(c, values);
}
std::span<const Attribute> ArrayAttribute::values() const { return impl()->values; }

std::optional<std::vector<int64_t>> ArrayAttribute::AsInts() const {
  std::vector<int64_t> out;
  out.reserve(values().size());
  for (Attribute a : values()) {
    auto i = a.dyn_cast<IntAttribute>();
    if (!i) return std::nullopt;
    out.push_back(i.value());
  }
  return out;
}

std::optional<std::vector<double>> ArrayAttribute::AsFloats() const {
  std::vector<double> out;
  out.reserve(values().size());
  for (Attribute a : values()) {
    if (auto f = a.dyn_cast<FloatAttribute>()) {
      out.push_back(f.value());
    } else if (auto i = a.dyn_cast<IntAttribute>()) {
      out.push_back(static_cast<double>(i.value()));
    } else {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::vector<std::string>> ArrayAttribute::AsStrings() const {
  std::vector<std::string> out;
  out.reserve(values().size());
  for (Attribute a : values()) {
    auto s = a.dyn_cast<StrAttribute>();
    if (!s) return std::nullopt;
    out.emplace_back(s.value());
  }
  return out;
}

namespace {
bool NameLess(const NamedAttribute& a, const NamedAttribute& b) {
  return a.name.value() < b.name.value();
}
}  // namespace

DictionaryAttribute DictionaryAttribute::Get(IrContext& c,
                                             std::span<const NamedAttribute> entries) {
  if (std::is_sorted(entries.begin(), entries.end(), NameLess) &&
      std::adjacent_find(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return a.name == b.name;
      }) == entries.end()) {
    return c.Get<DictionaryAttribute>(entries);
  }
  std::vector<NamedAttribute> sorted(entries.begin(), entries.end());
  std::sort(sorted.begin(), sorted.end(), NameLess);
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].name == sorted[i - 1].name) {
      throw Error(ErrorCode::kInvalidArgument, "ir/duplicate-attribute",
                  StrCat("attribute '", sorted[i].name.value(), "' is given twice"));
    }
  }
  return c.Get<DictionaryAttribute>(sorted);
}

DictionaryAttribute DictionaryAttribute::Empty(IrContext& c) {
  return c.Get<DictionaryAttribute>(std::span<const NamedAttribute>());
}
std::span<const NamedAttribute> DictionaryAttribute::entries() const { return impl()->entries; }

Attribute DictionaryAttribute::Find(std::string_view name) const {
  const std::span<const NamedAttribute> all = entries();
  auto at = std::lower_bound(
      all.begin(), all.end(), name,
      [](const NamedAttribute& e, std::string_view n) { return e.name.value() < n; });
  return at != all.end() && at->name.value() == name ? at->value : Attribute();
}

Attribute DictionaryAttribute::Find(StrAttribute name) const {
  const std::span<const NamedAttribute> all = entries();
  if (all.size() > 8) return Find(name.value());
  for (const NamedAttribute& e : all) {
    if (e.name == name) return e.value;
  }
  return Attribute();
}

DictionaryAttribute DictionaryAttribute::With(std::string_view name, Attribute value) const {
  std::vector<NamedAttribute> all(entries().begin(), entries().end());
  auto at =
      std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.name.value() == name; });
  if (at == all.end()) {
    if (!value) return *this;
    all.push_back({StrAttribute::Get(*context(), name), value});
  } else if (value) {
    at->value = value;
  } else {
    all.erase(at);
  }
  return Get(*context(), all);
}

TypeAttribute TypeAttribute::Get(Type type) { return type.context()->Get<TypeAttribute>(type); }
Type TypeAttribute::value() const { return impl()->value; }

LocationAttribute LocationAttribute::Get(IrContext& c, Location location) {
  return c.Get<LocationAttribute>(location);
}
Location LocationAttribute::value() const { return impl()->value; }

DimAttribute DimAttribute::Get(IrContext& c, const Dim& dim) { return c.Get<DimAttribute>(dim); }
const Dim& DimAttribute::value() const { return impl()->value; }

TensorAttribute TensorAttribute::Get(IrContext& c, const Tensor& value) {
  return c.Get<TensorAttribute>(value);
}
const Tensor& TensorAttribute::value() const { return impl()->value; }

}  // namespace lathe
