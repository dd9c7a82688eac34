#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lathe/support/error.h"

namespace lathe {

/// What was compiled, kept in a folder: one file per key. Safe against other processes that use the
/// same folder, and against files that are cut short, damaged or of another version: those count as
/// absent. The checksum finds accidents, not malice, so the folder is private (0700 when it is made
/// here): one that somebody else owns (but for the administrator), or that others may write, is not
/// used, nor is such a file in it, nor what is not a regular file. Links in it are not followed.
///
/// When the files are larger than the limit together, those that were not used for longest go.
class DiskCache {
 public:
  static constexpr uint64_t kDefaultLimit = uint64_t{1} << 30;

  /// `version` is of whatever made the bytes: another one finds nothing. `limit`: of all files, in
  /// bytes; 0: none.
  DiskCache(std::string folder, std::string version, uint64_t limit = kDefaultLimit);

  /// Why the folder is not used, and what to do: io/cache. Nothing if it may be, or is to be made.
  static std::optional<Error> WhyRefused(const std::string& folder);

  /// The bytes stored for the key, or nothing.
  std::optional<std::string> Load(std::string_view key) const;
  /// False if they could not be written; that only costs time later.
  bool Store(std::string_view key, std::string_view bytes) const;

 private:
  std::string NameOf(std::string_view key) const;
  void KeepToLimit(int folder, uint64_t stored) const;

  const std::string folder_, version_;
  const uint64_t limit_;
  mutable std::atomic<uint64_t> stored_;  // bytes since files were last counted
};

}  // namespace lathe
