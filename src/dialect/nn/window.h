#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lathe/support/dim.h"

// Sliding windows over the spatial dims of convolutions and pools: one rule for their extents,
// symbolic and at run time. Throws Error kShape without a place.
namespace lathe::nn {

// The attributes as given; an absent list means ones, or zeros for `pads`.
struct WindowSpec {
  std::optional<std::vector<int64_t>> kernel_shape;
  std::optional<std::vector<int64_t>> strides;
  std::optional<std::vector<int64_t>> dilations;
  std::optional<std::vector<int64_t>> pads;  // all begins, then all ends; not used with auto_pad
  std::string auto_pad = "NOTSET";
  bool ceil_mode = false;
};

// From an op with these attributes (`dilations` and `ceil_mode` if it has them).
template <class OpT>
WindowSpec WindowOf(OpT op) {
  WindowSpec spec;
  spec.kernel_shape = op.kernel_shape();
  spec.strides = op.strides();
  spec.pads = op.pads();
  if constexpr (requires { op.dilations(); }) spec.dilations = op.dilations();
  if constexpr (requires { op.auto_pad(); }) spec.auto_pad = op.auto_pad();
  if constexpr (requires { op.ceil_mode(); }) spec.ceil_mode = op.ceil_mode();
  return spec;
}

// SAME_UPPER or SAME_LOWER.
bool IsSame(const WindowSpec& spec);

// A list of `size` entries of at least `least`, which is also what an absent one is made of.
std::vector<int64_t> CheckedList(const std::optional<std::vector<int64_t>>& given, size_t size,
                                 int64_t least, const char* name);

// Lists filled in and checked for `rank` spatial dims: lengths, strides and dilations of at least
// 1, pads of at least 0, nothing absurdly large.
struct WindowSteps {
  std::vector<int64_t> strides, dilations, begins, ends;
};
WindowSteps CheckedSteps(const WindowSpec& spec, size_t rank);

// The kernel extents: attribute `kernel_shape`, which must agree with `weights` where both are
// known; `weights` may be empty (no weights).
std::vector<Dim> KernelDims(const WindowSpec& spec, std::span<const Dim> weights, size_t rank);

// How many windows fit along each dim:
//   explicit pads  floor((in + pads - reach) / stride) + 1, reach = (kernel - 1) * dilation + 1;
//                  with ceil_mode ceil, but no window that starts in the padding at the end
//   VALID          the same without pads
//   SAME_*         ceil(in / stride)
// A kernel that does not fit at all is an error.
std::vector<Dim> WindowCounts(const WindowSpec& spec, std::span<const Dim> in,
                              std::span<const Dim> kernel);

// All of it for known extents.
struct Window {
  std::vector<int64_t> in, kernel, strides, dilations, begins, ends, out;

  [[nodiscard]] size_t rank() const { return in.size(); }
};
Window ResolveWindow(const WindowSpec& spec, std::span<const int64_t> in,
                     std::span<const int64_t> kernel);

}  // namespace lathe::nn
