// Layers: normalization, dropout, resampling, recurrence.

#include <algorithm>

#include "src/frontend/onnx/upgrade.h"

namespace lathe::onnx {

namespace {

// `is_test` told training from inference; since opset 7 a model without a training mode infers.
void BatchNormTest(UpgradeContext& c) {
  c.Erase("consumed_inputs");
  c.Erase("is_test");
}

void BatchNormSpatial(UpgradeContext& c) {
  if (c.IntAttr("spatial").value_or(1) == 0) {
    c.Refuse("spatial = 0 (statistics per position) is not supported");
  }
  c.Erase("spatial");
}

// The further outputs belonged to training; whoever reads one finds it undefined.
void BatchNormOutputs(UpgradeContext& c) { c.node.outputs.resize(1); }

void DropoutTest(UpgradeContext& c) {
  c.Erase("consumed_inputs");
  c.Erase("is_test");
}

// The mask had the type of the data.
void DropoutMask(UpgradeContext& c) {
  if (!c.HasOutput(1)) return;
  NodeMsg cast = MakeNode("Cast", {c.FreshName("mask")});
  cast.attributes.push_back(MakeInt("to", static_cast<int64_t>(c.InputElement(0))));
  cast.outputs = {c.node.outputs[1]};
  c.node.outputs[1] = cast.inputs[0];
  c.EmitAfter(std::move(cast));
}

void DropoutRatio(UpgradeContext& c) {
  const auto ratio = c.FloatAttr("ratio");
  c.Erase("ratio");
  if (ratio) c.SetInput(1, c.AddConstant(Tensor::Scalar<float>(static_cast<float>(*ratio))));
}

void GemmBroadcast(UpgradeContext& c) { c.Erase("broadcast"); }

// 0 is not a type: the default is taken, as in onnxruntime.
void LayerNormStash(UpgradeContext& c) {
  if (c.IntAttr("stash_type") == 0) c.Erase("stash_type");
}

void OutputSequence(UpgradeContext& c) { c.Erase("output_sequence"); }

void UpsampleScales(UpgradeContext& c) {
  const auto height = c.FloatAttr("height_scale");
  const auto width = c.FloatAttr("width_scale");
  if (!height || !width) c.Refuse("height_scale or width_scale is missing");
  c.Erase("height_scale");
  c.Erase("width_scale");
  AttributeMsg scales;
  scales.name = "scales";
  scales.type = AttrType::kFloats;
  scales.floats = {1, 1, *height, *width};
  c.node.attributes.push_back(std::move(scales));
}

void UpsampleScalesInput(UpgradeContext& c) {
  const AttributeMsg* scales = c.node.Find("scales");
  if (scales == nullptr || scales->type != AttrType::kFloats) c.Refuse("scales are missing");
  const std::vector<float> values(scales->floats.begin(), scales->floats.end());
  c.Erase("scales");
  const auto count = static_cast<int64_t>(values.size());
  c.SetInput(1, c.AddConstant(Tensor::Of<float>({count}, values)));
}

void UpsampleName(UpgradeContext& c) { c.node.op_type = "Resize"; }

NodeMsg NearestResize(Text data, Text scales) {
  NodeMsg resize = MakeNode("Resize", {data, Text(), scales});
  resize.attributes.push_back(MakeString("mode", "nearest"));
  resize.attributes.push_back(MakeString("coordinate_transformation_mode", "asymmetric"));
  resize.attributes.push_back(MakeString("nearest_mode", "floor"));
  return resize;
}

// Nearest was the element before where an axis grows, and the one behind where it shrinks. Axes are
// independent: those that grow beside others that shrink do so first.
Text NearestOfResize10(UpgradeContext& c) {
  const Tensor* constant = c.Constant(2);
  if (constant == nullptr) return "floor";
  std::vector<float> grow, shrink;
  for (const double scale : ToDoubles(*constant)) {
    grow.push_back(static_cast<float>(std::max(scale, 1.0)));
    shrink.push_back(static_cast<float>(std::min(scale, 1.0)));
  }
  const auto is_one = [](float scale) { return scale == 1; };
  if (std::ranges::all_of(shrink, is_one)) return "floor";
  if (std::ranges::all_of(grow, is_one)) return "ceil";
  const auto scales = [&](const std::vector<float>& values) {
    return c.AddConstant(Tensor::Of<float>({std::ssize(values)}, values));
  };
  c.node.inputs[0] = c.Emit(NearestResize(c.node.inputs[0], scales(grow)));
  c.node.inputs[2] = scales(shrink);
  return "ceil";
}

// Resize-10 scaled coordinates without an offset.
void ResizeInputs(UpgradeContext& c) {
  if (!c.HasInput(1)) c.Refuse("the scales are missing");
  const Text scales = c.node.inputs[1];
  c.node.inputs = {c.node.inputs[0], Text(), scales};
  const auto mode = c.StringAttr("mode");
  if (mode == "bilinear") c.SetString("mode", "linear");
  c.SetString("coordinate_transformation_mode", "asymmetric");
  const bool nearest = !mode || *mode == "nearest";
  c.SetString("nearest_mode", nearest ? NearestOfResize10(c) : Text("floor"));
}

// The nearest to (x + 1/2) / scale of Resize-11, which TensorFlow's converters wrote on: half a
// place before that is where the others count from.
void ResizeOfTensorFlow(UpgradeContext& c) {
  if (c.StringAttr("coordinate_transformation_mode") != "tf_half_pixel_for_nn") return;
  const Text nearest = c.StringAttr("nearest_mode").value_or("round_prefer_floor");
  const bool is_nearest = c.StringAttr("mode").value_or("nearest") == "nearest";
  if (!is_nearest || (nearest != "floor" && nearest != "round_prefer_floor")) {
    c.Refuse("tf_half_pixel_for_nn is for mode nearest, nearest_mode floor or round_prefer_floor");
  }
  c.SetString("coordinate_transformation_mode", "half_pixel");
  c.SetString("nearest_mode", nearest == "floor" ? "round_prefer_ceil" : "ceil");
}

// An input that Resize-11 does not use is an empty tensor. Later it is absent, but tf2onnx goes on.
void ResizeEmptyInputs(UpgradeContext& c) {
  for (size_t i = 1; i < c.node.inputs.size(); ++i) {
    const auto type = c.HasInput(i) ? c.InputType(i).dyn_cast<AnyTensorType>() : AnyTensorType();
    if (type && type.has_rank() && type.shape().NumElements().IsConstant(0)) {
      c.node.inputs[i] = Text();
    }
  }
}

void ResizeOfConverters(UpgradeContext& c) {
  ResizeEmptyInputs(c);
  ResizeOfTensorFlow(c);
}

// Scale and bias held one number per group; since opset 21 one per channel.
Text PerChannel(UpgradeContext& c, Text per_group, Text group_count, Text repeats) {
  const Text column =
      c.Emit(MakeNode("Unsqueeze", {per_group, c.IntsConstant(std::vector<int64_t>{1})}));
  NodeMsg concat = MakeNode("Concat", {group_count, repeats});
  concat.attributes.push_back(MakeInt("axis", 0));
  const Text shape = c.Emit(std::move(concat));
  const Text table = c.Emit(MakeNode("Expand", {column, shape}));
  return c.Emit(MakeNode("Reshape", {table, c.IntsConstant(std::vector<int64_t>{-1})}));
}

void GroupNormChannels(UpgradeContext& c) {
  const auto groups = c.IntAttr("num_groups");
  if (!groups || *groups <= 0) c.Refuse("num_groups is missing");
  NodeMsg shape = MakeNode("Shape", {c.node.inputs.at(0)});
  shape.attributes = {MakeInt("start", 1), MakeInt("end", 2)};
  const Text channels = c.Emit(std::move(shape));
  const Text count = c.IntsConstant(std::vector<int64_t>{*groups});
  const Text repeats = c.Emit(MakeNode("Div", {channels, count}));
  for (size_t i = 1; i < c.node.inputs.size(); ++i) {
    c.SetInput(i, PerChannel(c, c.node.inputs[i], count, repeats));
  }
}

void GridSampleModes(UpgradeContext& c) {
  if (c.StringAttr("mode") == "bilinear") c.SetString("mode", "linear");
  if (c.StringAttr("mode") == "bicubic") c.SetString("mode", "cubic");
}

void RoiAlignCoordinates(UpgradeContext& c) {
  c.SetString("coordinate_transformation_mode", "output_half_pixel");
}

AttributeMsg MakeGraph(Text name, GraphMsg graph) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kGraph;
  a.graphs.push_back(std::make_shared<GraphMsg>(std::move(graph)));
  return a;
}

ValueInfoMsg Untyped(Text name) {
  ValueInfoMsg info;
  info.name = name;
  return info;
}

// Scan-8 scanned each entry of a batch: a scan over the batch, whose body is today's scan.
void ScanBatched(UpgradeContext& c) {
  if (c.HasInput(0)) c.Refuse("lengths per entry of the batch are not supported");
  GraphMsg batch;
  batch.name = "batch";
  NodeMsg inner = c.node;
  inner.is_current = true;
  inner.inputs.erase(inner.inputs.begin());
  for (Text& input : inner.inputs) {
    input = c.FreshName("entry");
    batch.inputs.push_back(Untyped(input));
  }
  for (Text& output : inner.outputs) {
    output = c.FreshName("entry");
    batch.outputs.push_back(Untyped(output));
  }
  for (AttributeMsg& a : inner.attributes) {
    if (a.name == "directions") a.name = "scan_input_directions";
  }
  batch.nodes.push_back(std::move(inner));
  c.node.inputs.erase(c.node.inputs.begin());
  c.node.attributes = {MakeInt("num_scan_inputs", static_cast<int64_t>(c.node.inputs.size())),
                       MakeGraph("body", std::move(batch))};
}

// The axis was an attribute.
void DftAxis(UpgradeContext& c) {
  const int64_t axis[] = {c.IntAttr("axis").value_or(1)};
  c.Erase("axis");
  c.SetInput(2, c.AddConstant(Tensor::Of<int64_t>({}, axis)));
}

constexpr UpgradeRule kRules[] = {
    {"BatchNormalization", 7, BatchNormTest},
    {"BatchNormalization", 9, BatchNormSpatial},
    {"BatchNormalization", 14, BatchNormOutputs},
    {"Dropout", 7, DropoutTest},
    {"Dropout", 10, DropoutMask},
    {"Dropout", 12, DropoutRatio},
    {"Gemm", 7, GemmBroadcast},
    {"RNN", 7, OutputSequence},
    {"GRU", 7, OutputSequence},
    {"LSTM", 7, OutputSequence},
    {"Upsample", 7, UpsampleScales},
    {"Upsample", 9, UpsampleScalesInput},
    {"Upsample", 10, UpsampleName},
    {"Resize", 11, ResizeInputs},
    {"Resize", kEveryOpset, ResizeOfConverters},
    {"GroupNormalization", 21, GroupNormChannels},
    {"LayerNormalization", kEveryOpset, LayerNormStash},
    {"GridSample", 20, GridSampleModes},
    {"RoiAlign", 16, RoiAlignCoordinates},
    {"DFT", 20, DftAxis},
    {"Scan", 9, ScanBatched},
};

}  // namespace

std::span<const UpgradeRule> NetworkUpgrades() { return kRules; }

}  // namespace lathe::onnx
