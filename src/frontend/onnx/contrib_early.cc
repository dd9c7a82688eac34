// Operators that were experiments of the standard until its opset 10 and never became more, but
// that converters wrote (CoreML's, for one) and onnxruntime computes.

#include <limits>
#include <utility>
#include <vector>

#include "src/frontend/onnx/contrib.h"

namespace lathe::onnx {

namespace {

float FloatOr(const UpgradeContext& c, Text name, double otherwise) {
  return static_cast<float>(c.FloatAttr(name).value_or(otherwise));
}

float NeedFloat(UpgradeContext& c, Text name) {
  const auto value = c.FloatAttr(name);
  if (!value) c.Refuse(StrCat("attribute '", name, "' is missing"));
  return static_cast<float>(*value);
}

// alpha * x + beta.
void Affine(UpgradeContext& c) {
  Nodes make(c);
  const Text scaled = make("Mul", {c.node.inputs[0], make.Scalar(0, FloatOr(c, "alpha", 1))});
  c.Give(0, make("Add", {scaled, make.Scalar(0, FloatOr(c, "beta", 0))}));
}

// alpha * ln(1 + exp(beta * x)).
void ParametricSoftplus(UpgradeContext& c) {
  Nodes make(c);
  const Text x = make("Mul", {c.node.inputs[0], make.Scalar(0, NeedFloat(c, "beta"))});
  c.Give(0, make("Mul", {make("Softplus", {x}), make.Scalar(0, NeedFloat(c, "alpha"))}));
}

// alpha * tanh(beta * x).
void ScaledTanh(UpgradeContext& c) {
  Nodes make(c);
  const Text x = make("Mul", {c.node.inputs[0], make.Scalar(0, NeedFloat(c, "beta"))});
  c.Give(0, make("Mul", {make("Tanh", {x}), make.Scalar(0, NeedFloat(c, "alpha"))}));
}

// x[n, c] * scale + bias[c].
void ImageScaler(UpgradeContext& c) {
  Nodes make(c);
  const AttributeMsg* bias = c.node.Find("bias");
  if (bias == nullptr || bias->floats.empty()) c.Refuse("attribute 'bias' is missing");
  if (c.NeedRank(0) != 4) c.Refuse("the input is not [N, C, H, W]");
  const auto channels = static_cast<int64_t>(bias->floats.size());
  const Tensor numbers = Tensor::Of<double>(
      {channels, 1, 1}, std::vector<double>(bias->floats.begin(), bias->floats.end()));
  const Text shift = c.AddConstant(Cast(numbers, c.InputElement(0)));
  const Text scaled = make("Mul", {c.node.inputs[0], make.Scalar(0, FloatOr(c, "scale", 1))});
  c.Give(0, make("Add", {scaled, shift}));
}

// What a border of left, top, right and bottom leaves; or so many rows and columns behind it.
void Crop(UpgradeContext& c) {
  const auto border = c.IntsAttr("border"), size = c.IntsAttr("scale");
  if (!border || border->size() != 4) c.Refuse("attribute 'border' is not four numbers");
  if (size && size->size() != 2) c.Refuse("attribute 'scale' is not a height and a width");
  if (c.NeedRank(0) != 4) c.Refuse("the input is not [N, C, H, W]");
  const int64_t left = (*border)[0], top = (*border)[1];
  const auto end = [](int64_t beyond) {
    return beyond == 0 ? std::numeric_limits<int64_t>::max() : -beyond;
  };
  std::vector<int64_t> ends{end((*border)[3]), end((*border)[2])};
  if (size) ends = {top + (*size)[0], left + (*size)[1]};
  Nodes make(c);
  c.Give(0, make("Slice", {c.node.inputs[0], make.Ints({top, left}), make.Ints(std::move(ends)),
                           make.Ints({2, 3})}));
}

constexpr ContribRule kEarly[] = {
    {"Affine", 1, 1, 1, Affine, "alpha beta"},
    {"Crop", 1, 1, 1, Crop, "border scale"},
    {"ImageScaler", 1, 1, 1, ImageScaler, "bias scale"},
    {"ParametricSoftplus", 1, 1, 1, ParametricSoftplus, "alpha beta"},
    {"ScaledTanh", 1, 1, 1, ScaledTanh, "alpha beta"},
};

}  // namespace

std::span<const ContribRule> ContribEarly() { return kEarly; }

}  // namespace lathe::onnx
