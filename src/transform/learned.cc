#include "src/transform/learned.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/walk.h"

namespace lathe {

namespace {

/// In a mask of wider floats, the lowest number of each type counts that it was made for.
bool IsLowest(double value) {
  constexpr double kF16 = -65504;
  constexpr double kBf16 = -3.3895313892515355e38;
  constexpr double kF32 = std::numeric_limits<float>::lowest();
  constexpr double kF64 = std::numeric_limits<double>::lowest();
  return value == kF16 || value == kBf16 || value == kF32 || value == kF64;
}

bool IsMinusInfinity(double value) { return std::isinf(value) && value < 0; }

template <class T>
bool HoldsMask(std::span<const T> values) {
  return std::ranges::any_of(values, [](double v) { return IsMinusInfinity(v) || IsLowest(v); }) &&
         std::ranges::all_of(values,
                             [](double v) { return std::isfinite(v) || IsMinusInfinity(v); });
}

}  // namespace

bool ReadsConstant(const Operation* op) {
  if (!op->isa<builtin::GetParameterOp>()) return false;
  const auto constant =
      op->attribute(builtin::GetParameterOp::kConstantAttr).dyn_cast<BoolAttribute>();
  return constant && constant.value();
}

bool IsMask(const Tensor& tensor) {
  if (!IsFloat(tensor.element_type())) return false;
  if (tensor.element_type() == ElementType::kF32) return HoldsMask<float>(tensor.data<float>());
  return HoldsMask<double>(ToDoubles(tensor));
}

Constants::Constants(const Program& program) : program_(program) {
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    if (ReadsConstant(op)) {
      marked_.insert(op->attribute("name").cast<StrAttribute>().value());
    }
  }
}

std::string_view Constants::Why(std::string_view name) const {
  if (marked_.contains(name)) return "it is a constant";
  const Variable* variable = program_.parameters().Find(name);
  const bool known = variable != nullptr && variable->data.is_defined();
  return known && IsMask(variable->data) ? "it is a mask" : "";
}

}  // namespace lathe
