#pragma once

#include <optional>
#include <string>

#include "src/dialect/nn/window.h"
#include "src/lower/pointwise.h"

namespace lathe::lower {

/// The pool of a function, and how the elements of its windows become one.
struct Pooling {
  enum class Kind : uint8_t { kMax, kAverage, kNorm };

  const Operation* op = nullptr;
  Kind kind = Kind::kMax;
  bool global = false;             ///< the window is the whole plane
  nn::WindowSpec spec;             ///< unless global
  bool count_include_pad = false;  ///< of an average
  int64_t p = 2;                   ///< of a norm
  ElementType element = ElementType::kUndefined;
  std::optional<Pointwise> after;  ///< what follows in the same function, an axis per loop

  /// The only pool of a function; `why` says what is in the way otherwise.
  static std::optional<Pooling> Find(const Block& function, const Machine& machine,
                                     std::string& why);

  AnyTensorType input() const { return op->operand(0).type().cast<AnyTensorType>(); }
  AnyTensorType output() const { return op->result(0).type().cast<AnyTensorType>(); }
  bool gives_indices() const;
  /// Whether a window has as many elements along a spatial axis wherever it lies, those in the
  /// padding being counted if they are.
  bool CountsAll(size_t axis) const;
  /// What elements in the padding count as; combining anything with it changes nothing.
  double neutral() const;
  /// Each element, scalar or vector, before it is combined.
  Value Prepared(LoopBuilder& lb, Value x) const;
  Value Combined(LoopBuilder& lb, Value a, Value b) const;
  /// The result of what was combined; `scale`: what an average is multiplied by.
  Value Finished(LoopBuilder& lb, Value x, Value scale) const;
};

}  // namespace lathe::lower
