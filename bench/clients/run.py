#!/usr/bin/env python3
"""Programs made for onnxruntime, unmodified, on onnxruntime and on lathe.onnxruntime.

    python -m venv env && env/bin/pip install -r bench/clients/requirements.txt
    env/bin/python bench/clients/run.py [CLIENT...] [--rounds N] [--json FILE]

Each client runs in processes of its own, in turns with either runtime; results are compared first.
A row has the median time of a run in ms, how much faster Lathe is, and the seconds that making the
sessions takes: Lathe's the first time, and `again` with the machine code that was kept.
"""

import argparse
import json
import math
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RUNTIMES = ("onnxruntime", "lathe")


def work(name: str, runtime: str, folder: Path, seconds: float):
    """Runs a client in this process and writes times and results to folder."""
    if runtime == "lathe":
        import lathe.onnxruntime

        lathe.onnxruntime.install()
    import onnxruntime

    from clients import CLIENTS

    sessions, times = [], []
    make = onnxruntime.InferenceSession.__init__

    def timed(*args, **kwargs):
        began = time.perf_counter()
        make(*args, **kwargs)
        sessions.append(time.perf_counter() - began)

    onnxruntime.InferenceSession.__init__ = timed
    run = CLIENTS[name](folder)
    result = run()
    while sum(times) < seconds or len(times) < 3:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    module = onnxruntime.InferenceSession.__module__
    report = {"sessions": sum(sessions), "times": times, "result": result, "module": module}
    (folder / f"{name}.{runtime}").write_bytes(pickle.dumps(report))


def differ(a, b, place="") -> str:
    """Where two results differ by more than rounding, or an empty string."""
    if isinstance(a, dict):
        a, b = sorted(a.items()), sorted(b.items())
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{place}: {len(a)} and {len(b)} items"
        found = (differ(x, y, f"{place}[{i}]") for i, (x, y) in enumerate(zip(a, b)))
        return next(filter(None, found), "")
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return f"{place}: {a.dtype}{a.shape} and {b.dtype}{b.shape}"
    if a.dtype.kind in "fc":
        error = np.abs(a - b).max(initial=0)
        return "" if np.allclose(a, b, 1e-3, 1e-3) else f"{place}: off by {error:.2g}"
    return "" if np.array_equal(a, b) else f"{place}: {a.ravel()[:3]} and {b.ravel()[:3]}"


def turn(name: str, runtime: str, folder: Path, seconds: float) -> dict:
    """One process; its report, or the last line of what went wrong."""
    command = [sys.executable, __file__, "--work", name, runtime, folder, "--seconds", seconds]
    env = dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"))  # where Lathe keeps code
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env)
    if done.returncode:
        lines = [x for x in done.stderr.splitlines() if x and x[0] != " "]
        lines = lines or [f"exit status {done.returncode}"]
        return {"failed": lines[-1], "log": done.stderr}
    return pickle.loads((folder / f"{name}.{runtime}").read_bytes())


def compare(name: str, folder: Path, rounds: int, seconds: float) -> dict:
    """The row of a client."""
    reports = {runtime: [] for runtime in RUNTIMES}
    for _ in range(rounds):
        for runtime in RUNTIMES:
            report = turn(name, runtime, folder, seconds)
            if "failed" in report:
                print(report["log"], file=sys.stderr)
                return {"client": name, "runtime": runtime, "failed": report["failed"]}
            reports[runtime].append(report)
    peer, ours = (reports[runtime] for runtime in RUNTIMES)
    assert ours[0]["module"].startswith("lathe."), "the client did not use Lathe"
    times = {
        runtime: 1e3 * statistics.median(t for report in reports[runtime] for t in report["times"])
        for runtime in RUNTIMES
    }
    return {
        "client": name,
        "difference": differ(peer[0]["result"], ours[0]["result"]),
        **times,
        "ratio": times["onnxruntime"] / times["lathe"],
        "sessions_onnxruntime": peer[-1]["sessions"],
        "sessions_lathe": ours[0]["sessions"],
        "sessions_lathe_again": ours[-1]["sessions"],
    }


def show(row: dict):
    if "failed" in row:
        print(f"{row['client']:22} fails on {row['runtime']}: {row['failed']}", flush=True)
        return
    print(
        f"{row['client']:22} {row['onnxruntime']:10.2f} {row['lathe']:10.2f} {row['ratio']:7.2f} "
        f"{row['sessions_onnxruntime']:10.2f} {row['sessions_lathe']:7.2f} "
        f"{row['sessions_lathe_again']:7.2f}  {row['difference'] or 'same'}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clients", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of runs in each process")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        name, runtime, folder = args.work
        return work(name, runtime, Path(folder), args.seconds)

    from clients import CLIENTS

    unknown = set(args.clients) - CLIENTS.keys()
    if unknown:
        parser.error(f"no client {', '.join(sorted(unknown))}; there are {', '.join(CLIENTS)}")
    print(f"{'ms':22} {'ort':>10} {'lathe':>10} {'ratio':>7} {'sessions s':>10} {'lathe':>7} "
          f"{'again':>7}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.clients or CLIENTS:
            rows.append(compare(name, Path(folder), args.rounds, args.seconds))
            show(rows[-1])
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        print(f"geometric mean of {len(ratios)}: {math.prod(ratios) ** (1 / len(ratios)):.2f}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return int(any(row.get("failed") or row.get("difference") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
