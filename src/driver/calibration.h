#pragma once

#include <span>
#include <vector>

#include "lathe/driver/quantize.h"
#include "lathe/transform/quantization.h"

namespace lathe {

/// What is known of the numbers of a value. NaN and infinities do not count.
class RangeRecorder {
 public:
  /// The numbers of a run, for their least and greatest one.
  void See(std::span<const float> numbers);
  /// Once all have been seen: the same again, for a histogram over their range.
  void Count(std::span<const float> numbers);

  /// Unknown if no number was seen.
  const ValueRange& Seen() const { return seen_; }
  /// That leaves out (100 - percentile) / 2 percent of what was counted at either end.
  ValueRange Percentile(double percentile) const;
  /// That loses least when numbers become one of so many steps of absolute values.
  ValueRange Entropy(size_t levels) const;

 private:
  double WidthOfBin() const;

  ValueRange seen_;
  std::vector<double> counts_;      // by value
  std::vector<double> magnitudes_;  // by absolute value, without zeros, which are always exact
};

}  // namespace lathe
