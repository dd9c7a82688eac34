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
def test_types_are_right(what, tmp_path):
    package = pathlib.Path(lathe.__file__).parent
    environment = dict(os.environ, MYPYPATH=str(package.parent))
    checked = run("-m", "mypy", "--strict", "--cache-dir", tmp_path, *what, env=environment)
    assert checked.returncode == 0, checked.stdout


def test_everything_public_is_documented():
    for name in lathe.__all__:
        if name != "__version__":
            assert getattr(lathe, name).__doc__, name
