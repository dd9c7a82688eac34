#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lathe/support/communicator.h"
#include "lathe/support/npy.h"
#include "src/train/batches.h"
#include "src/train/checkpoint.h"

namespace lathe::train {

/// The ranks that train together; one alone if there is no communicator. All of them call all of
/// its functions, in the same order.
class RankGroup {
 public:
  /// Null: one rank alone. It must outlive the group.
  explicit RankGroup(Communicator* ranks) : ranks_(ranks) {}

  int64_t size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  int64_t rank() const { return ranks_ == nullptr ? 0 : ranks_->rank(); }
  RankShare share() const { return {rank(), size()}; }

  /// Runs a part of the training with the communicator in force. If it fails here, the other ranks
  /// end with rank/failed.
  template <class F>
  auto Run(F&& part) const {
    const CommunicatorScope scope(ranks_);
    try {
      return part();
    } catch (const std::exception& error) {
      if (ranks_ != nullptr) ranks_->Abort(error.what());
      throw;
    }
  }

  /// Whether it is so for any rank.
  bool Any(bool here) const;
  /// Over all ranks, in their order.
  Sums Sum(const Sums& here) const;
  /// Gives every rank what rank 0 has.
  void Share(Tensor& tensor) const;
  /// Of the shards of all ranks the whole, and the shard of this one.
  Tensor Whole(const Tensor& shard, const Shape& shape) const;
  Tensor ShardOf(const Tensor& whole) const;
  /// Throws train/ranks-differ, on all ranks, unless these are the same on all.
  void CheckSame(const std::vector<std::pair<std::string, std::string>>& facts) const;
  /// The texts of all ranks.
  std::vector<std::string> Gather(const std::string& text) const;

 private:
  Communicator* ranks_;
};

}  // namespace lathe::train
