#pragma once

#include <memory>
#include <string>

#include "bench/kernels/measure.h"

namespace lathe::bench {

/// The kernel of a job as oneDNN computes it: on one thread, its weights packed, and images in the
/// order that it likes best, so that bringing them there counts only where it is part of the job.
class Peer {
 public:
  virtual ~Peer() = default;
  /// Everything, into `output`.
  virtual void RunAll(Tensor& output) = 0;
  /// What is timed.
  virtual void Run() = 0;
  /// "brgconv:avx512_core"
  virtual std::string code() const = 0;
};

/// Null if there is none, and then `why` says the reason.
std::unique_ptr<Peer> MakePeer(IrContext& context, const Job& job, std::string& why);

}  // namespace lathe::bench
