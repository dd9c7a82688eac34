#include "lathe/ir/context.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lathe/ir/dialect.h"
#include "lathe/support/error.h"
#include "lathe/support/version.h"
#include "src/ir/builtin_storage.h"
#include "src/ir/context_impl.h"

namespace lathe {

IrContext::IrContext() : impl_(std::make_unique<Impl>()) { RegisterBuiltinKinds(*this); }

IrContext::~IrContext() {
  impl_->dialects.clear();
  for (const auto& [name, op] : impl_->ops) OpInfoImpl::Destroy(op);
}

// ---- dialects ----

Dialect* IrContext::FindDialect(std::string_view name) const {
  for (const auto& d : impl_->dialects) {
    if (d->name() == name) return d.get();
  }
  return nullptr;
}

std::vector<Dialect*> IrContext::dialects() const {
  std::vector<Dialect*> all;
  for (const auto& d : impl_->dialects) all.push_back(d.get());
  return all;
}

void IrContext::AddDialect(std::unique_ptr<Dialect> dialect) {
  impl_->dialects.push_back(std::move(dialect));
}

namespace {

// "0.1" of "0.1.7": the same for versions whose plug-ins are interchangeable.
std::string_view AbiOf(std::string_view version) { return version.substr(0, version.rfind('.')); }

void CheckPluginVersion(void* library, const std::string& path) {
  const auto* version = static_cast<const char*>(dlsym(library, "LathePluginVersion"));
  if (version != nullptr && AbiOf(version) == AbiOf(Version())) return;
  const std::string made = version == nullptr
                               ? "does not say for which version of Lathe it was made"
                               : StrCat("was made for Lathe ", version);
  throw Error(ErrorCode::kUnsupported, "io/plugin-version",
              StrCat("the plug-in ", made, "; this is Lathe ", Version()))
      .At(path)
      .Hint("define its entry with LATHE_PLUGIN (lathe/plugin.h), and build it with these headers");
}

}  // namespace

void IrContext::LoadPlugin(const std::string& path) {
  // dlopen waits for whoever writes a pipe.
  std::error_code ignored;
  if (std::filesystem::is_fifo(path, ignored)) {
    throw Error(ErrorCode::kIo, "io/plugin", "cannot load the plug-in: it is a pipe").At(path);
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(ErrorCode::kIo, "io/plugin", StrCat("cannot load the plug-in: ", dlerror()))
        .At(path);
  }
  auto entry = reinterpret_cast<void (*)(IrContext&)>(dlsym(library, "LathePlugin"));
  if (entry == nullptr) {
    dlclose(library);
    throw Error(ErrorCode::kIo, "io/plugin", "the library has no function 'LathePlugin'")
        .At(path)
        .Hint("define it with LATHE_PLUGIN (lathe/plugin.h), and register there");
  }
  impl_->plugins.push_back(library);  // stays open: the context may hold its code until the end
  CheckPluginVersion(library, path);
  entry(*this);
}

// ---- ops ----

OpInfo IrContext::RegisterOp(Dialect& dialect, TypeId id, std::string_view name, const OpDef* def,
                             std::vector<InterfaceEntry> interfaces, std::vector<TypeId> traits) {
  if (FindOp(name)) {
    throw Error(ErrorCode::kInvalidArgument, "ir/duplicate-op",
                StrCat("op '", name, "' is registered twice"))
        .At(std::string(dialect.name()));
  }
  OpInfoImpl::Args args{this, &dialect, id, name, def, std::move(interfaces), std::move(traits),
                        {}};
  if (def != nullptr) {
    for (const AttrDef& a : def->attributes) args.attribute_names.emplace_back(a.name);
  }
  OpInfoImpl* op = OpInfoImpl::Create(args);
  const std::unique_lock lock(impl_->ops_mutex);
  impl_->ops.emplace(op->name, op);
  if (id) impl_->ops_by_id.emplace(id.key(), op);
  return OpInfo(op);
}

OpInfo IrContext::FindOp(std::string_view name) const {
  const std::shared_lock lock(impl_->ops_mutex);
  auto at = impl_->ops.find(name);
  return at == impl_->ops.end() ? OpInfo() : OpInfo(at->second);
}

OpInfo IrContext::GetOpById(TypeId id, const char* name) const {
  const std::shared_lock lock(impl_->ops_mutex);
  auto at = impl_->ops_by_id.find(id.key());
  LATHE_CHECK(at != impl_->ops_by_id.end(), "op '", name, "' is not registered: load its dialect");
  return OpInfo(at->second);
}

namespace {

std::string HintForUnknown(const IrContext& context, std::string_view name) {
  std::vector<std::string> names;
  for (const OpInfo op : context.ops()) {
    if (op.name().ends_with(StrCat(".", name))) return StrCat("did you mean '", op.name(), "'?");
    names.emplace_back(op.name());
  }
  const std::string near = DidYouMean(name, names);
  return near.empty() ? "load the dialect that defines it, or allow unregistered ops" : near;
}

}  // namespace

OpInfo IrContext::GetOrMakeOp(std::string_view name) {
  if (OpInfo found = FindOp(name)) return found;
  if (!allow_unregistered_) {
    throw Error(ErrorCode::kNotFound, "ir/unknown-op", StrCat("unknown op '", name, "'"))
        .Hint(HintForUnknown(*this, name));
  }
  OpInfoImpl* op = OpInfoImpl::Create({this, nullptr, TypeId(), name, nullptr, {}, {}, {}});
  const std::unique_lock lock(impl_->ops_mutex);
  auto [at, inserted] = impl_->ops.emplace(op->name, op);
  if (!inserted) OpInfoImpl::Destroy(op);
  return OpInfo(at->second);
}

std::vector<OpInfo> IrContext::ops() const {
  const std::shared_lock lock(impl_->ops_mutex);
  std::vector<OpInfo> all;
  for (const auto& [name, op] : impl_->ops) {
    if (op->id) all.emplace_back(op);
  }
  std::sort(all.begin(), all.end(), [](OpInfo a, OpInfo b) { return a.name() < b.name(); });
  return all;
}

// ---- kinds ----

const AbstractKind* IrContext::RegisterKind(TypeId id, std::string_view name, Dialect* dialect,
                                            void (*print)(const void*, PrinterBase&)) {
  auto& slot = impl_->kinds[id.key()];
  LATHE_CHECK(slot == nullptr, "type or attribute '", name, "' is registered twice");
  const std::string& copy = impl_->names.emplace_back(name);
  slot = std::make_unique<AbstractKind>(AbstractKind{id, this, dialect, copy.c_str(), print, {}});
  return slot.get();
}

void IrContext::AttachKindInterface(TypeId kind, TypeId interface, const void* table) {
  auto at = impl_->kinds.find(kind.key());
  LATHE_CHECK(at != impl_->kinds.end(), "interface for an unregistered type or attribute class");
  AbstractKind& k = *at->second;
  LATHE_CHECK(k.FindInterface(interface) == nullptr, k.name, " has that interface already");
  k.interfaces.emplace_back(interface, table);
}

const AbstractKind* IrContext::GetKind(TypeId id) const {
  auto at = impl_->kinds.find(id.key());
  LATHE_CHECK(at != impl_->kinds.end(),
              "a type or attribute class is not registered: load its dialect");
  return at->second.get();
}

size_t IrContext::memory_usage() const {
  const std::shared_lock lock(impl_->ops_mutex);
  return uniquer_.memory_usage() + impl_->ops.size() * sizeof(OpInfoImpl);
}

/// Builtin kinds print through the printer, which knows them all: no function of their own.
void RegisterBuiltinKinds(IrContext& c) {
  c.RegisterKind<ElemType>("element", nullptr, nullptr);
  c.RegisterKind<TokenType>("token", nullptr, nullptr);
  c.RegisterKind<NoneType>("none", nullptr, nullptr);
  c.RegisterKind<TensorType>("tensor", nullptr, nullptr);
  c.RegisterKind<VTensorType>("v_tensor", nullptr, nullptr);
  c.RegisterKind<ListType>("list", nullptr, nullptr);
  c.RegisterKind<DictType>("dict", nullptr, nullptr);
  c.RegisterKind<OptionalType>("optional", nullptr, nullptr);
  c.RegisterKind<TupleType>("tuple", nullptr, nullptr);
  c.RegisterKind<StackType>("stack", nullptr, nullptr);
  c.RegisterKind<BoolAttribute>("bool", nullptr, nullptr);
  c.RegisterKind<IntAttribute>("int", nullptr, nullptr);
  c.RegisterKind<FloatAttribute>("float", nullptr, nullptr);
  c.RegisterKind<StrAttribute>("str", nullptr, nullptr);
  c.RegisterKind<ArrayAttribute>("array", nullptr, nullptr);
  c.RegisterKind<DictionaryAttribute>("dictionary", nullptr, nullptr);
  c.RegisterKind<TypeAttribute>("type", nullptr, nullptr);
  c.RegisterKind<LocationAttribute>("loc", nullptr, nullptr);
  c.RegisterKind<DimAttribute>("dim", nullptr, nullptr);
  c.RegisterKind<TensorAttribute>("tensor_value", nullptr, nullptr);
  c.RegisterKind<Location>("location", nullptr, nullptr);
}

}  // namespace lathe
