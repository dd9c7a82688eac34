"""External compilers of Python."""

import concurrent.futures
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
from test_extend import line_of

import lathe
from lathe import nn

FUNCTIONS = {"nn.add": np.add, "nn.mul": np.multiply, "nn.neg": np.negative,
             "nn.relu": lambda x: np.maximum(x, 0)}
PARTS: list[lathe.Program] = []


@lathe.register_compiler(name="numpy", ops=FUNCTIONS)
def with_numpy(part):
    """An interpreter: a step for each operation."""
    PARTS.append(part)
    constants, steps, outputs = {}, [], []
    inputs = [op.results[0] for op in part if op.name == "nn.feed"]
    for op in part:
        if op.name in FUNCTIONS:
            steps.append((FUNCTIONS[op.name], op.operands, op.results[0]))
        elif op.name == "builtin.get_parameter":
            constants[op.results[0]] = part.parameters[op.attributes["name"]]
        elif op.name == "builtin.constant":
            constants[op.results[0]] = op.attributes["value"]
        elif op.name == "nn.fetch":
            outputs.append(op.operands[0])

    def run(*arrays):
        values = {**constants, **dict(zip(inputs, arrays, strict=True))}
        for function, operands, result in steps:
            values[result] = function(*(values[v] for v in operands))
        return tuple(values[v] for v in outputs)

    return run


def chain(shape=("N", 3), dtype=np.float32):
    """y = exp(relu(x + w) * 2), z = -relu(x + w)"""
    program = lathe.Program()
    weight = program.parameter("w", np.arange(-90, 93, dtype=np.float32).reshape(61, 3)[30:31].astype(dtype))
    r = nn.relu(program.input("x", shape, dtype) + weight)
    program.output("y", nn.exp(r * 2))
    program.output("z", nn.neg(r))
    return program


def compiled(program, external="numpy", **options):
    return lathe.compile(program, cache=False, threads=1, external=external, **options)


def single(external, **options):
    """y = relu(x), f32[N]."""
    program = lathe.Program()
    program.output("y", nn.relu(program.input("x", ("N",))))
    return compiled(program, external, **options)


def test_it_runs_its_part(tmp_path):
    exe, own = compiled(chain()), compiled(chain(), None)
    for size in (2, 1, 0, 5):
        x = np.linspace(-2, 2, 3 * size, dtype=np.float32).reshape(size, 3)
        for ours, theirs in zip(exe(x), own(x)):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    (kernel,) = [k for k in exe.explain().kernels if k.strategy == "numpy"]
    assert kernel.operations == "add relu mul neg"
    assert "numpy" in str(exe.explain()) and "<td>numpy</td>" in exe._repr_html_()
    assert f"{__file__}:{line_of(with_numpy, 'def run')}" in kernel.candidates
    assert any(s.label == kernel.operations for s in exe.profile({"x": x}, runs=1).steps)
    with pytest.raises(lathe.UnsupportedError, match="external compiler") as error:
        exe.save(tmp_path / "never.lx")
    assert error.value.id == "save/external" and not exe.can_save
    assert "numpy: add relu mul neg" in error.value.notes


def test_the_part_is_a_program_with_its_weights():
    PARTS.clear()
    compiled(chain())
    (part,) = PARTS
    part.verify()
    names = [op.name for op in part]
    assert names.count("nn.feed") == 1 and names.count("nn.fetch") == 2
    assert [op.attributes["name"] for op in part if op.name == "nn.fetch"] == ["out0", "out1"]
    x = np.ones((2, 3), np.float32)
    assert lathe.compile(part, cache=False)(in0=x)[0].tolist() == [[2, 4, 6]] * 2
    part.run_passes("inference")  # it is the compiler's own
    assert part.to_onnx()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.bool_])
def test_elements(dtype):
    program = lathe.Program()
    x = program.input("x", (3,), dtype)
    program.output("y", getattr(nn, "not")(x) if dtype == np.bool_ else nn.add(x, x))
    given = []

    @lathe.register_compiler(name="of_elements")
    def of_elements(part):
        def run(x):
            given.append(x.dtype)
            return x
        return run

    value = np.array([0, 1, 1]).astype(dtype)
    assert compiled(program, "of_elements")(value).tolist() == value.tolist()
    assert given == [np.dtype(dtype)]


def test_functions_are_marked_by_hand():
    exe = lathe.compile(lathe.Program.parse("""program {
      %0 = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
      %1 = builtin.call(%0) {callee = "f"} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
      nn.fetch(%1) {name = "y"} : (v_tensor<[2], f32>) -> ()
      builtin.func() {compiler = "numpy", name = "f"} ({ ^(%a: v_tensor<[2], f32>):
        %2 = nn.relu(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
        %3 = builtin.call(%2) {callee = "g"} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
        builtin.return(%3) : (v_tensor<[2], f32>) -> ()
      })
      builtin.func() {name = "g"} ({ ^(%b: v_tensor<[2], f32>):
        %4 = nn.neg(%b) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
        builtin.return(%4) : (v_tensor<[2], f32>) -> ()
      })
    }"""), cache=False)
    assert exe(np.float32([-1, 2])).tolist() == [0, -2]
    assert [k.strategy for k in exe.explain().kernels if k.calls] == ["numpy"]


def test_a_pass_marks_functions():
    program = chain()
    program.run_passes("partition_external{compiler=numpy,min_ops=2,prefix=mine}")
    functions = [op.attributes for op in program if op.name == "builtin.func"]
    assert [(f["compiler"], f["name"]) for f in functions] == [("numpy", "mine_numpy_main_0")]


def test_what_it_does_not_take():
    kept = []

    def refuse(op):
        kept.append(op)
        assert op.operands[0].dtype == "f32" and op.location
        return "it is enough" if op.operands[0].producer.name == "nn.relu" else None

    register = lathe.register_compiler(name="picky", ops=["nn.relu", "nn.neg"], refuse=refuse)
    register(with_numpy)
    exe = compiled(chain(), "picky")
    assert [k.operations for k in exe.explain().kernels if k.strategy == "picky"] == ["relu"]
    with pytest.raises(lathe.InvalidArgumentError, match="ended"):
        kept[0].name  # noqa: B018
    seen = []

    def refuse_region(region):
        seen.append([op.name for op in region])
        return "it is small"

    lathe.register_compiler(name="picky", ops=["nn.relu"], refuse_region=refuse_region)(with_numpy)
    assert not [k for k in compiled(chain(), "picky").explain().kernels if k.strategy == "picky"]
    assert seen == [["nn.relu"]]


def test_what_is_lent_is_only_looked_at():
    lathe.register_compiler(name="grabs", refuse=lambda op: nn.abs(op.operands[0]))(with_numpy)
    with pytest.raises(lathe.CallbackError, match="without its program"):
        compiled(chain(), "grabs")


def test_errors_name_the_line():
    def fails(*arguments):
        raise KeyError("lost")

    where = f"{__file__}:{line_of(fails, 'raise KeyError')}"
    lathe.register_compiler(name="fails")(fails)
    with pytest.raises(lathe.CallbackError, match="external compiler 'fails' raised KeyError") as e:
        single("fails")
    assert e.value.location == where and isinstance(e.value.__cause__, KeyError)
    lathe.register_compiler(name="fails", refuse=fails)(with_numpy)
    with pytest.raises(lathe.CallbackError, match="`refuse` of external compiler 'fails'"):
        single("fails")
    lathe.register_compiler(name="fails")(lambda part: fails)
    exe = single("fails")
    with pytest.raises(lathe.CallbackError, match="code of external compiler 'fails'") as e:
        exe(np.ones(2, np.float32))
    assert e.value.location == where and isinstance(e.value.__cause__, KeyError)


@pytest.mark.parametrize("result", [
    lambda x: x * 2, lambda x: (x * 2,), lambda x: [x * 2], lambda x: (x * 2).tolist(),
    lambda x: np.repeat(x, 2)[::2] * 2])
def test_one_result(result):
    lathe.register_compiler(name="one")(lambda part: result)
    assert single("one")(np.float32([1, 2])).tolist() == [2, 4]


@pytest.mark.parametrize("result, text", [
    (lambda x: x[:1], "i?f32\\[1\\] as result 0, which is f32\\[2\\]"),
    (lambda x: x.astype(np.float64), "f64"), (lambda x: (x, x), "2 results; the function has 1"),
    (lambda x: None, "not an array"), (lambda x: "text", "result 0 of code")])
def test_results_that_do_not_fit(result, text):
    lathe.register_compiler(name="wrong")(lambda part: result)
    exe = single("wrong")
    with pytest.raises(lathe.ElementTypeError, match=text):
        exe(np.ones(2, np.float32))


def test_registrations_that_cannot_be():
    with pytest.raises(lathe.NotFoundError, match="there is no operator 'nn.rleu'") as error:
        lathe.register_compiler(ops=["nn.rleu"])
    assert "nn.relu" in error.value.hint
    with pytest.raises(TypeError, match="list of names"):
        lathe.register_compiler(ops="nn.relu")
    lathe.register_compiler(name="wrong")(lambda part: 7)
    with pytest.raises(lathe.ElementTypeError, match="external compiler 'wrong' gives 7"):
        single("wrong")
    lathe.register_compiler(name="wrong", refuse=lambda op: True)(with_numpy)
    with pytest.raises(lathe.ElementTypeError, match="gives True") as error:
        single("wrong")
    assert error.value.location.startswith(__file__)
    with pytest.raises(lathe.NotFoundError, match="no external compiler 'num_py'") as error:
        single("num_py")
    assert error.value.hint == "did you mean 'numpy'?"


def test_it_may_be_registered_again():
    @lathe.register_compiler
    def again(part):
        return lambda x: x + 1

    one = single("again")
    lathe.register_compiler(name="again")(lambda part: lambda x: x + 2)
    two, x = single("again"), np.zeros(1, np.float32)
    assert one(x) == 1 and two(x) == 2


def test_any_thread_runs_it():
    exe, x = compiled(chain()), np.arange(60, dtype=np.float32).reshape(20, 3)
    expected = [y.tobytes() for y in exe(x)]
    threads = set()

    def run(_):
        threads.add(threading.get_ident())
        return [y.tobytes() for y in exe(x)] == expected

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(400)))
    assert len(threads) > 1


def test_it_is_freed_with_what_it_made():
    class Watched:
        pass

    watched = Watched()
    ref = weakref.ref(watched)
    lathe.register_compiler(name="watched")(lambda part, w=watched: lambda x, w=w: x)
    exe, x = single("watched"), np.ones(3, np.float32)
    del watched
    lathe.register_compiler(name="watched")(with_numpy)
    gc.collect()
    assert ref() is not None
    exe(x)
    counts = [sys.getrefcount(o) for o in (x, exe)]
    for _ in range(100):
        exe(x)
    assert [sys.getrefcount(o) for o in (x, exe)] == counts
    del exe
    gc.collect()
    assert ref() is None


def test_an_interrupt_in_it_is_an_interrupt():
    @lathe.register_compiler
    def waits(part):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10_000_000):
            pass

    with pytest.raises(KeyboardInterrupt):
        single("waits")


def test_a_name_of_lathe():
    """In a process of its own: what is registered stays so."""
    code = """if True:
        import lathe

        program = lathe.Program()
        program.output("y", lathe.nn.relu(program.input("x", (2,))))
        lathe.register_compiler(name="onednn")(lambda part: lambda x: x)
        exe = lathe.compile(program, cache=False, external="onednn")
        assert exe([-1.0, 2.0]).tolist() == [-1, 2]
        try:
            lathe.compile(program, cache=False, external="other")
        except lathe.NotFoundError as error:
            assert error.notes == ("registered: onednn",), error.notes
    """
    subprocess.run([sys.executable, "-c", code], check=True)
