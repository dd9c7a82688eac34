#!/usr/bin/env python3
"""The pass layer against mlir-opt, and its growth.

    bench/pass/run.py                      # 5 interleaved runs
    bench/pass/run.py --quick              # 3 runs; a tenth of the operations
    bench/pass/run.py --lathe build-dev/bin/lathe --json result.json

- CSE, dead code and folding of one graph of a million operations: `simplify` against
  `--cse --canonicalize`, both in the same interleaved runs, by the tools' own timers. mlir-opt runs
  with and without threads; the faster one counts.
- the whole `inference` pipeline on 10,000 and 100,000 operations like those of exporters
- a detector of a fully connected layer, and the rule for it, with 5,000 and 50,000 matches
- 10,000 functions, each called by the one before, inlined
- a nested pipeline over 1,000 functions on one thread and on all
Ratios below 1 are in our favor.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOALS = {"simplify / mlir": 0.35, "inference growth": 12.0, "detector growth": 12.0, "rule growth": 12.0,
         "inline seconds": 1.0}


def find_tool(name, places):
    for place in places:
        if os.path.exists(place) or shutil.which(place):
            return str(place)
    sys.exit(f"run.py: no {name}; looked for {', '.join(map(str, places))}")


def generate(script, path, *options):
    with open(path, "w") as out:
        subprocess.run([sys.executable, str(ROOT / "bench" / script), *map(str, options)], check=True, stdout=out)
    return path


class Bench:
    def __init__(self, lathe, mlir, bench_pass, runs):
        self.lathe, self.mlir, self.bench_pass, self.runs = lathe, mlir, bench_pass, runs

    def ours(self, path, pipeline, *options):
        """Seconds of the passes, as the tool counts them."""
        done = subprocess.run([self.lathe, "opt", path, "--passes", pipeline, "--no-print", "--timing", *options],
                              capture_output=True, text=True, check=True)
        return float(re.search(r"([\d.]+)\s+total", done.stderr)[1]) / 1000

    def theirs(self, path, *flags):
        done = subprocess.run([self.mlir, path, "--cse", "--canonicalize", "-o", "/dev/null", "--mlir-timing",
                               "--mlir-timing-display=list", *flags], capture_output=True, text=True, check=True)
        return sum(float(re.search(rf"([\d.]+) \(\s*[\d.]+%\)\s+{name}", done.stderr)[1])
                   for name in ("CSE", "Canonicalizer"))

    def wall(self, path, pipeline, threads):
        """Seconds from the start of the passes to their end, whatever the number of threads."""
        done = subprocess.run([self.lathe, "opt", path, "--passes", pipeline, "--no-print", "--timing", "--threads",
                               threads], capture_output=True, text=True, check=True)
        return float(re.search(r"time passes ([\d.e+-]+) s", done.stderr)[1])

    def median(self, *samplers):
        """Medians of interleaved runs; the first one warms the caches."""
        samples = [[sample() for sample in samplers] for _ in range(self.runs + 1)][1:]
        return [statistics.median(column) for column in zip(*samples)]

    def growth(self):
        """Of the detector and of the rule, from the smaller to the larger number of matches."""
        text = subprocess.run([self.bench_pass], capture_output=True, text=True, check=True).stdout
        return {name: float(growth) for name, growth in re.findall(r"^(\w+).*growth ([\d.]+)", text, re.MULTILINE)}


def measure(bench, folder, ops):
    found = {}
    a, b = f"{folder}/graph.lathe", f"{folder}/graph.mlir"
    subprocess.run([sys.executable, str(ROOT / "bench/ir/gen.py"), "--ops", str(ops), "--lathe", a, "--mlir", b],
                   check=True)
    ours, threads, single = bench.median(lambda: bench.ours(a, "simplify"), lambda: bench.theirs(b),
                                         lambda: bench.theirs(b, "--mlir-disable-threading"))
    theirs = min(threads, single)
    print(f"simplify, {ops} operations: lathe {ours:.3f} s, mlir-opt --cse --canonicalize {theirs:.3f} s")
    found["simplify / mlir"] = ours / theirs

    small = generate("pass/gen.py", f"{folder}/small.lathe", "layers", "--ops", ops // 100)
    large = generate("pass/gen.py", f"{folder}/large.lathe", "layers", "--ops", ops // 10)
    tenth, whole = bench.median(lambda: bench.ours(small, "inference"), lambda: bench.ours(large, "inference"))
    print(f"inference: {ops // 100} operations {tenth:.3f} s, {ops // 10} operations {whole:.3f} s")
    found["inference growth"] = whole / tenth

    chain = generate("pass/gen.py", f"{folder}/chain.lathe", "chain", "--ops", ops // 100)
    found["inline seconds"] = bench.median(lambda: bench.ours(chain, "inline"))[0]

    many = generate("pass/gen.py", f"{folder}/functions.lathe", "functions", "--ops", 1000)
    pipeline = "builtin.func(inference)"
    wall = bench.median(lambda: bench.wall(many, pipeline, "1"), lambda: bench.wall(many, pipeline, "0"))
    print(f"inference in 1000 functions: one thread {wall[0]:.3f} s, {os.cpu_count()} threads {wall[1]:.3f} s")
    found["functions, all threads / one"] = wall[1] / wall[0]

    if bench.bench_pass:
        runs = [bench.growth() for _ in range(bench.runs)]
        for name in runs[0]:
            found[f"{name} growth"] = statistics.median(run[name] for run in runs)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lathe", default=None)
    parser.add_argument("--mlir", default=None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", default=None, help="also write the numbers here")
    args = parser.parse_args()
    lathe = find_tool("lathe", [args.lathe] if args.lathe else [ROOT / "build/bin/lathe"])
    mlir = find_tool("mlir-opt-19", [args.mlir] if args.mlir else
                     ["mlir-opt-19", "/usr/lib/llvm-19/bin/mlir-opt"])
    bench_pass = pathlib.Path(lathe).parent / "bench_pass"
    if not bench_pass.exists():
        print("no bench_pass beside the command (configure with -DLATHE_BENCH=ON): no growth of matching")
        bench_pass = None
    bench = Bench(lathe, mlir, bench_pass, 3 if args.quick else args.runs)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(bench, folder, 100_000 if args.quick else 1_000_000)
    for name, value in found.items():
        goal = GOALS.get(name)
        verdict = "" if goal is None else f"goal {goal:5.2f}   {'ok' if value <= goal else 'MISSED'}"
        print(f"{name:30} {value:7.3f}   {verdict}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"cpus": os.cpu_count(), "results": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
