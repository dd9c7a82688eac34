#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/support/dim.h"
#include "lathe/support/element_type.h"
#include "src/dialect/nn/window.h"
#include "src/lower/index_math.h"

namespace lathe::lower {

/// The extents of an `nn.conv` or `nn.conv_bytes` whose weights are of known shape.
struct ConvGeometry {
  ElementType element = ElementType::kUndefined;
  Dim batch;
  int64_t groups = 1;
  int64_t channels = 0;  ///< of one group
  int64_t filters = 0;   ///< of one group
  // Per spatial dim.
  std::vector<Dim> in, out;
  std::vector<Dim> begins;  ///< padding in front
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> merged;  ///< dims of the operand that are one here; empty: each is its own
  bool reads_own_element =
      false;  ///< each output position reads the input at the same position only

  /// Why the operation is none of these; empty if it is.
  std::string Parse(const Operation& conv);
  /// The spatial part of it; an `auto_pad` other than SAME_* leaves begins known.
  void ParseWindow(const nn::WindowSpec& spec, std::span<const Dim> extents,
                   std::span<const int64_t> kernel_extents);

  /// Extents that are not known become names of what they are at run time; `math` is at the
  /// beginning of the function.
  void Bind(LoopBuilder& lb, IndexMath& math);

  /// Where each position reads its own element: all spatial dims as one.
  void Flatten();
  /// Spatial dims of one element, of which the kernel sees one, become one with the dim in front of
  /// them, or the first behind them. One dim is left.
  void MergeUnits();

  size_t rank() const { return in.size(); }
  Dim positions() const;               ///< of the output
  int64_t places() const;              ///< of the kernel
  int64_t outer_places() const;        ///< of its dims before the last two
  int64_t most_begin(size_t a) const;  ///< of the padding in front
  bool is_static() const;              ///< all spatial extents are known
  /// Whether places of the kernel may see nothing but padding for many windows: that depends on the
  /// extents, but the answer does not, so that sums are made in one order for all of them.
  bool reaches_far() const;
  /// Then: channels that are multiplied at one place of the kernel before the next one, whatever
  /// the extents.
  int64_t place_channels() const;
  /// The same of one axis, however few channels there are.
  bool reaches_far(size_t a) const;
  int64_t depth() const { return channels * places(); }
  /// Elements of the input from the first to the last that so many outputs see.
  Dim Reach(size_t a, const Dim& outputs) const {
    return (outputs - 1) * strides[a] + (kernel[a] - 1) * dilations[a] + 1;
  }
  /// Those of them that outputs see, at most.
  int64_t Seen(size_t a, int64_t outputs) const {
    return std::min(Reach(a, outputs).value(), outputs * kernel[a]);
  }

 private:
  template <class OpT>
  std::string ParseOp(const OpT& op);
  void CountWindows();
  Dim SameBegin(size_t a) const;

  Dim positions_;  // a name, once there are names
  nn::WindowSpec spec_;
};

}  // namespace lathe::lower
