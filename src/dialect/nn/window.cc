#include "src/dialect/nn/window.h"

#include <algorithm>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"

namespace lathe::nn {
namespace {

using eval::FailShape;

constexpr int64_t kLargest = int64_t{1} << 31;

Dim CountExplicit(const Dim& in, const Dim& reach, int64_t stride, int64_t begin, int64_t end,
                  bool ceil) {
  const Dim span = in + Dim(begin) + Dim(end) - reach;
  // Rounded up, a last window may hang over the end; the first one, too.
  const Dim least = ceil ? Dim(1 - stride) : Dim(0);
  Assume(
      SizeCondition::AtLeast(span, least), "shape/window",
      [&] {
        return StrCat("the kernel reaches over ", reach.ToString(), ", but the padded input has ",
                      (in + Dim(begin) + Dim(end)).ToString());
      },
      "use a larger input, more padding, or a smaller kernel or dilation");
  if (!ceil) return FloorDiv(span, stride) + Dim(1);
  return Min(CeilDiv(span, stride) + Dim(1), CeilDiv(in + Dim(begin), stride));
}

}  // namespace

std::vector<int64_t> CheckedList(const std::optional<std::vector<int64_t>>& given, size_t size,
                                 int64_t least, const char* name) {
  if (!given) return std::vector<int64_t>(size, least);
  if (given->size() != size) {
    FailShape("shape/window-rank",
              StrCat(name, " has ", given->size(), " entries, ", size, " are expected"),
              "one for each spatial dim of the input; for pads two");
  }
  for (int64_t value : *given) {
    if (value >= least && value < kLargest) continue;
    FailShape("shape/window", StrCat(name, " contains ", value),
              StrCat("each entry must be in [", least, ", ", kLargest - 1, "]"));
  }
  return *given;
}

bool IsSame(const WindowSpec& spec) {
  return spec.auto_pad == "SAME_UPPER" || spec.auto_pad == "SAME_LOWER";
}

WindowSteps CheckedSteps(const WindowSpec& spec, size_t rank) {
  WindowSteps steps;
  steps.strides = CheckedList(spec.strides, rank, 1, "strides");
  steps.dilations = CheckedList(spec.dilations, rank, 1, "dilations");
  const bool is_explicit = spec.auto_pad == "NOTSET";
  const std::vector<int64_t> pads =
      CheckedList(is_explicit ? spec.pads : std::nullopt, 2 * rank, 0, "pads");
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(rank);
  steps.begins.assign(pads.begin(), middle);
  steps.ends.assign(middle, pads.end());
  return steps;
}

std::vector<Dim> KernelDims(const WindowSpec& spec, std::span<const Dim> weights, size_t rank) {
  std::vector<Dim> kernel(weights.begin(), weights.end());
  if (kernel.empty()) kernel.resize(rank);
  if (!spec.kernel_shape) return kernel;
  const std::vector<int64_t> given = CheckedList(spec.kernel_shape, rank, 1, "kernel_shape");
  for (size_t d = 0; d < rank; ++d) {
    Assume(
        SizeCondition::Equal(kernel[d], given[d]), "shape/conv-kernel",
        [&] {
          return StrCat("kernel_shape says ", given[d], " where the weights have ",
                        kernel[d].ToString());
        },
        "leave kernel_shape out, or give the spatial extents of the weights");
    kernel[d] = given[d];
  }
  return kernel;
}

std::vector<Dim> WindowCounts(const WindowSpec& spec, std::span<const Dim> in,
                              std::span<const Dim> kernel) {
  const WindowSteps steps = CheckedSteps(spec, in.size());
  std::vector<Dim> counts;
  for (size_t d = 0; d < in.size(); ++d) {
    const Dim reach = (kernel[d] - Dim(1)) * Dim(steps.dilations[d]) + Dim(1);
    counts.push_back(IsSame(spec) ? CeilDiv(in[d], steps.strides[d])
                                  : CountExplicit(in[d], reach, steps.strides[d], steps.begins[d],
                                                  steps.ends[d], spec.ceil_mode));
  }
  return counts;
}

Window ResolveWindow(const WindowSpec& spec, std::span<const int64_t> in,
                     std::span<const int64_t> kernel) {
  const SymShape in_dims = SymShape::FromConstants(in);
  const SymShape kernel_dims = SymShape::FromConstants(kernel);
  WindowSteps steps = CheckedSteps(spec, in.size());
  Window window;
  for (const Dim& count : WindowCounts(spec, in_dims.dims, kernel_dims.dims)) {
    if (!count.is_constant()) FailShape("shape/window", "the window extents are too large");
    window.out.push_back(count.value());
  }
  window.in.assign(in.begin(), in.end());
  window.kernel.assign(kernel.begin(), kernel.end());
  for (size_t d = 0; IsSame(spec) && d < in.size(); ++d) {
    const int64_t reach = (kernel[d] - 1) * steps.dilations[d] + 1;
    const int64_t total =
        std::max<int64_t>((window.out[d] - 1) * steps.strides[d] + reach - in[d], 0);
    steps.begins[d] = spec.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    steps.ends[d] = total - steps.begins[d];
  }
  window.strides = std::move(steps.strides);
  window.dilations = std::move(steps.dilations);
  window.begins = std::move(steps.begins);
  window.ends = std::move(steps.ends);
  return window;
}

}  // namespace lathe::nn
