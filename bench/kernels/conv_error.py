#!/usr/bin/env python3
"""Errors of 3x3 convolutions at each level of precision against f64, and their speed on one thread.

    PYTHONPATH=build/python bench/kernels/conv_error.py [64x56 128x28 ...]

A convolution is channels, which are filters, too, x side. Inputs are normal, and the same with
negative ones zero, as behind a ReLU. One row each: the RMS error of `strict` relative to the RMS of
the outputs; for `f32` and `high` what part of it theirs are, RMS and largest, the worse of both
kinds of inputs; and how many times as fast they are, of rounds that alternate.
"""

import sys
import time

import lathe
import numpy as np
from onnx import TensorProto, helper, numpy_helper

CASES = "8x56 16x56 32x56 64x56 128x28 256x14 512x14 512x7"
LEVELS = ("strict", "f32", "high")


def model(weights, side):
    channels = weights.shape[0]
    tensor = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT,
                                                        [1, channels, side, side])
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "conv", [tensor("x")], [tensor("y")],
                              [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def exact(x, w):
    side = x.shape[2]
    padded = np.pad(x[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    return sum(np.einsum("fc,chw->fhw", w[:, :, i, j].astype(np.float64),
                         padded[:, i:i + side, j:j + side]) for i in range(3) for j in range(3))


def seconds(run, rounds=20):
    best = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        best.append(time.perf_counter() - start)
    return min(best)


def measure(channels, side):
    rng = np.random.default_rng(channels)
    w = (rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)).astype(np.float32)
    proto = model(w, side)
    programs = [lathe.compile(proto, precision=level, threads=1, cache=False) for level in LEVELS]
    normal = rng.standard_normal((1, channels, side, side)).astype(np.float32)
    relative, rms, largest = 0, [0, 0, 0], [0, 0, 0]
    for x in (normal, np.maximum(normal, 0)):
        y = exact(x, w)
        errors = [np.abs(p.run({"x": x})["y"][0] - y) for p in programs]
        square = [np.sqrt((e ** 2).mean()) for e in errors]
        relative = max(relative, square[0] / np.sqrt((y ** 2).mean()))
        rms = [max(a, s / square[0]) for a, s in zip(rms, square)]
        largest = [max(a, e.max() / errors[0].max()) for a, e in zip(largest, errors)]
    rounds = [[seconds(lambda p=p: p.run({"x": normal})) for p in programs] for _ in range(5)]
    times = np.min(rounds, axis=0)
    row = [f"{channels}x{side}", f"{relative:.1e}"]
    for i in (1, 2):
        row += [f"{rms[i]:.2f}", f"{largest[i]:.2f}", f"{times[0] / times[i]:.2f}"]
    return row


def main():
    print("| channels x side | strict, RMS | f32: RMS | largest | speed | high: RMS | largest | speed |")
    print("|---|---|---|---|---|---|---|---|")
    for case in sys.argv[1:] or CASES.split():
        channels, side = (int(n) for n in case.split("x"))
        print("| " + " | ".join(measure(channels, side)) + " |", flush=True)


if __name__ == "__main__":
    main()
