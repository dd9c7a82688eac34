#include "src/driver/knob_search.h"

#include <algorithm>

namespace lathe {
namespace {

constexpr int kDraws = 64;               // until those that are left are looked for one by one
constexpr size_t kMostPoints = 1 << 16;  // of a space that is

}  // namespace

KnobSearch::KnobSearch(std::vector<lower::KnobChoice> knobs, double seconds)
    : knobs_(std::move(knobs)), best_seconds_(seconds) {
  for (lower::KnobChoice& k : knobs_) {
    const auto taken = std::ranges::find(k.values, k.taken);
    std::rotate(k.values.begin(), taken, taken + 1);  // so that the first point is all zero
  }
  best_.assign(knobs_.size(), 0);
  tried_.insert(best_);
  AddNeighbors();
}

void KnobSearch::AddNeighbors() {
  neighbors_.clear();
  for (size_t k = 0; k < knobs_.size(); ++k) {
    for (size_t v = 0; v < knobs_[k].values.size(); ++v) {
      Point point = best_;
      point[k] = v;
      if (!tried_.contains(point)) neighbors_.push_back(std::move(point));
    }
  }
  for (size_t i = neighbors_.size(); i > 1; --i) {
    const auto other = static_cast<size_t>(random_.Int(0, static_cast<int64_t>(i) - 1));
    std::swap(neighbors_[i - 1], neighbors_[other]);
  }
}

// The next one, counted like digits; false after the last.
bool KnobSearch::Increment(Point& point) const {
  for (size_t k = point.size(); k-- > 0;) {
    if (++point[k] < knobs_[k].values.size()) return true;
    point[k] = 0;
  }
  return false;
}

std::optional<KnobSearch::Point> KnobSearch::Any() {
  Point point(knobs_.size());
  for (int draw = 0; draw < kDraws; ++draw) {
    for (size_t k = 0; k < point.size(); ++k) {
      const auto last = static_cast<int64_t>(knobs_[k].values.size()) - 1;
      point[k] = static_cast<size_t>(random_.Int(0, last));
    }
    if (!tried_.contains(point)) return point;
  }
  std::ranges::fill(point, 0);
  for (size_t i = 0; i < kMostPoints; ++i) {
    if (!tried_.contains(point)) return point;
    if (!Increment(point)) break;
  }
  return std::nullopt;
}

std::optional<lower::Knobs> KnobSearch::Next() {
  while (!neighbors_.empty() && tried_.contains(neighbors_.back())) neighbors_.pop_back();
  const std::optional<Point> next = neighbors_.empty() ? Any() : std::optional(neighbors_.back());
  if (!next) return std::nullopt;
  asked_ = *next;
  tried_.insert(asked_);
  lower::Knobs knobs;
  for (size_t k = 0; k < knobs_.size(); ++k) {
    if (asked_[k] != 0) knobs.Set(knobs_[k].name, knobs_[k].values[asked_[k]]);
  }
  return knobs;
}

void KnobSearch::Tell(std::optional<double> seconds) {
  if (!seconds || *seconds >= best_seconds_) return;
  best_seconds_ = *seconds;
  best_ = asked_;
  AddNeighbors();
}

}  // namespace lathe
