"""The package as users meet it: the command, types, an example."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import DIGITS, ROOT

import lathe

EXAMPLE = ROOT / "examples" / "python" / "classify.py"


def run(*words, **options):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True,
                          **options)


def test_the_command():
    version = run("-m", "lathe", "--version")
    assert version.stdout.strip() == f"lathe {lathe.__version__}"
    nothing = run("-m", "lathe", "inspect", "nothing.onnx")
    assert nothing.returncode == 1 and "io/open" in nothing.stderr


def test_the_example():
    pictures = sorted(DIGITS.glob("digit_*.png"))
    lines = run(EXAMPLE, *pictures, check=True).stdout.splitlines()
    right = sum(line.endswith(f"digit_{line[-1]}.png: {line[-1]}") for line in lines)
    assert len(lines) == 10 and right >= 9
    wrong = run(EXAMPLE, "nothing.png")
    assert wrong.returncode == 1 and wrong.stderr.startswith("classify: ")


MODULES = ["-m", "lathe", "-m", "lathe._torch", "-m", "lathe._command"]


@pytest.mark.parametrize("what", [[EXAMPLE], MODULES], ids=["example", "package"])
def test_types_are_right(what, tmp_path_factory):
    cache = tmp_path_factory.getbasetemp() / "mypy"  # of all that is checked
    package = pathlib.Path(lathe.__file__).parent
    environment = dict(os.environ, MYPYPATH=str(package.parent))
    checked = run("-m", "mypy", "--strict", "--cache-dir", cache, *what, env=environment)
    assert checked.returncode == 0, checked.stdout


CLIENT = """
from collections.abc import Callable
from typing import Any
import numpy as np
import lathe
import lathe.onnxruntime as ort
from lathe.onnxruntime import InferenceSession, SessionOptions
from lathe.onnxruntime.capi.onnxruntime_pybind11_state import Fail

try:
    session: InferenceSession = ort.InferenceSession("model.onnx", SessionOptions())
except Fail:
    pass

@lathe.register_pass
def nothing(program: lathe.Program, *, n: int = 1) -> None: ...

@lathe.register_op("client.same")
def same(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x

def refuse(op: lathe.Operation) -> str | None:
    return None if op.operands else "it reads nothing"

@lathe.register_compiler(ops=["nn.relu"], refuse=refuse)
def by_hand(part: lathe.Program) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    return lambda x: np.maximum(x, 0)

program = lathe.Program()
x: lathe.Value = program.input("x", ("N", 3), np.float32) * 2 + 1
program.output("y", lathe.nn.relu(x))
trainer = lathe.Trainer(program, epochs=2, on_epoch=lambda report: print(report.training.loss))
done: bool = trainer.fit([{"x": [[1, 2, 3]], "labels": [1]}])
"""


def test_programs_of_users_pass_mypy(tmp_path, tmp_path_factory):
    (tmp_path / "client.py").write_text(CLIENT)
    test_types_are_right([tmp_path / "client.py"], tmp_path_factory)


def test_everything_public_is_documented():
    for name in lathe.__all__:
        if name != "__version__":
            assert getattr(lathe, name).__doc__, name
