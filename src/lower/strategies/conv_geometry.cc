#include "src/lower/strategies/conv_geometry.h"

#include <algorithm>

#include "lathe/dialect/nn/conv.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/window.h"
#include "src/lower/strategies/conv_job.h"

namespace lathe::lower {

// SAME_UPPER and SAME_LOWER: what the windows reach beyond the input is shared out between both
// ends.
Dim ConvGeometry::SameBegin(size_t a) const {
  const int64_t reach = (kernel[a] - 1) * dilations[a] + 1;
  const Dim total = Max((out[a] - 1) * strides[a] + reach - in[a], 0);
  return spec_.auto_pad == "SAME_UPPER" ? FloorDiv(total, 2) : CeilDiv(total, 2);
}

void ConvGeometry::CountWindows() {
  const std::vector<Dim> places(kernel.begin(), kernel.end());
  out = nn::WindowCounts(spec_, in, places);
}

void ConvGeometry::ParseWindow(const nn::WindowSpec& spec, std::span<const Dim> extents,
                               std::span<const int64_t> kernel_extents) {
  spec_ = spec;
  in.assign(extents.begin(), extents.end());
  kernel.assign(kernel_extents.begin(), kernel_extents.end());
  nn::WindowSteps steps = nn::CheckedSteps(spec, in.size());
  strides = std::move(steps.strides);
  dilations = std::move(steps.dilations);
  CountWindows();
  for (size_t a = 0; a < in.size(); ++a) {
    begins.push_back(nn::IsSame(spec) ? SameBegin(a) : Dim(steps.begins[a]));
  }
}

std::string ConvGeometry::Parse(const Operation& conv) {
  if (!conv.isa<nn::ConvBytesOp>()) return ParseOp(nn::ConvOp(&conv));
  std::string why = ParseOp(nn::ConvBytesOp(&conv));
  reads_own_element = reads_own_element && is_static();
  return why;
}

template <class OpT>
std::string ConvGeometry::ParseOp(const OpT& op) {
  const Operation& conv = *op.operation();
  const auto x = conv.operand(0).type().cast<AnyTensorType>();
  const auto w = conv.operand(1).type().cast<AnyTensorType>();
  element = x.element();
  if constexpr (std::is_same_v<OpT, nn::ConvOp>) {
    if (op.layout().value_or("NCHW") != "NCHW") return "the channels are last";
    if (element != ElementType::kF32 && element != ElementType::kF64) {
      return StrCat("elements are ", Name(element));
    }
  }
  if (!x.has_rank() || x.rank() < 3) return "the input is of unknown rank";
  if (!w.is_static()) return "the weights are of symbolic shape";
  const auto spatial = x.dims().subspan(2);
  if (std::ranges::any_of(spatial, [](const Dim& d) { return d.is_unknown(); })) {
    return "an extent is unknown";
  }
  std::vector<int64_t> extents;
  for (const Dim& dim : w.dims().subspan(2)) extents.push_back(dim.value());
  ParseWindow(nn::WindowOf(op), spatial, extents);
  batch = x.dims()[0];
  groups = op.group();
  channels = w.dims()[1].value();
  filters = w.dims()[0].value() / groups;
  if (depth() == 0 || filters == 0 || positions().IsConstant(0))
    return "there is nothing to compute";
  reads_own_element = places() == 1;
  for (size_t a = 0; a < rank(); ++a) {
    reads_own_element &= strides[a] == 1 && begins[a].IsConstant(0) && in[a] == out[a];
  }
  return "";
}

void ConvGeometry::Bind(LoopBuilder& lb, IndexMath& math) {
  batch = math.Extent(batch);
  if (is_static()) return;
  const std::vector<Dim> declared = out;
  for (Dim& extent : in) extent = math.Extent(extent);
  CountWindows();
  for (size_t a = 0; a < rank(); ++a) {
    out[a] = math.Name(out[a]);
    if (!declared[a].is_constant()) lb.Define(declared[a], math.At(out[a]));
    if (nn::IsSame(spec_)) begins[a] = math.Name(SameBegin(a));
  }
  positions_ = math.Name(positions());
}

void ConvGeometry::Flatten() {
  in = out = {positions()};
  begins = {0};
  kernel = strides = dilations = {1};
}

void ConvGeometry::MergeUnits() {
  merged.assign(rank(), 1);
  for (size_t a = rank(); a-- > 0 && rank() > 1;) {
    const bool is_unit = in[a].IsConstant(1) && out[a].IsConstant(1) && kernel[a] == 1;
    if (!is_unit || !begins[a].IsConstant(0)) continue;
    const auto at = static_cast<ptrdiff_t>(a);
    const auto drop = [&](auto& of_dims) { of_dims.erase(of_dims.begin() + at); };
    merged[a == 0 ? 1 : a - 1] += merged[a];
    if (spec_.pads) spec_.pads->erase(spec_.pads->begin() + at + std::ssize(in));
    for (auto* list : {&spec_.kernel_shape, &spec_.strides, &spec_.dilations, &spec_.pads}) {
      if (*list) drop(**list);
    }
    for (auto* extents : {&in, &out, &begins}) drop(*extents);
    for (auto* list : {&kernel, &strides, &dilations, &merged}) drop(*list);
  }
}

Dim ConvGeometry::positions() const {
  if (!positions_.is_unknown()) return positions_;
  Dim product = 1;
  for (const Dim& extent : out) product *= extent;
  return product;
}

int64_t ConvGeometry::places() const {
  int64_t product = 1;
  for (const int64_t extent : kernel) product *= extent;
  return product;
}

int64_t ConvGeometry::outer_places() const {
  int64_t product = 1;
  for (size_t a = 0; a + 2 < rank(); ++a) product *= kernel[a];
  return product;
}

// As much as SAME_* needs goes half in front; it is less than what a window reaches.
int64_t ConvGeometry::most_begin(size_t a) const {
  return begins[a].is_constant() ? begins[a].value() : ((kernel[a] - 1) * dilations[a] + 1) / 2;
}

namespace {

constexpr int64_t kManyChannels = 32;  // a place's products are more than its sums

}  // namespace

int64_t ConvGeometry::place_channels() const { return BlockChannels(channels, kManyChannels); }

bool ConvGeometry::reaches_far() const {
  if (channels < kManyChannels) return false;
  for (size_t a = 0; a < rank(); ++a) {
    if (reaches_far(a)) return true;
  }
  return false;
}

bool ConvGeometry::reaches_far(size_t a) const {
  constexpr int64_t kFar = 8;
  const int64_t reach = (kernel[a] - 1) * dilations[a];
  const bool is_padded = nn::IsSame(spec_) || begins[a].value() * 2 >= reach;
  return is_padded && reach >= kFar;
}

bool ConvGeometry::is_static() const {
  return std::ranges::all_of(in, [](const Dim& d) { return d.is_constant(); });
}

}  // namespace lathe::lower
