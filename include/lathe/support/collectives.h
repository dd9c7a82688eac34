#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lathe/support/communicator.h"
#include "lathe/support/element_type.h"

/// Collectives on memory, made of Communicator::Exchange. All ranks call them in the same order
/// with the same sizes. Errors: those of Exchange. A rank alone is a group, too.
namespace lathe {

/// Mean over everything that takes part. Of integers, sums wrap around and the mean is rounded
/// towards zero; a NaN makes min and max NaN.
enum class Reduction : uint8_t { kSum, kMean, kMin, kMax };
/// sum, mean, min or max.
Reduction ReductionNamed(std::string_view name);

/// `values` numbers of contributions [begin, end) of each, reduced to `out`, one after another from
/// the first on: floats are accumulated in f64 and rounded once. `out` may be one of them. Errors:
/// type/element unless it is of integers of 8 to 64 bits, f16, bf16, f32 or f64.
void ReduceInOrder(Reduction reduction, ElementType element,
                   std::span<const void* const> contributions, int64_t begin, int64_t end,
                   void* out);

/// Every rank gets the reduction of the `inputs` of all ranks, each of `count` elements, in each of
/// `outputs`, of which there are as many or none more. The order of additions is that of ranks, and
/// of inputs within a rank, so the bits do not depend on when messages arrive. Outputs may be
/// inputs. Each rank sends and receives about twice the bytes of an input.
void AllReduce(Communicator& ranks, Reduction reduction, ElementType element, int64_t count,
               std::span<const void* const> inputs, std::span<void* const> outputs,
               std::string_view what = "all_reduce");

/// A tensor of several that are reduced together.
struct BucketPart {
  int64_t count;  ///< elements
  const void* input;
  void* output;
};
/// As AllReduce of each part, with as few messages as for one.
void AllReduceBucket(Communicator& ranks, Reduction reduction, ElementType element,
                     std::span<const BucketPart> parts, std::string_view what = "all_reduce");

/// The reduction of part r of the inputs, each of size() parts of `count` elements, for rank r.
void ReduceScatter(Communicator& ranks, Reduction reduction, ElementType element, int64_t count,
                   std::span<const void* const> inputs, void* output,
                   std::string_view what = "reduce_scatter");

/// The `bytes` of all ranks, one after another.
void AllGather(Communicator& ranks, const void* mine, size_t bytes, void* all,
               std::string_view what = "all_gather");
/// Part i of rank r's input becomes part r of rank i's output. Does not work in place.
void AllToAll(Communicator& ranks, const void* input, size_t part_bytes, void* output,
              std::string_view what = "all_to_all");
/// What rank `root` has, in the memory of all.
void Broadcast(Communicator& ranks, int root, void* data, size_t bytes,
               std::string_view what = "broadcast");
/// Returns when all ranks have come here.
void Barrier(Communicator& ranks, std::string_view what = "barrier");
/// The text of each rank.
std::vector<std::string> GatherTexts(Communicator& ranks, std::string_view text,
                                     std::string_view what);

}  // namespace lathe
