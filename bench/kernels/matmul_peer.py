#!/usr/bin/env python3
"""Matrix products against onnxruntime's MatMul on one thread: outputs are compared first, then both
are timed by turns, in processor time of the thread.

    bench/kernels/matmul_peer.py [--build build] [128x768 768x768 constant ...]

A product is two shapes and flags of `bench_kernels matmul`: `constant` makes the right matrix an
initializer. One row each: GFLOP/s of ours and of the peer, our shares of the measured peak and of
the measured bandwidth, and their ratio: above 1 is in our favor.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, save

PRODUCTS = """
128x768 768x768 constant
128x768 768x3072 constant
128x3072 3072x768 constant
128x768 768x768
512x768 768x3072
1024x1024 1024x1024
2048x2048 2048x2048
2048x2048 2048x2048 constant
12x128x64 12x64x128
12x128x128 12x128x64
1x768 768x3072 constant
1x4096 4096x16384 constant
1x4096 4096x16384
4x4096 4096x4096 constant
1000x30 30x70
"""


def shape_of(text):
    return [int(n) for n in text.split("x")]


def make_model(x, y, constant, path):
    tensor = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    inputs = [tensor("x", x.shape)] + ([] if constant else [tensor("y", y.shape)])
    initializers = [numpy_helper.from_array(y, "y")] if constant else []
    node = helper.make_node("MatMul", ["x", "y"], ["z"])
    graph = helper.make_graph([node], "product", inputs, [tensor("z", None)], initializers)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def make_peer(path, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output("z")
    return lambda: session.run_with_iobinding(binding), lambda: session.run(None, feeds)[0]


def seconds_of(run):
    run()
    times = []
    start = time.thread_time()
    while len(times) < 10 or time.thread_time() - start < 0.5:
        before = time.thread_time()
        run()
        times.append(time.thread_time() - before)
    return sorted(times)[len(times) // 10]


def lathe_output(tool, path, feeds, folder):
    words = []
    for name, value in feeds.items():
        np.save(folder / f"{name}.npy", value)
        words += ["-i", f"{name}={folder / name}.npy"]
    command = [tool, "run", path, *words, "-o", folder]
    subprocess.run([str(w) for w in command], check=True, capture_output=True)
    return np.load(folder / "z.npy")


def measure(product, bench, tool):
    words = product.split()
    constant = "constant" in words
    generator = np.random.default_rng(1)
    x, y = (generator.standard_normal(shape_of(w), dtype=np.float32) for w in words[:2])
    feeds = {"x": x} if constant else {"x": x, "y": y}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(x, y, constant, folder / "model.onnx")
        peer, peer_output = make_peer(folder / "model.onnx", feeds)
        ours = lathe_output(tool, folder / "model.onnx", feeds, folder)
        np.testing.assert_allclose(ours, peer_output(), rtol=1e-3, atol=1e-3)
    best, theirs = {}, float("inf")
    for _ in range(2):
        text = subprocess.run([bench, "matmul", *words], check=True, capture_output=True, text=True)
        row = json.loads(text.stdout)
        best = min(best or row, row, key=lambda r: r["seconds"])
        theirs = min(theirs, seconds_of(peer))
    flops = best["gflops"] * best["seconds"]
    print(
        f"{product:34} {best['gflops']:8.1f} {flops / theirs:8.1f} {best['peak_share']:6.2f}"
        f" {best['read_share']:6.2f} {theirs / best['seconds']:6.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build", help="where bin/bench_kernels and bin/lathe are")
    parser.add_argument("product", nargs="*", help="two shapes and flags; without: a list of them")
    args = parser.parse_args()
    products = [" ".join(args.product)] if args.product else PRODUCTS.strip().splitlines()
    print(f"{'product':34} {'ours':>8} {'peer':>8} {'peak':>6} {'read':>6} {'ratio':>6}")
    for product in products:
        measure(product, Path(args.build) / "bin" / "bench_kernels", Path(args.build) / "bin" / "lathe")


if __name__ == "__main__":
    main()
