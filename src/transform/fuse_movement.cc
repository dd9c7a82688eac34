#include <algorithm>
#include <array>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/slices.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule
using Ints = std::vector<int64_t>;

std::optional<int64_t> AxisOf(const Operation* op, Value ranked) {
  const auto axis = op->attribute("axis").dyn_cast<IntAttribute>();
  return axis ? AxisFromFront(axis.value(), ranked) : std::nullopt;
}

// ---- blocks of space and channels ----

/// One way in which a reshape, a transpose and a reshape move blocks.
struct Blocks {
  const char* rule;
  const char* op;
  const char* mode;
  Ints perm;
  std::array<size_t, 2> block;  ///< dims of the middle shape that are the block size
  std::array<std::array<size_t, 2>, 6> parents;  ///< {dim of x, dim of y} that each belongs to
};

/// Channels [N, C, H, W] as [N, b, b, C', H, W] (DCR), [N, C', b, b, H, W] (CRD), and back.
const std::vector<Blocks>& AllBlocks() {
  static const std::vector<Blocks> all{{"depth-to-space-dcr",
                                        nn::kDepthToSpace,
                                        "DCR",
                                        {0, 3, 4, 1, 5, 2},
                                        {1, 2},
                                        {{{0, 0}, {1, 2}, {1, 3}, {1, 1}, {2, 2}, {3, 3}}}},
                                       {"depth-to-space-crd",
                                        nn::kDepthToSpace,
                                        "CRD",
                                        {0, 1, 4, 2, 5, 3},
                                        {2, 3},
                                        {{{0, 0}, {1, 1}, {1, 2}, {1, 3}, {2, 2}, {3, 3}}}},
                                       {"space-to-depth-dcr",
                                        nn::kSpaceToDepth,
                                        "DCR",
                                        {0, 3, 5, 1, 2, 4},
                                        {3, 5},
                                        {{{0, 0}, {1, 1}, {2, 2}, {2, 1}, {3, 3}, {3, 1}}}},
                                       {"space-to-depth-crd",
                                        nn::kSpaceToDepth,
                                        "CRD",
                                        {0, 1, 3, 5, 2, 4},
                                        {3, 5},
                                        {{{0, 0}, {1, 1}, {2, 2}, {2, 1}, {3, 3}, {3, 1}}}}};
  return all;
}

/// Each dim of `value` is the product of the middle dims that belong to it.
bool IsMadeOf(Value value, Value middle, const Blocks& blocks, size_t side) {
  std::vector<Dim> dims(4, Dim(1));
  for (size_t i = 0; i < 6; ++i) dims[blocks.parents[i][side]] *= DimsOf(middle)[i];
  return std::equal(dims.begin(), dims.end(), DimsOf(value).begin(), ProvablyEqual);
}

bool MovesBlocks(const RuleMatch& m, const Blocks& blocks) {
  const Value y = m.root()->result(0), middle = m["middle"];
  if (RankOf(m["x"]) != 4 || RankOf(y) != 4 || RankOf(middle) != 6) return false;
  const Dim b = DimsOf(middle)[blocks.block[0]];
  return b.is_constant() && b.value() > 0 && b == DimsOf(middle)[blocks.block[1]] &&
         IsMadeOf(m["x"], middle, blocks, 0) && IsMadeOf(y, middle, blocks, 1);
}

Rule BlockRule(const Blocks& blocks) {
  const Pat middle =
      Call(nn::kReshape, {Var("x"), Var("first")}).AnyAttributes().As("middle").Shared();
  const Pat moved = Call(nn::kTranspose, {middle}).With("perm", blocks.perm);
  return Rule(blocks.rule)
      .Match(Call(nn::kReshape, {moved, Var("last")}).AnyAttributes())
      .Where([&blocks](const RuleMatch& m) { return MovesBlocks(m, blocks); },
             "square blocks go between space and channels")
      .Replace(Call(blocks.op, {Var("x")})
                   .With("mode", blocks.mode)
                   .Set("blocksize", [&blocks](const RuleMatch& m) -> Attribute {
                     return IntAttribute::Get(m.context(),
                                              DimsOf(m["middle"])[blocks.block[0]].value());
                   }));
}

// ---- every second pixel, in four pieces, joined over the channels ----

/// Offsets {row, column} of the pieces x[:, :, row::b, column::b].
struct Pixels {
  Value x;
  int64_t b = 0;
  std::vector<std::array<int64_t, 2>> offsets;
};

std::optional<Pixels> PixelsOf(const RuleMatch& m) {
  Pixels pixels;
  for (const Value piece : m.values("piece")) {
    const auto outer = AsSlice(m.program(), piece);
    const auto inner = outer ? AsSlice(m.program(), outer->whole) : std::nullopt;
    if (!inner || RankOf(inner->whole) != 4 || outer->axis == inner->axis || outer->axis < 2 ||
        inner->axis < 2 || outer->step != inner->step || outer->step < 2) {
      return std::nullopt;
    }
    const SliceOf &rows = outer->axis == 2 ? *outer : *inner,
                  &columns = outer->axis == 2 ? *inner : *outer;
    const int64_t b = rows.step;
    if (pixels.b == 0) pixels = {inner->whole, b, {}};
    const auto all = [&](const SliceOf& s) {
      return s.begin < b && DimsOf(pixels.x)[static_cast<size_t>(s.axis)].IsConstant(s.count * b);
    };
    if (inner->whole != pixels.x || b != pixels.b || !all(rows) || !all(columns)) {
      return std::nullopt;
    }
    pixels.offsets.push_back({rows.begin, columns.begin});
  }
  return pixels;
}

/// Position of each piece among all of them, row by row; nothing if one is missing or twice there.
std::optional<Ints> OrderOf(const Pixels& pixels) {
  Ints order;
  for (const auto& [row, column] : pixels.offsets) order.push_back(row * pixels.b + column);
  Ints sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) return std::nullopt;
  }
  return std::ssize(order) == pixels.b * pixels.b ? std::optional(order) : std::nullopt;
}

bool AllPixels(const RuleMatch& m) {
  const std::optional<Pixels> pixels = PixelsOf(m);
  return pixels && AxisOf(m.root(), m.root()->result(0)) == 1 && OrderOf(*pixels) &&
         DimsOf(pixels->x)[1].is_constant();
}

Value MakeSpaceToDepth(const RuleMatch& m, Rewriter& rewriter) {
  const Pixels pixels = *PixelsOf(m);
  const Ints order = *OrderOf(pixels);
  const NamedAttribute size = rewriter.Named("blocksize", rewriter.Attr(pixels.b));
  const Value y = rewriter.Create(nn::kSpaceToDepth, {&pixels.x, 1}, {&size, 1})->result(0);
  if (std::is_sorted(order.begin(), order.end())) return y;
  Ints channels;
  const int64_t count = DimsOf(pixels.x)[1].value();
  for (const int64_t block : order) {
    for (int64_t c = 0; c < count; ++c) channels.push_back(block * count + c);
  }
  const NamedAttribute axis = rewriter.Named("axis", rewriter.Attr(int64_t{1}));
  const Value operands[] = {
      y, rewriter.Constant(Tensor::Of<int64_t>({std::ssize(channels)}, channels))};
  return rewriter.Create(nn::kGather, operands, {&axis, 1})->result(0);
}

// ---- pieces of one value joined again ----

bool AllTheSame(const RuleMatch& m) {
  const std::vector<Value> parts = m.values("part");
  const Value y = m.root()->result(0);
  return parts.size() > 1 && RankOf(y) && AxisOf(m.root(), y) &&
         std::all_of(parts.begin(), parts.end(), [&](Value v) { return v == parts[0]; });
}

Value MakeTile(const RuleMatch& m, Rewriter& rewriter) {
  const Value y = m.root()->result(0);
  Ints repeats(static_cast<size_t>(*RankOf(y)), 1);
  repeats[static_cast<size_t>(*AxisOf(m.root(), y))] = std::ssize(m.values("part"));
  const Value operands[] = {m.values("part")[0],
                            rewriter.Constant(Tensor::Of<int64_t>({std::ssize(repeats)}, repeats))};
  return rewriter.Create(nn::kTile, operands)->result(0);
}

/// Slices of extent 1 along one axis, all of them in order, without that axis and joined along
/// another: that axis goes in front of the other one, and both become one.
struct Restacked {
  Value x;
  int64_t from, to;  ///< axis of x; axis of the result
};

std::optional<Restacked> RestackedOf(const RuleMatch& m) {
  std::optional<SliceOf> first;
  int64_t next = 0;
  for (const Value part : m.values("slice")) {
    const std::optional<SliceOf> slice = AsSlice(m.program(), part);
    if (!slice || slice->count != 1 || slice->begin != next++) return std::nullopt;
    if (!first) first = slice;
    if (slice->whole != first->whole || slice->axis != first->axis) return std::nullopt;
  }
  if (!first || !DimsOf(first->whole)[static_cast<size_t>(first->axis)].IsConstant(next)) return {};
  for (const Value axes : m.values("axes")) {
    const Tensor* constant = ConstantValue(m.program(), axes);
    if (constant == nullptr || constant->num_elements() != 1 ||
        AxisFromFront(ToInt64s(*constant)[0], first->whole) != first->axis) {
      return std::nullopt;
    }
  }
  const std::optional<int64_t> to = AxisOf(m.root(), m.root()->result(0));
  return to ? std::optional(Restacked{first->whole, first->axis, *to}) : std::nullopt;
}

bool IsStaticBut(Value value, size_t unknown) {
  const auto dims = DimsOf(value);
  return static_cast<size_t>(std::count_if(dims.begin(), dims.end(), [](const Dim& d) {
           return !d.is_constant() || d.value() < 1;
         })) <= unknown;
}

Value MakeRestacked(const RuleMatch& m, Rewriter& rewriter) {
  const Restacked r = *RestackedOf(m);
  const Value y = m.root()->result(0);
  Ints perm, shape;
  for (int64_t i = 0; i < *RankOf(r.x); ++i) {
    if (i != r.from) perm.push_back(i);
  }
  perm.insert(perm.begin() + r.to, r.from);
  for (const Dim& d : DimsOf(y)) shape.push_back(d.is_constant() ? d.value() : -1);
  const NamedAttribute order = rewriter.Named("perm", rewriter.Attr(perm));
  const Value operands[] = {rewriter.Create(nn::kTranspose, {&r.x, 1}, {&order, 1})->result(0),
                            rewriter.Constant(Tensor::Of<int64_t>({std::ssize(shape)}, shape))};
  return rewriter.Create(nn::kReshape, operands)->result(0);
}

}  // namespace

class FuseMovementPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    for (const Blocks& blocks : AllBlocks()) rules.push_back(BlockRule(blocks));
    rules.push_back(Rule("pixels-to-depth")
                        .Match(Call(nn::kConcat, {Rest(Var("piece"), 4)}).AnyAttributes())
                        .Where(AllPixels, "the pieces are all pixels of each block of one image")
                        .Replace(Rule::Maker(MakeSpaceToDepth)));
    rules.push_back(Rule("concat-of-copies")
                        .Match(Call(nn::kConcat, {Rest(Var("part"), 2)}).AnyAttributes())
                        .Where(AllTheSame, "all parts are the same value")
                        .Replace(Rule::Maker(MakeTile))
                        .Quiet());
    rules.push_back(
        Rule("restacked")
            .Match(Call(nn::kConcat, {Rest(Call(nn::kSqueeze, {Var("slice"), Var("axes")}), 2)})
                       .AnyAttributes())
            .Where([](const RuleMatch& m) { return RestackedOf(m).has_value(); },
                   "the parts are all slices of one value, in order")
            .Where([](const RuleMatch& m) { return IsStaticBut(m.root()->result(0), 1); },
                   "all extents of the result but one are known")
            .Replace(Rule::Maker(MakeRestacked)));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_movement, FuseMovementPass)
    .Doc("recognizes depth to space and back, tiles and transposes written as other movements")
    .Details(
        "Depth to space and space to depth as reshape, transpose, reshape, in both orders, or as "
        "slices of every n-th pixel joined over the channels; copies joined are a tile; slices of "
        "one value joined along another axis a transpose.");

}  // namespace lathe
