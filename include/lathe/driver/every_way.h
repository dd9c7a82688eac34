#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lathe/driver/executable.h"

namespace lathe {

/// A program in each way that a compiled one comes to run: made now, with kernels that a cache
/// holds, and loaded from a file, if it can be saved. They give the same bits.
class EveryWay {
 public:
  /// With a cache of its own instead of that of the options, gone with this object. Errors as
  /// Executable.
  EveryWay(const Program& program, CompileOptions options);
  ~EveryWay();
  EveryWay(const EveryWay&) = delete;
  EveryWay& operator=(const EveryWay&) = delete;

  /// How it came, for messages, and what runs; first what was made with an empty cache.
  const std::vector<std::pair<std::string, Executable>>& all() const { return ways_; }
  const Executable& made() const { return ways_.front().second; }
  /// The folder of the cache, by now filled.
  std::string cache() const { return folder_ + "/cache"; }

  /// Runs them all; each has mutable parameters of its own. Errors: check/ways names an output, or
  /// a parameter after the run, that has not the same bits.
  NamedValues Run(const NamedValues& inputs) const;

 private:
  std::string folder_;
  std::vector<std::pair<std::string, Executable>> ways_;
};

}  // namespace lathe
