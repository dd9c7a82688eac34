#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "lathe/support/divide.h"
#include "lathe/train/history.h"

namespace lathe::train {
namespace {

using Point = History::Point;
using Line = std::vector<Point>;

// Sizes in pixels.
constexpr double kWidth = 720, kHeight = 260, kTop = 40, kLeft = 64, kRight = 16, kBottom = 36;
constexpr size_t kMostPoints = 600;  // of a line; more are averaged in groups

// The colors of steps, epochs and evaluations: Okabe and Ito, Color universal design, 2008.
constexpr const char *kStepColor = "#56b4e9", *kEpochColor = "#0072b2", *kEvalColor = "#d55e00";

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

Line Thinned(const Line& line) {
  const size_t group = CeilDiv(line.size(), kMostPoints);
  if (group <= 1) return line;
  Line thin;
  for (size_t i = 0; i < line.size(); i += group) {
    const size_t end = std::min(i + group, line.size());
    double sum = 0;
    for (size_t k = i; k < end; ++k) sum += line[k].value;
    thin.push_back({line[end - 1].step, sum / static_cast<double>(end - i)});
  }
  return thin;
}

// A step between ticks, of 1, 2 or 5 times a power of ten, with about `count` of them.
double TickStep(double range, int count) {
  const double rough = range / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

// A chart: axes and lines, from y = `top` on.
class Chart {
 public:
  Chart(const History::Curves& curves, std::string name, double top)
      : name_(std::move(name)), top_(top) {
    for (const Line* line : {&curves.steps, &curves.epochs, &curves.evaluations}) {
      for (const Point& p : Thinned(*line)) Include(p);
    }
    if (low_ == high_) {  // a line in the middle
      low_ -= 0.5;
      high_ += 0.5;
    }
    last_step_ = std::max<int64_t>(last_step_, 1);
  }

  std::string Svg(const History::Curves& curves) const {
    return Axes() + Polyline(Thinned(curves.steps), kStepColor, 1) +
           Polyline(curves.epochs, kEpochColor, 2) + Polyline(curves.evaluations, kEvalColor, 2) +
           Marks(curves.epochs, kEpochColor) + Marks(curves.evaluations, kEvalColor);
  }

 private:
  void Include(const Point& p) {
    low_ = any_ ? std::min(low_, p.value) : p.value;
    high_ = any_ ? std::max(high_, p.value) : p.value;
    last_step_ = std::max(last_step_, p.step);
    any_ = true;
  }
  double X(double step) const {
    return kLeft + step / static_cast<double>(last_step_) * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return top_ + kHeight - kBottom - (value - low_) / (high_ - low_) * (kHeight - kBottom - 12);
  }

  static std::string Rule(double x1, double y1, double x2, double y2) {
    return fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x1, y1,
        x2, y2);
  }
  static std::string Text(double x, double y, const char* anchor, std::string_view text) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                       anchor, text);
  }

  std::string Axes() const {
    std::string svg;
    const double step = TickStep(high_ - low_, 5);
    for (double v = std::ceil(low_ / step) * step; v <= high_; v += step) {
      svg +=
          Rule(kLeft, Y(v), kWidth - kRight, Y(v)) +
          Text(kLeft - 6, Y(v) + 4, "end", fmt::format("{:.4g}", std::abs(v) < step / 2 ? 0 : v));
    }
    const double across = std::max(1.0, TickStep(static_cast<double>(last_step_), 8));
    for (double s = 0; s <= static_cast<double>(last_step_); s += across) {
      svg += Text(X(s), top_ + kHeight - kBottom + 18, "middle", fmt::format("{:.0f}", s));
    }
    return svg + Text(kLeft, top_ - 2, "start", name_);
  }

  std::string Polyline(const Line& line, const char* color, int width) const {
    if (line.size() < 2) return "";
    std::string points;
    for (const Point& p : line) {
      points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ",
                            X(static_cast<double>(p.step)), Y(p.value));
    }
    return fmt::format(
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" points=\"{}\"/>\n", color, width,
        points);
  }

  std::string Marks(const Line& line, const char* color) const {
    std::string svg;
    for (const Point& p : line) {
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                         X(static_cast<double>(p.step)), Y(p.value), color);
    }
    return svg;
  }

  std::string name_;
  double top_;
  double low_ = 0, high_ = 0;
  int64_t last_step_ = 0;
  bool any_ = false;
};

std::string Legend(const History::Curves& loss) {
  struct Entry {
    const char *text, *color;
    bool is_shown;
  };
  const std::array<Entry, 3> entries = {{{"training, per step", kStepColor, !loss.steps.empty()},
                                         {"training, per epoch", kEpochColor, !loss.epochs.empty()},
                                         {"evaluation", kEvalColor, !loss.evaluations.empty()}}};
  std::string svg;
  double x = kWidth - kRight;
  for (size_t i = entries.size(); i-- > 0;) {
    if (!entries[i].is_shown) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"20\" text-anchor=\"end\" fill=\"{}\">{}</text>\n", x,
                       entries[i].color, entries[i].text);
    x -= 150;
  }
  return svg;
}

}  // namespace

std::string History::ToSvg(const std::string& title) const {
  const bool has_accuracy = !accuracy_.steps.empty() || !accuracy_.epochs.empty();
  const double height = kTop + kHeight * (has_accuracy ? 2 : 1);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n<desc>Lathe training "
      "curves</desc>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"20\" font-weight=\"bold\">{3}</text>\n",
      kWidth, height, kLeft, Escaped(title));
  svg += Legend(loss_) + Chart(loss_, "loss", kTop).Svg(loss_);
  if (has_accuracy) svg += Chart(accuracy_, "accuracy", kTop + kHeight).Svg(accuracy_);
  return svg + "</svg>\n";
}

}  // namespace lathe::train
