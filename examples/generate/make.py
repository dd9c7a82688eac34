#!/usr/bin/env python3
"""Writes decoder.onnx beside this file: a decoder that goes on with what has been repeated.

After 3 1 4 3 1 comes 4. Nothing is trained: the weights are an induction head (Olsson et al.,
In-context Learning and Induction Heads, 2022). The first layer's head looks at the token before, the
second one's for tokens that stood behind the same token as the last one, and copies them. Inputs and
outputs are those of an export by transformers, with a key/value cache. Needs: pip install numpy onnx
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
VOCABULARY = 16
POSITIONS = 64  # longest sequence
WIDTH = 16  # of a head
FREQUENCIES = WIDTH // 2
LAYERS = 2

# What the residual stream holds: token, code of the position, whether it is the first, how late it
# is, the token before.
TOKEN = slice(0, 16)
CODE = slice(16, 32)
FIRST, LATE = 32, 33
BEFORE = slice(34, 50)
HIDDEN = 50

SHARPNESS = 40.0  # of looking one position back
MATCH = 20.0  # of finding the same token
LATENESS = 8.0  # over all positions; the later of two finds counts more
CONFIDENCE = 8.0  # logit of a token that was found


def rotations(positions):
    """[N, WIDTH]: cosines and sines, whose scalar products depend on distances alone."""
    angles = np.outer(positions, 2 * np.pi * np.arange(1, FREQUENCIES + 1) / POSITIONS)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


def embeddings():
    tokens = np.zeros((VOCABULARY, HIDDEN))
    tokens[:, TOKEN] = np.eye(VOCABULARY)
    positions = np.zeros((POSITIONS, HIDDEN))
    positions[:, CODE] = rotations(np.arange(POSITIONS))
    positions[0, FIRST] = 1
    positions[:, LATE] = np.arange(POSITIONS) / POSITIONS
    return {"wte": tokens, "wpe": positions}


def one_back():
    """Turns the code of a position into that of the one before."""
    angles = 2 * np.pi * np.arange(1, FREQUENCIES + 1) / POSITIONS
    cos, sin = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    return np.block([[cos, -sin], [sin, cos]])


def layer_looking_back():
    q, k, v, o = (np.zeros((HIDDEN, WIDTH)) for _ in range(4))
    q[CODE] = SHARPNESS * one_back()
    k[CODE] = np.eye(WIDTH)
    v[TOKEN] = np.eye(WIDTH)
    o[BEFORE] = np.eye(WIDTH)
    return q, k, v, o.T


def layer_finding():
    q, k, v, o = (np.zeros((HIDDEN, WIDTH)) for _ in range(4))
    q[TOKEN] = np.eye(WIDTH)
    k[BEFORE] = MATCH * np.eye(WIDTH)
    k[LATE] = LATENESS  # whatever token is looked for: it is one
    k[FIRST] = -2 * MATCH  # it has no token before it
    v[TOKEN] = np.eye(WIDTH)
    o[TOKEN] = np.eye(WIDTH)
    return q, k, v, o.T


def weights():
    named = embeddings()
    for i, layer in enumerate((layer_looking_back(), layer_finding())):
        named.update({f"h.{i}.{name}": value for name, value in zip(("q", "k", "v", "o"), layer)})
    # What the finding layer adds to the token itself is what was found.
    head = np.zeros((HIDDEN, VOCABULARY))
    head[TOKEN] = CONFIDENCE * np.eye(VOCABULARY)
    named["head"] = head
    return {name: value.astype(np.float32) for name, value in named.items()}


class Graph:
    def __init__(self):
        self.nodes, self.constants = [], {}

    def op(self, op, *inputs, name=None, **attributes):
        name = name or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def const(self, value, dtype=np.int64):
        name = f"const_{len(self.constants)}"
        self.constants[name] = np.array(value, dtype)
        return name


def mask_bias(g):
    """[B, 1, S, T]: 0 where a key may be looked at, else the lowest float."""
    total = g.op("Gather", g.op("Shape", "attention_mask"), g.const(1))
    new = g.op("Gather", g.op("Shape", "input_ids"), g.const(1))
    keys = g.op("Range", g.const(0), total, g.const(1))
    queries = g.op("Range", g.op("Sub", total, new), total, g.const(1))
    before = g.op("LessOrEqual", keys, g.op("Unsqueeze", queries, g.const([1])))
    there = g.op("Cast", g.op("Unsqueeze", "attention_mask", g.const([1, 2])), to=TensorProto.BOOL)
    lowest = g.const(np.finfo(np.float32).min, np.float32)
    return g.op("Where", g.op("And", before, there), g.const(0, np.float32), lowest)


def attention(g, i, x, bias):
    q, k, v = (g.op("Unsqueeze", g.op("MatMul", x, f"h.{i}.{name}"), g.const([1]))
               for name in "qkv")
    k, v = (g.op("Concat", f"past_key_values.{i}.{kind}", new, name=f"present.{i}.{kind}", axis=2)
            for kind, new in (("key", k), ("value", v)))
    scores = g.op("Add", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), bias)
    found = g.op("Squeeze", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), g.const([1]))
    return g.op("MatMul", found, f"h.{i}.o")


def build():
    g = Graph()
    x = g.op("Add", g.op("Gather", "wte", "input_ids"), g.op("Gather", "wpe", "position_ids"))
    bias = mask_bias(g)
    x = g.op("Add", x, attention(g, 0, x, bias))
    found = attention(g, 1, x, bias)
    g.op("MatMul", found, "head", name="logits")

    def port(name, element, *dims):
        return helper.make_tensor_value_info(name, element, dims)

    ids = [port("input_ids", TensorProto.INT64, "batch", "sequence"),
           port("attention_mask", TensorProto.INT64, "batch", "total"),
           port("position_ids", TensorProto.INT64, "batch", "sequence")]
    caches = [[port(f"{side}.{i}.{kind}", TensorProto.FLOAT, "batch", 1, length, WIDTH)
               for i in range(LAYERS) for kind in ("key", "value")]
              for side, length in (("past_key_values", "past"), ("present", "total"))]
    logits = port("logits", TensorProto.FLOAT, "batch", "sequence", VOCABULARY)
    values = {**weights(), **g.constants}
    graph = helper.make_graph(g.nodes, "decoder", [*ids, *caches[0]], [logits, *caches[1]],
                              [numpy_helper.from_array(v, n) for n, v in values.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
                              producer_name="lathe generate")
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    onnx.save(build(), HERE / "decoder.onnx")
