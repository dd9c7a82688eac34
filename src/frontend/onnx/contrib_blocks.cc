// Operators of com.microsoft whose weights are small integers, scaled by blocks.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lathe/support/divide.h"
#include "src/frontend/onnx/contrib.h"
#include "src/frontend/onnx/op_table.h"

namespace lathe::onnx {

namespace {

constexpr auto kI64 = static_cast<int64_t>(ElementType::kI64);

// ---- MatMulNBits ----

// An accuracy_level: the others are met by f32.
constexpr int64_t kRoundedTo8Bits = 4;

struct BlockWise {
  int64_t rows, depth, bits, block;
  int64_t blocks() const { return CeilDiv(depth, block); }
  int64_t bytes_of(int64_t count) const { return CeilDiv(count * bits, int64_t{8}); }
};

BlockWise BlocksOf(UpgradeContext& c) {
  const BlockWise w{c.IntAttr("N").value_or(0), c.IntAttr("K").value_or(0),
                    c.IntAttr("bits").value_or(4), c.IntAttr("block_size").value_or(0)};
  if (w.bits != 2 && w.bits != 4 && w.bits != 8) c.Refuse(StrCat("weights of ", w.bits, " bits"));
  for (const int64_t n : {w.rows, w.depth, w.block}) {
    if (n <= 0 || n > kMostSize) c.Refuse("'N', 'K' and 'block_size' must be positive");
  }
  if (w.block * w.bits % 8 != 0) c.Refuse("a block ends within a byte");
  return w;
}

// Of that shape, whichever way it lies in the file; nothing of an input that is absent.
Text Shaped(UpgradeContext& c, size_t i, std::vector<int64_t> shape) {
  if (!c.HasInput(i)) return {};
  if (c.InputRank(i) == std::ssize(shape)) return c.node.inputs[i];
  Nodes make(c);
  return make("Reshape", {c.node.inputs[i], make.Ints(std::move(shape))});
}

// The weights and zero points of a product, [N, blocks, bytes] and [N, bytes or blocks].
struct Weights {
  BlockWise form;
  Text bytes, scales, zeros;
};

bool HasPackedZeros(UpgradeContext& c) {
  return c.HasInput(3) && c.InputElement(3) == ElementType::kU8;
}

Weights WeightsOf(UpgradeContext& c) {
  const BlockWise w = BlocksOf(c);
  const int64_t across = HasPackedZeros(c) ? w.bytes_of(w.blocks()) : w.blocks();
  return {w, Shaped(c, 1, {w.rows, w.blocks(), w.bytes_of(w.block)}),
          Shaped(c, 2, {w.rows, w.blocks()}), Shaped(c, 3, {w.rows, across})};
}

// Bytes of two bits, whose last axis has `count` of them, as bytes of four.
Text Widened(UpgradeContext& c, Text bytes, int64_t rank, int64_t count) {
  const Text pairs = UnpackedBits(c, bytes, rank, CeilDiv(count, int64_t{4}) * 2, 4);
  Nodes make(c);
  const auto byte = [&](uint8_t value) { return c.AddConstant(Tensor::Scalar(value)); };
  const Text high = make("BitShift", {pairs, byte(2)}, {MakeString("direction", "LEFT")});
  const Text both = make("BitwiseAnd", {make("BitwiseOr", {pairs, high}), byte(0x33)});
  const int64_t wanted = CeilDiv(count, int64_t{2});
  if (wanted % 2 == 0) return both;
  return make("Slice", {both, make.Ints({0}), make.Ints({wanted}), make.Ints({-1})});
}

// Of two bits as of four: a quarter of those is used.
void WidenTwoBits(UpgradeContext& c, Weights& w) {
  if (w.form.bits != 2) return;
  const int64_t blocks = w.form.blocks();
  w.bytes = Widened(c, w.bytes, 3, w.form.block);
  if (HasPackedZeros(c)) {
    w.zeros = Widened(c, w.zeros, 2, blocks);
  } else if (w.zeros.empty()) {
    Nodes make(c);
    constexpr uint8_t kMiddles = 0x22;
    w.zeros = make("Expand", {c.AddConstant(Tensor::Scalar(kMiddles)),
                              make.Ints({w.form.rows, CeilDiv(blocks, int64_t{2})})});
  }
  w.form.bits = 4;
}

// Column k is scaled by block g_idx[k], wherever it lies. Such weights lie in memory as numbers.
Text GroupedProduct(UpgradeContext& c, const Weights& w) {
  Nodes make(c);
  const BlockWise& f = w.form;
  const AttributeMsg as_scales = MakeInt("to", static_cast<int64_t>(c.InputElement(2)));
  const auto numbers = [&](Text x, int64_t rank, int64_t columns) {
    return make("Cast", {UnpackedBits(c, x, rank, columns, f.bits)}, {as_scales});
  };
  const auto grouped = [&](Text x) {
    return make("Gather", {x, c.node.inputs[4]}, {MakeInt("axis", 1)});
  };
  Text q = make("Reshape", {numbers(w.bytes, 3, f.block), make.Ints({f.rows, -1})});
  q = make("Slice", {q, make.Ints({0}), make.Ints({f.depth}), make.Ints({1})});
  Text zeros = make.Scalar(2, static_cast<double>(int64_t{1} << (f.bits - 1)));
  if (c.HasInput(3)) {
    zeros = grouped(HasPackedZeros(c) ? numbers(w.zeros, 2, f.blocks()) : w.zeros);
  }
  const Text weights = make("Mul", {make("Sub", {q, zeros}), grouped(w.scales)});
  return make("MatMul", {c.node.inputs[0], make("Transpose", {weights})});
}

Text BlockProduct(UpgradeContext& c, const Weights& w) {
  NodeMsg node = MakeNode("MatMulNBits", {c.node.inputs[0], w.bytes, w.scales});
  node.domain = "com.microsoft";
  node.is_current = true;
  if (!w.zeros.empty()) node.inputs.push_back(w.zeros);
  node.attributes = Pass(c, {"K", "N", "block_size"});
  node.attributes.push_back(MakeInt("bits", w.form.bits));
  if (const auto level = c.IntAttr("accuracy_level"); level == kRoundedTo8Bits) {
    node.attributes.push_back(MakeInt("accuracy_level", *level));
  }
  return c.Emit(std::move(node));
}

// The same with matrices where there may be lists, and what is added left to an addition.
void MatMulNBits(UpgradeContext& c) {
  if (c.IntAttr("weight_prepacked").value_or(0) != 0) c.Refuse("weights in the order of a device");
  Weights w = WeightsOf(c);
  if (c.HasInput(4)) {
    c.Give(0, Nodes(c).Sum({GroupedProduct(c, w), InputOr(c, 5)}));
    return;
  }
  WidenTwoBits(c, w);
  c.Give(0, Nodes(c).Sum({BlockProduct(c, w), InputOr(c, 5)}));
}

// ---- MatMulBnb4 ----

constexpr std::array<double, 16> kFloat4 = {
    0,   5.208333333e-03,  0.66666667,  1,  0.33333333,  0.5,  0.16666667,  0.25,
    -0., -5.208333333e-03, -0.66666667, -1, -0.33333333, -0.5, -0.16666667, -0.25};
constexpr std::array<double, 16> kNormalFloat4 = {-1,
                                                  -0.6961928009986877,
                                                  -0.5250730514526367,
                                                  -0.39491748809814453,
                                                  -0.28444138169288635,
                                                  -0.18477343022823334,
                                                  -0.09105003625154495,
                                                  0,
                                                  0.07958029955625534,
                                                  0.16093020141124725,
                                                  0.24611230194568634,
                                                  0.33791524171829224,
                                                  0.44070982933044434,
                                                  0.5626170039176941,
                                                  0.7229568362236023,
                                                  1};

// Blocks run through all weights in order, whatever their rows; the first of two lies in high bits.
void MatMulBnb4(UpgradeContext& c) {
  const int64_t n = c.IntAttr("N").value_or(0), k = c.IntAttr("K").value_or(0);
  const int64_t block = c.IntAttr("block_size").value_or(0);
  for (const int64_t size : {n, k, block}) {
    if (size <= 0 || size > kMostSize) c.Refuse("'N', 'K' and 'block_size' must be positive");
  }
  Nodes make(c);
  const auto& table = c.IntAttr("quant_type").value_or(0) == 0 ? kFloat4 : kNormalFloat4;
  const Text values = c.AddConstant(Cast(Tensor::Of<double>({16}, table), c.InputElement(2)));
  const int64_t bytes = CeilDiv(n * k, int64_t{2}), blocks = CeilDiv(n * k, block);
  const Text pairs =
      make("Reshape", {UnpackedBits(c, c.node.inputs[1], 1, 2 * bytes, 4), make.Ints({bytes, 2})});
  const Text in_order = make("Gather", {pairs, make.Ints({1, 0})}, {MakeInt("axis", 1)});
  const Text codes = make("Cast", {make("Reshape", {in_order, make.Ints({-1})})},
                          {MakeInt("to", static_cast<int64_t>(ElementType::kI32))});
  Text numbers = make("Gather", {values, codes});
  if (blocks * block > 2 * bytes) {
    numbers = make("Pad", {numbers, make.Ints({0, blocks * block - 2 * bytes})});
  }
  const Text rows = make("Reshape", {numbers, make.Ints({-1, block})});
  const Text scales = make("Reshape", {c.node.inputs[2], make.Ints({blocks, 1})});
  Text all = make("Reshape", {make("Mul", {rows, scales}), make.Ints({-1})});
  all = make("Slice", {all, make.Ints({0}), make.Ints({n * k}), make.Ints({0})});
  Text weights = make("Reshape", {all, make.Ints({n, k})});
  if (c.IntAttr("transB").value_or(1) != 0) weights = make("Transpose", {weights});
  c.Give(0, make("MatMul", {c.node.inputs[0], weights}));
}

// ---- GatherBlockQuantized ----

class BlockGather {
 public:
  explicit BlockGather(UpgradeContext& c)
      : c_(c),
        make_(c),
        rank_(c.NeedRank(0)),
        picked_(c.NeedRank(1)),
        along_(Axis("gather_axis", 0)),
        blocks_(Axis("quantize_axis", 1)),
        bits_(IsPacked() ? c.IntAttr("bits").value_or(4) : 8) {
    if (IsPacked() && bits_ != 2 && bits_ != 4 && bits_ != 8) {
      c.Refuse(StrCat("numbers of ", bits_, " bits"));
    }
    if (along_ == blocks_ || (along_ == rank_ - 1 && bits_ != 8)) {
      c.Refuse("'gather_axis' is the one along which numbers are packed or scaled");
    }
  }

  void Write() {
    FindIndices();
    const Text numbers = Rows(0, LastSize(c_, 0) * 8 / bits_);
    const Text scales = make_("Where", {InRange(), Picked(c_.node.inputs[2]), make_.Scalar(2, 0)});
    std::vector<Text> inputs = {numbers, scales};
    if (const Text zeros = Zeros(scales); !zeros.empty()) inputs.push_back(zeros);
    c_.Give(0, make_("DequantizeLinear", std::move(inputs),
                     {MakeInt("axis", blocks_ > along_ ? blocks_ + picked_ - 1 : blocks_),
                      MakeInt("block_size", c_.IntAttr("block_size").value_or(128))}));
  }

 private:
  // Numbers of other types lie there as they are.
  bool IsPacked() { return c_.InputElement(0) == ElementType::kU8; }

  int64_t Axis(Text name, int64_t otherwise) {
    const int64_t axis = c_.IntAttr(name).value_or(otherwise);
    if (axis < -rank_ || axis >= rank_) c_.Refuse(StrCat("'", name, "' is not an axis"));
    return axis < 0 ? axis + rank_ : axis;
  }

  // An index beyond the end gives zeros: the first row is read, its scale is none.
  void FindIndices() {
    const Text given = make_("Cast", {c_.node.inputs[1]}, {MakeInt("to", kI64)});
    const Text size = make_.Size(c_.node.inputs[0], along_);
    in_range_ = make_("And", {make_("GreaterOrEqual", {given, make_("Neg", {size})}),
                              make_("Less", {given, size})});
    indices_ = make_("Where", {in_range_, given, make_.Int(0)});
    if (picked_ == 0) {  // sizes are lists of one
      in_range_ = make_("Reshape", {in_range_, make_.Ints({})});
      indices_ = make_("Reshape", {indices_, make_.Ints({})});
    }
  }

  // As wide as what is picked.
  Text InRange() {
    std::vector<int64_t> axes;
    for (int64_t a = picked_; a < picked_ + rank_ - 1 - along_; ++a) axes.push_back(a);
    return axes.empty() ? in_range_ : make_("Unsqueeze", {in_range_, make_.Ints(std::move(axes))});
  }

  Text Picked(Text from) { return make_("Gather", {from, indices_}, {MakeInt("axis", along_)}); }

  Text Rows(size_t input, int64_t columns) {
    const Text numbers = c_.node.inputs[input];
    // Rows of four bits are picked as bytes.
    const ElementType type = c_.InputElement(input);
    const bool is_half_byte = type == ElementType::kU4 || type == ElementType::kI4;
    const auto wide = type == ElementType::kI4 ? ElementType::kI8 : ElementType::kU8;
    const Text bytes = is_half_byte
                           ? make_("Cast", {numbers}, {MakeInt("to", static_cast<int64_t>(wide))})
                           : numbers;
    return UnpackedBits(c_, Picked(bytes), rank_ - 1 + picked_, columns, bits_);
  }

  Text Zeros(Text scales) {
    if (c_.HasInput(3)) return Rows(3, LastSize(c_, 2));
    if (!IsPacked()) return {};
    const auto middle = static_cast<uint8_t>(1 << (bits_ - 1));
    return make_("Expand", {c_.AddConstant(Tensor::Scalar(middle)), make_("Shape", {scales})});
  }

  UpgradeContext& c_;
  Nodes make_;
  int64_t rank_, picked_;  // of the numbers and of the indices
  int64_t along_, blocks_, bits_;
  Text indices_, in_range_;
};

void GatherBlockQuantized(UpgradeContext& c) { BlockGather(c).Write(); }

constexpr ContribRule kBlocks[] = {
    {"GatherBlockQuantized", 3, 4, 1, GatherBlockQuantized,
     "bits block_size gather_axis quantize_axis"},
    {"MatMulBnb4", 3, 3, 1, MatMulBnb4, "K N block_size quant_type training_mode transB"},
    {"MatMulNBits", 3, 6, 1, MatMulNBits, "K N accuracy_level bits block_size weight_prepacked"},
};

}  // namespace

Text UnpackedBits(UpgradeContext& c, Text bytes, int64_t rank, int64_t columns, int64_t bits) {
  if (bits == 8) return bytes;
  Nodes make(c);
  const auto byte = [&](int64_t value) {
    return c.AddConstant(Tensor::Scalar<uint8_t>(static_cast<uint8_t>(value)));
  };
  std::vector<Text> parts;
  for (int64_t at = 0; at < 8; at += bits) {
    const Text moved =
        at == 0 ? bytes : make("BitShift", {bytes, byte(at)}, {MakeString("direction", "RIGHT")});
    const Text part = at + bits == 8 ? moved : make("BitwiseAnd", {moved, byte((1 << bits) - 1)});
    parts.push_back(make("Unsqueeze", {part, make.Ints({-1})}));
  }
  const Text apart = make("Concat", std::move(parts), {MakeInt("axis", -1)});
  std::vector<int64_t> shape(static_cast<size_t>(rank), 0);
  const int64_t stored = CeilDiv(columns * bits, int64_t{8}) * 8 / bits;
  shape.back() = stored;
  const Text all = make("Reshape", {apart, make.Ints(std::move(shape))});
  if (stored == columns) return all;
  return make("Slice", {all, make.Ints({0}), make.Ints({columns}), make.Ints({-1})});
}

std::span<const ContribRule> ContribBlocks() { return kBlocks; }

}  // namespace lathe::onnx
