#include "src/lower/strategies/winograd_form.h"

#include <cmath>
#include <functional>
#include <utility>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "src/lower/register_tile.h"

namespace lathe::lower {
namespace {

constexpr size_t kTaps = 3;  // of the kernel's side

using Row = std::vector<double>;

// Coefficients of the product of all (x - point), the lowest first, but for one of them.
Row ProductWithout(const std::vector<double>& points, size_t without) {
  Row product{1};
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == without) continue;
    product.push_back(0);
    for (size_t k = product.size(); k-- > 0;) {
      product[k] = (k > 0 ? product[k - 1] : 0) - points[i] * product[k];
    }
  }
  return product;
}

double Power(double x, size_t exponent) {
  double power = 1;
  for (; exponent > 0; --exponent) power *= x;
  return power;
}

double ValueAt(const Row& polynomial, double x) {
  double value = 0;
  for (size_t k = polynomial.size(); k-- > 0;) value = value * x + polynomial[k];
  return value;
}

// Writes sums of values times numbers that are known.
class Sums {
 public:
  Sums(LoopBuilder& lb, const Machine& machine) : lb_(lb), machine_(machine) {}

  Value Add(Value a, Value b) { return nn::AddOp::Create(lb_.b(), a, b).c(); }
  Value Subtract(Value a, Value b) { return nn::SubOp::Create(lb_.b(), a, b).c(); }
  Value Times(double factor, Value value) {
    if (factor == 1) return value;
    return nn::MulOp::Create(lb_.b(), Number(factor), value).c();
  }

  // At least one factor is not zero; the sum begins with one that is 1 if there is such.
  Value Of(const Row& factors, const std::vector<Value>& values) {
    size_t first = 0;
    while (factors[first] == 0) ++first;
    for (size_t i = factors.size(); i-- > 0;) first = factors[i] == 1 ? i : first;
    Value sum = Times(factors[first], values[first]);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (i != first) sum = Plus(sum, factors[i], values[i]);
    }
    return sum;
  }

 private:
  Value Number(double number) { return lb_.Splat(ElementType::kF32, number); }
  Value Plus(Value sum, double factor, Value value) {
    if (factor == 0) return sum;
    if (factor == 1) return Add(sum, value);
    if (factor == -1) return Subtract(sum, value);
    return MulAdd(lb_, machine_, Number(factor), value, sum);
  }

  LoopBuilder& lb_;
  const Machine& machine_;
};

// Those of even or odd powers.
Row HalfOf(Row row, size_t first) {
  for (size_t i = 1 - first; i < row.size(); i += 2) row[i] = 0;
  return row;
}

// Places 1 and 2, 3 and 4, ... are those of a point and its negative.
bool BeginsPair(size_t place, size_t places) { return place % 2 == 1 && place + 2 < places; }

int64_t Nonzero(const std::vector<Row>& rows) {
  int64_t count = 0;
  for (const Row& row : rows) {
    for (const double factor : row) count += factor != 0 ? 1 : 0;
  }
  return count;
}

}  // namespace

// Toom and Cook's construction: interpolation of the product of two polynomials, transposed.
WinogradForm::WinogradForm(std::vector<double> points) {
  const size_t side = points.size() + 1, outputs = side + 1 - kTaps;
  output_.assign(outputs, Row(side, 0));
  for (size_t j = 0; j < side; ++j) {
    const bool at_infinity = j + 1 == side;
    Row polynomial = ProductWithout(points, j);
    const double norm = at_infinity ? 1 : ValueAt(polynomial, points[j]);
    const double scale = std::exp2(std::ceil(std::log2(std::fabs(norm))));
    polynomial.resize(side, 0);
    input_.push_back(std::move(polynomial));
    Row& powers = powers_.emplace_back(kTaps, 0);
    Row& weights = weights_.emplace_back(kTaps, 0);
    for (size_t k = 0; k < kTaps; ++k) {
      powers[k] = at_infinity ? (k + 1 == kTaps ? 1 : 0) : Power(points[j], k);
      weights[k] = powers[k] / norm * scale;
    }
    for (size_t i = 0; i < outputs; ++i) {
      const double power = at_infinity ? (i + 1 == outputs ? 1 : 0) : Power(points[j], i);
      output_[i][j] = power / scale;
    }
  }
}

std::vector<double> WinogradForm::WeightSums() const {
  std::vector<double> sums;
  for (const Row& a : weights_) {
    for (const Row& b : weights_) {
      for (size_t place = 0; place < kTaps * kTaps; ++place) {
        sums.push_back(a[place / kTaps] * b[place % kTaps]);
      }
    }
  }
  for (size_t i = 0; i < kTaps * kTaps; ++i) {
    for (size_t place = 0; place < kTaps * kTaps; ++place) sums.push_back(i == place ? 1 : 0);
  }
  return sums;
}

int64_t WinogradForm::weights_cost() const {
  return (inputs() + kTaps) * Nonzero(powers_) + products();
}
int64_t WinogradForm::input_cost() const { return 2 * inputs() * Nonzero(input_) * 2 / 3; }
int64_t WinogradForm::output_cost() const {
  return (inputs() + outputs()) * Nonzero(output_) * 2 / 3;
}

// The rows of a pair are the sum and the difference of their halves.
std::vector<Value> WinogradForm::InputAlong(LoopBuilder& lb, const Machine& machine,
                                            const std::vector<Value>& values) const {
  Sums sums(lb, machine);
  std::vector<Value> result;
  for (size_t j = 0; j < input_.size(); ++j) {
    if (!BeginsPair(j, input_.size())) {
      result.push_back(sums.Of(input_[j], values));
      continue;
    }
    const Value even = sums.Of(HalfOf(input_[j], 0), values);
    const Value odd = sums.Of(HalfOf(input_[j], 1), values);
    result.push_back(sums.Add(even, odd));
    result.push_back(sums.Subtract(even, odd));
    ++j;
  }
  return result;
}

// Powers of the points are exact; what is not, all of a place are multiplied by at the end. Until
// then weights are so large that sums of small ones are not rounded to multiples of the smallest
// number; large ones become infinite, which the outputs tell.
std::vector<Value> WinogradForm::TransformWeights(LoopBuilder& lb, const Machine& machine,
                                                  const std::vector<Value>& taps) const {
  constexpr double kAbove = 0x1p24;
  Sums sums(lb, machine);
  std::vector<Value> scaled;
  for (const Value tap : taps) scaled.push_back(sums.Times(kAbove, tap));
  const size_t side = powers_.size();
  std::vector<Value> places(side * side);
  for (size_t i = 0; i < side; ++i) {
    std::vector<Value> along;  // of row i, by columns of the taps
    for (size_t k = 0; k < kTaps; ++k) {
      along.push_back(sums.Of(powers_[i], {scaled[k], scaled[kTaps + k], scaled[2 * kTaps + k]}));
    }
    for (size_t j = 0; j < side; ++j) places[i * side + j] = sums.Of(powers_[j], along);
  }
  const auto factor = [&](size_t place) {  // that of the power 1
    return weights_[place][place + 1 == weights_.size() ? kTaps - 1 : 0];
  };
  for (size_t i = 0; i < places.size(); ++i) {
    const double both = factor(i / weights_.size()) * factor(i % weights_.size());
    places[i] = sums.Times(both / kAbove, places[i]);
  }
  return places;
}

// Of a pair, even rows have the sum and odd ones the difference.
std::vector<Value> WinogradForm::OutputAlong(LoopBuilder& lb, const Machine& machine,
                                             std::vector<Value> values) const {
  Sums sums(lb, machine);
  std::vector<Row> rows = output_;
  for (size_t j = 1; BeginsPair(j, values.size()); j += 2) {
    const Value sum = sums.Add(values[j], values[j + 1]);
    const Value difference = sums.Subtract(values[j], values[j + 1]);
    values[j] = sum, values[j + 1] = difference;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i % 2 == 0) {
        rows[i][j + 1] = 0;
      } else {
        rows[i][j + 1] = std::exchange(rows[i][j], 0);
      }
    }
  }
  std::vector<Value> result;
  for (const Row& row : rows) result.push_back(sums.Of(row, values));
  return result;
}

}  // namespace lathe::lower
