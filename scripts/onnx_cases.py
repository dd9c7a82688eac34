#!/usr/bin/env python3
"""Writes the official ONNX backend cases into a folder, in the official on-disk layout.

    DIR/GROUP/CASE/model.onnx
    DIR/GROUP/CASE/test_data_set_0/{input,output}_N.pb
    DIR/GROUP/CASE/data.json    # {"rtol": ..., "atol": ...}, only where not 1e-3 and 1e-7

Groups: node, simple, pytorch-converted, pytorch-operator, light. The source is the installed
`onnx` package alone, nothing is downloaded: the node cases are Python code in the package and are
evaluated here, the others are files in it. The light models come without inputs; theirs is the ramp
that the official runner uses. A second call with the same package and script returns at once.
"""

import argparse
import hashlib
import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

DEFAULT_DIR = Path(__file__).resolve().parent.parent / "build" / "onnx-cases"
DEFAULT_TOLERANCE = {"rtol": 1e-3, "atol": 1e-7}
ON_DISK_GROUPS = ("simple", "pytorch-converted", "pytorch-operator")
STAMP = "stamp.txt"


def stamp_text():
    script = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return f"onnx {importlib.metadata.version('onnx')} script {script}\n"


def write_tolerance(case_dir, rtol, atol):
    tolerance = {"rtol": rtol, "atol": atol}
    if tolerance != DEFAULT_TOLERANCE:
        (case_dir / "data.json").write_text(json.dumps(tolerance) + "\n")


def to_proto(value, info):
    """The protobuf message of one input or output: a tensor, a sequence, an optional or a map."""
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        named = TensorProto()
        named.CopyFrom(value)
        named.name = info.name
        return named
    convert = {
        "sequence_type": numpy_helper.from_list,
        "optional_type": numpy_helper.from_optional,
        "map_type": numpy_helper.from_dict,
    }.get(info.type.WhichOneof("value"), numpy_helper.from_array)
    return convert(value, info.name)


def write_values(folder, kind, values, infos):
    for i, value in enumerate(values):
        (folder / f"{kind}_{i}.pb").write_bytes(to_proto(value, infos[i]).SerializeToString())


def write_case(case_dir, case):
    case_dir.mkdir(parents=True)
    (case_dir / "model.onnx").write_bytes(case.model.SerializeToString())
    write_tolerance(case_dir, case.rtol, case.atol)
    for i, (inputs, outputs) in enumerate(case.data_sets):
        folder = case_dir / f"test_data_set_{i}"
        folder.mkdir()
        write_values(folder, "input", inputs, case.model.graph.input)
        write_values(folder, "output", outputs, case.model.graph.output)


def write_node_group(out):
    """The cases of single operators, and of the bodies of operators that are functions."""
    import numpy as np
    from onnx.backend.test.loader import load_model_tests

    np.random.seed(0)
    with np.errstate(all="ignore"):  # the cases overflow on purpose
        cases = load_model_tests(kind="node")
    for case in cases:
        write_case(out / "node" / case.name, case)


def copy_group(data, out, group):
    for source in sorted(path for path in (data / group).iterdir() if path.is_dir()):
        shutil.copytree(source, out / group / source.name)


def ramp(info):
    import numpy as np

    shape = [dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def write_light_case(case_dir, model_file, tolerance):
    import onnx

    graph = onnx.load(model_file).graph
    weights = {weight.name for weight in graph.initializer}
    fed = [info for info in graph.input if info.name not in weights]
    folder = case_dir / "test_data_set_0"
    folder.mkdir(parents=True)
    shutil.copyfile(model_file, case_dir / "model.onnx")
    write_tolerance(case_dir, tolerance["rtol"], tolerance["atol"])
    write_values(folder, "input", [ramp(info) for info in fed], fed)
    for i in range(len(graph.output)):
        recorded = model_file.with_name(f"{model_file.stem}_output_{i}.pb")
        shutil.copyfile(recorded, folder / f"output_{i}.pb")


def write_light_group(data, out):
    for description in sorted((data / "real").glob("*/data.json")):
        case = json.loads(description.read_text())
        name = f"light_{case['model_name']}"
        write_light_case(out / "light" / name, data / "light" / f"{name}.onnx", case)


def write_all(out):
    import onnx.backend.test

    data = Path(onnx.backend.test.__file__).parent / "data"
    write_node_group(out)
    for group in ON_DISK_GROUPS:
        copy_group(data, out, group)
    write_light_group(data, out)


def is_ours(out):
    return not out.exists() or (out / STAMP).exists() or not any(out.iterdir())


def ensure_cases(out):
    """Makes `out` hold the cases of the installed package; returns whether anything was written."""
    stamp = out / STAMP
    if stamp.exists() and stamp.read_text() == stamp_text():
        return False
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    write_all(part)
    (part / STAMP).write_text(stamp_text())
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", nargs="?", type=Path, default=DEFAULT_DIR)
    out = parser.parse_args().dir.resolve()
    if not is_ours(out):
        sys.exit(f"{out} holds other files; name a new or empty folder")
    written = ensure_cases(out)
    count = sum(1 for _ in out.glob("*/*/model.onnx"))
    print(f"{count} cases in {out}{'' if written else ' (already there)'}")


if __name__ == "__main__":
    main()
