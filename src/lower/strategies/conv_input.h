#pragma once

#include <vector>

#include "lathe/lower/loop_builder.h"
#include "src/lower/pointwise.h"

namespace lathe::lower {

/// What a convolution reads: memory, or elements that are computed from memory on the way.
class ConvInput {
 public:
  ConvInput() = default;
  ConvInput(LoopBuilder& lb, Value memory) : lb_(&lb), memory_(memory) {}
  ConvInput(LoopBuilder& lb, const Pointwise& before) : lb_(&lb), before_(&before) {}

  /// A vector of elements `stride` apart along the last axis. Lanes that are not live hold zeros if
  /// `IsMemory`, otherwise anything.
  Value Load(const std::vector<Value>& at, int64_t lanes, Value live = {},
             int64_t stride = 1) const {
    if (before_ != nullptr) return before_->At(*lb_, at, lanes, live, stride);
    if (stride == 1) return lb_->Load(memory_, at, lanes, live);
    return lb_->LoadApart(memory_, at, lanes, -1, stride, live);
  }
  bool IsMemory() const { return before_ == nullptr; }

  /// Copies such a vector; lanes that are not live become `fill`.
  void Copy(const std::vector<Value>& at, int64_t lanes, Value live, int64_t stride, Value to,
            const std::vector<Value>& to_at, double fill = 0) const {
    const Value seen = Load(at, lanes, live, stride);
    const bool mask = (!IsMemory() || fill != 0) && live && LoopBuilder::Known(live) != lanes;
    if (mask) {
      const ElementType element = to.type().cast<AnyTensorType>().element();
      lb_->Store(to, lb_->Splat(element, fill, lanes), to_at);
    }
    lb_->Store(to, seen, to_at, mask ? live : Value());
  }

 private:
  LoopBuilder* lb_ = nullptr;
  Value memory_;
  const Pointwise* before_ = nullptr;
};

}  // namespace lathe::lower
