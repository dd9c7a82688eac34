// Operators that reduce, slice, pad and rearrange: most turned an attribute into an input.

#include "src/frontend/onnx/upgrade.h"

namespace lathe::onnx {

namespace {

// Attribute `name`, a list of integers, becomes input `i`.
void IntsToInput(UpgradeContext& c, Text name, size_t i) {
  const auto values = c.IntsAttr(name);
  c.Erase(name);
  if (values) c.SetInput(i, c.IntsConstant(*values));
}

void AxesToInput(UpgradeContext& c) { IntsToInput(c, "axes", 1); }

void ReduceAxesToInput(UpgradeContext& c) {
  if (const auto axes = c.IntsAttr("axes"); axes && axes->empty()) c.Erase("axes");
  AxesToInput(c);
}

void ReshapeShape(UpgradeContext& c) {
  c.Erase("consumed_inputs");
  IntsToInput(c, "shape", 1);
}

// The first version also took the sizes as an input.
void SplitSizes(UpgradeContext& c) {
  if (!c.HasInput(1)) IntsToInput(c, "split", 1);
}

void SplitCount(UpgradeContext& c) {
  if (!c.HasInput(1)) c.SetInt("num_outputs", static_cast<int64_t>(c.node.outputs.size()));
}

// The operator passes over `keepdims` where there is a split. What exporters of PyTorch write for
// `unbind` is a split of 1 without the axis, and onnxruntime runs it so.
void UnbindSplit(UpgradeContext& c) {
  const Tensor* split = c.HasInput(1) ? c.Constant(1) : nullptr;
  const bool is_one = split != nullptr && split->rank() == 0 && ToInt64s(*split)[0] == 1;
  if (is_one && c.IntAttr("keepdims") == 0) c.node.inputs.resize(1);
}

// The signal has a last axis of its parts; real ones come without it, and onnxruntime runs them.
void SignalParts(UpgradeContext& c) {
  if (c.InputRank(0) != 2) return;
  c.node.inputs[0] =
      c.Emit(MakeNode("Unsqueeze", {c.node.inputs[0], c.IntsConstant(std::vector<int64_t>{2})}));
}

void SliceRanges(UpgradeContext& c) {
  if (!c.IntsAttr("starts") || !c.IntsAttr("ends")) c.Refuse("starts or ends are missing");
  IntsToInput(c, "starts", 1);
  IntsToInput(c, "ends", 2);
  IntsToInput(c, "axes", 3);
}

void PadName(UpgradeContext& c) {
  const auto pads = c.IntsAttr("paddings");
  c.Erase("paddings");
  if (pads) c.SetInts("pads", *pads);
}

void PadInputs(UpgradeContext& c) {
  IntsToInput(c, "pads", 1);
  const double value = c.FloatAttr("value").value_or(0);
  c.Erase("value");
  if (value != 0) c.SetInput(2, c.ScalarLike(0, value));
}

void TopKCount(UpgradeContext& c) {
  const auto k = c.IntAttr("k");
  if (!k) c.Refuse("k is missing");
  c.Erase("k");
  const int64_t count[] = {*k};
  c.SetInput(1, c.IntsConstant(count));
}

void ConcatAxis(UpgradeContext& c) {
  if (!c.IntAttr("axis")) c.SetInt("axis", 1);
}

void ScatterName(UpgradeContext& c) { c.node.op_type = "ScatterElements"; }

// The first version repeated one axis.
void TileRepeats(UpgradeContext& c) {
  const Tensor* tiles = c.Constant(1);
  const Tensor* axis = c.Constant(2);
  if (tiles == nullptr || axis == nullptr) c.Refuse("tiles or axis is not a constant");
  std::vector<int64_t> repeats(static_cast<size_t>(c.NeedRank(0)), 1);
  const std::vector<int64_t> at = ToInt64s(*axis);
  const std::vector<int64_t> count = ToInt64s(*tiles);
  const auto rank = static_cast<int64_t>(repeats.size());
  if (at.size() != 1 || count.size() != 1 || at[0] < 0 || at[0] >= rank) {
    c.Refuse("tiles and axis must be single numbers within the rank");
  }
  repeats[static_cast<size_t>(at[0])] = count[0];
  c.node.inputs = {c.node.inputs[0], c.IntsConstant(repeats)};
}

void DftAxis(UpgradeContext& c) {
  const int64_t axis = c.IntAttr("axis").value_or(1);
  c.Erase("axis");
  c.SetInput(2, c.AddConstant(Tensor::Scalar<int64_t>(axis)));
}

constexpr UpgradeRule kRules[] = {
    {"Squeeze", 13, AxesToInput},
    {"Unsqueeze", 13, AxesToInput},
    {"ReduceSum", 13, ReduceAxesToInput},
    {"ReduceL1", 18, ReduceAxesToInput},
    {"ReduceL2", 18, ReduceAxesToInput},
    {"ReduceLogSum", 18, ReduceAxesToInput},
    {"ReduceLogSumExp", 18, ReduceAxesToInput},
    {"ReduceMax", 18, ReduceAxesToInput},
    {"ReduceMean", 18, ReduceAxesToInput},
    {"ReduceMin", 18, ReduceAxesToInput},
    {"ReduceProd", 18, ReduceAxesToInput},
    {"ReduceSumSquare", 18, ReduceAxesToInput},
    {"Reshape", 5, ReshapeShape},
    {"Split", 13, SplitSizes},
    {"Split", 18, SplitCount},
    {"SplitToSequence", 24, UnbindSplit},
    {"STFT", kEveryOpset, SignalParts},
    {"Slice", 10, SliceRanges},
    {"Pad", 2, PadName},
    {"Pad", 11, PadInputs},
    {"TopK", 10, TopKCount},
    {"Concat", 4, ConcatAxis},
    {"Scatter", 11, ScatterName},
    {"Tile", 6, TileRepeats},
    {"DFT", 20, DftAxis},
};

}  // namespace

std::span<const UpgradeRule> ShapeUpgrades() { return kRules; }

}  // namespace lathe::onnx
