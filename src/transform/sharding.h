#pragma once

#include <map>
#include <vector>

#include "lathe/ir/builder.h"
#include "lathe/transform/multi_devices.h"

namespace lathe {

/// Pieces of one tensor of an axis: of these sizes, one after another.
std::vector<Value> Cut(Builder& b, Value x, std::vector<int64_t> sizes, int64_t axis = 0);
/// The tensors as one, along an axis.
Value Joined(Builder& b, const std::vector<Value>& parts, int64_t axis = 0);
Value InShape(Builder& b, Value x, const Shape& shape);

/// A tensor of `shape` as [nranks, ShardSize]: a row for each rank, zeros behind its end.
Value AsShards(Builder& b, Value x, const Shape& shape, int64_t nranks);
/// The row of this rank, [ShardSize].
Value ShardOfRank(Builder& b, Value x, const Shape& shape, int64_t nranks);

/// Makes whole tensors of the shards of all ranks, several at a time, while the program goes on.
class ShardGatherer {
 public:
  explicit ShardGatherer(int64_t nranks) : nranks_(nranks) {}

  /// A tensor of `shape` whose shard this rank has.
  void Add(Builder& b, Value shard, Shape shape);
  /// The whole tensors, in the order of Add.
  std::vector<Value> Finish(Builder& b);

 private:
  struct Item {
    size_t number;
    Value shard;
    Shape shape;
  };
  struct Bucket {
    std::vector<Item> items;
    int64_t bytes = 0;
    Value started;
  };
  void Start(Builder& b, Bucket bucket);

  const int64_t nranks_;
  size_t count_ = 0;
  std::map<ElementType, Bucket> open_;
  std::vector<Bucket> started_;
};

}  // namespace lathe
