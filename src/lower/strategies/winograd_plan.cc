#include "src/lower/strategies/winograd_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lathe/support/divide.h"

namespace lathe::lower {
namespace {

constexpr int64_t kMostVectors = 8;             // of a block's tiles
constexpr int64_t kMostRows = 8;                // of a block, where extents are symbolic
constexpr int64_t kMostInputBytes = 640 << 10;  // of a block, transformed
constexpr int64_t kMostSumBytes = 256 << 10;    // where they wait for other channels
constexpr double kTransformed = 1.8;            // what transforms take, by the estimate; measured
// What other strategies take of the peak, of f32 and of pairs of bf16.
constexpr double kDirect = 1.05, kDirectOfPairs = 0.58;

double Real(int64_t v) { return static_cast<double>(v); }

// Of a symbolic plane, by which blocks are chosen: planes of many channels have few positions.
int64_t UsualSide(const ConvGeometry& g) {
  return std::clamp<int64_t>(56 * 128 / g.channels, 28, 56);
}

class Planner {
 public:
  explicit Planner(const ConvJob& job) : job_(job), g_(job.g) {
    for (size_t a = 0; a < 2; ++a) {
      out_[a] = g_.is_static() ? g_.out[a].value() : UsualSide(g_);
    }
  }

  std::optional<WinogradPlan> Best(int64_t outputs);
  double DirectCost() const;
  double WeightsCost(const WinogradPlan& plan) const;
  double DirectShare() const { return job_.takes_pairs() ? kDirectOfPairs : kDirect; }
  // Of what positions that fill a vector take directly, a part of `kDirectCost`.
  double Unit() const {
    return Real(g_.filters) * Real(g_.depth()) * DirectShare() / WinogradPlan::kDirectCost;
  }

 private:
  std::vector<WinogradForm> Forms() const;
  void Consider(const WinogradForm& form);
  void ConsiderAnySize(const WinogradForm& form);
  void ConsiderBlock(WinogradPlan plan);
  double Cost(const WinogradPlan& plan) const;
  double Multiplied(const WinogradPlan& plan, int64_t vectors) const;
  double Transformed(const WinogradPlan& plan, double row_vectors) const;
  double TransformedBack(const WinogradPlan& plan, double row_vectors) const;
  int64_t FilterTiles(const WinogradPlan& plan) const {
    return CeilDiv(g_.filters, plan.tile.rows);
  }
  Tile RegisterTileFor(int64_t vectors) const;
  void SetCosts(WinogradPlan& plan) const;
  int64_t images() const { return g_.batch.is_constant() ? g_.batch.value() : 1; }

  const ConvJob& job_;
  const ConvGeometry& g_;
  std::array<int64_t, 2> out_;
  std::optional<WinogradPlan> best_;
};

// Tiles of 4x4 have twice the error of `strict` or less from 64 channels on (docs/precision.md).
std::vector<WinogradForm> Planner::Forms() const {
  constexpr int64_t kManyChannels = 64;
  std::vector<WinogradForm> forms;
  forms.emplace_back(std::vector<double>{0, 1, -1});
  if (job_.l.precision >= Precision::kHigh || g_.channels >= kManyChannels) {
    forms.emplace_back(std::vector<double>{0, 0.625, -0.625, 1.5, -1.5});
  }
  return forms;
}

std::optional<WinogradPlan> Planner::Best(int64_t outputs) {
  for (const WinogradForm& form : Forms()) {
    if (outputs != 0 && outputs != form.outputs()) continue;
    g_.is_static() ? Consider(form) : ConsiderAnySize(form);
  }
  if (best_ && !g_.is_static()) SetCosts(*best_);
  return best_;
}

// Blocks of equal parts of the rows and columns of tiles.
void Planner::Consider(const WinogradForm& form) {
  const int64_t high = CeilDiv(out_[0], form.outputs()), wide = CeilDiv(out_[1], form.outputs());
  const int64_t most = kMostVectors * job_.lanes;
  int64_t last_columns = 0;
  for (int64_t parts = 1; parts <= wide; ++parts) {
    const int64_t columns = CeilDiv(wide, parts);
    if (columns > most || columns == last_columns) continue;
    if (columns < job_.lanes && parts > 1) break;
    last_columns = columns;
    for (int64_t rows = 1; rows <= high && (rows == 1 || rows * columns <= most); ++rows) {
      if (rows != CeilDiv(high, CeilDiv(high, rows))) continue;
      WinogradPlan plan{form, rows, columns, rows * columns};
      plan.lanes = job_.lanes;
      while (plan.lanes > 4 && plan.lanes / 2 >= columns) plan.lanes /= 2;
      plan.tile = RegisterTileFor(CeilDiv(plan.tiles, job_.lanes));
      const int64_t width = plan.tile.vectors * job_.lanes;
      const int64_t written = (rows - 1) * columns + RoundUp(columns, plan.lanes);
      plan.pitch = std::max(RoundUp(plan.tiles, width), RoundUp(written, job_.lanes));
      ConsiderBlock(std::move(plan));
    }
  }
}

// Blocks of at most so many tiles, whose rows and columns are chosen when the program runs.
void Planner::ConsiderAnySize(const WinogradForm& form) {
  const int64_t high = CeilDiv(out_[0], form.outputs()), wide = CeilDiv(out_[1], form.outputs());
  for (int64_t vectors = 1; vectors <= kMostVectors; vectors *= 2) {
    const int64_t tiles = vectors * job_.lanes;
    WinogradPlan plan{form, 1, CeilDiv(wide, CeilDiv(wide, tiles)), tiles};
    plan.rows = std::min({tiles / plan.columns, high, kMostRows});
    plan.lanes = job_.lanes;
    plan.tile = RegisterTileFor(std::min<int64_t>(vectors, 2));
    plan.pitch = tiles;
    ConsiderBlock(std::move(plan));
  }
}

void Planner::ConsiderBlock(WinogradPlan plan) {
  const int64_t row_bytes = 4 * plan.form.products() * plan.pitch;  // of a channel, or of a filter
  const int64_t fitting = kMostInputBytes / row_bytes;
  constexpr int64_t kSumChannels = WinogradPlan::kSumChannels;
  plan.channels = g_.channels;
  if (fitting < g_.channels) plan.channels = fitting / kSumChannels * kSumChannels;
  if (plan.channels == 0) return;
  const int64_t tiles = CeilDiv(g_.filters, plan.tile.rows);
  const int64_t tile_bytes = row_bytes * plan.tile.rows;
  const bool in_one = plan.channels == g_.channels;
  const int64_t most_tiles = in_one ? tiles : std::min(tiles, kMostSumBytes / tile_bytes);
  if (most_tiles == 0 || tile_bytes > kMostSumBytes) return;
  plan.part_tiles = CeilDiv(tiles, CeilDiv(tiles, most_tiles));
  plan.cost = Cost(plan);
  if (!best_ || plan.cost < best_->cost) best_ = std::move(plan);
}

// As wide as divides the vectors best, since the other dimension has many.
Tile Planner::RegisterTileFor(int64_t vectors) const {
  const int64_t registers = job_.SumRegisters();
  Tile best{1, 1};
  double least = 1e300;
  for (int64_t v = 1; v <= std::min<int64_t>(vectors, 4); ++v) {
    const int64_t rows = std::min((registers - v - 1) / v, g_.filters);
    if (rows < 1) break;
    // Loads of a step, of which there are two a cycle; sums; what is multiplied in vain.
    const double step = std::max(Real(rows * v), Real(rows + v) * 0.6 + 1);
    const double steps = Real(CeilDiv(vectors, v)) * Real(CeilDiv(g_.filters, rows));
    if (step * steps < least * 0.999) least = step * steps, best = {rows, v};
  }
  return best;
}

// In multiply-adds of vectors, as in ConvJob::Cost.
double Planner::Cost(const WinogradPlan& plan) const {
  const int64_t vectors = CeilDiv(plan.rows * plan.columns, job_.lanes);
  const int64_t wide = RoundUp(vectors, plan.tile.vectors);
  const double row_vectors = Real(plan.rows * CeilDiv(plan.columns, plan.lanes));
  const double width = plan.lanes == job_.lanes ? 1 : 0.7;
  const int64_t blocks = CeilDiv(CeilDiv(out_[0], plan.form.outputs()), plan.rows) *
                         CeilDiv(CeilDiv(out_[1], plan.form.outputs()), plan.columns);
  return job_.Cost(images() * blocks, FilterTiles(plan), plan.part_tiles,
                   Transformed(plan, row_vectors * width),
                   Multiplied(plan, wide) + TransformedBack(plan, row_vectors * width));
}

// So many vectors of tiles with the weights of a tile of filters.
double Planner::Multiplied(const WinogradPlan& plan, int64_t vectors) const {
  const WinogradForm& form = plan.form;
  const int64_t filters = plan.tile.rows;
  const double products = Real(form.products() * filters * vectors);
  const double sums =
      form.outputs() > 2 ? Real(CeilDiv(g_.channels, WinogradPlan::kSumChannels)) * 3 : 2;
  const double multiplied = products * (Real(g_.channels) + sums);
  // Transformed weights come from the third cache, or from memory.
  const double bytes = Real(4 * form.products() * g_.channels * g_.filters);
  const double per_cycle = bytes > Real(16 << 20) ? 3 : 12;
  if (bytes <= Real(512 << 10)) return multiplied;
  return std::max(multiplied, Real(4 * form.products() * g_.channels * filters) / per_cycle);
}

// All channels of so many vectors of neighboring tiles of a row.
double Planner::Transformed(const WinogradPlan& plan, double row_vectors) const {
  const WinogradForm& form = plan.form;
  const double outputs = Real(form.outputs() * form.outputs());
  const double channel = Real(form.input_cost()) +
                         Real(form.products()) * (2 + Real(form.outputs())) +
                         outputs * (job_.before ? 6 : 2);
  return kTransformed * row_vectors * Real(g_.channels) * channel;
}

// So many of a tile of filters.
double Planner::TransformedBack(const WinogradPlan& plan, double row_vectors) const {
  const WinogradForm& form = plan.form;
  const double outputs = Real(form.outputs() * form.outputs());
  const double filter = Real(form.output_cost()) + Real(form.products()) + 5 * outputs + 20;
  return kTransformed * row_vectors * Real(plan.tile.rows) * filter;
}

// The same of the strategies that multiply directly, which are near the peak.
double Planner::DirectCost() const {
  const int64_t positions = out_[0] * out_[1];
  const int64_t lanes_filled = std::min(CeilDiv(positions, job_.lanes) * g_.filters,
                                        CeilDiv(g_.filters, job_.lanes) * positions);
  const double all = Real(images() * lanes_filled) * Real(g_.depth()) * DirectShare();
  constexpr int64_t kPieceWork = 20000, kPieces = 8;  // that all numbers of threads share
  const auto pieces = std::clamp(static_cast<int64_t>(all) / kPieceWork, int64_t{1}, kPieces);
  return job_.Cost(pieces, all / Real(pieces));
}

// Transforming all weights, a vector of filters at a time: loads that are apart, and stores.
double Planner::WeightsCost(const WinogradPlan& plan) const {
  constexpr int64_t kTaps = 9, kLoad = 20;
  const int64_t rows = plan.tile.rows;
  const int64_t vectors = CeilDiv(g_.filters, rows) * CeilDiv(rows, job_.lanes) * g_.channels;
  const int64_t stores = 2 * (plan.form.products() + kTaps);
  return Real(vectors) * Real(plan.form.weights_cost() + kTaps * kLoad + stores);
}

// Weights that come from memory are read once for each block.
void Planner::SetCosts(WinogradPlan& plan) const {
  const double tiles = Real(FilterTiles(plan));
  const double parts = Real(CeilDiv(FilterTiles(plan), plan.part_tiles));
  const double transformed = Transformed(plan, 1) * parts + TransformedBack(plan, 1) * tiles;
  plan.tile_cost = static_cast<int64_t>(std::ceil(Multiplied(plan, 1) * tiles / Unit()));
  plan.transform_cost = static_cast<int64_t>(std::ceil(transformed / Unit()));
  plan.columns = plan.tiles;
  plan.rows = std::min(plan.tiles, kMostRows);
}

}  // namespace

std::optional<WinogradPlan> PlanWinograd(const ConvJob& job, int64_t outputs) {
  return Planner(job).Best(outputs);
}

bool WinsOverDirect(const ConvJob& job, const WinogradPlan& plan) {
  return plan.cost < Planner(job).DirectCost();
}

namespace {

// What an image takes by tiles, and directly, in parts of Planner::Unit().
std::pair<Dim, Dim> ImageCosts(const ConvJob& job, const WinogradPlan& plan) {
  const Dim direct = CeilDiv(job.g.positions(), job.lanes) * WinogradPlan::kDirectCost;
  if (job.g.is_static()) {
    const double share = plan.cost / Planner(job).DirectCost();
    return {static_cast<int64_t>(Real(direct.value()) * share) + 1, direct};
  }
  const Dim high = CeilDiv(job.g.out[0], plan.form.outputs());
  const Dim wide = CeilDiv(job.g.out[1], plan.form.outputs());
  const Dim tiles = CeilDiv(high * wide, job.lanes) * plan.tile_cost +
                    high * CeilDiv(wide, job.lanes) * plan.transform_cost;
  return {tiles, direct};
}

}  // namespace

Condition TilesTakeLess(const ConvJob& job, const WinogradPlan& plan) {
  const auto [tiles, direct] = ImageCosts(job, plan);
  if (job.weights_are_constant()) return Condition::AtMost(tiles, direct);
  const Planner planner(job);
  const auto weights = static_cast<int64_t>(planner.WeightsCost(plan) / planner.Unit()) + 1;
  return Condition::AtMost(tiles * job.g.batch + weights, direct * job.g.batch);
}

}  // namespace lathe::lower
