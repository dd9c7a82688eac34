#include "lathe/support/collectives.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

using Send = Communicator::Send;
using Receive = Communicator::Receive;
using Bytes = std::vector<std::byte>;

const std::byte* At(const void* data, size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* At(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

size_t BytesIn(ElementType element, int64_t count) {
  return StorageBytes(element, static_cast<size_t>(count));
}

// ---- arithmetic ----

template <class C>
C Combine(Reduction reduction, C a, C b) {
  if (reduction == Reduction::kMin || reduction == Reduction::kMax) {
    if constexpr (std::is_floating_point_v<C>) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
    }
    const bool takes_b = reduction == Reduction::kMin ? b < a : a < b;
    return takes_b ? b : a;
  }
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

// Accumulators of a block of elements stay in the cache.
template <class T, class C>
void ReduceAs(Reduction reduction, std::span<const void* const> from, int64_t begin, int64_t end,
              T* out) {
  constexpr int64_t kBlock = 1024;
  C sums[kBlock];
  const auto divisor = static_cast<double>(from.size());
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t n = std::min(kBlock, end - first);
    for (size_t k = 0; k < from.size(); ++k) {
      const T* x = static_cast<const T*>(from[k]) + first;
      if (k == 0) {
        for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<C>(x[i]);
      } else if (reduction == Reduction::kSum || reduction == Reduction::kMean) {
        for (int64_t i = 0; i < n; ++i) {
          sums[i] = Combine(Reduction::kSum, sums[i], static_cast<C>(x[i]));
        }
      } else {
        for (int64_t i = 0; i < n; ++i) {
          sums[i] = Combine(reduction, sums[i], static_cast<C>(x[i]));
        }
      }
    }
    if (reduction == Reduction::kMean) {
      for (int64_t i = 0; i < n; ++i) {
        sums[i] = static_cast<C>(static_cast<double>(sums[i]) / divisor);
      }
    }
    for (int64_t i = 0; i < n; ++i) out[first - begin + i] = static_cast<T>(sums[i]);
  }
}

// Where the parts of `count` elements begin that each rank reduces, and the end.
std::vector<int64_t> BoundsOf(int64_t count, int ranks) {
  std::vector<int64_t> bounds;
  for (int r = 0; r <= ranks; ++r) bounds.push_back(count / ranks * r + count % ranks * r / ranks);
  return bounds;
}

// The reduction of [bounds[rank], bounds[rank + 1]) of all inputs of all ranks.
void ReduceMyPart(Communicator& ranks, Reduction reduction, ElementType element,
                  std::span<const int64_t> bounds, std::span<const void* const> inputs, void* out,
                  std::string_view what) {
  const auto offset = [&](int r) { return BytesIn(element, bounds[static_cast<size_t>(r)]); };
  const int me = ranks.rank();
  const size_t mine = offset(me + 1) - offset(me);
  Bytes received(static_cast<size_t>(ranks.size()) * inputs.size() * mine);
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::vector<const void*> contributions;
  size_t next = 0;
  for (int r = 0; r < ranks.size(); ++r) {
    for (const void* input : inputs) {
      if (r == me) {
        contributions.push_back(At(input, offset(me)));
        continue;
      }
      sends.push_back({r, At(input, offset(r)), offset(r + 1) - offset(r)});
      receives.push_back({r, At(received.data(), next), mine});
      contributions.push_back(At(received.data(), next));
      next += mine;
    }
  }
  ranks.Exchange(sends, receives, what);
  const auto m = static_cast<size_t>(me);
  ReduceInOrder(reduction, element, contributions, 0, bounds[m + 1] - bounds[m], out);
}

// Part r, [offsets[r], offsets[r + 1]) of `data`, from rank r to all.
void GatherParts(Communicator& ranks, std::span<const size_t> offsets, void* data,
                 std::string_view what) {
  const auto bytes = [&](int r) {
    const auto at = static_cast<size_t>(r);
    return offsets[at + 1] - offsets[at];
  };
  const int me = ranks.rank();
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int r = 0; r < ranks.size(); ++r) {
    if (r == me) continue;
    sends.push_back({r, At(data, offsets[static_cast<size_t>(me)]), bytes(me)});
    receives.push_back({r, At(data, offsets[static_cast<size_t>(r)]), bytes(r)});
  }
  ranks.Exchange(sends, receives, what);
}

}  // namespace

Reduction ReductionNamed(std::string_view name) {
  if (name == "sum") return Reduction::kSum;
  if (name == "mean") return Reduction::kMean;
  if (name == "min") return Reduction::kMin;
  LATHE_CHECK(name == "max", "reduction ", name);
  return Reduction::kMax;
}

void ReduceInOrder(Reduction reduction, ElementType element,
                   std::span<const void* const> contributions, int64_t begin, int64_t end,
                   void* out) {
  if (IsFloat(element)) {
    return VisitFloat(element, [&]<class T>(std::type_identity<T>) {
      ReduceAs<T, double>(reduction, contributions, begin, end, static_cast<T*>(out));
    });
  }
  VisitInteger(element, [&]<class T>(std::type_identity<T>) {
    ReduceAs<T, T>(reduction, contributions, begin, end, static_cast<T*>(out));
  });
}

void AllReduce(Communicator& ranks, Reduction reduction, ElementType element, int64_t count,
               std::span<const void* const> inputs, std::span<void* const> outputs,
               std::string_view what) {
  const std::vector<int64_t> bounds = BoundsOf(count, ranks.size());
  std::vector<size_t> offsets;
  for (const int64_t b : bounds) offsets.push_back(BytesIn(element, b));
  Bytes scratch(outputs.empty() ? offsets.back() : 0);
  void* out = outputs.empty() ? scratch.data() : outputs[0];
  ReduceMyPart(ranks, reduction, element, bounds, inputs,
               At(out, offsets[static_cast<size_t>(ranks.rank())]), what);
  GatherParts(ranks, offsets, out, what);
  for (size_t i = 1; i < outputs.size(); ++i) Copy(outputs[i], out, offsets.back());
}

void AllReduceBucket(Communicator& ranks, Reduction reduction, ElementType element,
                     std::span<const BucketPart> parts, std::string_view what) {
  int64_t count = 0;
  for (const BucketPart& p : parts) count += p.count;
  Bytes packed(BytesIn(element, count));
  size_t at = 0;
  for (const BucketPart& p : parts) {
    Copy(At(packed.data(), at), p.input, BytesIn(element, p.count));
    at += BytesIn(element, p.count);
  }
  void* const data = packed.data();
  AllReduce(ranks, reduction, element, count, {{data}}, {{data}}, what);
  at = 0;
  for (const BucketPart& p : parts) {
    Copy(p.output, At(packed.data(), at), BytesIn(element, p.count));
    at += BytesIn(element, p.count);
  }
}

void ReduceScatter(Communicator& ranks, Reduction reduction, ElementType element, int64_t count,
                   std::span<const void* const> inputs, void* output, std::string_view what) {
  std::vector<int64_t> bounds;
  for (int r = 0; r <= ranks.size(); ++r) bounds.push_back(count * r);
  ReduceMyPart(ranks, reduction, element, bounds, inputs, output, what);
}

void AllGather(Communicator& ranks, const void* mine, size_t bytes, void* all,
               std::string_view what) {
  std::vector<size_t> offsets;
  for (int r = 0; r <= ranks.size(); ++r) offsets.push_back(bytes * static_cast<size_t>(r));
  Copy(At(all, offsets[static_cast<size_t>(ranks.rank())]), mine, bytes);
  GatherParts(ranks, offsets, all, what);
}

void AllToAll(Communicator& ranks, const void* input, size_t part_bytes, void* output,
              std::string_view what) {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int r = 0; r < ranks.size(); ++r) {
    const size_t at = part_bytes * static_cast<size_t>(r);
    if (r == ranks.rank()) {
      Copy(At(output, at), At(input, at), part_bytes);
      continue;
    }
    sends.push_back({r, At(input, at), part_bytes});
    receives.push_back({r, At(output, at), part_bytes});
  }
  ranks.Exchange(sends, receives, what);
}

// From the root to 1, then 2, 4, ... others at a time, so that no rank sends everything.
void Broadcast(Communicator& ranks, int root, void* data, size_t bytes, std::string_view what) {
  const int size = ranks.size();
  const int me = (ranks.rank() - root + size) % size;  // the root is 0
  for (int have = 1; have < size; have *= 2) {
    if (me < have && me + have < size) {
      const Send send{(me + have + root) % size, data, bytes};
      ranks.Exchange({&send, 1}, {}, what);
    } else if (me >= have && me < 2 * have) {
      const Receive receive{(me - have + root) % size, data, bytes};
      ranks.Exchange({}, {&receive, 1}, what);
    }
  }
}

void Barrier(Communicator& ranks, std::string_view what) {
  std::vector<std::byte> all(static_cast<size_t>(ranks.size()));
  const std::byte mine{};
  AllGather(ranks, &mine, 1, all.data(), what);
}

std::vector<std::string> GatherTexts(Communicator& ranks, std::string_view text,
                                     std::string_view what) {
  const auto size = static_cast<size_t>(ranks.size());
  const uint64_t length = text.size();
  std::vector<uint64_t> lengths(size);
  AllGather(ranks, &length, sizeof(length), lengths.data(), what);
  std::vector<size_t> offsets{0};
  for (const uint64_t l : lengths) offsets.push_back(offsets.back() + l);
  std::string all(offsets.back(), '\0');
  Copy(all.data() + offsets[static_cast<size_t>(ranks.rank())], text.data(), text.size());
  GatherParts(ranks, offsets, all.data(), what);
  std::vector<std::string> texts;
  for (size_t r = 0; r < size; ++r) texts.push_back(all.substr(offsets[r], lengths[r]));
  return texts;
}

}  // namespace lathe
