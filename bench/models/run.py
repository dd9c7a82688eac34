#!/usr/bin/env python3
"""Whole models against onnxruntime in one run: outputs are compared first, then rounds alternate.

    bench/models/run.py                                    # builds the models that are missing
    bench/models/run.py resnet50 bert --rounds 5 --json result.json

Per model, in ms: our median and the peer's best configuration, on one thread (`1`) and with default
threads (`n`; the peer with and without spinning); `ratio` is peer / ours: above 1 is in our favour.
Then what it takes to compile (cold), and the peer's session creation. The last line is the geometric
mean over the models on one thread.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

HERE = Path(__file__).resolve().parent
MODELS = {
    "resnet50": "vision.py --model resnet50",
    "mobilenet_v2": "mobilenet_v2.py",
    "squeezenet": "vision.py --model squeezenet",
    "densenet121": "vision.py --model densenet121",
    "inception_v2": "vision.py --model inception_v2",
    "shufflenet": "vision.py --model shufflenet",
    "vgg19": "vision.py --model vgg19",
    "bert": "bert.py",
    "gpt2": "gpt2.py",
    "gpt2-decode": "gpt2.py --past --seq 1",
    "lstm": "lstm.py",
}
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
GOAL_MEAN, GOAL_LEAST = 0.8, 0.5


def samples(folder, kind):
    """{name: (file, array)} of the first sample."""
    files = sorted(folder.glob(f"test_data_set_0/{kind}_*.pb"), key=lambda f: int(re.findall(r"\d+", f.stem)[-1]))
    tensors = [onnx.load_tensor(str(f)) for f in files]
    return {t.name: (f, numpy_helper.to_array(t)) for f, t in zip(files, tensors)}


class Lathe:
    def __init__(self, tool, folder, options):
        self.tool, self.model, self.options = tool, folder / "model.onnx", options
        self.inputs = [w for name, (file, _) in samples(folder, "input").items() for w in ("-i", f"{name}={file}")]

    def call(self, command, *options):
        words = [self.tool, command, self.model, *self.inputs, *self.options, *options]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, words))}\n{done.stderr}")
        return done.stdout

    def outputs(self):
        with tempfile.TemporaryDirectory() as folder:
            self.call("run", "--output-dir", folder)
            return {Path(f).stem: np.load(Path(folder) / f) for f in os.listdir(folder)}

    def bench(self, threads, seconds):
        return json.loads(self.call("bench", "--threads", threads, "--seconds", seconds, "--json"))


class Peer:
    def __init__(self, folder, threads, spin=True):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
        start = time.perf_counter()
        self.session = ort.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        self.load_ms = (time.perf_counter() - start) * 1e3
        self.feeds = {name: value for name, (_, value) in samples(folder, "input").items()}

    def outputs(self):
        names = [o.name for o in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, self.feeds)))

    def bench(self, seconds):
        """Median milliseconds of a run."""
        self.session.run(None, self.feeds)
        times, end = [], time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            self.session.run(None, self.feeds)
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)


def compare(ours, theirs):
    for name, wanted in theirs.items():
        key = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        got = ours[name] if name in ours else ours[key]
        scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)) if wanted.dtype.kind == "f" else 0
        np.testing.assert_allclose(got, wanted, rtol=TOLERANCE["rtol"], atol=TOLERANCE["atol"] * max(scale, 1e-2),
                                   err_msg=f"output {name}")


def measure(name, folder, args):
    lathe = Lathe(args.lathe, folder, args.option)
    one = Peer(folder, 1)
    if not args.skip_compare:
        compare(lathe.outputs(), one.outputs())
    many = [] if args.single else [Peer(folder, os.cpu_count()), Peer(folder, os.cpu_count(), spin=False)]
    ours_1, ours_n, peer_1, peer_n, compile_ms, rss = [], [], [], [], [], []
    for _ in range(args.rounds):
        figures = lathe.bench(1, args.seconds)
        ours_1.append(figures["p50_ms"])
        compile_ms.append(figures["compile_ms"] + figures["load_ms"])
        rss.append(figures["peak_rss_mb"])
        peer_1.append(one.bench(args.seconds))
        if many:
            ours_n.append(lathe.bench(0, args.seconds)["p50_ms"])
            peer_n.append(min(p.bench(args.seconds) for p in many))
    row = {"model": name, "ours_1": statistics.median(ours_1), "peer_1": statistics.median(peer_1)}
    row["ratio_1"] = row["peer_1"] / row["ours_1"]
    if many:
        row |= {"ours_n": statistics.median(ours_n), "peer_n": statistics.median(peer_n)}
        row["ratio_n"] = row["peer_n"] / row["ours_n"]
    return row | {"compile_ms": statistics.median(compile_ms), "session_ms": one.load_ms,
                  "peak_rss_mb": statistics.median(rss)}


def print_row(row):
    cells = [f"{row['model']:14}"]
    for threads in "1n":
        if f"ours_{threads}" in row:
            cells.append(f"{threads}: {row[f'ours_{threads}']:9.3f} {row[f'peer_{threads}']:9.3f} "
                         f"ratio {row[f'ratio_{threads}']:5.2f}")
    cells.append(f"compile {row['compile_ms']:7.0f}  session {row['session_ms']:7.0f}  rss {row['peak_rss_mb']:6.0f} MB")
    print("   ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--models", type=Path, default=HERE.parents[1] / "build/models",
                        help="folder of the models; those missing are built (default: build/models)")
    parser.add_argument("--lathe", default=HERE.parents[1] / "build/bin/lathe")
    parser.add_argument("--option", action="append", default=[], help="passed to lathe, e.g. --option=--target=avx2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each side in each round")
    parser.add_argument("--single", action="store_true", help="one thread only")
    parser.add_argument("--skip-compare", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    unknown = set(args.names) - MODELS.keys()
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    rows = []
    for name in args.names or MODELS:
        folder = args.models / name
        if not (folder / "test_data_set_0").exists():
            script, *options = MODELS[name].split()
            subprocess.run([sys.executable, HERE / script, *options, "--samples", "--out", folder], check=True)
        rows.append(measure(name, folder, args))
        print_row(rows[-1])
    mean = math.exp(statistics.fmean(math.log(r["ratio_1"]) for r in rows))
    least = min(rows, key=lambda r: r["ratio_1"])
    print(f"one thread: geometric mean {mean:.3f} (goal {GOAL_MEAN}), least {least['ratio_1']:.3f} "
          f"({least['model']}; goal {GOAL_LEAST})")
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "mean": mean}, indent=1) + "\n")


if __name__ == "__main__":
    main()
