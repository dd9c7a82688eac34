#!/usr/bin/env python3
"""Models that a stranger brings, against onnxruntime, at three sets of sizes.

    bench/corpus/run.py                     # all; those missing are built
    bench/corpus/run.py deeplab swin --json result.json
    bench/corpus/run.py --threads 2         # of each side, instead of one
    bench/corpus/run.py --processor avx2    # both sides as on a processor without AVX-512
    bench/corpus/run.py --seconds 0         # outputs are compared, nothing is timed

Per model: whether outputs agree with those of onnxruntime at each set of sizes; `ratio` of the
medians (onnxruntime / ours), on one thread unless said, at the first; ms to compile, with an empty cache, and to
create a session; peak memory in MB of ours; how many steps have no kernel. Then the executable
(.lx), run by the run time alone: ms of the first run and what the first run with the next sizes takes
more than the second, and whether it agrees; or why there is none.

Needs bench/corpus/requirements.txt (`make corpus`).
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "models"))

import numpy as np
import onnx

import lesser_cpu
import lx
from race import Failed, Lathe, OnnxRuntime, compare, compare_quantized


def in_short(text):
    """What an error says and its notes, without the command and the place."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("error")]
    notes = [line.lstrip("| ") for line in lines if line.startswith("|")]
    if "save/interpreted" in text:
        told = []  # the notes say it
    return "; ".join(line[:150] for line in [*told[:1], *notes] or lines[-1:])


def compare_found(ours, theirs):
    """Things that were detected: those of nearly equal scores may come in any order, and a few may
    be the last that just made it, or suppress one another in turn."""
    if ours.keys() != {"boxes", "scores", "labels"}:
        return compare(ours, theirs)
    compare({"scores": ours["scores"]}, {"scores": theirs["scores"]})
    reach = 1e-3 * np.abs(theirs["boxes"]).max(initial=1)
    missing = [
        f"{box} of class {label}" for box, label in zip(theirs["boxes"], theirs["labels"])
        if not ((ours["labels"] == label) & (np.abs(ours["boxes"] - box).max(1, initial=0) < reach)).any()]
    assert len(missing) <= 0.02 * len(theirs["boxes"]), f"{len(missing)} boxes are missing: {missing[0]}"


def is_quantized(model):
    nodes = onnx.load(str(model), load_external_data=False).graph.node
    marks = "Quantize", "QLinear", "MatMulInteger"
    return any(any(mark in n.op_type for mark in marks) or rounds_rows(n) for n in nodes)


def rounds_rows(node):
    return node.op_type == "MatMulNBits" and any(a.name == "accuracy_level" and a.i == 4 for a in node.attribute)


def as_tensors(outputs, model):
    """Lists of dictionaries (ZipMap) as tensors, columns in the order in which the model names labels."""
    lists = [name for name, value in outputs.items() if isinstance(value, list)]
    if not lists:
        return outputs
    nodes = {n.output[0]: n for n in onnx.load(str(model), load_external_data=False).graph.node}
    tables = {}
    for name in lists:
        labels = {a.name: list(a.ints) or [s.decode() for s in a.strings] for a in nodes[name].attribute}
        order = next(iter(labels.values()))
        tables[name] = np.array([[row[label] for label in order] for row in outputs[name]], np.float32)
    return outputs | tables


class Trial:
    """One model: what it gave, by key of the table."""

    def __init__(self, name, folder, args):
        self.name, self.folder, self.args = name, folder, args
        self.sizes = json.loads((folder / "sizes.json").read_text())
        self.peer = OnnxRuntime(folder, threads=args.threads)
        self.row = {"model": name, "session_ms": self.peer.load_ms}
        self.wanted = []
        self.compare = compare_quantized if is_quantized(folder / "model.onnx") else compare_found

    def lathe(self, number, *options):
        return Lathe(self.args.lathe, self.folder, [*self.args.option, *options], number, self.args.timeout)

    def agrees(self):
        said = []
        for k in range(len(self.sizes)):
            self.peer.feed(self.folder, k)
            self.wanted.append(as_tensors(self.peer.outputs(), self.folder / "model.onnx"))
            try:
                self.compare(self.lathe(k).outputs(), self.wanted[k])
                said.append("yes")
            except Failed as error:
                said.append(in_short(str(error)))
            except AssertionError as error:
                said.append("WRONG: " + " ".join(str(error).split())[:150])
        self.row["agrees"] = said
        return said[0] == "yes"

    def time(self):
        with tempfile.TemporaryDirectory() as cache:
            cold = self.lathe(0, "--cache", cache).bench(self.args.threads, 0)
        self.row["compile_ms"] = cold["compile_ms"] + cold["load_ms"]
        self.row["no_kernel"] = cold["interpreted"]
        self.row["peak_rss_mb"] = cold["peak_rss_mb"]
        self.peer.feed(self.folder, 0)
        ours, theirs = [], []
        for _ in range(self.args.rounds):
            ours.append(self.lathe(0).bench(self.args.threads, self.args.seconds)["p50_ms"])
            theirs.append(self.peer.bench(self.args.seconds))
        self.row["ours_ms"], self.row["peer_ms"] = statistics.median(ours), statistics.median(theirs)
        self.row["ratio"] = self.row["peer_ms"] / self.row["ours_ms"]

    def save(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.lx"
            done = subprocess.run([self.args.lathe, "compile", self.folder / "model.onnx", "-o", file],
                                  capture_output=True, text=True, timeout=self.args.timeout)
            self.row["saved"] = "yes" if done.returncode == 0 else in_short(done.stderr)
            if done.returncode == 0:
                self.run_saved(lx.Executable(self.args.library, file, self.args.threads))

    def run_saved(self, program):
        spent = []
        for k, wanted in enumerate(self.wanted):
            self.peer.feed(self.folder, k)
            outputs, first = program.run(self.peer.feeds)
            spent.append((first, program.run(self.peer.feeds)[1]))
            self.compare(outputs, wanted)
        self.row["first_ms"] = spent[0][0] * 1e3
        if len(spent) > 1:
            self.row["new_size_ms"] = statistics.median((first - second) * 1e3 for first, second in spent[1:])

    def all(self):
        works = self.agrees()
        try:
            self.save()
        except Exception as error:  # the table says what came of it
            self.row["saved"] = f"{type(error).__name__}: {in_short(str(error))}"
        if works and self.args.seconds > 0:
            try:
                self.time()
            except Failed as error:
                self.row["not_timed"] = in_short(str(error))
        return self.row


def print_row(row):
    agrees = row["agrees"]
    bad = [f"at sizes {k}: {said}" for k, said in enumerate(agrees) if said != "yes"]
    cells = [f"{row['model']:20}", f"agrees {len(agrees) - len(bad)}/{len(agrees)}"]
    if "ratio" in row:
        cells.append(f"ratio {row['ratio']:7.3f} ({row['peer_ms']:8.3f} / {row['ours_ms']:8.3f} ms)  compile "
                     f"{row['compile_ms']:6.0f}  session {row['session_ms']:5.0f}  rss {row['peak_rss_mb']:5.0f} MB  "
                     f"no kernel {sum(row['no_kernel'].values()):3}")
    if "first_ms" in row:
        cells.append(f"lx: first {row['first_ms']:7.2f}")
    if "new_size_ms" in row:
        cells.append(f"new size {row['new_size_ms']:+5.2f}")
    print("  ".join(cells))
    if row["saved"] != "yes":
        bad.append(f"no .lx: {row['saved']}")
    if "not_timed" in row:
        bad.append(f"not timed: {row['not_timed']}")
    for line in bad:
        print(f"    {line}")
    sys.stdout.flush()


def print_summary(rows, threads):
    ratios = [r["ratio"] for r in rows if "ratio" in r]
    agree = sum(all(said == "yes" for said in r["agrees"]) for r in rows)
    saved = sum(r["saved"] == "yes" for r in rows)
    print(f"{len(rows)} models: {agree} agree at all sizes, {saved} run by the run time alone")
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"threads {threads}: geometric mean {mean:.3f} over {len(ratios)}, least {min(ratios):.3f}, "
              f"{sum(r >= 0.8 for r in ratios)} at least 0.8")


def table_of(rows):
    """Markdown, worst ratio first."""
    lines = ["| model | agrees | ratio | ms | onnxruntime ms | compile s | new size ms | MB |",
             "|---|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda r: (r.get("ratio", 0), r["model"])):
        agrees = f"{sum(said == 'yes' for said in row['agrees'])}/{len(row['agrees'])}"
        timed = ["", "", "", "", ""]
        if "ratio" in row:
            timed = [f"{row['ratio']:.2f}", f"{row['ours_ms']:.3f}", f"{row['peer_ms']:.3f}",
                     f"{row['compile_ms'] / 1e3:.1f}", f"{row['peak_rss_mb']:.0f}"]
        new_size = f"{row['new_size_ms']:.2f}" if "new_size_ms" in row else "" if "first_ms" in row else "no `.lx`"
        lines.append(f"| {row['model']} | {agrees} | {' | '.join(timed[:4])} | {new_size} | {timed[4]} |")
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = HERE.parents[1]
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--models", type=Path, default=root / "build/corpus")
    parser.add_argument("--lathe", type=Path, default=root / "build/bin/lathe")
    parser.add_argument("--runtime", type=Path, default=root / "build/lib/liblathe_runtime.so")
    parser.add_argument("--option", action="append", default=[], help="passed to lathe, e.g. --option=--target=avx2")
    parser.add_argument("--processor", choices=lesser_cpu.PROCESSORS,
                        help="all sides see no more instructions than these (Linux, where CPUID can fault)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each side in each round; 0: not timed")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for each call of lathe")
    parser.add_argument("--no-build", action="store_true", help="take what is there")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="a table, such as that of docs/models.md")
    args = parser.parse_args()
    if args.processor:
        lesser_cpu.become(args.processor)
    args.library = lx.load_library(args.runtime)
    return args


def main():
    args = parse()
    if not args.no_build:  # what cannot be built is told; the others are measured
        subprocess.run([sys.executable, HERE / "build.py", "--out", args.models, "--missing", *args.names])
    names = args.names or sorted(f.parent.name for f in args.models.glob("*/sizes.json"))
    rows = []
    for name in names:
        try:
            rows.append(Trial(name, args.models / name, args).all())
        except Exception as error:
            print(f"{name:20}  onnxruntime: {in_short(str(error))}", flush=True)
            continue
        print_row(rows[-1])
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")
    print_summary(rows, args.threads)
    if args.markdown:
        args.markdown.write_text(table_of(rows))


if __name__ == "__main__":
    main()
