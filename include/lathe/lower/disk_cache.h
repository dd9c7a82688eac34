#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lathe {

/// What was compiled, kept in a folder: one file per key. Safe against other processes that use the
/// same folder, and against files that are cut short, damaged or of another version: those count as
/// absent. The check sum finds accidents, not malice: a folder that somebody else owns (but for the
/// administrator), or that everybody may write, is not used.
class DiskCache {
 public:
  /// `version` is of whatever made the bytes: another one finds nothing.
  DiskCache(std::string folder, std::string version)
      : folder_(std::move(folder)), version_(std::move(version)) {}

  /// The bytes stored for the key, or nothing.
  std::optional<std::string> Load(std::string_view key) const;
  /// False if they could not be written; that only costs time later.
  bool Store(std::string_view key, std::string_view bytes) const;

 private:
  bool IsTrusted() const;
  std::string PathOf(std::string_view key) const;
  std::string folder_, version_;
};

}  // namespace lathe
