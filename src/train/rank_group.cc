#include "src/train/rank_group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lathe/support/collectives.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "lathe/transform/multi_devices.h"

namespace lathe::train {

bool RankGroup::Any(bool here) const {
  if (ranks_ == nullptr) return here;
  uint8_t any = here ? 1 : 0;
  void* const data = &any;
  AllReduce(*ranks_, Reduction::kMax, ElementType::kU8, 1, {{data}}, {{data}}, "the next step");
  return any != 0;
}

Sums RankGroup::Sum(const Sums& here) const {
  if (ranks_ == nullptr) return here;
  std::array<double, 4> all = {here.loss, here.correct, static_cast<double>(here.predictions),
                               static_cast<double>(here.samples)};
  void* const data = all.data();
  AllReduce(*ranks_, Reduction::kSum, ElementType::kF64, all.size(), {{data}}, {{data}},
            "the sums of metrics");
  return {all[0], all[1], static_cast<int64_t>(all[2]), static_cast<int64_t>(all[3])};
}

void RankGroup::Share(Tensor& tensor) const {
  if (ranks_ == nullptr) return;
  Broadcast(*ranks_, 0, tensor.mutable_raw(), tensor.byte_size(), "the first parameters");
}

Tensor RankGroup::Whole(const Tensor& shard, const Shape& shape) const {
  LATHE_CHECK(ranks_ != nullptr);
  std::vector<std::byte> all(shard.byte_size() * static_cast<size_t>(size()));
  AllGather(*ranks_, shard.raw(), shard.byte_size(), all.data(), "the states of a checkpoint");
  Tensor whole(shard.element_type(), shape);
  if (whole.byte_size() > 0) std::memcpy(whole.mutable_raw(), all.data(), whole.byte_size());
  return whole;
}

Tensor RankGroup::ShardOf(const Tensor& whole) const {
  Tensor shard(whole.element_type(), {ShardSize(whole.num_elements(), size())});
  const size_t begin = std::min(shard.byte_size() * static_cast<size_t>(rank()), whole.byte_size());
  const size_t bytes = std::min(shard.byte_size(), whole.byte_size() - begin);
  if (bytes > 0) std::memcpy(shard.mutable_raw(), whole.raw() + begin, bytes);
  return shard;
}

void RankGroup::CheckSame(const std::vector<std::pair<std::string, std::string>>& facts) const {
  if (ranks_ == nullptr) return;
  for (const auto& [what, here] : facts) {
    const std::vector<std::string> all = GatherTexts(*ranks_, here, what);
    for (size_t r = 1; r < all.size(); ++r) {
      if (all[r] == all[0]) continue;
      throw Error(ErrorCode::kInvalidArgument, "train/ranks-differ",
                  StrCat("rank ", r, " has another ", what, " than rank 0"))
          .Note(StrCat("rank 0: ", all[0]))
          .Note(StrCat("rank ", r, ": ", all[r]))
          .Hint("all ranks must be started with the same command, on the same files");
    }
  }
}

std::vector<std::string> RankGroup::Gather(const std::string& text) const {
  if (ranks_ == nullptr) return {text};
  return GatherTexts(*ranks_, text, "a diagnosis");
}

}  // namespace lathe::train
