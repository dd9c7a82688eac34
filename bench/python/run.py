#!/usr/bin/env python3
"""What a call from Python costs: a model of one operator on three numbers, by lathe and onnxruntime
in turns in one process, and numpy for scale. Microseconds per call, best of many rounds."""

import argparse
import json
import pathlib
import sys
import time

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "python"))
import lathe  # noqa: E402

CALLS = 2000


def one_add():
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in "aby"]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "add", ports[:2], ports[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString()


def callers():
    """{name: function without arguments}; all give the same."""
    x = np.array([[1, 2, 3]], np.float32)
    inputs = {"a": x, "b": x}
    exe = lathe.compile(one_add(), threads=1, cache=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(one_add(), options, providers=["CPUExecutionProvider"])
    out = {"y": np.empty_like(x)}
    all_ = {
        "lathe exe.run(inputs)": lambda: exe.run(inputs)["y"],
        "lathe exe(a, b)": lambda: exe(x, x),
        "lathe exe.run(inputs, out)": lambda: exe.run(inputs, out)["y"],
        "onnxruntime session.run": lambda: session.run(None, inputs)[0],
        "numpy a + b": lambda: x + x,
    }
    for name, call in all_.items():
        assert np.array_equal(call(), x + x), name
    return all_


def microseconds(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return 1e6 * (time.perf_counter() - start) / CALLS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    calls = callers()
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(options.rounds):
        for name, call in calls.items():
            best[name] = min(best[name], microseconds(call))
    peer = best["onnxruntime session.run"]
    if options.json:
        print(json.dumps(best))
        return
    for name, us in best.items():
        print(f"{us:8.2f} us  {us / peer:5.2f} of onnxruntime  {name}")


if __name__ == "__main__":
    main()
