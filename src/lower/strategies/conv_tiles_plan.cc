#include "src/lower/strategies/conv_tiles_plan.h"

#include <algorithm>
#include <numeric>

#include "lathe/dialect/loop.h"
#include "lathe/support/divide.h"

namespace lathe::lower {
namespace {

constexpr int64_t kMostPositions = 1024;        // of a block
constexpr int64_t kMostBlockBytes = 512 << 10;  // on the stack of a thread
constexpr int64_t kMostPairs = 16;              // of a tile
// Cycles, about.
constexpr double kProduct = 20;           // of tiles
constexpr double kStaged = 6;             // a vector of pairs
constexpr double kFinished = 6;           // a vector of outputs
constexpr double kBytes = 16;             // of weights that come from the third cache
constexpr double kVectorsMultiplied = 2;  // of f32

double Real(int64_t v) { return static_cast<double>(v); }

class Planner {
 public:
  explicit Planner(const ConvJob& job) : job_(job), g_(job.g) {}

  std::optional<ConvTilesPlan> Best();
  double DirectCost() const;

 private:
  void SetAxes();
  void CutDepth();
  void ConsiderColumns(int64_t columns);
  void ConsiderBlock();
  double StageCost() const;
  double PartCost() const;
  int64_t images() const { return g_.batch.is_constant() ? g_.batch.value() : 1; }

  const ConvJob& job_;
  const ConvGeometry& g_;
  ConvTilesPlan plan_;
  std::optional<ConvTilesPlan> best_;
};

// Kernels of one spatial dim count as planes of one row.
void Planner::SetAxes() {
  for (size_t a = 0; a < g_.rank(); ++a) {
    plan_.axes[2 - g_.rank() + a] = {g_.in[a].value(), g_.out[a].value(), g_.kernel[a],
                                     g_.strides[a],    g_.dilations[a],   g_.begins[a].value()};
  }
}

// Of few channels a tile would be nearly empty: places of a row of the kernel fill it.
void Planner::CutDepth() {
  const int64_t even = RoundUp(g_.channels, 2), kernel = plan_.axes[1].kernel;
  plan_.channels = g_.channels;
  if (kernel > 1 && even * kernel <= 2 * kMostPairs) {
    plan_.unfolded = kernel;
    plan_.channels = even * kernel;
  }
  const int64_t pairs = CeilDiv(plan_.channels, 2);
  plan_.depth_tiles = CeilDiv(pairs, kMostPairs);
  plan_.depth_pairs = CeilDiv(pairs, plan_.depth_tiles);
  if (plan_.unfolded == 1) return;
  TileAxis& columns = plan_.axes[1];  // what a place is apart from the first is known per channel
  columns.kernel = 1;
}

std::optional<ConvTilesPlan> Planner::Best() {
  SetAxes();
  CutDepth();
  const int64_t wide = plan_.axes[1].out;
  int64_t last = 0;
  for (int64_t parts = 1; parts <= wide; ++parts) {
    int64_t columns = CeilDiv(wide, parts);
    if (parts > 1) columns = std::min(RoundUp(columns, 2 * loop::kTileRows), wide);
    if (columns == last) continue;
    last = columns;
    if (columns <= kMostPositions) ConsiderColumns(columns);
    if (columns <= 2 * loop::kTileRows) break;
  }
  return best_;
}

// Blocks of equal parts of the rows.
void Planner::ConsiderColumns(int64_t columns) {
  const int64_t high = plan_.axes[0].out;
  plan_.columns = columns;
  int64_t last = 0;
  for (int64_t parts = 1; parts <= high; ++parts) {
    plan_.rows = CeilDiv(high, parts);
    if (plan_.rows == last) continue;
    last = plan_.rows;
    const bool fits = plan_.positions() <= kMostPositions && plan_.block_bytes() <= kMostBlockBytes;
    if (fits) ConsiderBlock();
  }
}

void Planner::ConsiderBlock() {
  const int64_t tiles = CeilDiv(g_.filters, loop::kTileRows);
  const int64_t blocks =
      images() * CeilDiv(plan_.axes[0].out, plan_.rows) * CeilDiv(plan_.axes[1].out, plan_.columns);
  int64_t last = 0;
  for (int64_t parts = 1; parts <= tiles; ++parts) {
    plan_.part_tiles = CeilDiv(tiles, parts);
    if (plan_.part_tiles == last) continue;
    last = plan_.part_tiles;
    plan_.cost = job_.Cost(blocks * CeilDiv(tiles, plan_.part_tiles), StageCost() + PartCost());
    if (!best_ || plan_.cost < best_->cost) best_ = plan_;
  }
}

double Planner::StageCost() const {
  const int64_t vectors = CeilDiv(plan_.pitch(), job_.lanes) + 1;
  return Real(plan_.phases() * plan_.phase_rows() * plan_.pairs() * vectors) * kStaged;
}

double Planner::PartCost() const {
  const int64_t filters = plan_.part_tiles * loop::kTileRows;
  const int64_t depth = plan_.depth_tiles * plan_.taps();
  const double products =
      Real(plan_.part_tiles * CeilDiv(plan_.positions(), loop::kTileRows) * depth) * kProduct;
  const double weights = Real(filters * depth * plan_.depth_pairs * 4) / kBytes;
  const double finished =
      Real(filters * plan_.rows * CeilDiv(plan_.columns, job_.lanes)) * kFinished;
  return std::max(products, weights) + finished;
}

double Planner::DirectCost() const {
  const int64_t positions = g_.positions().value();
  const int64_t filled = std::min(CeilDiv(positions, job_.lanes) * g_.filters,
                                  CeilDiv(g_.filters, job_.lanes) * positions);
  const double all = Real(images() * filled) * Real(g_.depth()) / kVectorsMultiplied;
  constexpr int64_t kPieceWork = 20000, kPieces = 8;  // that all numbers of threads share
  const auto pieces = std::clamp(static_cast<int64_t>(all) / kPieceWork, int64_t{1}, kPieces);
  return job_.Cost(pieces, all / Real(pieces));
}

}  // namespace

int64_t TileAxis::step() const { return std::gcd(stride, dilation); }

// A vector may be written behind the last row, and two tiles be read. Pairs an odd number of cache
// lines apart lie in different sets of the cache.
int64_t ConvTilesPlan::pair_positions() const {
  constexpr int64_t kLine = loop::kTileRowBytes / 4;
  const int64_t read = RoundUp(positions(), 2 * loop::kTileRows) + axes[0].most_shift() * pitch() +
                       axes[1].most_shift();
  const int64_t last_phase = (phases() - 1) * phase_rows() * pitch();
  const int64_t all = std::max(last_phase + read, phases() * phase_rows() * pitch() + 2 * kLine);
  return (CeilDiv(all, kLine) | 1) * kLine;
}

std::optional<ConvTilesPlan> PlanConvTiles(const ConvJob& job) { return Planner(job).Best(); }

bool WinsOverFloats(const ConvJob& job, const ConvTilesPlan& plan) {
  return plan.cost < Planner(job).DirectCost();
}

}  // namespace lathe::lower
