#include "lathe/ir/op_info.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

constexpr auto kById = [](const InterfaceEntry& a, const InterfaceEntry& b) {
  return a.first < b.first;
};

InterfaceEntry* InterfacesOf(const OpInfoImpl* info, size_t count) {
  return reinterpret_cast<InterfaceEntry*>(const_cast<OpInfoImpl*>(info)) - count;
}

/// The context owns the characters of `text` from here on.
std::string_view Keep(IrContext& context, std::string_view text) {
  return StrAttribute::Get(context, text).value();
}

std::vector<Attribute> ParseDefaults(IrContext& context, const OpDef& def) {
  std::vector<Attribute> defaults;
  for (const AttrDef& a : def.attributes) {
    defaults.push_back(a.default_text != nullptr ? ParseAttribute(context, a.default_text)
                                                 : Attribute());
  }
  return defaults;
}

}  // namespace

OpInfoImpl* OpInfoImpl::Create(const Args& args) {
  std::vector<InterfaceEntry> interfaces = args.interfaces;
  std::sort(interfaces.begin(), interfaces.end(), kById);
  std::vector<TypeId> traits = args.traits;
  std::sort(traits.begin(), traits.end());

  static_assert(alignof(OpInfoImpl) <= alignof(std::max_align_t) && sizeof(InterfaceEntry) == 16);
  const size_t before = interfaces.size() * sizeof(InterfaceEntry);
  const size_t after =
      traits.size() * sizeof(TypeId) + args.attribute_names.size() * sizeof(StrAttribute);
  std::byte* memory = static_cast<std::byte*>(::operator new(before + sizeof(OpInfoImpl) + after));
  auto* info = new (memory + before) OpInfoImpl();
  info->context = args.context;
  info->dialect = args.dialect;
  info->id = args.id;
  info->name_attr = StrAttribute::Get(*args.context, args.name);
  info->name = info->name_attr.value();
  info->def = args.def;
  info->num_interfaces_ = static_cast<uint32_t>(interfaces.size());
  info->num_traits_ = static_cast<uint32_t>(traits.size());
  info->num_attributes_ = static_cast<uint32_t>(args.attribute_names.size());
  std::uninitialized_copy(interfaces.begin(), interfaces.end(),
                          InterfacesOf(info, interfaces.size()));
  auto* trait_slots = reinterpret_cast<TypeId*>(info + 1);
  std::uninitialized_copy(traits.begin(), traits.end(), trait_slots);
  auto* name_slots = reinterpret_cast<StrAttribute*>(trait_slots + traits.size());
  for (std::string_view name : args.attribute_names) {
    new (name_slots++) StrAttribute(StrAttribute::Get(*args.context, Keep(*args.context, name)));
  }
  if (args.def != nullptr) info->defaults_ = ParseDefaults(*args.context, *args.def);
  info->has_defaults_ = std::any_of(info->defaults_.begin(), info->defaults_.end(),
                                    [](Attribute a) { return static_cast<bool>(a); });
  return info;
}

void OpInfoImpl::Destroy(OpInfoImpl* info) {
  void* memory = InterfacesOf(info, info->num_interfaces_);
  info->~OpInfoImpl();
  ::operator delete(memory);
}

std::span<const TypeId> OpInfoImpl::traits() const {
  return {reinterpret_cast<const TypeId*>(this + 1), num_traits_};
}

std::span<const StrAttribute> OpInfoImpl::attribute_names() const {
  return {reinterpret_cast<const StrAttribute*>(traits().data() + num_traits_), num_attributes_};
}

bool OpInfoImpl::HasTrait(TypeId trait) const {
  const std::span<const TypeId> all = traits();
  return std::binary_search(all.begin(), all.end(), trait);
}

const void* OpInfoImpl::GetInterface(TypeId interface) const {
  const std::span<const InterfaceEntry> all(InterfacesOf(this, num_interfaces_), num_interfaces_);
  auto at = std::lower_bound(all.begin(), all.end(), InterfaceEntry{interface, nullptr}, kById);
  if (at != all.end() && at->first == interface) return at->second;
  for (const auto& [key, table] : attached_) {
    if (key == interface) return table;
  }
  return nullptr;
}

void OpInfoImpl::AttachInterface(TypeId interface, const void* table) {
  LATHE_CHECK(GetInterface(interface) == nullptr, name, " has that interface already");
  attached_.emplace_back(interface, table);
}

}  // namespace lathe
