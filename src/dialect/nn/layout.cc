#include "src/dialect/nn/layout.h"

#include <algorithm>
#include <numeric>

#include "lathe/ir/context.h"
#include "src/dialect/move.h"

namespace lathe::nn {

namespace {

// Takes a tensor with the channels at axis 1 to one with the channels last.
Permutation ToLast(size_t rank) {
  Permutation perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (rank > 2) std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return perm;
}

Tensor Permuted(const Tensor& x, const Permutation& perm) {
  return eval::Permute(x, std::vector<size_t>(perm.begin(), perm.end()));
}

SymShape Permuted(const SymShape& x, const Permutation& perm) {
  if (!x.ranked) return x;
  std::vector<Dim> dims;
  for (const int64_t axis : perm) dims.push_back(x.dims[static_cast<size_t>(axis)]);
  return dims;
}

}  // namespace

Tensor ToChannelsFirst(const Tensor& x, const Layout& layout) {
  return ChannelsLast(layout) ? Permuted(x, Inverse(ToLast(x.shape().size()))) : x;
}
Tensor FromChannelsFirst(const Tensor& y, const Layout& layout) {
  return ChannelsLast(layout) ? Permuted(y, ToLast(y.shape().size())) : y;
}
SymShape ToChannelsFirst(const SymShape& x, const Layout& layout) {
  return ChannelsLast(layout) ? Permuted(x, Inverse(ToLast(x.rank()))) : x;
}
SymShape FromChannelsFirst(const SymShape& y, const Layout& layout) {
  return ChannelsLast(layout) ? Permuted(y, ToLast(y.rank())) : y;
}

bool PermuteChannels(PermuteContext& c, const Layout& layout) {
  if (c.operand() != 0) return false;
  const Permutation to_last = ToLast(c.perm().size());
  const bool last = ChannelsLast(layout);
  if (c.perm() != (last ? Inverse(to_last) : to_last)) return false;
  for (size_t i = 1; i < c.op()->num_results(); ++i) {
    if (!c.op()->result(i).use_empty()) return false;
  }
  c.Operand(0, c.perm());
  c.Result(0, c.perm());
  c.SetAttribute("layout", last ? Attribute() : StrAttribute::Get(*c.op()->context(), "NHWC"));
  return true;
}

bool PermuteSame(PermuteContext& c) {
  if (c.operand() != 0) return false;
  c.Operand(0, c.perm());
  c.Result(0, c.perm());
  return true;
}

bool PermuteAlongAxis(PermuteContext& c) {
  c.SetAttribute("axis", c.NewAxis(c.op()->attribute("axis").cast<IntAttribute>().value()));
  return PermuteSame(c);
}

}  // namespace lathe::nn
