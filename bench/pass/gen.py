#!/usr/bin/env python3
"""Writes programs for bench/pass/run.py; deterministic.

    gen.py layers --ops 10000 > layers.lathe       # what exporters write: convs, norms, attention, gelu ...
    gen.py chain --ops 10000 > chain.lathe         # functions, each called once by the one before
    gen.py functions --ops 1000 > functions.lathe  # independent functions of some 40 operations
"""

import argparse

ROWS, WIDTH = 4, 8
MATRIX = f"v_tensor<[{ROWS}, {WIDTH}], f32>"
IMAGE = "v_tensor<[1, 4, 6, 6], f32>"
NOTHING = "none"


class Writer:
    """Lines of a program; values are numbered from `start`."""

    def __init__(self):
        self.lines, self.count = [], 0

    def op(self, name, operands, kind, attributes=""):
        """`operands`: (value, type) or None."""
        result = f"%{self.count}"
        self.count += 1
        values = ", ".join(o[0] if o else "none" for o in operands)
        types = ", ".join(o[1] if o else NOTHING for o in operands)
        self.lines.append(f"  {result} = {name}({values}) {{{attributes}}} : ({types}) -> {kind}")
        return (result, kind)

    def feed(self, name, kind):
        return self.op("nn.feed", [], kind, f'name = "{name}"')

    def fetch(self, value, name):
        self.lines.append(f'  nn.fetch({value[0]}) {{name = "{name}"}} : ({value[1]}) -> ()')

    def constant(self, shape, data):
        extents = ", ".join(map(str, shape))
        element = "i64" if isinstance(data[0], int) else "f32"
        return self.op("builtin.constant", [], f"v_tensor<[{extents}], {element}>",
                       f"value = tensor<[{extents}], {element}> [{', '.join(map(repr, data))}]")

    def binary(self, name, a, b):
        return self.op(f"nn.{name}", [a, b], a[1])

    def unary(self, name, a, kind=None):
        return self.op(f"nn.{name}", [a], kind or a[1])


def linear(w, x, seed):
    weight = w.constant([WIDTH, WIDTH], [((seed * 7 + i * 5) % 17 - 8) / 16 for i in range(WIDTH * WIDTH)])
    bias = w.constant([WIDTH], [((seed + i) % 5) / 8 for i in range(WIDTH)])
    return w.binary("add", w.op("nn.matmul", [x, weight], MATRIX), bias)


def layer_norm(w, x, seed):
    column = f"v_tensor<[{ROWS}, 1], f32>"
    axes = w.constant([1], [-1])
    mean = w.op("nn.reduce_mean", [x, axes], column)
    centered = w.binary("sub", x, mean)
    two = w.constant([], [2.0])
    variance = w.op("nn.reduce_mean", [w.binary("pow", centered, two), axes], column)
    deviation = w.unary("sqrt", w.binary("add", variance, w.constant([], [1e-5])))
    scale = w.constant([WIDTH], [1 + (seed + i) % 3 / 4 for i in range(WIDTH)])
    return w.binary("mul", w.binary("div", centered, deviation), scale)


def gelu(w, x):
    half = w.unary("erf", w.binary("div", x, w.constant([], [1.4142135381698608])))
    one = w.binary("add", half, w.constant([], [1.0]))
    return w.binary("mul", w.binary("mul", x, one), w.constant([], [0.5]))


def attention(w, q, k, v):
    scores_type = f"v_tensor<[{ROWS}, {ROWS}], f32>"
    turned = w.op("nn.transpose", [k], f"v_tensor<[{WIDTH}, {ROWS}], f32>", "perm = [1, 0]")
    scores = w.op("nn.matmul", [q, turned], scores_type)
    scores = w.binary("div", scores, w.constant([], [2.8284270763397217]))
    return w.op("nn.matmul", [w.unary("softmax", scores), v], MATRIX)


def transformer_layer(w, x, seed):
    """27 operations and constants more."""
    shape = w.constant([2], [ROWS, WIDTH])
    y = w.op("nn.reshape", [layer_norm(w, x, seed), shape], MATRIX)
    y = attention(w, linear(w, y, seed), linear(w, y, seed + 1), linear(w, y, seed + 2))
    x = w.binary("add", x, linear(w, y, seed + 3))
    return w.binary("add", x, linear(w, gelu(w, linear(w, x, seed + 4)), seed + 5))


def conv_layer(w, x, seed):
    weight = w.constant([4, 4, 1, 1], [((seed * 3 + i) % 9 - 4) / 8 for i in range(16)])
    y = w.op("nn.conv", [x, weight], IMAGE)
    norms = [w.constant([4], [1 + (seed + i + j) % 3 / 4 for i in range(4)]) for j in range(4)]
    y = w.op("nn.batch_normalization", [y, *norms], IMAGE)
    y = w.unary("identity", y)
    y = w.unary("relu", w.unary("neg", w.unary("neg", y)))
    w.unary("exp", y)  # nobody reads it
    return w.binary("add", x, y)


def layers(ops):
    w = Writer()
    x, image = w.feed("x", MATRIX), w.feed("image", IMAGE)
    seed = 0
    while w.count < ops:
        x = transformer_layer(w, x, seed)
        for i in range(3):
            image = conv_layer(w, image, seed + i)
        seed += 1
    w.fetch(x, "y")
    w.fetch(image, "z")
    return ["program {", *w.lines, "}"]


def function(name, body):
    """`body(writer, argument)` gives the result."""
    w = Writer()
    w.count = 1
    y = body(w, ("%0", MATRIX))
    lines = [line.replace("%", "%p") for line in w.lines]  # names of a function are its own
    return [f'builtin.func() {{name = "{name}"}} ({{ ^(%p0: {MATRIX}):', *lines,
            f"  builtin.return({y[0].replace('%', '%p')}) : ({MATRIX}) -> ()", "}) : () -> ()"]


def call(w, x, callee):
    return w.op("builtin.call", [x], MATRIX, f'callee = "{callee}"')


def chain(count):
    w = Writer()
    w.fetch(call(w, w.feed("x", MATRIX), "f0"), "y")
    text = ["program {", *w.lines]
    for i in range(count):
        last = i + 1 == count
        text += function(f"f{i}", lambda v, x, i=i, last=last:
                         v.unary("tanh", x) if last else call(v, v.unary("tanh", x), f"f{i + 1}"))
    return [*text, "}"]


def functions(count):
    w = Writer()
    x = w.feed("x", MATRIX)
    for i in range(count):
        x = call(w, x, f"f{i}")
    w.fetch(x, "y")
    text = ["program {", *w.lines]
    for i in range(count):
        text += function(f"f{i}", lambda v, y, i=i: transformer_layer(v, y, i))
    return [*text, "}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=["layers", "chain", "functions"])
    parser.add_argument("--ops", type=int, default=10000, help="operations, or functions")
    args = parser.parse_args()
    print("\n".join({"layers": layers, "chain": chain, "functions": functions}[args.kind](args.ops)))


if __name__ == "__main__":
    main()
