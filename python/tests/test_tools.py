"""The command's tools as functions: check, diff, dump, extract, interpret, quantize."""

import ml_dtypes
import numpy as np
import pytest
from conftest import ROOT

import lathe
from lathe import nn

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def digits():
    return lathe.load(DIGITS)


def affine(dtype="f32", bias=1.0):
    """y = x w + bias, with a batch of any size; its values are not named."""
    program = lathe.Program()
    x = program.input("x", (None, 3), dtype)
    w = program.parameter("w", np.arange(6).reshape(3, 2).astype(
        ml_dtypes.bfloat16 if dtype == "bf16" else np.dtype(np.float32)))
    program.output("y", nn.matmul(x, w) + bias)
    return program


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_check_agrees_with_the_interpreter(rows, dtype):
    x = np.ones((rows, 3), ml_dtypes.bfloat16 if dtype == "bf16" else np.float32)
    comparison = lathe.check(affine(dtype), {"x": x})
    assert comparison and comparison.agrees and comparison.against == "the interpreter"
    assert [(d.name, d.elements) for d in comparison.outputs] == [("y", 2 * rows)]
    assert "1 of 1 outputs agree" in str(comparison) and "<table>" in comparison._repr_html_()


def test_check_makes_up_inputs(digits):
    assert lathe.check(digits).outputs[0].type == "f32[2,10]"
    assert lathe.check(digits, dims={"N": 3}, seed=5).outputs[0].type == "f32[3,10]"
    with pytest.raises(lathe.NotFoundError, match="'M'"):
        lathe.check(digits, dims={"M": 3})


def test_check_against_results(digits, tmp_path):
    inputs = digits.random_inputs(dims={"N": 2})
    right = lathe.interpret(digits, inputs)
    wrong = {"probabilities": right["probabilities"] + np.float32([[0], [1]])}
    file = tmp_path / "right.npz"
    np.savez(file, **right, **inputs)
    assert lathe.check(digits, inputs, against=file)
    assert lathe.check(digits, inputs, against=right)
    comparison = lathe.check(digits, inputs, against=wrong)
    assert not comparison
    [output] = comparison.outputs
    assert (output.beyond, output.elements, output.place) == (10, 20, "[1,0]")
    assert "first at [1,0]" in str(comparison)
    assert lathe.check(digits, inputs, against=wrong, atol=2)
    with pytest.raises(lathe.InvalidArgumentError, match="nowhere"):
        lathe.check(digits, inputs, against="nowhere")
    with pytest.raises(ValueError, match="at least 0"):
        lathe.check(digits, inputs, atol=-1)


def test_diff_of_programs():
    assert lathe.diff(affine(), affine()) == []
    program = affine()
    program.run_passes("canonicalize")
    other = affine()
    [fetch] = [op for op in other if op.name == "nn.fetch"]
    with other.at(fetch):
        other.set_operand(fetch, 0, nn.relu(fetch.operands[0]))
    differences = lathe.diff(affine(), other)
    assert any(d.what == "operation" and "nn.relu" in d.b and not d.a for d in differences)
    assert lathe.diff(DIGITS, lathe.load(DIGITS)) == []


def test_diff_of_results(tmp_path):
    a = {"y": np.float32([1, np.nan, np.inf]), "only a": np.int64(3), "names": np.array(["x"], object)}
    b = {"y": np.float32([1, np.nan, np.inf]), "names": np.array(["y"], object)}
    by_name = {d.name: d for d in lathe.diff(a, b)}
    assert by_name["y"].agrees and not by_name["names"].agrees
    assert by_name["only a"].mismatch and not by_name["only a"].agrees
    assert lathe.diff({"l": [np.float32([1]), np.float32([2, 3])]},
                      {"l": [np.float32([1]), np.float32([2, 4])]})[0].beyond == 1
    np.savez(tmp_path / "a.npz", y=a["y"])
    assert lathe.diff(tmp_path / "a.npz", {"y": a["y"]})[0].agrees
    with pytest.raises(TypeError, match="two programs, or two results"):
        lathe.diff(affine(), a)
    with pytest.raises(lathe.MissingFileError):
        lathe.diff(tmp_path / "none.npz", a)
    with pytest.raises(ValueError, match="at least 0"):
        lathe.diff(a, b, rtol=float("nan"))


def test_dump_gives_values_from_within(digits):
    inputs = digits.random_inputs(dims={"N": 2})
    values = lathe.dump(digits, inputs, ["conv1", "relu1"])
    assert list(values) == ["probabilities", "conv1", "relu1"]
    np.testing.assert_array_equal(values["relu1"], np.maximum(values["conv1"], 0))
    everything = lathe.dump(digits, inputs, cache=False, threads=1)
    assert len(everything) > 3 and everything["conv1"].shape == (2, 16, 8, 8)
    assert len(digits.outputs) == 1
    with pytest.raises(lathe.NotFoundError, match="relu9"):
        lathe.dump(digits, inputs, "relu9")


def test_extract(digits):
    inputs = digits.random_inputs(dims={"N": 2})
    values = lathe.dump(digits, inputs)
    head = lathe.extract(digits, inputs=["relu1"])
    outputs = lathe.compile(head).run({"relu1": values["relu1"]})
    np.testing.assert_allclose(outputs["probabilities"], values["probabilities"], rtol=1e-5)
    trunk = lathe.extract(DIGITS, outputs=["relu1"])
    np.testing.assert_allclose(lathe.compile(trunk)(inputs["image"]), values["relu1"], rtol=1e-5)
    assert len(digits.program) > len(trunk)
    with pytest.raises(lathe.NotFoundError, match="relu9"):
        lathe.extract(digits, outputs=["relu9"])
    with pytest.raises(lathe.InvalidArgumentError, match="image"):
        lathe.extract(digits, inputs=["relu1"], outputs=["conv1"])


def test_interpret():
    assert lathe.interpret(affine(), {"x": [[1, 1, 1]]})["y"].tolist() == [[7, 10]]
    with pytest.raises(lathe.InvalidArgumentError, match="'x' is missing"):
        lathe.interpret(affine(), {})
    with pytest.raises(lathe.NotFoundError, match="'z'"):
        lathe.interpret(affine(), {"x": [[1, 1, 1]], "z": 1})
    with pytest.raises(lathe.ElementTypeError, match="by name"):
        lathe.interpret(affine(), [[1, 1, 1]])


def test_interpret_draws_what_compiled_code_draws():
    program = lathe.Program()
    drawn = nn.random_uniform(shape=[64], low=0.0, high=1.0, dtype="f32", seed=7.0, program=program)
    program.output("y", program.input("x", (64,)) + drawn)
    inputs = {"x": np.zeros(64, np.float32)}
    np.testing.assert_allclose(lathe.interpret(program, inputs)["y"],
                               lathe.compile(program).run(inputs)["y"])


class Calibration:
    """Data that is gone through more than once."""

    def __init__(self, model):
        self.model, self.passes = model, 0

    def __iter__(self):
        self.passes += 1
        return (self.model.random_inputs(seed, dims={"N": 2}) for seed in range(4))


def test_quantize(digits):
    data = Calibration(digits)
    seen = []
    quantization = lathe.quantize(digits, data, progress=seen.append)
    assert data.passes > 1 and seen and quantization.runs == 4
    assert not any(layer.why_not for layer in quantization.layers)
    assert 0 < quantization.errors["probabilities"] < 0.1
    assert "3 of 3 layers quantized" in str(quantization) and "<table>" in quantization._repr_html_()
    assert any(op.name == "nn.quantize_linear" for op in quantization.program)
    assert not any(op.name == "nn.quantize_linear" for op in digits.program)
    inputs = digits.random_inputs(9, dims={"N": 3})
    exact = lathe.interpret(digits, inputs)["probabilities"]
    assert np.abs(lathe.compile(quantization.program).run(inputs)["probabilities"] - exact).max() < 0.1
    with pytest.raises(lathe.InvalidArgumentError, match="quantized already"):
        lathe.quantize(quantization.program, data)


def test_models_of_f16_are_quantized():
    program = lathe.Program()
    x = program.input("x", ("N", 64), "f16")
    rng = np.random.default_rng(1)
    w = program.parameter("w", rng.standard_normal((64, 32)).astype(np.float16))
    program.output("y", nn.relu(nn.matmul(x, w)))
    data = [{"x": rng.standard_normal((4, 64)).astype(np.float16)} for _ in range(4)]
    expected = lathe.interpret(program, data[0])["y"]
    for quantization in (lathe.quantize(program, data), lathe.quantize_weights(program, bits=8)):
        assert "1 of 1 layers quantized" in str(quantization)
        y = lathe.compile(quantization.program, cache=False)(data[0]["x"])
        assert y.dtype == np.float16
        np.testing.assert_allclose(y.astype(np.float32), expected.astype(np.float32), atol=0.4)


def test_quantize_says_what_is_wrong(digits):
    data = list(Calibration(digits))
    assert lathe.quantize(digits, iter(data), exclude=["conv*"]).layers[0].why_not
    for runs, kind, what in (([], lathe.InvalidArgumentError, "no samples"),
                             ([{"imagine": 1}], lathe.NotFoundError, "imagine"),
                             ([3], lathe.ElementTypeError, "by name"),
                             ([{}], lathe.InvalidArgumentError, "missing")):
        with pytest.raises(kind, match=what):
            lathe.quantize(digits, runs)
    with pytest.raises(lathe.NotFoundError, match="min-max"):
        lathe.quantize(digits, data, method="best")
    with pytest.raises(lathe.InvalidArgumentError, match="max-error"):
        lathe.quantize(digits, data, max_error=1e-9)
    with pytest.raises(ZeroDivisionError):
        lathe.quantize(digits, data, progress=lambda what: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        lathe.quantize(digits, (1 // 0 for _ in data))


def test_quantize_weights(digits):
    quantization = lathe.quantize_weights(digits, ops=["gemm"], bits=8)
    assert quantization.errors == {} and quantization.runs == 0
    assert [layer.name for layer in quantization.layers if not layer.why_not] == ["fc"]
    measured = lathe.quantize_weights(digits, Calibration(digits), rounding="calibrated")
    assert 0 < measured.errors["probabilities"] < 0.2
    with pytest.raises(lathe.InvalidArgumentError, match="data"):
        lathe.quantize_weights(digits, rounding="calibrated")
    with pytest.raises(lathe.InvalidArgumentError, match="bits"):
        lathe.quantize_weights(digits, bits=5)
