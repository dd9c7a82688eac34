#pragma once

#include <optional>
#include <string_view>

#include "lathe/dialect/permute_interface.h"
#include "lathe/support/tensor.h"

// Ops with channels have an attribute `layout`: NCHW (or absent), channels at axis 1, or NHWC,
// channels last, whatever the number of spatial dims.
namespace lathe::nn {

using Layout = std::optional<std::string_view>;

inline bool ChannelsLast(const Layout& layout) { return layout && *layout == "NHWC"; }
// Of an op, which may be of a kind that knows no layout.
inline bool ChannelsLast(const Operation* op) {
  const auto layout = op->attribute("layout").dyn_cast<StrAttribute>();
  return layout && layout.value() == "NHWC";
}

// From the layout to NCHW, and back.
Tensor ToChannelsFirst(const Tensor& x, const Layout& layout);
Tensor FromChannelsFirst(const Tensor& y, const Layout& layout);
SymShape ToChannelsFirst(const SymShape& x, const Layout& layout);
SymShape FromChannelsFirst(const SymShape& y, const Layout& layout);

// Operand 0 and result 0 change between the two layouts; other permutations are not understood.
bool PermuteChannels(PermuteContext& c, const Layout& layout);
// Result 0 is permuted like operand 0; nothing else changes.
bool PermuteSame(PermuteContext& c);
// The same for an op that works along the axis of attribute `axis`.
bool PermuteAlongAxis(PermuteContext& c);

}  // namespace lathe::nn
