#!/usr/bin/env python3
"""Writes two models of text, and text to train them on, into a folder.

    examples/train_text/make.py FOLDER

lstm.onnx (two layers) and gpt.onnx (two blocks of causal attention) read characters by number,
[N, T], and give scores of the one that follows each, [N, T, characters]. They have no weights worth
having: `lathe train --init auto` makes fresh ones. text.npz and held_out.npz have stretches of the
pages of docs/, each with the same stretch one character further on.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
LENGTH = 32  # characters of a sample
SAMPLES = 2304
HELD_OUT = 9  # each ninth one
WIDTH, HEADS, LAYERS = 64, 4, 2


CHARACTERS = 97  # what can be printed, the end of a line, and one for all else


def number_of(character):
    if character == "\n":
        return 96
    return ord(character) - 31 if " " <= character <= "~" else 0


def characters():
    text = "".join(page.read_text() for page in sorted(DOCS.glob("*.md")))
    return np.array([number_of(c) for c in text[: SAMPLES * LENGTH + 1]], np.int64)


def write_data(folder):
    text = characters()
    starts = np.arange(SAMPLES) * LENGTH
    rows = np.stack([text[s : s + LENGTH + 1] for s in starts])
    is_held_out = np.arange(SAMPLES) % HELD_OUT == 0
    for name, part in (("text", rows[~is_held_out]), ("held_out", rows[is_held_out])):
        np.savez(folder / f"{name}.npz", text=part[:, :-1], labels=part[:, 1:])


class Graph:
    """An ONNX graph under construction; values are their names."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def op(self, kind, *inputs, **attributes):
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name, *shape):
        zeros = np.zeros(shape, np.float32)
        self.weights.append(numpy_helper.from_array(zeros, name))
        return name

    def ints(self, *values):
        return self.op("Constant", value=numpy_helper.from_array(np.array(values, np.int64)))

    def linear(self, name, x, inputs, outputs):
        product = self.op("MatMul", x, self.weight(f"{name}.weight", inputs, outputs))
        return self.op("Add", product, self.weight(f"{name}.bias", outputs))

    def norm(self, name, x):
        scale, bias = self.weight(f"{name}.scale", WIDTH), self.weight(f"{name}.bias", WIDTH)
        return self.op("LayerNormalization", x, scale, bias, axis=-1)

    def save(self, path, scores):
        text = helper.make_tensor_value_info("text", TensorProto.INT64, ["N", LENGTH])
        self.nodes.append(helper.make_node("Identity", [scores], ["scores"], name="scores"))
        out = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", LENGTH, CHARACTERS])
        graph = helper.make_graph(self.nodes, path.stem, [text], [out], self.weights)
        opset = [helper.make_opsetid("", 20)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def write_lstm(path):
    g = Graph()
    x = g.op("Gather", g.weight("embedding.weight", CHARACTERS, WIDTH), "text")
    x = g.op("Transpose", x, perm=[1, 0, 2])
    for i in range(LAYERS):
        weights = [g.weight(f"lstm{i}.{name}", 1, 4 * WIDTH, WIDTH) for name in ("w", "r")]
        y = g.op("LSTM", x, *weights, g.weight(f"lstm{i}.b", 1, 8 * WIDTH), hidden_size=WIDTH)
        x = g.op("Squeeze", y, g.ints(1))
    x = g.op("Transpose", x, perm=[1, 0, 2])
    g.save(path, g.linear("head", x, WIDTH, CHARACTERS))


def attention(g, name, x, mask):
    def heads(part, perm):
        y = g.op("Reshape", g.linear(f"{name}.{part}", x, WIDTH, WIDTH),
                 g.ints(0, 0, HEADS, WIDTH // HEADS))
        return g.op("Transpose", y, perm=perm)

    query, key = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])
    scale = g.op("Constant", value_float=(WIDTH // HEADS) ** -0.5)
    scores = g.op("Add", g.op("Mul", g.op("MatMul", query, key), scale), mask)
    y = g.op("MatMul", g.op("Softmax", scores, axis=-1), heads("value", [0, 2, 1, 3]))
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, 0, WIDTH))
    return g.linear(f"{name}.output", y, WIDTH, WIDTH)


def write_gpt(path):
    g = Graph()
    places = np.arange(LENGTH)
    later = np.where(places[:, None] < places, -np.inf, 0).astype(np.float32)
    mask = g.op("Constant", value=numpy_helper.from_array(later))
    x = g.op("Gather", g.weight("embedding.weight", CHARACTERS, WIDTH), "text")
    x = g.op("Add", x, g.weight("position.embedding.weight", LENGTH, WIDTH))
    for i in range(LAYERS):
        x = g.op("Add", x, attention(g, f"block{i}", g.norm(f"block{i}.norm1", x), mask))
        wide = g.linear(f"block{i}.wide", g.norm(f"block{i}.norm2", x), WIDTH, 4 * WIDTH)
        x = g.op("Add", x, g.linear(f"block{i}.narrow", g.op("Gelu", wide), 4 * WIDTH, WIDTH))
    g.save(path, g.linear("head", g.norm("norm", x), WIDTH, CHARACTERS))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_data(folder)
    write_lstm(folder / "lstm.onnx")
    write_gpt(folder / "gpt.onnx")


if __name__ == "__main__":
    main()
