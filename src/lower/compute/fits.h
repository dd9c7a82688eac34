#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/lower/compute/elements.h"

namespace lathe::lower {

/// Refuses unless extents of operands agree in every run: loops do not look. The interpreter tells
/// of those that differ. What shape inference assumes is a condition on the sizes of each run, so
/// that it counts as proved.
class Fits {
 public:
  explicit Fits(const Operation& op) : op_(op) {}

  Fits& Same(const Dim& a, const Dim& b) {
    if (why_.empty() && !ProvablyEqual(a, b) && !IsAssumed(a, b)) {
      why_ = StrCat("extents ", a.ToString(), " and ", b.ToString(), " may differ");
    }
    return *this;
  }
  /// All extents of two operands; nothing is asked of one that is absent.
  Fits& Same(size_t a, size_t b) { return Same(Dims(a), Dims(b), Has(a) && Has(b)); }
  Fits& Same(Value v, const std::vector<Dim>& dims) { return Same(DimsOf(v), dims, true); }
  Fits& Is(size_t operand, const std::vector<Dim>& dims) {
    return Same(Dims(operand), dims, Has(operand));
  }
  Fits& AtMost(const Dim& a, const Dim& b) {
    const auto low = (b - a).is_unknown() ? std::nullopt : (b - a).LowerBound();
    if (why_.empty() && !(low && *low >= 0) && !IsAssumedAtMost(a, b)) {
      why_ = StrCat("extent ", a.ToString(), " may exceed ", b.ToString());
    }
    return *this;
  }
  /// No extent of the operand is open.
  Fits& Known(size_t operand) {
    if (why_.empty() && std::ranges::any_of(Dims(operand), &Dim::is_unknown)) {
      why_ = StrCat("an extent of operand ", operand, " is not known");
    }
    return *this;
  }
  bool Has(size_t i) const { return i < op_.num_operands() && op_.operand(i); }
  std::vector<Dim> Dims(size_t i) const {
    return Has(i) ? DimsOf(op_.operand(i)) : std::vector<Dim>();
  }
  const std::string& why() const { return why_; }

 private:
  Fits& Same(const std::vector<Dim>& a, const std::vector<Dim>& b, bool asked) {
    if (asked && a.size() != b.size() && why_.empty()) why_ = "ranks differ";
    for (size_t i = 0; asked && i < a.size() && i < b.size(); ++i) Same(a[i], b[i]);
    return *this;
  }

  const std::vector<SizeAssumption>& Assumed();
  bool IsAssumed(const Dim& a, const Dim& b);
  bool IsAssumedAtMost(const Dim& a, const Dim& b);

  const Operation& op_;
  std::string why_;
  std::optional<std::vector<SizeAssumption>> assumed_;
};

}  // namespace lathe::lower
