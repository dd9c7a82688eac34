"""Writes a network of what such models hold, as ONNX, with calibration data and one input: filters of
several kinds, a clip, a residual addition, pools, a concatenation, products with and without bias."""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

folder = sys.argv[1]
rng = np.random.default_rng(3)
weights = {}


def weight(name, *shape):
    weights[name] = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    return name


def conv(x, y, filters, channels, size=3, **attributes):
    group = attributes.get("group", 1)
    names = [x, weight(f"{y}.w", filters, channels // group, size, size), weight(f"{y}.b", filters)]
    return helper.make_node("Conv", names, [y], name=y, pads=[size // 2] * 4, **attributes)


weights["zero"], weights["six"] = np.float32(0), np.float32(6)
nodes = [
    conv("x", "a", 32, 3, strides=[2, 2]),
    helper.make_node("Clip", ["a", "zero", "six"], ["a6"]),
    conv("a6", "depth", 32, 32, group=32),
    helper.make_node("Relu", ["depth"], ["depth+"]),
    conv("depth+", "project", 32, 32, size=1),
    helper.make_node("Add", ["project", "a6"], ["sum"]),
    helper.make_node("MaxPool", ["sum"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
    conv("pool", "left", 16, 32, size=1),
    conv("pool", "right", 16, 32, group=2),
    helper.make_node("Relu", ["right"], ["right+"]),
    helper.make_node("Concat", ["left", "right+"], ["both"], axis=1),
    conv("both", "top", 24, 32),
    helper.make_node("GlobalAveragePool", ["top"], ["mean"]),
    helper.make_node("Flatten", ["mean"], ["row"]),
    helper.make_node("Gemm", ["row", weight("fc.w", 10, 24), weight("fc.b", 10)], ["fc"], name="fc",
                     transB=1),
    helper.make_node("MatMul", ["fc", weight("mm.w", 10, 7)], ["mm"], name="mm"),
    helper.make_node("Add", ["mm", weight("mm.b", 7)], ["y"]),
]
graph = helper.make_graph(
    nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 16, 16])],
    [helper.make_tensor_value_info("top", TensorProto.FLOAT, ["N", 24, 4, 4]),
     helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 7])],
    [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
onnx.checker.check_model(model)
onnx.save(model, f"{folder}/network.onnx")
np.savez(f"{folder}/data.npz", x=rng.standard_normal((16, 3, 16, 16)).astype(np.float32))
np.savez(f"{folder}/input.npz", x=rng.standard_normal((4, 3, 16, 16)).astype(np.float32))
