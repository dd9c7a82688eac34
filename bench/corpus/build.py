#!/usr/bin/env python3
"""Builds models of the corpus: model.onnx, and inputs for each set of sizes.

    bench/corpus/build.py --out build/corpus            # those that are missing
    bench/corpus/build.py --out build/corpus deeplab    # this one anew
    bench/corpus/build.py --out build/corpus --missing deeplab swin    # if they are missing
    bench/corpus/build.py --list

Needs bench/corpus/requirements.txt, which `make corpus` installs in a place of its own.
"""

import argparse
import importlib
import json
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from kit import MODELS

FAMILIES = ["packages", "classical", "vision", "language", "audio", "variety", "quantized"]


def write_inputs(name, folder):
    """test_data_set_K for the set of sizes K, named in sizes.json; seeded by the name of the model."""
    entry = MODELS[name]
    for k, sizes in enumerate(entry.sizes):
        rng = np.random.default_rng([zlib.crc32(name.encode()), k])
        data = folder / f"test_data_set_{k}"
        data.mkdir(parents=True, exist_ok=True)
        for i, (key, value) in enumerate(entry.feeds(rng, **sizes).items()):
            array = np.asarray(value)
            tensor = numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array, key)
            (data / f"input_{i}.pb").write_bytes(tensor.SerializeToString())
    (folder / "sizes.json").write_text(json.dumps(entry.sizes) + "\n")


def make(name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    MODELS[name].build(folder / "model.onnx")
    write_inputs(name, folder)  # last: a folder with inputs is complete


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for family in FAMILIES:
        importlib.import_module(family)
    if args.list or not args.out:
        print("\n".join(MODELS))
        return
    missing = [n for n in args.names or MODELS if not (args.out / n / "sizes.json").exists()]
    wanted = missing if args.missing else args.names or missing
    failed = []
    for name in wanted:
        try:
            make(name, args.out / name)
            print(f"{name}: {(args.out / name / 'model.onnx').stat().st_size / 1e6:.1f} MB", flush=True)
        except Exception:  # an exporter may raise anything; the other models are built
            traceback.print_exc()
            failed.append(name)
    if failed:
        raise SystemExit(f"not built: {' '.join(failed)}")


if __name__ == "__main__":
    main()
