"""Models of a few nodes for the tests of the package."""

import pathlib
import signal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

# A shell has what it runs in the background ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"


def model_of(nodes, inputs, outputs, initializers=(), **fields):
    """A ModelProto; inputs and outputs as {name: (TensorProto type, shape)}."""
    ports = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in side.items()]
             for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "tiny", *ports, initializer=initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)],
                              ir_version=10, **fields)
    onnx.checker.check_model(model)
    return model


def one_node(op, element=TensorProto.FLOAT, shape=("N", 3), count=2, **attributes):
    """A model of one operator on `count` inputs of one type and shape: a, b, ... -> y."""
    names = "abcdef"[:count]
    node = helper.make_node(op, list(names), ["y"], **attributes)
    return model_of([node], {n: (element, shape) for n in names}, {"y": (element, shape)})


@pytest.fixture
def add():
    """y = a + b, f32[N, 3]."""
    return one_node("Add")


@pytest.fixture
def digits():
    return str(DIGITS / "digits.onnx")


@pytest.fixture
def rng():
    return np.random.default_rng(7)
