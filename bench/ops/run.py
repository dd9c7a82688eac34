#!/usr/bin/env python3
"""Single operators by lathe and onnxruntime, one thread unless said, outputs compared first.

    .venv/bin/python bench/ops/run.py ['REGEX'] [--sizes fixed open] [--threads 2] [--below 0.5]

With `open` sizes every extent of the inputs, initializers and short lists aside, is a symbol of its
own, as exporters leave them. The ratio is onnxruntime's time divided by ours, of the best of many calls in
turns. No network is slower than its slowest operator lets it be: what is far below 1 here is a model
somewhere."""

import argparse
import math
import pathlib
import re
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "python"))
import lathe.onnxruntime  # noqa: E402

from cases import cases  # noqa: E402

SECONDS = 0.2  # of each side
TURN = 0.005  # seconds: workers of the side before may still spin in the first calls of a turn


def feeds(case):
    return {f"x{i}": np.asarray(v) for i, v in enumerate(case.inputs) if v is not None and i not in case.constants}


def model_of(case, sizes: str) -> bytes:
    inputs, initializers = [], []
    for i, value in enumerate(case.inputs):
        if value is None:
            continue
        array = np.asarray(value)
        if i in case.constants:
            initializers.append(onnx.numpy_helper.from_array(array, f"x{i}"))
            continue
        dims = [f"x{i}_{axis}" if sizes == "open" and extent > 1 and array.size > 16 else extent for axis, extent in enumerate(array.shape)]
        inputs.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(array.dtype), dims))
    outputs = [f"y{i}" for i in range(case.outputs)]
    names = ["" if value is None else f"x{i}" for i, value in enumerate(case.inputs)]
    node = helper.make_node(case.op, names, outputs, domain=case.domain, **case.attributes)
    graph = helper.make_graph([node], case.op, inputs, [onnx.ValueInfoProto(name=y) for y in outputs], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10).SerializeToString()


def session(library, model: bytes, threads: int):
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def difference(got, wanted, tolerance: float) -> str:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{got.shape} for {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind != "f":
        quantum = 1 if wanted.dtype.itemsize == 1 and wanted.dtype.kind in "iu" else 0
        wrong = np.count_nonzero(np.abs(got.astype(np.int64) - wanted.astype(np.int64)) > quantum)
        return f"{wrong} of {wanted.size} differ" if wrong else ""
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "others are finite"
    known = np.isfinite(b)
    error = np.abs(a[known] - b[known]).max(initial=0) / max(np.abs(b[known]).max(initial=0), 1e-30)
    return f"off by {error:.1e}" if error > tolerance else ""


def best_times(sides, inputs):
    best = [math.inf] * len(sides)
    end = time.perf_counter() + SECONDS * len(sides)
    while time.perf_counter() < end:
        for i, side in enumerate(sides):
            now = time.perf_counter()
            turn = now + TURN
            while now < turn:
                begin = now
                side.run(None, inputs)
                now = time.perf_counter()
                best[i] = min(best[i], now - begin)
    return best


def race(case, sizes: str, threads: int):
    """The ratio and a line of text; no ratio where one side refuses or outputs differ."""
    model, inputs = model_of(case, sizes), feeds(case)
    try:
        peer = session(onnxruntime, model, threads)
        wanted = peer.run(None, inputs)
    except Exception as error:  # what onnxruntime lacks
        return None, f"onnxruntime refuses: {str(error).splitlines()[0][:80]}"
    try:
        begin = time.perf_counter()
        ours = session(lathe.onnxruntime, model, threads)
        got = ours.run(None, inputs)
        first = time.perf_counter() - begin
    except Exception as error:
        return 0.0, f"lathe refuses: {str(error).splitlines()[0][:160]}"
    differences = [d for a, b in zip(got, wanted) if (d := difference(np.asarray(a), np.asarray(b), case.tolerance))]
    if differences:
        return None, f"outputs differ: {differences[0]}"
    theirs, own = best_times([peer, ours], inputs)
    return theirs / own, f"{theirs * 1e3:10.4f} {own * 1e3:10.4f} ms   first {first:5.2f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="of the names of cases, a regular expression")
    parser.add_argument("--sizes", nargs="+", choices=("fixed", "open"), default=["fixed", "open"])
    parser.add_argument("--threads", type=int, default=1, help="of each side; 0: as many as it likes")
    parser.add_argument("--below", type=float, default=math.inf, help="only rows with a lower ratio, and what differs")
    args = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    ratios = []
    print(f"{'operator':44} {'sizes':6} {'ratio':>6} {'theirs':>10} {'ours':>10}")
    for case in cases(re.compile(args.pattern).search):
        for sizes in args.sizes:
            ratio, text = race(case, sizes, args.threads)
            if ratio:
                ratios.append(ratio)
            if ratio is None or ratio < args.below:
                print(f"{case.name:44} {sizes:6} {'' if ratio is None else f'{ratio:6.2f}':>6} {text}", flush=True)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} compared: geometric mean {mean:.2f}, least {min(ratios):.2f}, "
              f"{sum(r < 0.5 for r in ratios)} below 0.5")


if __name__ == "__main__":
    main()
