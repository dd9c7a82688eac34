#!/usr/bin/env python3
"""Whole models against others in one run: outputs are compared first, then rounds alternate.

    bench/models/run.py                                    # builds the models that are missing
    bench/models/run.py resnet50 bert --rounds 5 --json result.json
    bench/models/run.py --peer all                         # OpenVINO, too (requirements/bench.txt)
    bench/models/run.py --before ../old/build/bin/lathe    # another state of ours, too

Per model and peer, in ms: our median and the peer's best configuration, on one thread (`1`) and with
default threads (`n`; onnxruntime with and without spinning); `ratio` is peer / ours: above 1 is in our
favor. `session`: what the peer takes to load the model. Then what we take to compile (cold), and our
peak memory. The last lines are the geometric means over the models on one thread.

Everybody computes in f32 and takes the model as it is: extents that it leaves open stay so. Peers send
no telemetry.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

from race import PEERS, Lathe, compare

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
GOAL_MEAN, GOAL_LEAST = 0.8, 0.5


def model_parser(description, rounds):
    """Options of every script that measures these models."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--models", type=Path, default=HERE.parents[1] / "build/models",
                        help="folder of the models; those missing are built (default: build/models)")
    parser.add_argument("--lathe", default=HERE.parents[1] / "build/bin/lathe")
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def parse_models(parser):
    """The arguments; `names` are those of all models if none is given."""
    args = parser.parse_args()
    unknown = set(args.names) - MODELS.keys()
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    args.names = args.names or list(MODELS)
    return args


def ensure_model(models, name):
    """Its folder; builds what is missing."""
    folder = models / name
    if not (folder / "test_data_set_0").exists():
        script, *options = MODELS[name].split()
        subprocess.run([sys.executable, HERE / script, *options, "--samples", "--out", folder], check=True)
    return folder


class Race:
    """One model: we and the peers, each on one thread and, unless `single`, on many."""

    def __init__(self, folder, args):
        self.lathe, self.seconds = Lathe(args.lathe, folder, args.option), args.seconds
        self.before = Lathe(args.before, folder, args.option) if args.before else None
        self.one = {p: PEERS[p](folder, **PEERS[p].one) for p in args.peers}
        if not args.skip_compare:
            ours = self.lathe.outputs()
            for peer in self.one.values():
                compare(ours, peer.outputs())
            if self.before:
                compare(ours, self.before.outputs())
        many = [] if args.single else args.peers
        self.many = {p: [PEERS[p](folder, **options) for options in PEERS[p].many] for p in many}
        self.figures = {}

    def note(self, key, value):
        self.figures.setdefault(key, []).append(value)

    def round(self):
        ours = self.lathe.bench(1, self.seconds)
        self.note("ours_1", ours["p50_ms"])
        self.note("compile_ms", ours["compile_ms"] + ours["load_ms"])
        self.note("peak_rss_mb", ours["peak_rss_mb"])
        if self.before:
            before = self.before.bench(1, self.seconds)
            self.note("before_1", before["p50_ms"])
            self.note("before_compile_ms", before["compile_ms"] + before["load_ms"])
        for name, peer in self.one.items():
            self.note(f"{name}_1", peer.bench(self.seconds))
        if self.many:
            self.note("ours_n", self.lathe.bench(0, self.seconds)["p50_ms"])
        for name, sessions in self.many.items():
            self.note(f"{name}_n", min(s.bench(self.seconds) for s in sessions))

    def row(self):
        row = {key: statistics.median(values) for key, values in self.figures.items()}
        for name, peer in self.one.items():
            row[f"{name}_session_ms"] = peer.load_ms
            for threads in "1n":
                if f"{name}_{threads}" in row:
                    row[f"{name}_ratio_{threads}"] = row[f"{name}_{threads}"] / row[f"ours_{threads}"]
        if self.before:
            row["before_ratio_1"] = row["before_1"] / row["ours_1"]
        return row


def measure(name, folder, args):
    race = Race(folder, args)
    for _ in range(args.rounds):
        race.round()
    return {"model": name} | race.row()


def print_row(row, peers):
    for peer in peers:
        cells = [f"{row['model']:14}"]
        if len(peers) > 1:
            cells.append(f"{peer:11}")
        for threads in "1n":
            if f"ours_{threads}" in row:
                cells.append(f"{threads}: {row[f'ours_{threads}']:9.3f} {row[f'{peer}_{threads}']:9.3f} "
                             f"ratio {row[f'{peer}_ratio_{threads}']:5.2f}")
        if "before_1" in row:
            cells.append(f"before {row['before_1']:9.3f} ratio {row['before_ratio_1']:5.2f} "
                         f"compile {row['before_compile_ms']:7.0f}")
        cells.append(f"compile {row['compile_ms']:7.0f}  session {row[f'{peer}_session_ms']:7.0f}  "
                     f"rss {row['peak_rss_mb']:6.0f} MB")
        print("   ".join(cells), flush=True)


def print_mean(rows, peer):
    key = f"{peer}_ratio_1"
    mean = math.exp(statistics.fmean(math.log(r[key]) for r in rows))
    least = min(rows, key=lambda r: r[key])
    goals = (f" (goal {GOAL_MEAN})", f"; goal {GOAL_LEAST}") if peer == "onnxruntime" else ("", "")
    print(f"one thread, {peer}: geometric mean {mean:.3f}{goals[0]}, least {least[key]:.3f} "
          f"({least['model']}{goals[1]})")
    return mean


def main():
    parser = model_parser(__doc__, rounds=3)
    parser.add_argument("--option", action="append", default=[], help="passed to lathe, e.g. --option=--target=avx2")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each side in each round")
    parser.add_argument("--single", action="store_true", help="one thread only")
    parser.add_argument("--peer", choices=[*PEERS, "all"], default="onnxruntime")
    parser.add_argument("--before", type=Path, help="another build of lathe that takes turns on one thread")
    parser.add_argument("--skip-compare", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parse_models(parser)
    args.peers = list(PEERS) if args.peer == "all" else [args.peer]
    rows = []
    for name in args.names:
        rows.append(measure(name, ensure_model(args.models, name), args))
        print_row(rows[-1], args.peers)
    means = {peer: print_mean(rows, peer) for peer in [*args.peers, *(["before"] if args.before else [])]}
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "means": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
