#!/usr/bin/env python3
"""Convolutional networks of the ONNX model zoo with seeded weights.

The `onnx` package has their graphs, with every weight a constant (its "light" models); here each
weight is random, of a scale that keeps activations near one.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

import graph

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
OPTIONS = {"model": ("resnet50", "resnet50, squeezenet, densenet121, inception_v2, shufflenet, vgg19")}


def weight_shapes(model):
    """{name: shape} of what stands for a weight: made by ConstantOfShape, or a float initializer."""
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    shapes = {n: v.shape for n, v in held.items() if v.dtype == np.float32}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(held[node.input[0]])
    integers = {n: v for n, v in held.items() if v.dtype != np.float32}
    return shapes, integers


def roles(model, shapes):
    """{weight: (op type, operand index)} of its first use, seen through Unsqueeze."""
    alias, result = {}, {}
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            name = alias.get(name, name)
            if name not in shapes:
                continue
            if node.op_type == "Unsqueeze":
                alias[node.output[0]] = name
            else:
                result.setdefault(name, (node.op_type, i))
    return result


def add_weight(g, name, shape, role):
    op, operand = role
    if op in ("Conv", "Gemm") and operand == 1:
        g.normal(name, shape, np.sqrt((1.0 if op == "Conv" else 0.02) / np.prod(shape[1:])))
    else:
        one = (op == "BatchNormalization" and operand in (1, 4)) or op == "Mul"
        g.around(name, shape, 1 if one else 0)


def build(args):
    model = onnx.load(LIGHT / f"light_{args.model}.onnx")
    g = graph.Graph(args.model, args.seed)
    g.opset = model.opset_import[0].version
    shapes, integers = weight_shapes(model)
    uses = roles(model, shapes)
    for name in sorted(uses):
        add_weight(g, name, shapes[name], uses[name])
    g.nodes = [n for n in model.graph.node if n.op_type != "ConstantOfShape"]
    read = {name for node in g.nodes for name in node.input}
    for name in sorted(read & integers.keys()):
        g.buffer(name, integers[name])
    known = shapes.keys() | integers.keys()
    g.inputs = [i for i in model.graph.input if i.name not in known]
    g.outputs = list(model.graph.output)
    args.inputs = g.inputs
    return g


def feeds(args, rng):
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in args.inputs}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


if __name__ == "__main__":
    graph.main(__doc__, build, feeds, OPTIONS)
