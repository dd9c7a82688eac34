#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/codegen/code_image.h"
#include "lathe/codegen/target.h"
#include "lathe/ir/operation.h"
#include "lathe/lower/disk_cache.h"
#include "lathe/lower/lower_function.h"

namespace lathe {

/// What functions became, kept from one compilation to the next: with it a function is neither
/// lowered nor compiled again. Found by what decides it: the function's operations and types, which
/// of its arguments are constant, the target, and the libraries that compile.
class KernelCache {
 public:
  struct Kernel {
    lower::Lowered how;  ///< without knobs
    codegen::CodeImage image;
  };

  /// An empty folder finds and keeps nothing.
  KernelCache(const std::string& folder, const codegen::Target& target);

  /// Of a function that is not lowered yet; empty if it is not to be cached: what strategies of
  /// plug-ins would do is not known.
  std::string KeyOf(Operation* function, const std::vector<bool>& constant) const;
  /// Nothing for an empty key, an unknown one, or a file that is not as it was written.
  std::optional<Kernel> Load(const std::string& key) const;
  void Store(const std::string& key, const Kernel& kernel) const;

 private:
  std::optional<DiskCache> disk_;
  std::string target_;
};

}  // namespace lathe
