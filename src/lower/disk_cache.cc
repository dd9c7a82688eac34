#include "lathe/lower/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <tuple>
#include <vector>

#include "lathe/support/descriptor.h"
#include "lathe/support/file.h"
#include "lathe/support/hash.h"

namespace lathe {
namespace {

constexpr std::string_view kMagic = "lathe-kernel-1\n";
constexpr std::string_view kExtension = ".kernel";
constexpr uint64_t kLargestFile = uint64_t{1} << 30;
constexpr time_t kFresh = 60;        // seconds for which a use need not be noted again
constexpr time_t kAbandoned = 3600;  // after which a temporary file is nobody's any more

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
std::optional<std::string> UnpackEntry(std::string_view file, std::string_view version,
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

// Whoever may write what is executed decides what is executed.
bool IsPrivate(const struct stat& status) {
  const bool own = status.st_uid == geteuid() || status.st_uid == 0;
  return own && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// By any path to it; from here on what is opened is opened below this very folder. None if there is
// none, or it is not private.
Descriptor OpenFolder(const std::string& path) {
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status = {};
  if (!folder.is_open() || fstat(folder.get(), &status) != 0) return Descriptor();
  return IsPrivate(status) ? std::move(folder) : Descriptor();
}

void MakePrivateFolder(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) MakeDirectory(path.substr(0, slash));
  mkdir(path.c_str(), 0700);
}

// A regular file of ours; `status` is of it.
Descriptor OpenEntry(int folder, const std::string& name, struct stat& status) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor file(openat(folder, name.c_str(), kFlags));
  if (!file.is_open() || fstat(file.get(), &status) != 0) return Descriptor();
  const bool fits = S_ISREG(status.st_mode) && IsPrivate(status) &&
                    static_cast<uint64_t>(status.st_size) <= kLargestFile;
  return fits ? std::move(file) : Descriptor();
}

// What is there of `size` bytes.
std::string ReadUpTo(int fd, size_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = read(fd, bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

// What is lost with the power is made again, so it need not be on the disk before it has its name.
bool WriteEntry(int folder, const std::string& name, std::string_view bytes) {
  const std::string temporary = RandomFileName();
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const Descriptor file(openat(folder, temporary.c_str(), kFlags, 0600));
  if (!file.is_open()) return false;
  const bool written = WriteFully(file.get(), bytes) &&
                       renameat(folder, temporary.c_str(), folder, name.c_str()) == 0;
  if (!written) unlinkat(folder, temporary.c_str(), 0);
  return written;
}

struct Entry {
  std::string name;
  uint64_t bytes = 0;
  struct timespec used = {};
};

// The files of a cache; temporary ones that nobody writes any more are removed on the way.
std::vector<Entry> ListEntries(int folder) {
  std::vector<Entry> entries;
  DIR* stream = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (stream == nullptr) return entries;
  const time_t now = time(nullptr);
  while (const dirent* at = readdir(stream)) {
    const std::string_view name = at->d_name;
    struct stat status = {};
    if (fstatat(folder, at->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    if (name.starts_with(kTemporaryPrefix) && status.st_mtim.tv_sec < now - kAbandoned) {
      unlinkat(folder, at->d_name, 0);
    } else if (name.ends_with(kExtension)) {
      const auto bytes = static_cast<uint64_t>(status.st_size);
      entries.push_back({std::string(name), bytes, status.st_mtim});
    }
  }
  closedir(stream);
  return entries;
}

// Removes what was used longest ago until an eighth of the limit is free.
void RemoveOldest(int folder, std::vector<Entry> entries, uint64_t limit) {
  uint64_t total = 0;
  for (const Entry& e : entries) total += e.bytes;
  if (total <= limit) return;
  std::ranges::sort(entries, {}, [](const Entry& e) {
    return std::tuple(e.used.tv_sec, e.used.tv_nsec, std::string_view(e.name));
  });
  for (const Entry& e : entries) {
    if (total <= limit - limit / 8) return;
    if (unlinkat(folder, e.name.c_str(), 0) == 0 || errno == ENOENT) total -= e.bytes;
  }
}

}  // namespace

DiskCache::DiskCache(std::string folder, std::string version, uint64_t limit)
    : folder_(std::move(folder)), version_(std::move(version)), limit_(limit), stored_(limit) {}

std::optional<Error> DiskCache::WhyRefused(const std::string& folder) {
  struct stat status = {};
  if (stat(folder.c_str(), &status) != 0) return std::nullopt;
  std::string why;
  std::string hint = "give another folder with --cache, or --no-cache";
  if (!S_ISDIR(status.st_mode)) {
    why = "it is not a folder";
  } else if (status.st_uid != geteuid() && status.st_uid != 0) {
    why = "somebody else owns it";
  } else if (!IsPrivate(status)) {
    why = "others may write it";
    hint = StrCat("`chmod -R go-w ", folder, "`, if you trust what is in it, or --no-cache");
  }
  if (why.empty()) return std::nullopt;
  return Error(ErrorCode::kIo, "io/cache",
               StrCat("the cache is not used, as it holds code that is executed, and ", why))
      .At(folder)
      .Hint(hint);
}

std::string DiskCache::NameOf(std::string_view key) const {
  uint64_t hash = HashString(key, HashString(version_));
  std::string name(16, '0');
  for (size_t i = 16; i-- > 0; hash >>= 4) name[i] = "0123456789abcdef"[hash & 15];
  return StrCat(name, kExtension);
}

std::optional<std::string> DiskCache::Load(std::string_view key) const {
  const Descriptor folder = OpenFolder(folder_);
  if (!folder.is_open()) return std::nullopt;
  struct stat status = {};
  const Descriptor file = OpenEntry(folder.get(), NameOf(key), status);
  if (!file.is_open()) return std::nullopt;
  auto found =
      UnpackEntry(ReadUpTo(file.get(), static_cast<size_t>(status.st_size)), version_, key);
  const bool is_fresh = status.st_mtim.tv_sec > time(nullptr) - kFresh;
  if (found && !is_fresh) futimens(file.get(), nullptr);  // the time of last use
  return found;
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
    MakePrivateFolder(folder_);
    const Descriptor folder = OpenFolder(folder_);
    if (!folder.is_open() || !WriteEntry(folder.get(), NameOf(key), file)) return false;
    KeepToLimit(folder.get(), file.size());
  } catch (const Error&) {
    return false;
  }
  return true;
}

// Files are counted after the first one, and again whenever a sixteenth of the limit is new. While
// another process does that, there is nothing to do.
void DiskCache::KeepToLimit(int folder, uint64_t stored) const {
  if (limit_ == 0 || stored_.fetch_add(stored) + stored < limit_ / 16) return;
  stored_ = 0;
  if (flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return;
  RemoveOldest(folder, ListEntries(folder), limit_);
}

}  // namespace lathe
