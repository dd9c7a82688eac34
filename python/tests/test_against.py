"""Models beside onnxruntime."""

import subprocess
import sys

import onnx
import pytest
from conftest import ROOT

import lathe

pytest.importorskip("onnxruntime")
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def test_check_against_onnxruntime():
    digits = lathe.load(DIGITS)
    for source in (digits, DIGITS, DIGITS.read_bytes(), digits.program, onnx.load(DIGITS),
                   DIGITS.open("rb")):
        comparison = lathe.check(source, against="onnxruntime")
        assert comparison and comparison.against.startswith("onnxruntime ")


def test_check_against_the_dicts_of_zip_map(tmp_path):
    node = onnx.helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml",
                                 classlabels_strings=["a", "b"])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 2])
    y = onnx.helper.make_value_info("y", onnx.TypeProto())
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [x], [y]), ir_version=8,
        opset_imports=[onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)])
    assert lathe.check(model, against="onnxruntime")
    onnx.save(model, tmp_path / "zip.onnx")
    done = subprocess.run([sys.executable, "-m", "lathe", "check", tmp_path / "zip.onnx", "--against",
                           "onnxruntime", "--python", sys.executable])
    assert done.returncode == 0
