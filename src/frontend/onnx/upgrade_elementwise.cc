// Operators that work element by element, and those that lost an attribute without further change.

#include <array>
#include <numeric>

#include "src/frontend/onnx/upgrade.h"

namespace lathe::onnx {

namespace {

void DropConsumedInputs(UpgradeContext& c) { c.Erase("consumed_inputs"); }

/// `count` axes from `first` on.
std::vector<int64_t> AxesFrom(int64_t first, int64_t count) {
  std::vector<int64_t> axes(static_cast<size_t>(count));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

// Appends `count` dims of extent 1 to input `i`.
void AppendDims(UpgradeContext& c, size_t i, int64_t count) {
  const std::vector<int64_t> axes = AxesFrom(c.NeedRank(i), count);
  c.SetInput(i, c.Emit(MakeNode("Unsqueeze", {c.node.inputs[i], c.IntsConstant(axes)})));
}

// Before opset 7 the second operand stood at `axis` of the first; numpy aligns the last axes.
void LegacyBroadcast(UpgradeContext& c) {
  c.Erase("consumed_inputs");
  const auto axis = c.IntAttr("axis");
  const bool broadcast = c.IntAttr("broadcast").value_or(0) != 0;
  c.Erase("axis");
  c.Erase("broadcast");
  if (!broadcast || !axis) return;
  const int64_t rank = c.NeedRank(0);
  const int64_t first = *axis < 0 ? *axis + rank : *axis;
  const int64_t most = rank - c.NeedRank(1);
  if (first < 0 || first > most) {
    c.Refuse(StrCat("axis ", *axis, " does not fit the ranks of the operands"));
  }
  if (first < most) AppendDims(c, 1, most - first);
}

// The slope of PRelu was one number, or one per channel (axis 1).
void PReluSlope(UpgradeContext& c) {
  const auto rank = c.InputRank(0);
  if (rank && *rank > 2 && c.InputRank(1) == 1) AppendDims(c, 1, *rank - 2);
}

void ClipBounds(UpgradeContext& c) {
  const auto low = c.FloatAttr("min");
  const auto high = c.FloatAttr("max");
  c.Erase("min");
  c.Erase("max");
  if (low) c.SetInput(1, c.ScalarLike(0, *low));
  if (high) c.SetInput(2, c.ScalarLike(0, *high));
}

void CastTypeName(UpgradeContext& c) {
  static constexpr std::array<std::string_view, 17> kNames = {
      "UNDEFINED", "FLOAT",  "UINT8",     "INT8",       "UINT16",  "INT16",
      "INT32",     "INT64",  "STRING",    "BOOL",       "FLOAT16", "DOUBLE",
      "UINT32",    "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16"};
  const auto name = c.StringAttr("to");
  if (!name) return;
  for (size_t i = 1; i < kNames.size(); ++i) {
    if (*name == kNames[i]) return c.SetInt("to", static_cast<int64_t>(i));
  }
  c.Refuse(StrCat("type '", *name, "' is not known"));
}

void SeluDefaults(UpgradeContext& c) {
  c.Erase("consumed_inputs");
  for (const auto& [name, value] : {std::pair("alpha", 1.6732F), std::pair("gamma", 1.0507F)}) {
    if (c.node.Find(name) != nullptr) continue;
    AttributeMsg a;
    a.name = name;
    a.type = AttrType::kFloat;
    a.f = value;
    c.node.attributes.push_back(a);
  }
}

// Softmax and its kin saw their input as a matrix, cut at `axis` (default 1).
void FlattenAtAxis(UpgradeContext& c) {
  const int64_t axis = c.IntAttr("axis").value_or(1);
  c.SetInt("axis", -1);
  const auto rank = c.InputRank(0);
  if (rank && (axis == -1 || axis == *rank - 1)) return;
  const Text x = c.node.inputs.at(0);
  const Text shape = c.Emit(MakeNode("Shape", {x}));
  NodeMsg flatten = MakeNode("Flatten", {x});
  flatten.attributes.push_back(MakeInt("axis", axis));
  c.SetInput(0, c.Emit(std::move(flatten)));
  NodeMsg reshape = MakeNode("Reshape", {c.FreshName("flat"), shape});
  reshape.attributes.push_back(MakeInt("allowzero", 1));  // an extent of `x` may be 0
  reshape.outputs = {c.node.outputs.at(0)};
  c.node.outputs[0] = reshape.inputs[0];
  c.EmitAfter(std::move(reshape));
}

void PoolNormExponent(UpgradeContext& c) {
  if (const auto p = c.FloatAttr("p")) c.SetInt("p", static_cast<int64_t>(*p));
}

constexpr UpgradeRule kRules[] = {
    {"Abs", 6, DropConsumedInputs},
    {"Ceil", 6, DropConsumedInputs},
    {"Clip", 6, DropConsumedInputs},
    {"Elu", 6, DropConsumedInputs},
    {"Exp", 6, DropConsumedInputs},
    {"Floor", 6, DropConsumedInputs},
    {"HardSigmoid", 6, DropConsumedInputs},
    {"InstanceNormalization", 6, DropConsumedInputs},
    {"LeakyRelu", 6, DropConsumedInputs},
    {"Log", 6, DropConsumedInputs},
    {"Max", 6, DropConsumedInputs},
    {"Mean", 6, DropConsumedInputs},
    {"Min", 6, DropConsumedInputs},
    {"Neg", 6, DropConsumedInputs},
    {"PRelu", 6, DropConsumedInputs},
    {"Reciprocal", 6, DropConsumedInputs},
    {"Relu", 6, DropConsumedInputs},
    {"Sigmoid", 6, DropConsumedInputs},
    {"Sqrt", 6, DropConsumedInputs},
    {"Sum", 6, DropConsumedInputs},
    {"Tanh", 6, DropConsumedInputs},
    {"Selu", 6, SeluDefaults},
    {"Add", 7, LegacyBroadcast},
    {"Sub", 7, LegacyBroadcast},
    {"Mul", 7, LegacyBroadcast},
    {"Div", 7, LegacyBroadcast},
    {"Pow", 7, LegacyBroadcast},
    {"And", 7, LegacyBroadcast},
    {"Or", 7, LegacyBroadcast},
    {"Xor", 7, LegacyBroadcast},
    {"Equal", 7, LegacyBroadcast},
    {"Greater", 7, LegacyBroadcast},
    {"Less", 7, LegacyBroadcast},
    {"PRelu", 7, PReluSlope},
    {"Clip", 11, ClipBounds},
    {"Cast", 6, CastTypeName},
    {"Softmax", 13, FlattenAtAxis},
    {"LogSoftmax", 13, FlattenAtAxis},
    {"Hardmax", 13, FlattenAtAxis},
    {"GlobalLpPool", 2, PoolNormExponent},
    {"LpPool", 2, PoolNormExponent},
};

}  // namespace

std::span<const UpgradeRule> ElementwiseUpgrades() { return kRules; }

}  // namespace lathe::onnx
