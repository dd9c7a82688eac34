"""Networks that are written down before their shapes are known."""

import copy
import pickle

import numpy as np
import pytest

import lathe
from lathe import nn


def line():
    """A line that is fitted by gradient descent, as examples/symbol has it."""
    x, w, b = lathe.variable("x", ("N", 1)), lathe.variable("w"), lathe.variable("b")
    difference = nn.gemm(x, w, b, name="fc") - lathe.variable("target", ("N", 1))
    loss = nn.reduce_mean(difference * difference, keepdims=False, name="loss")
    slope = nn.gemm(x, difference, use_c=False, transA=True)
    new_w = w.assign(w - slope * 0.05)
    new_b = b.assign(b - nn.reduce_mean(difference, keepdims=False) * 0.1)
    return lathe.Symbol.group([loss, new_w, new_b])


def test_a_line_is_fitted():
    symbol = line()
    assert symbol.list_inputs() == ["x", "w", "b", "target"]
    assert symbol.list_inputs("states") == ["w", "b"]
    assert symbol.list_inputs("arguments") == ["x", "target"]
    program = symbol.to_program(parameters={"w": np.zeros((1, 1), np.float32),
                                            "b": np.zeros(1, np.float32)})
    step = lathe.compile(program, cache=False, threads=1)
    x = np.array([[0], [1], [2], [3]], np.float32)
    losses = [step(x, 2 * x - 1)[0].item() for _ in range(300)]
    assert losses[0] == 9 and losses[-1] < 1e-2


def test_symbols_are_pickled():
    symbol = line()
    again = pickle.loads(pickle.dumps(symbol))
    assert again.to_json() == symbol.to_json() and again.list_inputs("states") == ["w", "b"]
    both = lathe.Symbol.group([again, symbol])  # they meet as ever
    assert len(both.list_outputs()) == 6


def test_what_a_layer_lacks_becomes_a_variable():
    x = lathe.variable("x", (1, 3, 8, 8))
    y = nn.conv(x, name="c", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    assert y.list_inputs() == ["x", "c_w", "c_b"] and y.list_outputs() == ["c_y"]
    assert y.attributes["kernel_shape"] == "[3, 3]"
    weights = {"c_w": np.ones((4, 3, 3, 3), np.float32), "c_b": np.ones(4, np.float32)}
    program = nn.relu(y).to_program(parameters=weights)
    (result,) = [lathe.compile(program, cache=False)(np.ones((1, 3, 8, 8), np.float32))]
    assert result.shape == (1, 4, 8, 8) and result.max() == 28


def test_operators_of_python():
    x = lathe.variable("x", (2,), "f64")
    y = 1 - (2 * x + 4) / 2 ** (-x)
    exe = lathe.compile(y.to_program(), cache=False)
    v = np.array([1.0, 3])
    np.testing.assert_allclose(exe(v), 1 - (2 * v + 4) / 2 ** (-v))
    typed = (lathe.variable("a") @ lathe.variable("b")).to_program(
        types={"a": "v_tensor<[2, 3], f32>", "b": "v_tensor<[3, 1], f32>"})
    assert lathe.compile(typed, cache=False).outputs[0].shape == (2, 1)
    with pytest.raises(lathe.ElementTypeError, match="parameters="):
        x + np.ones(2)


def test_parts_and_replacement():
    x = lathe.variable("x", (4,))
    pieces = nn.split(x, num_outputs=2, num_results=2, name="s", axis=0)
    assert len(pieces) == 2 and pieces[1].list_outputs() == [pieces.list_outputs()[1]]
    assert pieces[-1].list_outputs() == pieces[pieces.list_outputs()[1]].list_outputs()
    with pytest.raises(IndexError):
        pieces[2]
    y = nn.relu(pieces[0], name="r")
    replaced = y(x=lathe.variable("z", (4,)))
    assert replaced.list_inputs() == ["z"] and y.list_inputs() == ["x"]
    assert "r_y" in y.internals.list_outputs()
    assert copy.copy(y).list_inputs() == ["x"]
    assert y.children.list_outputs() == [pieces.list_outputs()[0]]
    assert "relu" in str(y)


def test_files():
    symbol = line()
    text = symbol.to_json()
    again = lathe.Symbol.from_json(text)
    assert again.to_json() == text and again.list_inputs() == symbol.list_inputs()
    with pytest.raises(lathe.ParseError):
        lathe.Symbol.from_json("{")


def test_wrong_symbols():
    x = lathe.variable("x")
    with pytest.raises(lathe.Error, match="kernel_shap"):
        nn.conv(x, kernel_shap=[3, 3])
    with pytest.raises(lathe.Error, match="integer"):
        nn.softmax(x, axis="last")
    with pytest.raises(lathe.InvalidArgumentError, match="no kind"):
        x.list_inputs("weights")
    with pytest.raises(lathe.Error):
        nn.relu(x, x)
    with pytest.raises(lathe.Error):
        (x + 1).assign(2)
    with pytest.raises(lathe.Error):
        lathe.Symbol.group([])
    assert nn.gemm(x, use_c=False, name="g").list_inputs() == ["x", "g_b"]
