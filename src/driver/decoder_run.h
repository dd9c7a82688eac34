#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/support/tensor.h"
#include "src/driver/decoder_ports.h"

namespace lathe {

/// Ids for B sequences, row-major; all steps of a DecoderRun have the same B.
struct DecoderStep {
  std::vector<int64_t> ids, positions;  ///< [B, S]
  std::vector<int64_t> mask;            ///< [B, P + S]: 1 for ids, 0 for padding
};

/// Sequences that run together from the first step on, and their cache. What a step gives for the
/// cache is an input of the next one where it lies; two buffers of each tensor take turns.
class DecoderRun {
 public:
  /// Room for `capacity` ids in caches that are written into. References are kept.
  DecoderRun(const Executable& executable, const DecoderPorts& ports, int64_t batch,
             int64_t capacity);

  /// Logits as the model gives them. Errors: as Executable::Run, with the step as a note.
  Tensor Run(const DecoderStep& step);

  int64_t past() const { return past_; }  ///< ids in the cache

 private:
  struct Cache {
    Tensor now;                    ///< what the next step takes
    std::shared_ptr<Buffer> own;   ///< the bytes of `now`
    std::shared_ptr<Buffer> next;  ///< for what it gives
  };

  Tensor Feed(size_t input, const DecoderStep& step, int64_t length) const;
  Tensor Mask(const DecoderStep& step, int64_t total) const;
  std::vector<Tensor> Inputs(const DecoderStep& step, int64_t length) const;
  Tensor RunPlan(const std::vector<Tensor>& inputs);
  Tensor RunByName(const std::vector<Tensor>& inputs);
  runtime::OutputView Room(size_t output, std::span<const int64_t> shape, uint64_t bytes);
  void CheckCaches(int64_t total) const;

  const Executable& executable_;
  const DecoderPorts& ports_;
  int64_t batch_;
  int64_t past_ = 0;
  std::vector<Cache> caches_;
  std::vector<size_t> cache_of_output_;  // kNoCache for others
  std::vector<Tensor> others_;           // outputs that are none, with their memory
};

}  // namespace lathe
