#!/usr/bin/env python3
"""Writes the malformed models: make_cases.py DIR makes DIR/<case>/model.onnx.

A case may also have inputs/<name>.npy, values to run it with, and files of external data. cases.yaml
says what each case must lead to.
"""

import shutil
import sys
from pathlib import Path

import corpus
import external, files, graphs, operators, tensors  # noqa: E401, F401  each registers its cases


MARK = ".malformed-cases"  # in a folder that this script may delete


def make_cases(out):
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        sys.exit(f"{out} holds other files; name a new or empty folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()
    for id, write in corpus.CASES.items():
        folder = out / id
        folder.mkdir()
        write(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_cases.py DIR")
    make_cases(Path(sys.argv[1]))
    print(f"{len(corpus.CASES)} cases in {sys.argv[1]}")
