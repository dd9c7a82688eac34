#!/usr/bin/env python3
"""Writes what fuzzers begin with: files that are right, made by the code as it is now.

    fuzz_seeds.py --lathe build/bin/lathe --cases build/onnx-cases --output build-fuzz/seeds

OUTPUT/<name>_fuzz/ has the seeds of a fuzzer. Text, and what was found once, is in test/fuzz/corpus;
compiled programs change with their format, so that old ones would test no more than its number.
"""

import argparse
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 4096  # bytes of a model: small ones say more in the same time
ELEMENTS = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I64": np.int64, "I8": np.int8,
            "U8": np.uint8, "BOOL": np.bool_}


def compile_program(lathe, program, file):
    """Whether there is an executable: some programs need what a saved one lacks."""
    done = subprocess.run([lathe, "compile", program, "--no-cache", "--target", "x86-64", "-o", file],
                          capture_output=True)
    return done.returncode == 0


def write_executables(lathe, lx, artifacts):
    programs = [*sorted((ROOT / "test/golden/values").glob("*.lathe")),
                *sorted((ROOT / "test/golden/cf/inputs").glob("*.lathe"))]
    for program in programs:
        compile_program(lathe, program, lx / f"{program.stem}.lx")
        graph = artifacts / f"{program.stem}.json"
        if compile_program(lathe, program, graph):
            library = graph.with_suffix(".so")
            seed = graph.read_bytes() + b"\0" + library.read_bytes()
            graph.with_suffix(".bin").write_bytes(seed)
        for part in (".json", ".so", ".safetensors"):
            graph.with_suffix(part).unlink(missing_ok=True)


def write_models(cases, folder):
    for model in sorted(cases.glob("*/*/model.onnx")):
        if model.stat().st_size <= LARGEST:
            shutil.copy(model, folder / f"{model.parent.name}.onnx")


def write_arrays(npy, safetensors):
    for name, element in ELEMENTS.items():
        array = np.arange(6).reshape(2, 3).astype(element)
        np.save(npy / f"{name}.npy", array)
        np.savez(npy / f"{name}.npz", a=array, b=array.T)
        np.savez_compressed(npy / f"{name}_deflated.npz", a=array)
        header = json.dumps({"a": {"dtype": name, "shape": [2, 3],
                                   "data_offsets": [0, array.nbytes]}}).encode()
        (safetensors / name).write_bytes(struct.pack("<Q", len(header)) + header + array.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lathe", type=Path, required=True, help="the command")
    parser.add_argument("--cases", type=Path, required=True, help="of scripts/onnx_cases.py")
    parser.add_argument("--output", type=Path, required=True, help="a folder; written anew")
    options = parser.parse_args()
    shutil.rmtree(options.output, ignore_errors=True)
    folders = {name: options.output / f"{name}_fuzz"
               for name in ("lx", "artifact", "onnx", "npy", "safetensors")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    write_executables(options.lathe, folders["lx"], folders["artifact"])
    write_models(options.cases, folders["onnx"])
    write_arrays(folders["npy"], folders["safetensors"])
    empty = [name for name, folder in folders.items() if not any(folder.iterdir())]
    if empty:
        sys.exit(f"fuzz_seeds: nothing was made for {', '.join(empty)}")


if __name__ == "__main__":
    main()
