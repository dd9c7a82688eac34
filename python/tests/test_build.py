"""Programs that are built and changed operation by operation."""

import copy
import gc
import pathlib
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import lathe
from lathe import nn


def compiled(program):
    return lathe.compile(program, cache=False, threads=1)


@pytest.fixture
def program():
    """y = relu(x w + 1), x f32[N, 3]."""
    program = lathe.Program()
    x = program.input("x", ("N", 3))
    w = program.parameter("w", np.arange(6, dtype=np.float32).reshape(3, 2) - 3)
    program.output("y", nn.relu(x @ w + 1))
    return program


def operation(program, name):
    return next(op for op in program if op.name == name)


def test_what_was_built_runs(program, rng):
    program.verify()
    x = rng.standard_normal((5, 3)).astype(np.float32)
    w = np.arange(6, dtype=np.float32).reshape(3, 2) - 3
    np.testing.assert_allclose(compiled(program)(x), np.maximum(x @ w + 1, 0), rtol=1e-5, atol=1e-6)
    assert str(lathe.Program.parse(str(program.clone()))).count("nn.") == 5


def test_operands_attributes_and_results():
    program = lathe.Program()
    x = program.input("x", (1, 1, 6, 6))
    y = nn.conv(x, np.ones((4, 1, 3, 3), np.float32), b=np.zeros(4, np.float32), pads=[1, 1, 1, 1],
                name="c1")
    assert y.shape == (1, 4, 6, 6) and y.producer.location == "'c1'"
    a, b = nn.split(y, None, axis=1, num_outputs=2, num_results=2)
    assert a.shape == b.shape == (1, 2, 6, 6)
    joined = nn.concat(a, b, a, axis=1)
    assert joined.shape == (1, 6, 6, 6)
    clipped = nn.clip(joined, None, 3)  # an absent operand before a given one
    assert clipped.producer.operands[1] is None
    assert nn.reshape(clipped, [1, -1]).shape == (1, 216)
    assert nn.cast(x, to=np.float16).dtype == nn.cast(x, to="f16").dtype == "f16"
    assert nn.cast(x, to=ml_dtypes.bfloat16).dtype == "bf16"


def test_names_that_are_attributes():
    program = lathe.Program()
    x = program.input("x", (2,))
    nn.fetch(nn.relu(x), name="y")
    assert [p.name for p in compiled(program).outputs] == ["y"]


def test_copies(program):
    for copied in (copy.copy(program), copy.deepcopy(program), program.clone()):
        copied.output("z", operation(copied, "nn.relu").operands[0])
        assert len(copied) == len(program) + 1


def test_contents_of_shapes_are_known():
    program = lathe.Program()
    x = program.input("x", ("N", "C", 4))
    rows = nn.gather(nn.shape(x), [0, 1], axis=0)
    assert nn.reshape(nn.transpose(x, perm=[2, 0, 1]), nn.concat([4], rows, axis=0)).shape == (
        4, "N", "C")


def test_types_of_inputs():
    program = lathe.Program()
    assert program.input("a").shape is None
    assert program.input("b", (), np.int64).shape == ()
    assert program.input("c", (None, "2*N", 0), ml_dtypes.bfloat16).shape == (None, "2*N", 0)
    assert program.input("d", type="list<v_tensor<[N], i64>>").type == "list<v_tensor<[N], i64>>"
    with pytest.raises(lathe.ElementTypeError, match="not an element type"):
        program.input("e", (), "f33")
    with pytest.raises(lathe.InvalidArgumentError, match="-1"):
        program.input("e", (-1,))
    with pytest.raises(lathe.InvalidArgumentError, match="already"):
        program.input("a")
    assert len(program) == 4


def test_arrays_of_every_kind():
    program = lathe.Program()
    assert program.constant([]).shape == (0,)
    assert program.constant(np.zeros((2, 0), np.int8)).dtype == "i8"
    bf16 = np.array([1.5, 2], ml_dtypes.bfloat16)
    program.output("y", program.constant(bf16) * 2)
    assert compiled(program)().tolist() == [3, 4]
    large = program.constant(np.zeros(1000, np.float32))
    assert large.producer.name == "builtin.get_parameter"
    assert program.constant(2, "f64").dtype == "f64"
    with pytest.raises(lathe.ElementTypeError, match="f64, not f32"):
        program.constant(np.zeros(2), "f32")
    with pytest.raises(lathe.InvalidArgumentError, match="already"):
        program.parameter("constant", [1])


def test_numbers_meet_values_in_their_type():
    program = lathe.Program()
    x = program.input("x", (2,), "f64")
    for y in (x + 1, 1 + x, 2 - x, x / 3, 1 / x, x**2, -x, x * [1, 2], np.ones(2) * x):
        assert y.dtype == "f64" and y.shape == (2,)
    program.output("y", 2 - x)
    program.output("z", np.array([[1.0, 2]]) @ nn.reshape(x, [2, 1]))
    y, z = compiled(program)(np.array([1.0, 5]))
    assert y.tolist() == [1, -3] and z.tolist() == [[11]]
    with pytest.raises(lathe.VerifyError, match="f32"):
        x + np.ones(2, np.float32)
    with pytest.raises(lathe.ElementTypeError):
        x + object()


def wrong_calls(x, w):
    return {
        "did you mean 'nn.relu'": lambda: nn.relo(x),
        "operand or attribute of nn.relu 'alpha'": lambda: nn.relu(x, alpha=1),
        "'kernel_shape'": lambda: nn.conv(x, w, kernel_shap=[3, 3]),
        "needs operand 'w'": lambda: nn.conv(x),
        "needs attribute 'axis'": lambda: nn.concat(x, x),
        "takes 1 operands, 2": lambda: nn.relu(x, x),
        "given twice": lambda: nn.relu(x, x=x),
        "no operand is of a program": lambda: nn.relu([1.0]),
        "takes a list of integers": lambda: nn.conv(x, w, kernel_shape="3x3"),
        "takes an element type|not an element type": lambda: nn.cast(x, to="f33"),
        "of another program": lambda: nn.add(x, lathe.Program().input("x")),
        "1 results, not 5": lambda: nn.relu(x, num_results=5),
        "0 to 65536 results, not": lambda: nn.split(x, num_outputs=2, num_results=1 << 40),
        "not an integer of 64 bits": lambda: nn.softmax(x, axis=2**70),
        "kernel_shape says 5": lambda: nn.conv(x, w, kernel_shape=[5, 5]),
    }


@pytest.mark.parametrize("message", list(wrong_calls(None, None)))
def test_wrong_calls_say_what_is_wrong_and_build_nothing(message):
    program = lathe.Program()
    x, w = program.input("x", (1, 1, 4, 4)), program.parameter("w", np.ones((1, 1, 3, 3), np.float32))
    with pytest.raises((lathe.Error, TypeError, AttributeError), match=message):
        wrong_calls(x, w)[message]()
    assert len(program) == 2


def test_errors_name_the_line():
    program = lathe.Program()
    x = program.input("x", (2, 3))
    with pytest.raises(lathe.ShapeError) as error:
        nn.matmul(x, x)
    line = sys._getframe().f_lineno - 1
    assert error.value.location.startswith(f"{__file__}:{line}")


def test_operations_with_regions_are_written_as_text():
    program = lathe.Program()
    x = program.input("x", (), "bool")
    with pytest.raises(lathe.UnsupportedError, match="regions"):
        getattr(lathe.Dialect("cf"), "if")(x)
    text = """program {
      %0 = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
      %1 = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
      %2 = cf.if(%0) ({
        %3 = nn.neg(%1) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
        cf.yield(%3) : (v_tensor<[2], f32>) -> ()
      }, {
        cf.yield(%1) : (v_tensor<[2], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
    }"""
    parsed = lathe.Program.parse(text)
    branch = operation(parsed, "cf.if")
    negation = branch.regions[0][0]
    with parsed.at(negation):  # in the region
        y = nn.abs(negation.operands[0])
    parsed.replace(negation, y)
    parsed.output("y", operation(parsed, "cf.if").results[0])
    parsed.verify()
    exe = compiled(parsed)
    x = np.array([-1, 2], np.float32)
    assert exe(True, x).tolist() == [1, 2] and exe(False, x).tolist() == [-1, 2]


def test_changes(program):
    relu = operation(program, "nn.relu")
    add = relu.operands[0]
    with program.at(relu):
        y = nn.sigmoid(add)
    assert y.producer.location == relu.location
    kept = operation(program, "nn.fetch")
    program.replace(relu, y)
    assert kept.name == "nn.fetch" and kept.operands[0] == y  # what stays stays valid
    with pytest.raises(lathe.InvalidArgumentError, match="changed"):
        _ = relu.name
    with pytest.raises(lathe.VerifyError, match="used"):
        program.erase(y.producer)
    program.set_operand(kept, 0, add)
    program.erase(y.producer)
    matmul = operation(program, "nn.matmul")
    program.set_attribute(matmul, "transpose_y", True)
    with pytest.raises(lathe.ShapeError):
        program.verify()
    program.set_attribute(matmul, "transpose_y", False)
    program.verify()
    assert [op.name for op in program if op.name in ("nn.relu", "nn.sigmoid")] == []


def test_wrong_changes(program):
    relu = operation(program, "nn.relu")
    with pytest.raises(lathe.ElementTypeError, match="cannot replace"):
        program.replace(relu, nn.cast(relu.operands[0], to="f16"))
    with pytest.raises(lathe.VerifyError, match="1 results, not 2"):
        program.replace(relu, [relu.operands[0]] * 2)
    with pytest.raises(lathe.VerifyError, match="no 7"):
        program.set_operand(relu, 7, None)
    with pytest.raises(lathe.InvalidArgumentError, match="another program"):
        program.clone().erase(relu)
    with pytest.raises(lathe.ElementTypeError, match="takes a bool"):
        program.set_attribute(operation(program, "nn.matmul"), "transpose_x", "yes")
    first = next(iter(program))
    with program.at(first), pytest.raises(lathe.VerifyError):
        nn.relu(relu.results[0])  # reads what comes later
    program.verify()


def test_passes_and_export_of_what_was_built(program):
    program.run_passes("canonicalize,cse")
    assert b"Relu" in program.to_onnx()
    assert "canonicalize" in {p.name for p in lathe.list_passes()}
    x = program.input("late", (2,))  # building goes on
    program.output("z", x * 2)
    assert compiled(program)(np.zeros((1, 3), np.float32), np.ones(2, np.float32))[1].tolist() == [2, 2]


def test_every_operator_has_a_docstring_and_a_declaration():
    ops = lathe.list_ops()
    assert len(ops) > 300 and [op.name for op in ops] == sorted(op.name for op in ops)
    conv = next(op for op in ops if op.name == "nn.conv")
    assert [o.name for o in conv.operands] == ["x", "w", "b"] and conv.operands[2].optional
    for name in dir(nn):
        assert getattr(nn, name).__doc__.strip()
    assert "group" in nn.conv.__doc__ and "relu" in dir(nn)
    with pytest.raises(lathe.NotFoundError, match="did you mean"):
        lathe.Dialect("nm")


def test_nothing_leaks():
    array = np.ones((3, 3), np.float32)

    def build():
        program = lathe.Program()
        x = program.input("x", ("N", 3))
        y = nn.relu(x @ program.parameter("w", array) + array)
        program.output("y", y)
        with pytest.raises(lathe.ShapeError):
            nn.matmul(y, np.ones((4, 4), np.float32))

    build()
    gc.collect()
    before = sys.getrefcount(array)
    for _ in range(20):
        build()
    gc.collect()
    assert sys.getrefcount(array) == before


def test_threads_read_while_one_builds(program):
    stop = threading.Event()
    seen = []

    def read():
        while not stop.is_set():
            seen.append(len(str(program)) > 0 and len(program) > 0)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    value = operation(program, "nn.relu").results[0]
    for _ in range(200):
        value = value + 1
    stop.set()
    for thread in threads:
        thread.join()
    assert all(seen)
    program.verify()


def test_threads_read_while_passes_run(program):
    stop = threading.Event()

    def read():
        while not stop.is_set():
            for op in program.operations:
                try:
                    assert op.name
                except lathe.InvalidArgumentError:  # passes have run
                    break

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        program.erase(nn.relu(program.operations[0].results[0]).producer)
        program.run_passes("canonicalize,cse")
    stop.set()
    for thread in threads:
        thread.join()
    program.verify()


def test_files_and_notebooks(program, tmp_path):
    path = pathlib.Path(tmp_path / "built.onnx")
    program.to_onnx(path)
    assert [p.name for p in lathe.load(path).inputs] == ["x"]
    assert repr(program) == f"<lathe.Program of {len(program)} operations>"
    assert "nn.relu" in program._repr_html_()
    assert "<table>" in compiled(program)._repr_html_()
