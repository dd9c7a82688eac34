"""What the tests of lathe.onnxruntime share: the two modules, and models of a few nodes."""

import importlib

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper


@pytest.fixture(params=["onnxruntime", "lathe.onnxruntime"])
def ort(request):
    module = pytest.importorskip(request.param)
    module.set_default_logger_severity(4)
    yield module
    module.set_default_logger_severity(2)


@pytest.fixture
def errors(ort):
    return importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")


def vi(name, element, shape):
    return helper.make_tensor_value_info(name, element, shape)


def build(nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(nodes, "net", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def add_model():
    """z = x + y: f32["N", 3] + f32[?, 3]."""
    model = build(
        [helper.make_node("Add", ["x", "y"], ["z"])],
        [vi("x", T.FLOAT, ["N", 3]), vi("y", T.FLOAT, [None, 3])],
        [vi("z", T.FLOAT, ["N", 3])],
    )
    model.producer_name, model.producer_version = "maker", "1.2"
    model.domain, model.model_version, model.doc_string = "dom", 7, "what it is"
    model.graph.doc_string = "what the graph is"
    helper.set_model_props(model, {"names": "{0: 'cat'}", "character": "a\nb\n"})
    return model


ADD = add_model().SerializeToString()
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def unary(op, element, shape, out_element=None, out_shape="same", **kwargs):
    out = shape if out_shape == "same" else out_shape
    return build(
        [helper.make_node(op, ["x"], ["z"], **kwargs.pop("attributes", {}))],
        [vi("x", element, shape)],
        [vi("z", out_element or element, out)],
        **kwargs,
    ).SerializeToString()


def session(ort, model, *args, **kwargs):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return ort.InferenceSession(data, *args, **kwargs)


def arguments(args):
    return [(a.name, a.type, list(a.shape)) for a in args]


def sequence(element=T.FLOAT):
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, ["N"]))
