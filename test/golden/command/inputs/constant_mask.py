"""A model with a mask of 1 KiB and more that is a Constant, and one that is an initializer.

    constant_mask.py write FOLDER          model.onnx and data.npz
    constant_mask.py compare A.onnx B.onnx  masks are equal, weights are not
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 24


def tensors(path):
    graph = onnx.load(path).graph
    found = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def write(folder):
    rng = np.random.default_rng(1)
    places = np.arange(SIZE)
    mask = np.where(places[:, None] < places, -np.inf, 0).astype(np.float32)
    table = rng.standard_normal((SIZE, SIZE)).astype(np.float32)
    weights = {"w": rng.standard_normal((SIZE, 10)).astype(np.float32) / 8, "later": mask}
    nodes = [
        helper.make_node("Constant", [], ["mask"], value=numpy_helper.from_array(mask)),
        helper.make_node("Constant", [], ["table"], value=numpy_helper.from_array(table)),
        helper.make_node("Unsqueeze", ["x", "axis"], ["wide"]),
        helper.make_node("Add", ["wide", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["first"], axis=-1),
        helper.make_node("Mul", ["first", "table"], ["scaled"]),
        helper.make_node("Add", ["scaled", "later"], ["again"]),
        helper.make_node("Softmax", ["again"], ["second"], axis=-1),
        helper.make_node("ReduceSum", ["second", "axis"], ["sum"], keepdims=0),
        helper.make_node("MatMul", ["sum", "w"], ["scores"]),
    ]
    initializers = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    initializers.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
    graph = helper.make_graph(
        nodes, "masks", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", SIZE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 10])], initializers)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), f"{folder}/model.onnx")
    x = rng.standard_normal((40, SIZE)).astype(np.float32)
    np.savez(f"{folder}/data.npz", x=x, labels=np.arange(40) % 10)


def compare(a, b):
    a, b = tensors(a), tensors(b)
    for name in ("mask", "table", "later"):
        assert np.array_equal(a[name], b[name]), name
    assert not np.array_equal(a["w"], b["w"]), "w"
    assert np.isfinite(b["w"]).all()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
