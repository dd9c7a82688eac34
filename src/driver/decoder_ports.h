#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/driver/generate.h"

namespace lathe {

/// What a decoder wants of a step of S ids for each of B sequences behind P ids in the cache.
enum class DecoderInput : uint8_t {
  kIds,             ///< [B, S]
  kMask,            ///< [B, P + S]
  kPositions,       ///< [B, S]
  kCachePositions,  ///< [S]: P to P + S - 1
  kLastIndices,     ///< [B]: how many ids of a sequence there are, but one
  kTotalLength,     ///< [] or [1]: P + S
  kPastLength,      ///< [] or [1]: P
  kUsesCache,       ///< bool [1]: whether P > 0
  kPast,
};

/// A tensor of the cache: an input that the output gives back with the new rows.
struct CachePort {
  size_t input = 0, output = 0;
  ElementType element = ElementType::kUndefined;
  Shape shape = {};  ///< of the input; batch and length are to be filled in
  size_t batch_axis = 0, length_axis = 0;
  std::optional<int64_t> length = {};  ///< that the input has in all steps
  /// The output is as long as the input, whatever that is: rows are written into it.
  bool is_written = false;
};

struct DecoderPorts {
  std::vector<Port> inputs;         ///< of the executable
  std::vector<DecoderInput> roles;  ///< of each input
  std::vector<CachePort> caches;
  size_t logits = 0;       ///< output
  int64_t vocabulary = 0;  ///< 0: not known
  bool only_last = false;  ///< there are logits for the last id of each sequence alone
  std::optional<int64_t> batch = {}, num_ids = {}, mask_length = {};  ///< if constant
  DecoderNames names;

  bool Has(DecoderInput role) const;
  /// Longest sequence that the cache, or without one the input, has room for.
  std::optional<int64_t> MaxLength() const;
  /// Caches are as long in each step, with room for what is to come.
  bool has_written_cache() const;
};

/// Errors: generate/input, generate/output, generate/cache.
DecoderPorts FindDecoderPorts(const std::vector<Port>& inputs, const std::vector<Port>& outputs,
                              const DecoderNames& names);

}  // namespace lathe
