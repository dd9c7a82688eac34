#!/usr/bin/env python3
"""Generated kernels against oneDNN on one thread: outputs are compared first, then both are timed by
turns in one process, in processor time of the thread.

    bench/kernels/onednn_peer.py [--build build] [conv resnet50 | matmul 128x768 768x768 constant | ...]

The arguments are those of `bench_kernels`. One row each: GFLOP/s (GB/s where nothing is multiplied)
of ours and of the peer, its code, and the ratio of the times: above 1 is in our favor. Last the
geometric mean. oneDNN has its weights packed and images with their channels last; bringing an image
there is not timed.
"""

import argparse
import json
import math
import subprocess
from pathlib import Path

KERNELS = """
matmul 128x768 768x768 constant
matmul 512x768 768x3072 constant
matmul 1024x1024 1024x1024 constant
matmul 12x128x64 12x64x128
matmul 1x4096 4096x4096 constant
matmul 4x4096 4096x4096 constant
conv all
depthwise all
pool all
rows
"""


def rows_of(bench, words):
    text = subprocess.run([bench, "--peer", *words], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in text.stdout.splitlines()]


def show(row):
    if "ratio" not in row:
        print(f"{row['kernel']:44} no peer: {row['no_peer']}", flush=True)
        return
    speed = row["gflops"] or row["gbytes_per_s"]
    print(
        f"{row['kernel']:44} {speed:8.1f} {speed / row['ratio']:8.1f} {row['ratio']:6.2f}  {row['peer']}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build", help="where bin/bench_kernels is")
    parser.add_argument("kernel", nargs="*", help="as for bench_kernels; without: a list of them")
    args = parser.parse_args()
    bench = Path(args.build) / "bin" / "bench_kernels"
    kernels = [args.kernel] if args.kernel else [k.split() for k in KERNELS.strip().splitlines()]
    print(f"{'kernel':44} {'ours':>8} {'peer':>8} {'ratio':>6}")
    ratios = []
    for words in kernels:
        for row in rows_of(bench, words):
            show(row)
            if "ratio" in row:
                ratios.append(row["ratio"])
    if ratios:
        mean = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
        print(f"geometric mean of {len(ratios)}: {mean:.2f}")


if __name__ == "__main__":
    main()
