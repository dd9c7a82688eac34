#!/usr/bin/env python3
"""The language against mlir-opt: reads, verifies and prints the same modules with both tools.

    bench/ir/run.py                      # 5 interleaved runs each, up to a million operations
    bench/ir/run.py --quick              # 3 runs, up to 100,000
    bench/ir/run.py --json result.json

Times are medians of the tools' own phase timers (read + verify, print), of wall time for the whole
command, and peak resident memory as the kernel counts it. mlir-opt runs with and without threads;
the faster one counts. Ratios below 1 are in our favor.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOALS = {"read+verify": 0.5, "print": 0.4, "memory per op": 0.6, "start": 0.5, "growth": 12.0}


def find_tool(name, places):
    for place in places:
        if os.path.exists(place) or shutil.which(place):
            return str(place)
    sys.exit(f"run.py: no {name}; looked for {', '.join(map(str, places))}")


def run(launcher, command):
    """(numbers of the launcher, stderr) of one run; the command's output goes nowhere."""
    done = subprocess.run([launcher, "--run", *command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout), done.stderr


class Ours:
    name = language = "lathe"

    def __init__(self, tool):
        self.tool = tool

    def command(self, path):
        return [self.tool, "opt", path, "--timing"]

    def phases(self, text):
        found = dict(re.findall(r"time (\S+) ([\d.e+-]+) s", text))
        return {"read+verify": float(found["read+verify"]), "print": float(found["write"])}


class Theirs:
    language = "mlir"

    def __init__(self, tool, threads):
        self.tool = tool
        self.name = "mlir" if threads else "mlir, one thread"
        self.flags = [] if threads else ["--mlir-disable-threading"]

    def command(self, path):
        return [self.tool, path, "-o", "/dev/null", "--mlir-timing", "--mlir-timing-display=list", *self.flags]

    def phases(self, text):
        def phase(name):
            found = re.search(r"([\d.]+) \(\s*[\d.]+%\)\s+" + name, text)
            return float(found[1]) if found else 0.0

        return {"read+verify": phase("Parser"), "print": phase("Output")}


def generate(folder, kind, ops):
    paths = {"lathe": f"{folder}/{kind}{ops}.lathe", "mlir": f"{folder}/{kind}{ops}.mlir"}
    subprocess.run([sys.executable, str(ROOT / "bench/ir/gen.py"), "--kind", kind, "--ops", str(ops),
                    "--lathe", paths["lathe"], "--mlir", paths["mlir"]], check=True)
    return paths


def measure(launcher, tools, paths, runs):
    """Interleaved runs; {tool: {quantity: median}} or {tool: {"failed": status}}."""
    samples = {tool.name: [] for tool in tools}
    failed = {}
    for number in range(runs + 1):  # the first one warms the caches
        for tool in tools:
            if tool.name in failed:
                continue
            numbers, text = run(launcher, tool.command(paths[tool.language]))
            if numbers["status"] != 0:
                failed[tool.name] = numbers["status"]
            elif number > 0:
                samples[tool.name].append({"wall": numbers["wall_ms"] / 1000,
                                           "peak MiB": numbers["peak_kib"] / 1024,
                                           **tool.phases(text)})
    result = {}
    for tool in tools:
        if tool.name in failed:
            result[tool.name] = {"failed": failed[tool.name]}
        else:
            keys = samples[tool.name][0]
            result[tool.name] = {k: statistics.median(s[k] for s in samples[tool.name]) for k in keys}
    return best_of_peer(result)


def best_of_peer(result):
    """The peer counts with the configuration that is faster as a whole."""
    single = result.pop("mlir, one thread")
    if single.get("wall", float("inf")) < result["mlir"].get("wall", float("inf")):
        result["mlir"] = single
    return result


def check_twins(tools, paths):
    """Both tools print the same number of operations; ours has two more, the feeds."""
    counts = {}
    for tool in tools[:2]:
        command = [tool.tool, paths["mlir"]] if tool.name == "mlir" else tool.command(paths["lathe"])
        text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
        counts[tool.name] = len(re.findall(rb"^\s+%", text, re.MULTILINE))
    if counts["lathe"] != counts["mlir"] + 2:
        sys.exit(f"run.py: the modules are no twins: {counts}")


def ratio(case, key):
    ours, theirs = case["lathe"], case["mlir"]
    if "failed" in ours or "failed" in theirs or not theirs.get(key):
        return None
    return ours[key] / theirs[key]


def per_op(case, empty, tool, ops):
    return (case[tool]["peak MiB"] - empty[tool]["peak MiB"]) * 2**20 / ops


def summary(cases, sizes):
    """The quantities that have goals."""
    empty, big = cases["empty 0"], cases[f"graph {sizes[-1]}"]
    ops = sizes[-1]
    bytes_ours, bytes_theirs = (per_op(big, empty, t, ops) for t in ("lathe", "mlir"))
    found = {
        "read+verify": ratio(big, "read+verify"),
        "print": ratio(big, "print"),
        "memory per op": bytes_ours / bytes_theirs,
        "start": ratio(empty, "wall"),
    }
    if len(sizes) > 1:
        small = cases[f"graph {sizes[-2]}"]["lathe"]
        found["growth"] = ((big["lathe"]["read+verify"] + big["lathe"]["print"]) /
                           (small["read+verify"] + small["print"]))
    return found, {"lathe": bytes_ours, "mlir": bytes_theirs}


def cell(values, key, ops, scale=1e6):
    if "failed" in values:
        return f"exit {values['failed']}"
    return f"{values[key] * scale / ops:.2f}" if ops else "-"


def print_table(cases):
    print("| case | read + verify us/op | | ratio | print us/op | | ratio | wall s | | peak MiB | |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    print("| | lathe | mlir | | lathe | mlir | | lathe | mlir | lathe | mlir |")
    for name, case in cases.items():
        ops = int(name.split()[1])
        row = [name]
        for key in ("read+verify", "print"):
            r = ratio(case, key) if ops else None
            row += [cell(case[t], key, ops) for t in ("lathe", "mlir")] + [f"{r:.2f}" if r else "-"]
        for key, digits in (("wall", 3), ("peak MiB", 0)):
            row += [f"{case[t][key]:.{digits}f}" if key in case[t] else "-" for t in ("lathe", "mlir")]
        print("| " + " | ".join(row) + " |")


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
    launcher = find_tool("bench_ir (configure with -DLATHE_BENCH=ON)", [pathlib.Path(lathe).parent / "bench_ir"])
    tools = [Ours(lathe), Theirs(mlir, threads=True), Theirs(mlir, threads=False)]
    runs = 3 if args.quick else args.runs
    sizes = [10_000, 100_000] if args.quick else [10_000, 100_000, 1_000_000]
    plan = [("empty", 0)] + [("graph", n) for n in sizes] + [("chain", sizes[-1]), ("nested", 500),
                                                            ("nested", 100_000)]
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        check_twins(tools, generate(folder, "graph", sizes[0]))
        for kind, ops in plan:
            print(f"{kind} {ops} ...", file=sys.stderr, flush=True)
            paths = generate(folder, kind, ops)
            cases[f"{kind} {ops}"] = measure(launcher, tools, paths, runs)
            for path in paths.values():
                os.remove(path)
    print_table(cases)
    found, memory = summary(cases, sizes)
    print(f"\nmemory per operation above an empty run: lathe {memory['lathe']:.0f} B, mlir {memory['mlir']:.0f} B")
    for name, value in found.items():
        verdict = "ok" if value <= GOALS[name] else "MISSED"
        print(f"{name:14} {value:6.3f}   goal {GOALS[name]:5.2f}   {verdict}")
    if args.json:
        document = {"machine": platform.processor() or platform.machine(), "cpus": os.cpu_count(),
                    "runs": runs, "cases": cases, "ratios": found, "bytes_per_op": memory}
        pathlib.Path(args.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
