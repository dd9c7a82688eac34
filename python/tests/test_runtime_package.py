"""The package lathe-runtime: numpy, and the run time's library alone."""

import os
import pathlib
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from conftest import DIGITS, ROOT

import lathe

PACKAGE = ROOT / "python" / "runtime"
LIBRARY = pathlib.Path(lathe.__file__).parents[2] / "lib" / "liblathe_runtime.so"
sys.path.append(str(PACKAGE))
os.environ["LATHE_RUNTIME_LIBRARY"] = str(LIBRARY)

import lathe_runtime  # noqa: E402


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """(file, a picture, probabilities)"""
    model = lathe.load(DIGITS / "digits.onnx")
    exe = lathe.compile(model, cache=False, threads=1)
    path = tmp_path_factory.mktemp("runtime") / "digits.lx"
    exe.save(path)
    image = model.read_input("image", DIGITS / "digit_7.png")
    return path, image, exe(image)


def test_it_gives_what_lathe_gives(digits):
    path, image, expected = digits
    for source in (path, str(path), path.read_bytes()):
        exe = lathe_runtime.load(source, threads=1)
        assert exe.inputs == [("image", np.float32, ("N", 1, 8, 8))]
        assert [port.shape for port in exe.outputs] == [("N", 10)]
        viewed = exe.run({"image": memoryview(image)})["probabilities"]
        for given in (exe(image), exe(image=image), viewed):
            assert np.array_equal(given, expected)
    twice = np.concatenate([image, image])[::-1]  # of another batch, and not row-major
    assert np.array_equal(exe(twice), np.concatenate([expected, expected]))


def test_outputs_of_yours_are_written(digits):
    path, image, expected = digits
    exe = lathe_runtime.load(path)
    out = {"probabilities": np.zeros((1, 10), np.float32)}
    assert exe.run({"image": image}, out)["probabilities"] is out["probabilities"]
    assert np.array_equal(out["probabilities"], expected)
    for wrong in (np.zeros((2, 10), np.float32), np.zeros((1, 10)), np.zeros((1, 20), np.float32)[:, ::2]):
        with pytest.raises(lathe_runtime.ShapeError, match="output 'probabilities'"):
            exe.run({"image": image}, {"probabilities": wrong})


def test_what_is_wrong_is_said(digits, tmp_path):
    path, image, _ = digits
    exe = lathe_runtime.load(path)
    for error, inputs in ((TypeError, {"image": image.astype(np.float64)}),
                          (ValueError, {"image": image[..., :7]}),
                          (LookupError, {}), (LookupError, {"image": image, "picture": image})):
        with pytest.raises(error) as raised:
            exe.run(inputs)
        assert isinstance(raised.value, lathe_runtime.Error)
    with pytest.raises(FileNotFoundError):
        lathe_runtime.load(tmp_path / "nothing.lx")
    with pytest.raises(lathe_runtime.DamagedError):
        lathe_runtime.load(path.read_bytes()[:1000])
    token = lathe_runtime.CancelToken()
    token.cancel()
    with pytest.raises(lathe_runtime.CancelledError):
        exe.run({"image": image}, cancel=token)


def test_sizes_that_data_decide_and_elements_of_ml_dtypes(tmp_path):
    program = lathe.Program()
    x = program.input("x", ("N",), "bf16")
    program.output("y", x + x)
    program.output("where", lathe.nn.non_zero(x))
    lathe.compile(program, cache=False, threads=1).save(tmp_path / "m.lx")
    exe = lathe_runtime.load(tmp_path / "m.lx")
    x = np.array([0, 1, 2, 0], ml_dtypes.bfloat16)
    twice, where = exe(x)
    assert twice.dtype == ml_dtypes.bfloat16 and twice.tolist() == [0, 2, 4, 0]
    assert where.tolist() == [[1, 2]]
    assert exe(x[:0])[1].shape == (1, 0)


def test_threads(digits):
    path, image, expected = digits
    exe = lathe_runtime.load(path, threads=1)
    wrong = []

    def work():
        for _ in range(50):
            if not np.array_equal(exe(image), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_its_types(tmp_path_factory):
    cache = tmp_path_factory.getbasetemp() / "mypy"  # of all that is checked
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache,
                           PACKAGE / "lathe_runtime"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
