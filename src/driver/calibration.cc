#include "src/driver/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "lathe/support/error.h"

namespace lathe {
namespace {

constexpr size_t kBins = 2048;
constexpr size_t kStride = 8;        // bins between the ends that are tried
constexpr double kNoChance = 1e-10;  // what is not in a distribution is very improbable

double MagnitudeOf(const ValueRange& range) {
  return std::max(std::abs(range.least), std::abs(range.most));
}

size_t BinOf(double at, double width) {
  const double bin = width > 0 ? at / width : 0;
  return std::min(static_cast<size_t>(std::max(bin, 0.0)), kBins - 1);
}

// The KL divergence of the first `end` bins, what lies behind them in the last one, from the same
// where only `levels` numbers are told apart.
double Divergence(const std::vector<double>& counts, size_t end, size_t levels) {
  std::vector<double> coarse(end);
  double within = 0;
  for (size_t level = 0; level < levels; ++level) {
    const size_t from = level * end / levels, to = (level + 1) * end / levels;
    double sum = 0, used = 0;
    for (size_t b = from; b < to; ++b) {
      sum += counts[b];
      used += counts[b] > 0;
    }
    for (size_t b = from; b < to; ++b) coarse[b] = counts[b] > 0 ? sum / used : 0;
    within += sum;
  }
  const double beyond =
      std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(end), counts.end(), 0.0);
  const double all = within + beyond;
  double divergence = 0;
  for (size_t b = 0; b < end; ++b) {
    const double p = (counts[b] + (b + 1 == end ? beyond : 0)) / all;
    const double q = within > 0 ? coarse[b] / within : 0;
    if (p > 0) divergence += p * std::log(p / std::max(q, kNoChance));
  }
  return divergence;
}

}  // namespace

CalibrationMethod CalibrationMethodNamed(const std::string& name) {
  constexpr std::array<std::string_view, 3> kNames = {"min-max", "percentile", "entropy"};
  const auto at = std::ranges::find(kNames, name);
  if (at != kNames.end()) return static_cast<CalibrationMethod>(at - kNames.begin());
  Error error(ErrorCode::kNotFound, "quantize/method",
              StrCat("there is no calibration method '", name, "'"));
  if (const std::string near = DidYouMean(name, kNames); !near.empty()) error.Hint(near);
  throw std::move(error).Hint("the methods are min-max, percentile and entropy");
}

void RangeRecorder::See(std::span<const float> numbers) {
  for (const float v : numbers) {
    if (!std::isfinite(v)) continue;
    seen_.least = std::min<double>(seen_.least, v);
    seen_.most = std::max<double>(seen_.most, v);
  }
}

double RangeRecorder::WidthOfBin() const { return (seen_.most - seen_.least) / kBins; }

void RangeRecorder::Count(std::span<const float> numbers) {
  counts_.resize(kBins);
  magnitudes_.resize(kBins);
  const double width = WidthOfBin(), magnitude = MagnitudeOf(seen_) / kBins;
  for (const float v : numbers) {
    if (!std::isfinite(v)) continue;
    ++counts_[BinOf(v - seen_.least, width)];
    if (v != 0) ++magnitudes_[BinOf(std::abs(v), magnitude)];
  }
}

ValueRange RangeRecorder::Percentile(double percentile) const {
  if (!seen_.is_known() || counts_.empty()) return seen_;
  const double all = std::accumulate(counts_.begin(), counts_.end(), 0.0);
  const double cut = all * (100 - percentile) / 200;
  size_t first = 0, last = kBins - 1;
  for (double left = counts_[first]; left <= cut && first < last; left += counts_[first]) ++first;
  for (double left = counts_[last]; left <= cut && last > first; left += counts_[last]) --last;
  const double width = WidthOfBin();
  return {seen_.least + width * static_cast<double>(first),
          last + 1 == kBins ? seen_.most : seen_.least + width * static_cast<double>(last + 1)};
}

ValueRange RangeRecorder::Entropy(size_t levels) const {
  const bool none = std::ranges::all_of(magnitudes_, [](double count) { return count == 0; });
  if (!seen_.is_known() || none) return seen_;
  size_t best = kBins;
  double least = Divergence(magnitudes_, kBins, levels);
  for (size_t end = kBins; end > levels; end -= kStride) {
    const double divergence = Divergence(magnitudes_, end, levels);
    if (divergence < least) {
      least = divergence;
      best = end;
    }
  }
  const double most = MagnitudeOf(seen_) * static_cast<double>(best) / kBins;
  return {std::max(seen_.least, -most), std::min(seen_.most, most)};
}

}  // namespace lathe
