#!/usr/bin/env python3
"""The yardsticks at every level of precision, on lesser targets, and by every peer, in one run.

    bench/models/benchmarks.py --markdown docs/benchmarks.md     # and docs/benchmarks.svg
    bench/models/benchmarks.py resnet50 --rounds 1 --seconds 0.2
    bench/models/benchmarks.py --from result.json --markdown docs/benchmarks.md    # writes the page again

Everybody has one thread. Outputs are compared with those of onnxruntime first; then rounds alternate
over all sides of a model. A figure is the median of rounds, each the median of its runs. What a peer
cannot do is told below the table. Needs bench/models/requirements.txt (`make bench`).
"""

import datetime
import gc
import json
import os
import statistics
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import chart
import page
from int8 import ensure_int8
from peers import Iree, OpenVinoDefault
from race import Failed, Lathe, OnnxRuntime, OpenVino, compare, compare_quantized, rms_error
from run import ensure_model, model_parser, parse_models
from torch_peer import Compiled, Eager

OURS = {
    "strict": ["--precision", "strict"],
    "f32": [],
    "high": ["--precision", "high"],
    "bf16": ["--precision", "bf16"],
    "avx2": ["--target", "avx2"],
    "x86-64": ["--target", "x86-64"],
}
PEERS = {
    "onnxruntime": lambda folder: OnnxRuntime(folder, threads=1),
    "openvino": lambda folder: OpenVino(folder, threads=1),
    "openvino_default": lambda folder: OpenVinoDefault(folder, threads=1),
    "eager": Eager,
    "compiled": Compiled,
    "iree": Iree,
}
ROUNDED = ("bf16", "openvino_default")  # their errors are told, not held to f32's tolerance
PACKAGES = ("onnxruntime", "openvino", "torch", "onnx2torch", "iree-base-compiler")
FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
CPU = Path("/sys/devices/system/cpu/cpu0/cache")


def in_short(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("error")] or lines
    return f"{type(error).__name__}: {told[0][:200]}" if told else type(error).__name__


class Trial:
    """One model: its sides by name, and what is known of each."""

    def __init__(self, name, args):
        self.args, self.sides, self.times = args, {}, {}
        self.row = {"model": name, "ms": {}, "rms": {}, "took": {}, "missing": {}}
        folder = ensure_model(args.models, name)
        self.wanted = self.add("onnxruntime", lambda: PEERS["onnxruntime"](folder), None)
        for side, options in OURS.items():
            self.add(side, lambda: Lathe(args.lathe, folder, options), compare)
        for side, peer in PEERS.items():
            if side not in self.sides:
                self.add(side, lambda: peer(folder), compare)
        self.add_int8(ensure_int8(folder))

    def add_int8(self, folder):
        if folder:
            self.wanted = self.add("onnxruntime_int8", lambda: OnnxRuntime(folder, threads=1), None)
            self.add("int8", lambda: Lathe(self.args.lathe, folder, []), compare_quantized)

    def add(self, side, make, check):
        """Loads a side and compares its outputs, which are returned. One that cannot is told."""
        try:
            made = make()
            outputs = made.outputs()
            if side in ROUNDED:
                self.row["rms"][side] = rms_error(outputs, self.wanted)
            elif check:
                check(outputs, self.wanted)
        except (Exception, Failed) as error:  # the page says what came of it
            if check is None:
                raise
            self.row["missing"][side] = in_short(error)
            print(f"{self.row['model']}: no {side}: {in_short(error)}", file=sys.stderr, flush=True)
            return None
        self.sides[side], self.times[side] = made, []
        if hasattr(made, "took"):
            self.row["took"][side] = made.took
        return outputs

    def round(self):
        for side, made in self.sides.items():
            ours = isinstance(made, Lathe)
            self.times[side].append(made.bench(1, self.args.seconds)["p50_ms"] if ours
                                    else made.bench(self.args.seconds))

    def measure(self):
        for _ in range(self.args.rounds):
            self.round()
        self.row["ms"] = {side: statistics.median(times) for side, times in self.times.items()}
        return self.row


def read_lines(key):
    return [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.split("\t")[0] == key]


def cache_sizes():
    sizes = {}
    for index in sorted(CPU.glob("index*")):
        level, kind = ((index / part).read_text().strip() for part in ("level", "type"))
        if kind != "Instruction":
            sizes[f"L{level}"] = (index / "size").read_text().strip()
    return sizes


def machine(args):
    """What the page says of where and when it was measured."""
    flags = read_lines("flags")[0].split()
    family, number = read_lines("cpu family")[0], read_lines("model")[0]
    tool = subprocess.run([args.lathe, "--version"], capture_output=True, text=True, check=True)
    return {
        "cpu": f"{read_lines('model name')[0]} (family {family}, model {number})",
        "cores": len(os.sched_getaffinity(0)),
        "features": [f for f in FEATURES if f in flags],
        "caches": cache_sizes(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load": os.getloadavg()[0],
        "date": datetime.date.today().isoformat(),
        "versions": {"lathe": tool.stdout.split()[-1]} | {p: metadata.version(p) for p in PACKAGES},
    }


def print_row(row):
    cells = [f"{side} {ms:.3f}" for side, ms in row["ms"].items()]
    errors = [f"{side} rms {error:.1e}" for side, error in row["rms"].items()]
    print(f"{row['model']:14} {'  '.join(cells + errors)}", flush=True)


def run_all(args):
    result = {"machine": machine(args), "rounds": args.rounds, "seconds": args.seconds, "rows": []}
    for name in args.names:
        result["rows"].append(Trial(name, args).measure())
        print_row(result["rows"][-1])
        gc.collect()  # a model of each peer
        if args.json:
            args.json.write_text(json.dumps(result, indent=1) + "\n")
    return result


def main():
    parser = model_parser(__doc__, rounds=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each side in each round")
    parser.add_argument("--json", type=Path, help="the figures")
    parser.add_argument("--from", type=Path, dest="given", help="figures that --json wrote; nothing is measured")
    parser.add_argument("--markdown", type=Path, help="the page; its picture lies beside it")
    parser.add_argument("--note", help="a sentence about the machine, for the page")
    args = parse_models(parser)
    result = json.loads(args.given.read_text()) if args.given else run_all(args)
    for line in page.summary(result["rows"]):
        print(line)
    if args.markdown:
        picture = args.markdown.with_suffix(".svg")
        args.markdown.write_text(page.page(result, picture.name, args.note))
        picture.write_text(chart.draw(result["rows"]))


if __name__ == "__main__":
    main()
