#!/usr/bin/env python3
"""What it takes until a model can run, and the memory for it, against onnxruntime in the same run.

    bench/models/startup.py                      # the models of run.py; those missing are built
    bench/models/startup.py resnet50 --rounds 7

Per model: compiling with an empty cache (cold) and with a filled one (warm), creating a session of
onnxruntime, each in a process of its own and alternating; loading the program from its `.lx`; medians,
in ms, with default threads. Then the peak memory of the process in MB, from ONNX (warm) and from the
`.lx`, each also as a multiple of weights and planned memory. Goals: warm at most 1.0 of the session,
loading at most 0.2 of it, memory at most 1.5.
"""

import statistics
import subprocess
import sys
import tempfile

from race import Lathe
from run import ensure_model, model_parser, parse_models

SESSION = """
import os, sys, time
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime
start = time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print((time.perf_counter() - start) * 1e3)
"""


def session_ms(model):
    done = subprocess.run([sys.executable, "-c", SESSION, model], capture_output=True, text=True, check=True)
    return float(done.stdout)


def ready_ms(figures):
    return figures["compile_ms"] + figures["load_ms"]


def measure(folder, args):
    with tempfile.TemporaryDirectory() as temporary:
        tool = Lathe(args.lathe, folder, ["--cache", f"{temporary}/cache"])
        cold = ready_ms(tool.bench(0, 0.01))
        warm, sessions = [], []
        for _ in range(args.rounds):
            warm.append(tool.bench(0, 0.01))
            sessions.append(session_ms(tool.model))
        file = f"{temporary}/model.lx"
        subprocess.run([args.lathe, "compile", tool.model, "-o", file], capture_output=True, check=True)
        loader = Lathe(args.lathe, folder, [])
        loader.model = file
        loaded = [loader.bench(0, 0.01) for _ in range(args.rounds)]
    needed = (warm[0]["weight_bytes"] + warm[0]["memory"]["bytes"]) / 1e6
    return {
        "cold": cold,
        "warm": statistics.median(map(ready_ms, warm)),
        "session": statistics.median(sessions),
        "load": statistics.median(map(ready_ms, loaded)),
        "needed": needed,
        "memory": max(f["peak_rss_mb"] for f in warm),
        "memory_lx": max(f["peak_rss_mb"] for f in loaded),
    }


def print_row(name, r):
    print(f"{name:14} cold {r['cold']:6.0f}   warm {r['warm']:5.0f}  session {r['session']:5.0f}  "
          f"ratio {r['warm'] / r['session']:5.2f}   load {r['load']:5.1f}  ratio {r['load'] / r['session']:6.3f}   "
          f"memory {r['memory']:5.0f} MB ({r['memory'] / r['needed']:4.2f}), "
          f"of .lx {r['memory_lx']:5.0f} MB ({r['memory_lx'] / r['needed']:4.2f})", flush=True)


def main():
    args = parse_models(model_parser(__doc__, rounds=5))
    for name in args.names:
        print_row(name, measure(ensure_model(args.models, name), args))


if __name__ == "__main__":
    main()
