#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "lathe/support/divide.h"
#include "lathe/support/error.h"
#include "lathe/support/parallel.h"
#include "lathe/support/text.h"
#include "lathe/transform/weight_quantization.h"
#include "src/dialect/nn/product.h"

// Weights are looked at as rows, one for each result of a product, some hundred at a time.
namespace lathe {
namespace {

constexpr int64_t kSlabRows = 256;
constexpr int64_t kChunk = 64;     // of the depth, between products of matrices
constexpr double kDamping = 0.01;  // of the mean of the diagonal
constexpr double kLeastScale = 1e-30;

/// A matrix of f64.
struct Matrix {
  int64_t rows, columns;
  std::vector<double> data;

  Matrix(int64_t r, int64_t c) : rows(r), columns(c), data(static_cast<size_t>(r * c)) {}
  double* row(int64_t r) { return data.data() + r * columns; }
  const double* row(int64_t r) const { return data.data() + r * columns; }

  Matrix Part(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const {
    Matrix part(r1 - r0, c1 - c0);
    for (int64_t r = r0; r < r1; ++r) std::copy(row(r) + c0, row(r) + c1, part.row(r - r0));
    return part;
  }
};

Tensor AsTensor(const Matrix& m) { return Tensor::Of<double>({m.rows, m.columns}, m.data); }

// With either transposed.
Matrix Product(const Matrix& a, const Matrix& b, bool turn_a, bool turn_b) {
  const Tensor y = nn::Product(AsTensor(a), AsTensor(b), turn_a, turn_b, ElementType::kF64);
  Matrix product(y.dim(0), y.dim(1));
  product.data.assign(y.data<double>().begin(), y.data<double>().end());
  return product;
}

// The upper R with R^T R = h; of h the upper half is read.
class Cholesky {
 public:
  explicit Cholesky(Matrix h) : r_(std::move(h)) {
    for (int64_t first = 0; first < r_.rows; first += kChunk) {
      const int64_t end = std::min(first + kChunk, r_.rows);
      Subtract(first, end);
      Factor(first, end);
    }
  }
  const Matrix& r() const { return r_; }

 private:
  // What the rows before have to do with these.
  void Subtract(int64_t first, int64_t end) {
    if (first == 0) return;
    const Matrix above = r_.Part(0, first, first, r_.columns);
    const Matrix sum = Product(above.Part(0, first, 0, end - first), above, true, false);
    for (int64_t i = first; i < end; ++i) {
      for (int64_t j = i; j < r_.columns; ++j) {
        r_.row(i)[j] -= sum.row(i - first)[j - first];
      }
    }
  }
  void Factor(int64_t first, int64_t end) {
    for (int64_t k = first; k < end; ++k) {
      double* pivot = r_.row(k);
      const double size = std::sqrt(std::max(pivot[k], 1e-300));
      for (int64_t j = k; j < r_.columns; ++j) pivot[j] /= size;
      ParallelFor(k + 1, end, 8, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
          for (int64_t j = i; j < r_.columns; ++j) r_.row(i)[j] -= pivot[i] * pivot[j];
        }
      });
    }
  }

  Matrix r_;
};

// The numbers of a block: (q - zero) * scale for whole q from `least` to `most`.
struct Grid {
  float scale = 1;
  double zero = 0, least = 0, most = 0;

  double Nearest(double v) const {
    return std::clamp(std::nearbyint(v / scale) + zero, least, most);
  }
  double Of(double q) const { return static_cast<float>((q - zero) * scale); }
};

Grid GridOf(std::span<const double> weights, const WeightForm& form) {
  const auto [low, high] = std::ranges::minmax(weights);
  const double least = std::min(low, 0.0), most = std::max(high, 0.0);
  const auto levels = static_cast<double>(int64_t{1} << form.bits);
  const auto scaled = [](double range, double steps) {
    return range == 0 ? 1.0F : static_cast<float>(std::max(range / steps, kLeastScale));
  };
  if (form.symmetric) {
    const double end = levels / 2 - 1;
    return {scaled(std::max(-least, most), end), 0, -end, end};
  }
  const float scale = scaled(most - least, levels - 1);
  return {scale, std::clamp(std::nearbyint(-least / scale), 0.0, levels - 1), 0, levels - 1};
}

// Rows of weights, and what becomes of them.
struct Slab {
  Matrix exact, integers, rounded;
  std::vector<Grid> grids;  // of each block of each row
};

class Quantizer {
 public:
  Quantizer(const Tensor& weights, const WeightForm& form, WeightRounding rounding,
            const Tensor* gram)
      : form_(form), depth_(weights.dim(0)), columns_(weights.dim(1)) {
    weights_ = weights.data<float>().data();
    if (gram != nullptr) SetGram(*gram, rounding == WeightRounding::kCalibrated);
    bytes_.resize(static_cast<size_t>(depth_ * columns_));
    scales_.resize(static_cast<size_t>(blocks() * columns_));
    zeros_.resize(scales_.size());
  }

  BlockedWeights Run() {
    for (int64_t first = 0; first < columns_; first += kSlabRows) {
      Slab slab = SlabAt(first, std::min(first + kSlabRows, columns_));
      RoundToNearest(slab);
      Measure(slab, nearest_);
      if (r_) RoundByPlanes(slab);
      if (r_) Measure(slab, error_);
      Keep(slab, first);
    }
    return Result();
  }

 private:
  struct Error {
    double difference = 0, size = 0;
    double Relative() const { return size > 0 ? std::sqrt(difference / size) : 0; }
  };

  int64_t blocks() const { return CeilDiv(depth_, form_.block); }

  void SetGram(const Tensor& gram, bool round) {
    gram_.emplace(depth_, depth_);
    std::ranges::copy(gram.data<double>(), gram_->data.begin());
    double trace = 0;
    for (int64_t k = 0; k < depth_; ++k) trace += gram_->row(k)[k];
    if (!round || !(trace > 0)) return;
    Matrix damped = *gram_;
    for (int64_t k = 0; k < depth_; ++k) {
      damped.row(k)[k] += kDamping * trace / static_cast<double>(depth_);
    }
    r_.emplace(std::move(damped));
  }

  Slab SlabAt(int64_t first, int64_t end) const {
    Slab slab{{end - first, depth_}, {end - first, depth_}, {end - first, depth_}, {}};
    for (int64_t k = 0; k < depth_; ++k) {
      for (int64_t n = first; n < end; ++n) {
        slab.exact.row(n - first)[k] = static_cast<double>(weights_[k * columns_ + n]);
      }
    }
    for (int64_t n = 0; n < end - first; ++n) {
      for (int64_t i = 0; i < blocks(); ++i) {
        const int64_t begin = i * form_.block;
        const auto size = static_cast<size_t>(std::min(form_.block, depth_ - begin));
        slab.grids.push_back(GridOf({slab.exact.row(n) + begin, size}, form_));
      }
    }
    return slab;
  }

  const Grid& GridAt(const Slab& slab, int64_t n, int64_t k) const {
    return slab.grids[static_cast<size_t>(n * blocks() + k / form_.block)];
  }
  void Set(Slab& slab, int64_t n, int64_t k, double value) const {
    const Grid& grid = GridAt(slab, n, k);
    slab.integers.row(n)[k] = grid.Nearest(value);
    slab.rounded.row(n)[k] = grid.Of(slab.integers.row(n)[k]);
  }

  void RoundToNearest(Slab& slab) const {
    for (int64_t n = 0; n < slab.exact.rows; ++n) {
      for (int64_t k = 0; k < depth_; ++k) Set(slab, n, k, slab.exact.row(n)[k]);
    }
  }

  // From the last plane to the first: a weight is rounded where the others have left its row of R.
  void RoundByPlanes(Slab& slab) const {
    for (int64_t end = depth_; end > 0;) {
      const int64_t first = (end - 1) / kChunk * kChunk;
      Matrix moved(slab.exact.rows, end - first);  // by what lies behind the chunk
      if (end < depth_) {
        Matrix lost(slab.exact.rows, depth_ - end);
        for (int64_t n = 0; n < lost.rows; ++n) {
          for (int64_t k = end; k < depth_; ++k) {
            lost.row(n)[k - end] = slab.exact.row(n)[k] - slab.rounded.row(n)[k];
          }
        }
        moved = Product(lost, r_->r().Part(first, end, end, depth_), false, true);
      }
      ParallelFor(0, slab.exact.rows, 8, [&](int64_t from, int64_t to) {
        for (int64_t n = from; n < to; ++n) RoundChunk(slab, n, first, end, moved.row(n));
      });
      end = first;
    }
  }

  void RoundChunk(Slab& slab, int64_t n, int64_t first, int64_t end, const double* moved) const {
    const double* exact = slab.exact.row(n);
    const double* rounded = slab.rounded.row(n);
    for (int64_t k = end; k-- > first;) {
      const double* r = r_->r().row(k);
      double sum = moved[k - first];
      for (int64_t j = k + 1; j < end; ++j) sum += r[j] * (exact[j] - rounded[j]);
      Set(slab, n, k, exact[k] + sum / r[k]);
    }
  }

  // Of the products if it is known what is multiplied, else of the weights.
  void Measure(const Slab& slab, Error& error) const {
    Matrix lost = slab.exact;
    for (size_t i = 0; i < lost.data.size(); ++i) lost.data[i] -= slab.rounded.data[i];
    error.difference += SquaredSize(lost);
    error.size += SquaredSize(slab.exact);
  }
  double SquaredSize(const Matrix& m) const {
    double sum = 0;
    const auto add = [&](const Matrix& other) {
      for (size_t i = 0; i < m.data.size(); ++i) sum += m.data[i] * other.data[i];
    };
    gram_ ? add(Product(m, *gram_, false, false)) : add(m);
    return std::max(sum, 0.0);
  }

  void Keep(const Slab& slab, int64_t first) {
    for (int64_t n = 0; n < slab.exact.rows; ++n) {
      for (int64_t k = 0; k < depth_; ++k) {
        bytes_[static_cast<size_t>(k * columns_ + first + n)] =
            static_cast<int16_t>(slab.integers.row(n)[k]);
      }
      for (int64_t i = 0; i < blocks(); ++i) {
        const Grid& grid = slab.grids[static_cast<size_t>(n * blocks() + i)];
        const auto at = static_cast<size_t>(i * columns_ + first + n);
        scales_[at] = grid.scale;
        zeros_[at] = static_cast<int16_t>(grid.zero);
      }
    }
  }

  BlockedWeights Result() const {
    const ElementType type = form_.symmetric
                                 ? (form_.bits == 4 ? ElementType::kI4 : ElementType::kI8)
                                 : (form_.bits == 4 ? ElementType::kU4 : ElementType::kU8);
    const auto as_integers = [&](const Shape& shape, const std::vector<int16_t>& values) {
      return Cast(Tensor::Of<int16_t>(shape, values), type);
    };
    BlockedWeights w;
    w.integers = as_integers({depth_, columns_}, bytes_);
    w.scales = Tensor::Of<float>({blocks(), columns_}, scales_);
    if (!form_.symmetric) w.zeros = as_integers({blocks(), columns_}, zeros_);
    w.nearest_error = nearest_.Relative();
    w.error = r_ ? error_.Relative() : w.nearest_error;
    return w;
  }

  WeightForm form_;
  int64_t depth_, columns_;
  const float* weights_ = nullptr;
  std::optional<Matrix> gram_;
  std::optional<Cholesky> r_;  // none: rounding to the nearest
  std::vector<int16_t> bytes_, zeros_;
  std::vector<float> scales_;
  Error nearest_, error_;
};

}  // namespace

void WeightForm::Check() const {
  if (bits != 4 && bits != 8) {
    throw lathe::Error(ErrorCode::kInvalidArgument, "quantize/bits",
                       StrCat("weights of ", bits, " bits"))
        .Hint("there are 4 and 8");
  }
  const bool is_power = block > 0 && (block & (block - 1)) == 0;
  if (is_power && block >= 16) return;
  throw lathe::Error(ErrorCode::kInvalidArgument, "quantize/block",
                     StrCat("blocks of ", block, " weights"))
      .Hint("a block has 16, 32, 64 or another power of two");
}

BlockedWeights QuantizeByBlocks(const Tensor& weights, const WeightForm& form,
                                WeightRounding rounding, const Tensor* gram) {
  form.Check();
  return Quantizer(weights, form, rounding, gram).Run();
}

}  // namespace lathe
