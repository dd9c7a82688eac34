#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/pass/graph.h"

/// What the multi-device passes are told, and say, through attributes.
namespace lathe {

/// A device of this process that a program runs on.
struct Place {
  std::string device = "cpu";
  int64_t id = 0;
};

struct MultiDevicesStrategy {
  enum class Gradients : uint8_t {
    kAllReduce,  ///< every place gets every gradient and updates every parameter
    kReduce,     ///< one place gets a gradient, updates the parameter and sends it to the others
  };
  enum class LossScale : uint8_t {
    kCoeffNumDevice,  ///< gradients are means over the places of all processes
    kOne,             ///< sums
  };
  Gradients gradients = Gradients::kAllReduce;
  LossScale loss_scale = LossScale::kCoeffNumDevice;
};

/// Attribute of an op, an integer: the place it runs on.
inline constexpr const char* kPlaceAttr = "place";
/// Property of a value, a string: the parameter, or the loss, whose gradient it is.
inline constexpr const char* kGradOf = "grad_of";

/// Property of a gradient, an integer: each of as many ranks has a shard of it, [ShardSize], a part
/// of its elements in their order.
inline constexpr const char* kShards = "shards";
/// Attribute of a set_parameter, a string: what is set is the shard of a tensor of the shape of
/// this parameter.
inline constexpr const char* kShardOf = "shard_of";
/// Elements of the shard that each rank has of a tensor, zeros behind its end included.
int64_t ShardSize(int64_t count, int64_t nranks);
/// Tensors of this many bytes travel together.
inline constexpr int64_t kBucketBytes = int64_t{4} << 20;

/// Input of a program that ranks train together, one f64: the share of the batch that a rank has.
inline constexpr const char* kRankWeight = "rank@weight";

/// A collective: all places of all processes take part in it together.
bool IsCollective(const Operation* op);

/// Makes each `set_parameter` wait, through a token, for every earlier op that reads a value which
/// that parameter had before: what runs ops as they become ready then keeps the program's meaning.
/// Returns how many had to wait.
int64_t ResolveHazards(Graph& graph);

/// Makes each collective wait for the one before it, so that every process issues them in one
/// order. Returns how many had to wait.
int64_t OrderCollectives(Graph& graph);

}  // namespace lathe
