#!/usr/bin/env python3
"""make_small.py DIR: a small variant of each model, with samples, for tests (a few seconds)."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRANSFORMER = "--layers 2 --hidden 64 --heads 4 --vocab 1000 --batch 2"
SMALL = {
    "bert": f"bert.py {TRANSFORMER} --seq 16",
    "gpt2": f"gpt2.py {TRANSFORMER} --positions 64 --seq 16",
    "gpt2_past": f"gpt2.py {TRANSFORMER} --positions 64 --seq 3 --past --cached 9",
    "mobilenet_v2": "mobilenet_v2.py --size 32",
    "lstm": "lstm.py --hidden 32 --vocab 100 --seq 7 --batch 2",
}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_small.py DIR")
    for name, words in SMALL.items():
        script, *options = words.split()
        command = [sys.executable, HERE / script, *options, "--samples"]
        subprocess.run([*command, "--out", Path(sys.argv[1]) / name], check=True)


if __name__ == "__main__":
    main()
