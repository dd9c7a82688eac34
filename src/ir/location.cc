#include "lathe/ir/location.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/ir/value_names.h"
#include "lathe/support/error.h"
#include "src/ir/builtin_storage.h"
#include "src/ir/context_impl.h"

// Bits of a handle: 0 is unknown. Bit 0 set: a file position, as file (15 bits), line (32), column
// (16). Otherwise the address of a LocationStorage.
namespace lathe {

using detail::LocationStorage;

namespace detail {
uint64_t LocationStorage::Hash(const Key& key) {
  uint64_t hash = HashCombine(HashString(key.name), HashString(key.values));
  for (const Location& part : key.parts) hash = HashCombine(hash, part.bits());
  return hash;
}
}  // namespace detail

namespace {

constexpr uint64_t kMaxFile = (1 << 15) - 1;
constexpr uint64_t kMaxColumn = (1 << 16) - 1;
/// Places that a fused location keeps. More tell a reader nothing, and merging many operations into
/// one stays linear.
constexpr size_t kMaxParts = 32;

const LocationStorage* StorageOf(uint64_t bits) {
  return reinterpret_cast<const LocationStorage*>(static_cast<uintptr_t>(bits));
}

// Values that are named do not make it another place.
bool IsSamePlace(Location a, Location b) {
  return a == b || (a.is_name() && b.is_name() && a.name() == b.name());
}

uint64_t Intern(IrContext& context, const LocationStorage::Key& key) {
  const auto* kind = context.GetKind<Location>();
  return reinterpret_cast<uintptr_t>(context.uniquer().Get<LocationStorage>(kind, key));
}

}  // namespace

uint32_t Location::FileId(IrContext& context, std::string_view file) {
  IrContext::Impl& impl = context.impl();
  const std::lock_guard lock(impl.files_mutex);
  auto at = impl.file_ids.find(file);
  if (at != impl.file_ids.end()) return at->second;
  const std::string& copy = impl.files.emplace_back(file);
  const auto id = static_cast<uint32_t>(impl.files.size() - 1);
  impl.file_ids.emplace(copy, id);
  return id;
}

Location Location::FileLineCol(IrContext& context, std::string_view file, uint32_t line,
                               uint32_t column) {
  return FileLineCol(context, FileId(context, file), line, column);
}

Location Location::FileLineCol(IrContext& context, uint32_t file_id, uint32_t line,
                               uint32_t column) {
  if (file_id > kMaxFile) {  // more files than the handle can number: keep the words
    IrContext::Impl& impl = context.impl();
    const std::lock_guard lock(impl.files_mutex);
    return Name(context, StrCat(impl.files[file_id], ":", line, ":", column));
  }
  const uint64_t c = std::min<uint64_t>(column, kMaxColumn);
  return Location(1 | uint64_t{file_id} << 1 | uint64_t{line} << 16 | c << 48);
}

Location Location::Name(IrContext& context, std::string_view name) {
  return Location(Intern(context, {name, {}}));
}

Location Location::Fused(IrContext& context, std::span<const Location> parts) {
  if (!parts.empty() && parts[0].is_fused() && parts[0].parts().size() >= kMaxParts) {
    return parts[0];
  }
  std::vector<Location> flat;
  auto add = [&](Location l) {
    if (!l.is_unknown() && flat.size() < kMaxParts &&
        std::ranges::none_of(flat, [&](Location other) { return IsSamePlace(l, other); }))
      flat.push_back(l);
  };
  for (const Location part : parts) {
    if (part.is_fused()) {
      std::ranges::for_each(part.parts(), add);
    } else {
      add(part);
    }
  }
  if (flat.empty()) return Location();
  if (flat.size() == 1) return flat[0];
  return Location(Intern(context, {{}, flat}));
}

bool Location::is_file() const { return (bits_ & 1) != 0; }
bool Location::is_name() const {
  return bits_ != 0 && !is_file() && StorageOf(bits_)->parts.empty();
}
bool Location::is_fused() const {
  return bits_ != 0 && !is_file() && !StorageOf(bits_)->parts.empty();
}

std::string_view Location::file(IrContext& context) const {
  IrContext::Impl& impl = context.impl();
  const std::lock_guard lock(impl.files_mutex);
  return impl.files[(bits_ >> 1) & kMaxFile];
}
uint32_t Location::line() const { return static_cast<uint32_t>(bits_ >> 16); }
uint32_t Location::column() const { return static_cast<uint32_t>(bits_ >> 48); }
std::string_view Location::name() const { return StorageOf(bits_)->name; }
std::span<const Location> Location::parts() const { return StorageOf(bits_)->parts; }

std::vector<std::string_view> ResultNames(Location location) {
  std::vector<std::string_view> names;
  if (!location.is_name()) return names;
  std::string_view values = StorageOf(location.bits())->values;
  if (values.empty()) return names;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = values.find('\0');
    names.push_back(values.substr(0, end));
    if (end != std::string_view::npos) values.remove_prefix(end + 1);
  }
  return names;
}

Location LocationOfNode(IrContext& context, std::string_view node,
                        std::span<const std::string> results) {
  std::string values;
  for (size_t i = 0; i < results.size(); ++i) {
    if (i > 0) values += '\0';
    if (results[i].find('\0') == std::string::npos) values += results[i];
  }
  values.resize(values.find_last_not_of('\0') + 1);
  // A handle is its bits; these are the only ones that Location itself does not make.
  return std::bit_cast<Location>(Intern(context, {node, {}, values}));
}

std::string_view NameInFile(Value value) {
  const Operation* op = value.defining_op();
  if (op == nullptr) return {};
  const std::vector<std::string_view> names = ResultNames(op->location());
  return value.index() < names.size() ? names[value.index()] : std::string_view();
}

void SetNameInFile(Value value, std::string_view name) {
  Operation* op = value.defining_op();
  if (op == nullptr || !op->location().is_name()) return;
  std::vector<std::string> names;
  for (size_t i = 0; i < op->num_results(); ++i) names.emplace_back(NameInFile(op->result(i)));
  names[value.index()] = name;
  op->set_location(LocationOfNode(*value.context(), op->location().name(), names));
}

std::string Location::ToString(IrContext& context) const {
  if (is_unknown()) return "unknown";
  if (is_file()) return StrCat(file(context), ":", line(), ":", column());
  if (is_name()) return StrCat("'", name(), "'");
  std::string out = "fused(";
  for (const Location& part : parts()) {
    if (out.size() > 6) out += ", ";
    out += part.ToString(context);
  }
  return out + ")";
}

}  // namespace lathe
