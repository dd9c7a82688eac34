#include "lathe/lower/disk_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/hash.h"

namespace lathe {

namespace {

constexpr std::string_view kMagic = "lathe-kernel-1\n";
constexpr uint64_t kLargestFile = uint64_t{1} << 30;

void AppendPart(std::string& out, std::string_view part) {
  const uint64_t size = part.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(part);
}

/// Takes a part off the front; nothing if the rest is too short.
std::optional<std::string_view> TakePart(std::string_view& rest) {
  uint64_t size = 0;
  if (rest.size() < sizeof size) return std::nullopt;
  std::memcpy(&size, rest.data(), sizeof size);
  rest.remove_prefix(sizeof size);
  if (rest.size() < size) return std::nullopt;
  const std::string_view part = rest.substr(0, size);
  rest.remove_prefix(size);
  return part;
}

/// Magic, check sum of the rest, version, key, bytes.
std::optional<std::string> Unpack(std::string_view file, std::string_view version,
                                  std::string_view key) {
  uint64_t sum = 0;
  if (file.size() < kMagic.size() + sizeof sum || !file.starts_with(kMagic)) return std::nullopt;
  std::memcpy(&sum, file.data() + kMagic.size(), sizeof sum);
  std::string_view rest = file.substr(kMagic.size() + sizeof sum);
  if (HashString(rest) != sum) return std::nullopt;
  if (TakePart(rest) != version || TakePart(rest) != key) return std::nullopt;
  const auto bytes = TakePart(rest);
  return bytes && rest.empty() ? std::optional<std::string>(*bytes) : std::nullopt;
}

}  // namespace

std::string DiskCache::PathOf(std::string_view key) const {
  uint64_t hash = HashString(key, HashString(version_));
  std::string name(16, '0');
  for (size_t i = 16; i-- > 0; hash >>= 4) name[i] = "0123456789abcdef"[hash & 15];
  return StrCat(folder_, "/", name, ".kernel");
}

// Whoever may write the folder decides what is executed.
bool DiskCache::IsTrusted() const {
  struct stat status = {};
  if (stat(folder_.c_str(), &status) != 0) return false;
  const bool own = status.st_uid == geteuid() || status.st_uid == 0;
  return own && (status.st_mode & S_IWOTH) == 0;
}

std::optional<std::string> DiskCache::Load(std::string_view key) const {
  if (!IsTrusted()) return std::nullopt;
  const std::string path = PathOf(key);
  if (!FileExists(path)) return std::nullopt;
  try {
    return Unpack(ReadFile(path, kLargestFile), version_, key);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool DiskCache::Store(std::string_view key, std::string_view bytes) const {
  std::string body;
  AppendPart(body, version_);
  AppendPart(body, key);
  AppendPart(body, bytes);
  const uint64_t sum = HashString(body);
  std::string file(kMagic);
  file.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  file += body;
  try {
    MakeDirectory(folder_);
    if (!IsTrusted()) return false;
    WriteFile(PathOf(key), file);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace lathe
