#include "src/lower/strategies/conv_job.h"

#include <algorithm>

#include "lathe/dialect/nn/conv.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/anchor.h"
#include "src/lower/compute/elements.h"

namespace lathe::lower {
namespace {

constexpr int64_t kParallelFlops = 1 << 19;
constexpr size_t kPadding = nn::ConvBytesOp::kPadding;
constexpr double kPieceCycles = 400;  // that each takes besides

}  // namespace

std::string ConvJob::AnchorRefusal(bool of_bytes) {
  const auto is_one = [&](const Operation& op) {
    return op.isa<nn::ConvOp>() || (of_bytes && op.isa<nn::ConvBytesOp>());
  };
  std::string why = FindAnchor(l.function, "convolution", is_one, anchor);
  if (!why.empty()) return why;
  for (size_t i = 1; i < anchor->num_operands(); ++i) {
    const Value v = anchor->operand(i);
    const bool is_number = v && i == kPadding && ConstantOf(v) != nullptr;
    if (v && !v.is_block_argument() && !is_number) {
      return "the weights are computed in the same function";
    }
  }
  return "";
}

// What is computed before is so where the input is read.
std::string ConvJob::InputRefusal() {
  const Value x = anchor->operand(0);
  if (x.is_block_argument()) return "";
  before.emplace(l.function, x, l.machine);
  if (std::string why = before->Refusal(); !why.empty()) {
    return StrCat("the input is computed in the same function, and ", why);
  }
  std::vector<std::vector<size_t>> axes{{0}, {1}};
  size_t next = 2;
  for (size_t a = 0; a < g.rank(); ++a) {
    if (a == 0 || !g.reads_own_element) axes.emplace_back();
    const int64_t dims = g.merged.empty() ? 1 : g.merged[a];
    for (int64_t i = 0; i < dims; ++i) axes.back().push_back(next++);
  }
  return before->SetGroups(std::move(axes)) ? "" : "the input's positions cannot be walked as one";
}

std::string ConvJob::Refusal(bool in_groups) {
  if (std::string why = AnchorRefusal(in_groups); !why.empty()) return why;
  if (std::string why = g.Parse(*anchor); !why.empty()) return why;
  if (merges_units) g.MergeUnits();
  if (in_groups && takes_pairs()) g.reads_own_element &= g.is_static();
  if (std::string why = InputRefusal(); !why.empty()) return why;
  after.emplace(l.function, anchor, l.machine);
  if (std::string why = after->Refusal(); !why.empty()) return why;
  const auto dims = anchor->result(0).type().cast<AnyTensorType>().dims();
  if (!std::ranges::equal(dims, after->dims())) return "the result is broadcast further";
  std::vector<std::vector<size_t>> axes{{0}, {1}, {}};
  for (size_t a = 2; a < dims.size(); ++a) axes.back().push_back(a);
  if (!after->SetGroups(std::move(axes))) return "the positions cannot be walked as one";
  lanes = l.machine.lanes(sum_element());
  const Dim work = g.batch * g.positions() * (g.depth() * g.filters * g.groups);
  parallel = !work.is_constant() || work.value() > kParallelFlops;
  return "";
}

int64_t BlockChannels(int64_t channels, int64_t most) {
  most = std::max<int64_t>(most, 1);
  if (most >= channels) return channels;
  for (int64_t c = most; c > most / 2; --c) {
    if (channels % c == 0) return c;
  }
  const int64_t blocks = CeilDiv(channels, most);
  return CeilDiv(channels, blocks);
}

Shape ConvJob::weight_shape() const {
  Shape shape;
  for (const Dim& dim : anchor->operand(1).type().cast<AnyTensorType>().dims()) {
    shape.push_back(dim.value());
  }
  return shape;
}

// A channel that has no other would need one of zeros. Where there are tiles, these are faster.
bool ConvJob::takes_pairs() const {
  return l.precision >= Precision::kBf16 && l.machine.has_bf16 && !l.machine.has_tiles &&
         g.element == ElementType::kF32 && g.channels % 2 == 0 && weights_are_constant();
}

double ConvJob::Cost(int64_t blocks, int64_t tiles, int64_t most_tiles, double piece_cycles,
                     double tile_cycles) const {
  double cost = 0;
  for (const int64_t threads : {1, 2, 4, 8}) {
    if (threads > 1 && !parallel) break;
    const int64_t parts = std::min(CeilDiv(threads, std::max<int64_t>(blocks, 1)), tiles);
    const int64_t each = std::min(CeilDiv(tiles, parts), most_tiles);
    cost += static_cast<double>(CeilDiv(blocks * CeilDiv(tiles, each), threads)) *
            (piece_cycles + static_cast<double>(each) * tile_cycles + kPieceCycles);
  }
  return cost;
}

Dim ConvJob::TilesOfPiece(const Dim& blocks, int64_t tiles, int64_t most) {
  constexpr int64_t kManyBlocks = 256;  // more than threads, by far
  if (!parallel || tiles == 1 || (blocks.is_constant() && blocks.value() >= kManyBlocks)) {
    return most;
  }
  const Dim parts = Min(CeilDiv(math->NumThreads(), Max(blocks, 1)), tiles);
  return math->Name(Min(CeilDiv(tiles, math->Name(parts)), most));
}

void ConvJob::Open() {
  lb.emplace(l.body);
  math.emplace(*lb);
  g.Bind(*lb, *math);
  panels.emplace(*lb, *math, g, lanes);
  after->Open(*lb, *l.body);
  if (before) {
    before->OpenArguments(*lb, *l.body);
    input = ConvInput(*lb, *before);
  } else {
    input = ConvInput(*lb, panels->View(Argument(0)));
  }
}

Value ConvJob::Argument(size_t i) const {
  const Value v = i < anchor->num_operands() ? anchor->operand(i) : Value();
  return v ? l.body->argument(v.index()) : Value();
}

Value ConvJob::Padding() {
  const Value v = anchor->operand(kPadding);
  if (const Tensor* number = ConstantOf(v)) return lb->Constant(*number);
  return lb->Load(Argument(kPadding), {});
}

Value ConvJob::Memory(int64_t rows, int64_t columns) {
  const SymShape shape({Dim(rows), Dim(columns)});
  return lb->Alloc(VTensorType::Get(lb->context(), shape, sum_element()));
}

Value ConvJob::Live(const Dim& first, const Dim& end) {
  if ((end - first).LowerBound().value_or(0) >= lanes) return {};
  return math->At(Max(Min(end - first, lanes), 0));
}

}  // namespace lathe::lower
