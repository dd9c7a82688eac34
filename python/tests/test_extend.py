"""Passes, rules and operators of Python."""

import concurrent.futures
import gc
import inspect
import os
import signal
import subprocess
import sys
import traceback
import weakref

import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import model_of
from onnx import TensorProto, helper

import lathe
from lathe import nn


def compiled(program):
    return lathe.compile(program, cache=False, threads=1)


def relus(count=3, **fields):
    """y = relu(...relu(x)), f32[N]."""
    program = lathe.Program()
    y = program.input("x", ("N",))
    for _ in range(count):
        y = nn.relu(y)
    program.output("y", y, **fields)
    return program


def names(program):
    return [op.name for op in program]


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


# ---- passes ----

@lathe.register_pass
def to_sigmoid(program, *, limit: int = 100, name: str = "", only=["nn.relu"], share=1.0, on=True):
    """Makes relus sigmoids.

    More.
    """
    assert isinstance(only, list) and isinstance(share, float) and on is True
    for op in program:
        if op.name in only and limit > 0:
            limit -= 1
            with program.at(op):
                y = nn.sigmoid(op.operands[0])
            program.replace(op, y)


def test_a_pass_with_options():
    program = relus()
    program.run_passes("to_sigmoid{limit=2},cse")
    assert names(program).count("nn.sigmoid") == 2 and names(program).count("nn.relu") == 1
    program.run_passes("to_sigmoid")
    assert names(program).count("nn.sigmoid") == 3
    x = np.zeros(2, np.float32)
    assert compiled(program)(x).shape == (2,)
    (info,) = [p for p in lathe.list_passes() if p.name == "to_sigmoid"]
    assert info.doc == "Makes relus sigmoids."
    with pytest.raises(lathe.Error, match="limit"):
        program.run_passes("to_sigmoid{limt=2}")
    with pytest.raises(lathe.InvalidArgumentError, match="takes an integer"):
        program.run_passes("to_sigmoid{limit=many}")


def test_a_pass_that_raises_changes_nothing_and_names_its_line():
    @lathe.register_pass
    def fails(program):
        op = next(op for op in program if op.name == "nn.relu")
        program.replace(op, op.operands[0])
        raise KeyError("lost")

    program = relus()
    before = str(program)
    with pytest.raises(lathe.CallbackError, match="pass 'fails' raised KeyError: 'lost'") as error:
        program.run_passes("cse,fails")
    assert error.value.location == f"{__file__}:{line_of(fails, 'raise KeyError')}"
    assert isinstance(error.value.__cause__, KeyError)
    assert "fails" in "".join(traceback.format_exception(error.value))
    assert str(program) == before


def test_a_pass_that_breaks_the_program_is_found_out():
    @lathe.register_pass
    def breaks(program):
        program.set_attribute(next(op for op in program if op.name == "nn.softmax"), "axis", 7)

    program = lathe.Program()
    program.output("y", nn.softmax(program.input("x", (2, 3))))
    with pytest.raises(lathe.Error) as error:
        program.run_passes("breaks")
    assert "breaks" in str(error.value)


def test_what_a_pass_keeps_is_of_no_use_afterwards():
    kept = []

    @lathe.register_pass
    def keeps(program):
        kept.extend([program, program.operations[0], program.clone()])

    relus().run_passes("keeps")
    program, op, clone = kept
    for use in (lambda: str(program), lambda: op.name, lambda: program.input("z"),
                lambda: nn.relu([1.0], program=program), lambda: program.operations,
                lambda: lathe.compile(program), program.to_onnx, program.clone):
        with pytest.raises(lathe.InvalidArgumentError, match="ended|changed"):
            use()
    assert len(clone) == 5  # a copy is one's own


def test_passes_that_cannot_be():
    @lathe.register_pass
    def nested(program):
        program.run_passes("cse")

    with pytest.raises(lathe.CallbackError, match="program of a pass"):
        relus().run_passes("nested")
    with pytest.raises(lathe.InvalidArgumentError, match="already"):
        lathe.register_pass(name="cse")(lambda program: None)
    with pytest.raises(TypeError, match="default"):
        lathe.register_pass(lambda program, *, x: None)
    with pytest.raises(TypeError, match="takes the program"):
        lathe.register_pass(lambda: None)

    @lathe.register_pass(name="nested")  # as when a cell of a notebook runs again
    def again(program):
        pass

    relus().run_passes("nested")
    with pytest.raises(lathe.InvalidArgumentError, match="other options"):
        lathe.register_pass(name="nested")(lambda program, *, n=1: None)


def test_a_pass_of_python_does_not_run_inside():
    with pytest.raises(lathe.UnsupportedError, match="whole programs"):
        lathe.Program.parse(WITH_IF).run_passes("cf.if(to_sigmoid)")
    program = lathe.Program.parse(WITH_IF)
    program.run_passes("to_sigmoid")  # operations in regions are operations of the program
    assert names(program).count("nn.sigmoid") == 1
    assert compiled(program)(True, np.zeros(2, np.float32)).tolist() == [0.5, 0.5]


WITH_IF = """program {
  %0 = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
  %1 = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %2 = cf.if(%0) ({
    %3 = nn.relu(%1) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    cf.yield(%3) : (v_tensor<[2], f32>) -> ()
  }, {
    cf.yield(%1) : (v_tensor<[2], f32>) -> ()
  }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
  nn.fetch(%2) {name = "y"} : (v_tensor<[2], f32>) -> ()
}"""


def test_an_interrupt_in_a_pass_is_an_interrupt():
    @lathe.register_pass
    def waits(program):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10_000_000):
            pass

    with pytest.raises(KeyboardInterrupt):
        relus().run_passes("waits")


# ---- rules ----

x, a, b = (lathe.Pattern.var(n) for n in "xab")


def test_a_rule_of_patterns():
    program = relus(4)
    assert lathe.apply_rules(program, [lathe.Rule("relu-relu", nn.relu(nn.relu(x)), nn.relu(x))]) == 3
    assert names(program).count("nn.relu") == 1
    program.verify()


def test_conditions_and_numbers():
    program = lathe.Program()
    v = program.input("x", (4,))
    program.output("y", v * 1 + nn.mul(v, 3))
    c = lathe.Pattern.scalar("c")
    seen = []

    def is_one(match):
        seen.append(match.scalar("c"))
        return match.scalar("c") == 1

    rule = lathe.Rule("times-one", nn.mul(x, c), lambda m: m["x"], where=is_one)
    assert lathe.apply_rules(program, [rule]) == 1
    assert set(seen) == {1, 3} and names(program).count("nn.mul") == 1
    assert lathe.apply_rules(program, [lathe.Rule("times-3", nn.mul(x, 3.0), nn.add(x, nn.add(x, x)))])
    assert compiled(program)(np.ones(4, np.float32)).tolist() == [4] * 4


def test_a_rule_that_builds():
    @lathe.register_rule(nn.mul(x, nn.sigmoid(x)))
    def pytest_swish(match):
        """x sigmoid(x)."""
        assert match.root.name == "nn.mul"
        return nn.swish(match["x"])

    program = lathe.Program()
    v = program.input("x", ("N", 3))
    program.output("y", v * nn.sigmoid(v))
    program.run_passes("pytest_swish")
    assert names(program).count("nn.sigmoid") == 0 and "nn.swish" in names(program)
    value = np.array([[0, 1, -1]], np.float32)
    np.testing.assert_allclose(compiled(program)(value), value / (1 + np.exp(-value)), rtol=1e-5)
    assert "x sigmoid(x)." in {p.doc for p in lathe.list_passes()}


def test_attributes_of_patterns():
    program = lathe.Program()
    v = program.input("x", (2, 3, 4))
    program.output("y", nn.transpose(nn.transpose(v, perm=[0, 2, 1]), perm=[0, 2, 1]))
    program.output("z", nn.softmax(nn.relu(v), axis=1))
    twice = nn.transpose(nn.transpose(x, perm=[0, 2, 1]), perm=[0, 2, 1])
    rules = [lathe.Rule("t-t", twice, lambda m: m["x"]),
             lathe.Rule("s-r", nn.softmax(nn.relu(x)).carry("axis"), nn.softmax(x).carry("axis"))]
    assert lathe.apply_rules(program, rules) == 2
    (softmax,) = [op for op in program if op.name == "nn.softmax"]
    assert softmax.attributes["axis"] == 1 and "nn.transpose" not in names(program)


def test_rules_that_raise_or_decline():
    def fails(match):
        return 1 / 0

    program = relus()
    before = str(program)
    with pytest.raises(lathe.CallbackError, match="rule 'bad' raised ZeroDivisionError") as error:
        lathe.apply_rules(program, [lathe.Rule("bad", nn.relu(x), fails)])
    assert error.value.location == f"{__file__}:{line_of(fails, '1 / 0')}"
    with pytest.raises(lathe.CallbackError, match="condition of rule 'bad'"):
        lathe.apply_rules(program, [lathe.Rule("bad", nn.relu(x), nn.abs(x), where=fails)])
    with pytest.raises(lathe.ElementTypeError, match="gives a value"):
        lathe.apply_rules(program, [lathe.Rule("bad", nn.relu(x), lambda m: 7)])
    with pytest.raises(lathe.Error, match="lost"):
        lathe.apply_rules(program, [lathe.Rule("bad", nn.relu(x), nn.abs(lathe.Pattern.var("lost")))])
    assert lathe.apply_rules(program, [lathe.Rule("no", nn.relu(x), lambda m: None)]) == 0
    assert str(program) == before
    kept = []
    lathe.apply_rules(program, [lathe.Rule("keep", nn.relu(x), lambda m: kept.append(m))])
    with pytest.raises(lathe.InvalidArgumentError, match="ended"):
        kept[0]["x"]


def test_rules_that_do_not_end():
    with pytest.raises(lathe.InvalidArgumentError, match="'more' fired last"):
        lathe.apply_rules(relus(1), [lathe.Rule("more", nn.relu(x), nn.relu(nn.relu(x)))])


def test_a_rule_only_builds():
    def changes(match):
        match.program.erase(match.root)

    with pytest.raises(lathe.CallbackError, match="makes operations"):
        lathe.apply_rules(relus(), [lathe.Rule("bad", nn.relu(x), changes)])


# ---- operators ----

@lathe.register_op("pytest.soft_cap", onnx="com.example::SoftCap")
def soft_cap(x, *, limit: float = 30.0):
    """limit tanh(x / limit)."""
    return (limit * np.tanh(x / limit)).astype(x.dtype)


def rows_shape(x, bias, *, times, axis):
    assert bias is None or bias.dtype == x.dtype
    shape = None if x.shape is None else (x.shape[0] * times, *x.shape[1:])
    return lathe.Spec(x.dtype, shape), lathe.Spec("i64", ())


@lathe.register_op("pytest.rows", shape=rows_shape, results=2)
def rows(x, bias=None, *, times: int, axis: int | None = None):
    result = np.concatenate([x] * times)
    return result if bias is None else result + bias, x.shape[0]


mine = lathe.Dialect("pytest")


def test_an_operator_runs_within_a_plan(tmp_path):
    program = lathe.Program()
    v = program.input("x", ("N", 3))
    y, count = mine.rows(nn.relu(mine.soft_cap(v, limit=2.0)), times=2)
    assert y.shape == ("2*N", 3) and count.dtype == "i64"
    program.output("y", y * 2)
    program.output("count", count)
    value = np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3)
    expected = 2 * np.maximum(2 * np.tanh(value / 2), 0)
    exe = compiled(program)
    for size in (2, 1, 0):
        y, count = exe(value[:size])
        np.testing.assert_allclose(y, np.concatenate([expected[:size]] * 2), rtol=1e-5)
        assert count == size
    assert exe.explain().interpreted == {"soft_cap": 1, "rows": 1}
    with pytest.raises(lathe.UnsupportedError):
        exe.save(tmp_path / "python.lx")


def test_an_operator_on_every_element_type():
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16, np.int32):
        program = lathe.Program()
        program.output("y", mine.soft_cap(program.input("x", (2,), dtype)))
        y = compiled(program)(np.array([1, 2], dtype))
        assert y.dtype == dtype and y.shape == (2,)


def test_an_operator_on_what_is_not_known():
    program = lathe.Program()
    program.output("y", mine.rows(program.input("x"), np.float32([1]), times=1)[0])
    assert program.operations[-1].operands[0].shape is None
    assert compiled(program)(np.ones((2, 1), np.float32)).tolist() == [[2], [2]]


def test_declarations():
    (info,) = [op for op in lathe.list_ops() if op.name == "pytest.rows"]
    assert [(o.name, o.optional) for o in info.operands] == [("x", False), ("bias", True)]
    assert [a.name for a in info.attributes] == ["times", "axis"]
    assert "limit tanh" in mine.soft_cap.__doc__
    v = lathe.Program().input("x", (2,))
    with pytest.raises(TypeError, match="needs attribute 'times'"):
        mine.rows(v)
    with pytest.raises(lathe.ElementTypeError, match="takes an integer"):
        mine.rows(v, times="two")


def test_constants_are_computed_once():
    calls = []

    @lathe.register_op("pytest.counted")
    def counted(x):
        calls.append(1)
        return x + 1

    program = lathe.Program()
    program.output("y", mine.counted(program.constant([1.0, 2], "f32")))
    program.run_passes("inference")
    assert "pytest.counted" not in names(program)
    made = len(calls)
    exe = compiled(program)
    assert exe().tolist() == [2, 3] and len(calls) == made


def test_models_of_onnx_have_operators_of_python():
    node = helper.make_node("SoftCap", ["x"], ["y"], domain="com.example", limit=3.0)
    graph = helper.make_graph([node], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21),
                                                    helper.make_opsetid("com.example", 1)],
                              ir_version=10)
    value = np.array([1, 100], np.float32)
    exe = lathe.compile(model, cache=False)
    np.testing.assert_allclose(exe(value), 3 * np.tanh(value / 3), rtol=1e-6)
    again = onnx.load_from_string(lathe.load(model).program.to_onnx())
    assert [(n.op_type, n.domain) for n in again.graph.node] == [("SoftCap", "com.example")]


def one_op(operator, *shape, **attributes):
    program = lathe.Program()
    program.output("y", operator(program.input("x", shape or ("N",)), **attributes))
    return program


def test_operators_that_go_wrong():
    @lathe.register_op("pytest.raises")
    def raises(x):
        raise ValueError("not today")

    @lathe.register_op("pytest.wrong_type")
    def wrong_type(x):
        return x.astype(np.float64)

    @lathe.register_op("pytest.wrong_shape", shape=lambda x: lathe.Spec("f32", (3,)))
    def wrong_shape(x):
        return x

    @lathe.register_op("pytest.nothing")
    def nothing(x):
        pass

    def bad_shape(x):
        return x.shape[5]

    lathe.register_op("pytest.bad_shape", shape=bad_shape)(raises)
    lathe.register_op("pytest.no_spec", shape=lambda x: (1, 2))(raises)
    value = np.zeros(2, np.float32)
    with pytest.raises(lathe.CallbackError, match="'pytest.raises' raised ValueError: not today") as e:
        compiled(one_op(mine.raises))(value)
    assert e.value.location == f"{__file__}:{line_of(raises, 'raise ValueError')}"
    assert isinstance(e.value.__cause__, ValueError)
    with pytest.raises(lathe.Error, match="gives f64"):
        compiled(one_op(mine.wrong_type))(value)
    with pytest.raises(lathe.Error, match=r"f32\[2\].*\[3\]"):
        compiled(one_op(mine.wrong_shape))(value)
    with pytest.raises(lathe.Error):
        compiled(one_op(mine.nothing))(value)
    with pytest.raises(lathe.CallbackError, match="shape function .* IndexError") as e:
        one_op(mine.bad_shape)
    assert isinstance(e.value.__cause__, IndexError)
    assert f"raised at {__file__}:{line_of(bad_shape, 'shape[5]')}" in e.value.notes
    with pytest.raises(lathe.Error, match="lathe.Spec|tuple"):
        one_op(mine.no_spec)
    with pytest.raises(AttributeError, match="did you mean 'pytest.soft_cap'"):
        mine.soft_cab


def test_registrations_that_cannot_be():
    for name in ("soft_cap", "a.b.c", "mine.", "mine.a b"):
        with pytest.raises(ValueError, match="is not a name"):
            lathe.register_op(name)
    with pytest.raises(lathe.InvalidArgumentError, match="dialect of Lathe"):
        lathe.register_op("nn.soft_cap")(soft_cap)
    with pytest.raises(ValueError, match="com.example"):
        lathe.register_op("pytest.a", onnx="SoftCap")
    with pytest.raises(TypeError, match="attribute 'n'"):
        lathe.register_op("pytest.a")(lambda x, *, n: x)
    with pytest.raises(TypeError, match="operand 'y'"):
        lathe.register_op("pytest.a")(lambda x, y=1: x)


def test_an_operator_that_is_registered_again():
    def program_with(factor):
        @lathe.register_op("pytest.again")
        def again(x):
            return x * np.float32(factor)

        return one_op(mine.again)

    two, three = program_with(2), program_with(3)
    value = np.ones(1, np.float32)
    assert compiled(two)(value) == 2 and compiled(three)(value) == 3


def test_an_operator_that_looks_at_its_program():
    program = lathe.Program()

    def looks(x):
        return lathe.Spec(x.dtype, (len(str(program)),))

    lathe.register_op("pytest.looks", shape=looks)(lambda x: x)
    program = lathe.Program()
    value = program.input("x", (1,))
    with pytest.raises(lathe.CallbackError, match="is being changed"):
        mine.looks(value)


def test_many_threads_run_one_operator():
    exe = compiled(one_op(mine.soft_cap, limit=2.0))
    value = np.arange(8, dtype=np.float32)
    expected = exe(value).tobytes()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: exe(value).tobytes() == expected, range(400)))


def test_threads_register_and_run_at_once():
    def work(i):
        if i % 2:
            lathe.register_pass(name=f"registered_{i}")(lambda program: None)
            lathe.register_op(f"pytest.registered_{i}")(lambda x: x)
        else:
            program = relus()
            program.run_passes("to_sigmoid")
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_nothing_leaks():
    class Watched:
        pass

    kept = []

    def use(fails):
        watched = Watched()
        kept.append(weakref.ref(watched))

        def build(match):
            if fails and watched:
                raise ValueError("enough")
            return nn.abs(match["x"])

        program = relus()
        try:
            lathe.apply_rules(program, [lathe.Rule("r", nn.relu(x), build)])
        except lathe.CallbackError:
            pass

    for i in range(20):
        use(i % 2)
    gc.collect()
    assert [r() for r in kept] == [None] * 20

    @lathe.register_op("pytest.raises_often")
    def raises_often(x):
        raise ValueError("always")

    exe, value = compiled(one_op(mine.soft_cap)), np.ones(3, np.float32)
    fails = compiled(one_op(mine.raises_often))
    counts = [sys.getrefcount(o) for o in (value, exe, soft_cap)]
    for _ in range(100):
        exe(value)
        with pytest.raises(lathe.CallbackError):
            fails(value)
    gc.collect()
    assert [sys.getrefcount(o) for o in (value, exe, soft_cap)] == counts


def test_a_pass_joins_a_pipeline():
    """In a process of its own: it holds for whatever is compiled."""
    code = """if True:
        import lathe, numpy as np

        @lathe.register_pass(pipeline="inference", before="fuse_activation")
        def relus_are_negated(program):
            for op in program:
                if op.name == "nn.relu":
                    with program.at(op):
                        program.replace(op, lathe.nn.neg(op.operands[0]))

        program = lathe.Program()
        program.output("y", lathe.nn.relu(program.input("x", (2,), "f32")))
        x = np.array([1, -2], np.float32)
        assert lathe.compile(program, cache=False)(x).tolist() == [-1, 2]
        assert lathe.compile(program, cache=False, level=1)(x).tolist() == [1, 0]
        for place in ({"pipeline": "interference"}, {"pipeline": "inference", "before": "nothing"}):
            try:
                lathe.register_pass(name="lost" + str(len(place)), **place)(lambda program: None)
                raise AssertionError(place)
            except lathe.NotFoundError as error:
                assert error.id == "pass/place", error
        assert lathe.compile(program, cache=False)(x).tolist() == [-1, 2]
    """
    subprocess.run([sys.executable, "-c", code], check=True)
