"""Values in and out of executables."""

import array
import asyncio
import copy
import multiprocessing
import pickle
import threading

import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import model_of, one_node
from onnx import TensorProto, helper

import lathe


@pytest.fixture
def exe(add):
    return lathe.compile(add, cache=False, threads=1)


def test_named_and_positional_calls_agree(exe, rng):
    a, b = rng.standard_normal((2, 4, 3)).astype(np.float32)
    expected = a + b
    np.testing.assert_array_equal(exe.run({"a": a, "b": b})["y"], expected)
    np.testing.assert_array_equal(exe(a, b), expected)
    np.testing.assert_array_equal(exe(a, b=b), expected)
    assert exe(a, b).dtype == np.float32


def test_ports(exe):
    assert [(p.name, p.dtype, p.shape) for p in exe.inputs] == [
        ("a", "f32", ("N", 3)), ("b", "f32", ("N", 3))]
    assert [(p.name, p.kind) for p in exe.outputs] == [("y", "tensor")]


@pytest.mark.parametrize("view", [
    lambda x: x[::2], lambda x: x[:, ::-1], lambda x: np.asfortranarray(x),
    lambda x: x.astype(">f4"), lambda x: np.lib.stride_tricks.as_strided(x, x.shape, (0, 4))])
def test_layouts(exe, rng, view):
    x = view(rng.standard_normal((4, 3)).astype(np.float32))
    np.testing.assert_array_equal(exe(x, x), (x + x).astype(np.float32))


def test_large_results_begin_at_a_line_of_the_cache(exe, rng):
    x = rng.standard_normal((10_000, 3)).astype(np.float32)
    results = [exe(x, x) for _ in range(3)]
    assert [y.ctypes.data % 64 for y in results] == [0, 0, 0]
    assert all(y.flags.carray and y.flags.writeable for y in results)
    np.testing.assert_array_equal(results[0], x + x)


def test_unaligned_memory(exe):
    raw = np.zeros(1 + 4 * 6, np.uint8)
    x = raw[1:].view(np.float32).reshape(2, 3)
    x[...] = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(exe(x, x), 2 * x)


class OnlyDlpack:
    """As another library's tensor."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnlyArray:
    def __array__(self, dtype=None, copy=None):
        return np.ones((2, 3), dtype or np.float32)


def test_protocols(exe):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = memoryview(array.array("f", range(6))).cast("B").cast("f", (2, 3))
    np.testing.assert_array_equal(exe(OnlyDlpack(x), buffer), 2 * x)
    np.testing.assert_array_equal(exe(OnlyDlpack(x.T.copy().T), OnlyArray()), x + 1)
    np.testing.assert_array_equal(exe([[1, 2, 3]], [[0.5, 0.5, 0.5]]), [[1.5, 2.5, 3.5]])
    readonly = x.copy()
    readonly.flags.writeable = False
    np.testing.assert_array_equal(exe(readonly, x), 2 * x)


def test_memory_of_other_devices_is_refused(exe):
    class OnGpu(OnlyDlpack):
        def __dlpack_device__(self):
            return (2, 0)

    x = np.zeros((1, 3), np.float32)
    with pytest.raises(lathe.UnsupportedError, match="input 'b' is on a device"):
        exe(x, OnGpu(x))


def test_out_is_written_into(exe, rng):
    a = rng.standard_normal((4, 3)).astype(np.float32)
    out = np.zeros_like(a)
    result = exe.run({"a": a, "b": a}, {"y": out})
    assert result["y"] is out
    np.testing.assert_array_equal(out, a + a)
    with pytest.raises(lathe.ShapeError, match=r"output 'y'.*\[3,3\].*\[4,3\]"):
        exe.run({"a": a, "b": a}, {"y": out[:3]})
    with pytest.raises(lathe.ElementTypeError, match="output 'y'"):
        exe.run({"a": a, "b": a}, {"y": np.zeros((4, 3))})
    with pytest.raises(lathe.InvalidArgumentError, match="output 'y'"):
        exe.run({"a": a, "b": a}, {"y": np.zeros((4, 6), np.float32)[:, ::2]})
    with pytest.raises(lathe.NotFoundError, match="no output 'z'"):
        exe.run({"a": a, "b": a}, {"z": out})


NUMPY_TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
               np.float16, np.float32, np.float64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numbers(dtype):
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    exe = lathe.compile(one_node("Add", element, [3]), cache=False, threads=1)
    y = exe(np.array([1, 2, 3], dtype), np.array([4, 5, 6], dtype))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.array([5, 7, 9], dtype))


SMALL_TYPES = {TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
               TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
               TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
               TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
               TensorProto.INT4: ml_dtypes.int4, TensorProto.UINT4: ml_dtypes.uint4}


@pytest.mark.parametrize("element", SMALL_TYPES)
def test_small_numbers_keep_their_bits(element):
    dtype = SMALL_TYPES[element]
    node = helper.make_node("Transpose", ["a"], ["y"], perm=[1, 0])
    exe = lathe.compile(model_of([node], {"a": (element, [2, 3])}, {"y": (element, [3, 2])}),
                        cache=False, threads=1)
    a = np.array([[1, 2, 3], [4, 0, 6]]).astype(dtype)
    y = exe(a)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(np.float32), a.T.astype(np.float32))


def test_bools_and_complex():
    exe = lathe.compile(one_node("And", TensorProto.BOOL, [3]), cache=False)
    np.testing.assert_array_equal(exe([True, True, False], [True, False, False]),
                                  [True, False, False])


def test_strings():
    node = helper.make_node("StringConcat", ["a", "b"], ["y"])
    ports = {"a": (TensorProto.STRING, [2]), "b": (TensorProto.STRING, [2])}
    exe = lathe.compile(model_of([node], ports, {"y": (TensorProto.STRING, [2])}), cache=False)
    assert exe.inputs[0].dtype == "str"
    expected = ["añ", "bc"]
    for a in (["a", "b"], np.array(["a", "b"]), np.array(["a", "b"], object),
              np.array(["a", "b"], np.dtypes.StringDType()), np.array([b"a", b"b"])):
        assert exe(a, ["ñ", "c"]).tolist() == expected
    with pytest.raises(lathe.ElementTypeError, match="input 'a'.*strings.*int"):
        exe(np.array(["a", 1], object), ["ñ", "c"])


def test_strings_from_a_file_and_from_several_threads(tmp_path):
    model = one_node("StringConcat", TensorProto.STRING, ["n"])
    compiled = lathe.compile(model, cache=False, threads=1)
    compiled.save(tmp_path / "strings.lx")
    loaded = lathe.Executable.load(tmp_path / "strings.lx")
    results = {}

    def run(key, exe):
        texts = np.array([f"{key}{i}" for i in range(50)], object)
        results[key] = [exe(texts, texts) == texts + texts for _ in range(20)]

    threads = [threading.Thread(target=run, args=(f"{k}{name}", exe))
               for k in range(3) for name, exe in (("compiled", compiled), ("loaded", loaded))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 and all(np.all(equal) for same in results.values() for equal in same)


def test_sequences_and_optionals():
    sequence = helper.make_tensor_sequence_value_info
    nodes = [helper.make_node("SequenceInsert", ["s", "t"], ["u"]),
             helper.make_node("SequenceLength", ["u"], ["n"])]
    graph = helper.make_graph(
        nodes, "g", [sequence("s", TensorProto.FLOAT, None),
                     helper.make_tensor_value_info("t", TensorProto.FLOAT, [2])],
        [sequence("u", TensorProto.FLOAT, None),
         helper.make_tensor_value_info("n", TensorProto.INT64, [])])
    exe = lathe.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]),
                        cache=False)
    assert exe.inputs[0].kind == "list" and exe.inputs[0].shape is None
    u, n = exe([np.ones(3, np.float32)], np.zeros(2, np.float32))
    assert [x.tolist() for x in u] == [[1, 1, 1], [0, 0]] and n == 2


def test_wrong_inputs_name_the_input(exe):
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(lathe.ElementTypeError, match="input 'b' is f64") as error:
        exe(x, x.astype(np.float64))
    assert error.value.id == "run/input-type" and isinstance(error.value, TypeError)
    with pytest.raises(lathe.ShapeError, match="input 'a'"):
        exe(np.zeros((2, 4), np.float32), x)
    with pytest.raises(lathe.ShapeError, match="dim N is 2 by input 'a' and 5 by input 'b'"):
        exe(x, np.zeros((5, 3), np.float32))
    with pytest.raises(lathe.InvalidArgumentError, match="input 'b' is missing"):
        exe(x)
    with pytest.raises(lathe.NotFoundError, match="no input 'c'"):
        exe.run({"a": x, "b": x, "c": x})
    with pytest.raises(lathe.InvalidArgumentError, match="input 'a' is given twice"):
        exe(x, a=x)
    with pytest.raises(lathe.InvalidArgumentError, match="3 inputs are given"):
        exe(x, x, x)
    with pytest.raises(lathe.ElementTypeError, match="input 'a': a object is not an array"):
        exe(object(), x)
    with pytest.raises(lathe.ElementTypeError, match="input 'a': no element type is like .*datetime"):
        exe(np.zeros((2, 3), "datetime64[s]"), x)
    with pytest.raises(lathe.ElementTypeError, match="input 'b'"):
        exe(x, [["one", "two", "three"]])


def test_executables_are_pickled_and_copied(exe, rng):
    a, b = rng.standard_normal((2, 4, 3)).astype(np.float32)
    content = pickle.dumps(exe)
    expected = exe(a, b)
    del exe
    again = pickle.loads(content)
    assert type(again) is lathe.Executable and again.threads == 1
    for executable in (again, copy.copy(again), copy.deepcopy(again)):
        assert [p.name for p in executable.inputs] == ["a", "b"]
        np.testing.assert_array_equal(executable(a, b), expected)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(again, (a, b)), expected)


def test_save_and_load(exe, tmp_path, rng):
    assert exe.can_save
    exe.save(tmp_path / "add.lx")
    again = lathe.Executable.load(tmp_path / "add.lx", threads=1)
    x = rng.standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_array_equal(again(x, x), exe(x, x))
    assert [p.shape for p in again.inputs] == [p.shape for p in exe.inputs]
    with pytest.raises(FileNotFoundError):
        lathe.Executable.load(tmp_path / "nothing.lx")


def test_dims_fix_symbols(add):
    exe = lathe.compile(add, dims={"N": 2}, cache=False)
    assert exe.inputs[0].shape == (2, 3)
    with pytest.raises(lathe.NotFoundError, match="M") as error:
        lathe.compile(add, dims={"M": 2}, cache=False)
    assert error.value.id == "shape/unknown-symbol"


def test_cancelled_and_late_runs():
    exe = lathe.compile(endless_model(), cache=False)
    token = lathe.CancelToken()
    threading.Timer(0.2, token.cancel).start()
    with pytest.raises(lathe.CancelledError):
        exe.run({"n": np.int64(1 << 40)}, cancel=token)
    with pytest.raises(TimeoutError) as error:
        exe.run({"n": np.int64(1 << 40)}, timeout=0.1)
    assert isinstance(error.value, lathe.LimitError)


def endless_model():
    """Counts to n, one by one."""
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "one"], ["z"]), helper.make_node("Identity", ["c"], ["d"])],
        "body", [helper.make_tensor_value_info("i", TensorProto.INT64, []),
                 helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                 helper.make_tensor_value_info("x", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []),
         helper.make_tensor_value_info("z", TensorProto.INT64, [])])
    zero, one, true = (onnx.numpy_helper.from_array(v, n) for v, n in (
        (np.int64(0), "zero"), (np.int64(1), "one"), (np.bool_(True), "true")))
    loop = helper.make_node("Loop", ["n", "true", "zero"], ["y"], body=body)
    return model_of([loop], {"n": (TensorProto.INT64, [])}, {"y": (TensorProto.INT64, [])},
                    [zero, one, true])


def test_async_runs(exe, rng):
    x = rng.standard_normal((2, 3)).astype(np.float32)

    async def both():
        return await asyncio.gather(*(exe.run_async({"a": x, "b": x}) for _ in range(2)))

    for result in asyncio.run(both()):
        np.testing.assert_array_equal(result["y"], x + x)


def test_cancelling_a_task_ends_its_run():
    exe = lathe.compile(endless_model(), cache=False)

    async def run():
        await asyncio.wait_for(exe.run_async({"n": np.int64(1 << 40)}), 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(run())


class Withheld(OnlyDlpack):
    """As a tensor of torch that needs a gradient."""

    def __dlpack__(self, **kwargs):
        raise BufferError("use tensor.detach()")


def test_what_another_library_withholds(exe):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(lathe.ElementTypeError, match=r"input 'b': BufferError: use tensor.detach\(\)"):
        exe(x, Withheld(x))


def test_outputs_into_tensors_of_another_library(exe):
    x, y = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    out = OnlyDlpack(y)
    assert exe.run({"a": x, "b": x}, {"y": out})["y"] is out
    assert y.tolist() == [[2] * 3] * 2
    for wrong, kind in ((y[:1], lathe.ShapeError), (y.astype(np.float64), lathe.ElementTypeError),
                        (np.asfortranarray(y), lathe.InvalidArgumentError)):
        with pytest.raises(kind, match="output 'y'"):
            exe.run({"a": x, "b": x}, {"y": OnlyDlpack(wrong)})
    with pytest.raises(lathe.ElementTypeError, match="output 'y': BufferError"):
        exe.run({"a": x, "b": x}, {"y": Withheld(y)})
    with pytest.raises(lathe.ElementTypeError, match="output 'y': a NoneType is not an array"):
        exe.run({"a": x, "b": x}, {"y": None})


def test_arrays_without_names(exe):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(lathe.ElementTypeError, match="inputs are arrays by name.* not a list"):
        exe.run([x, x])
    with pytest.raises(lathe.ElementTypeError, match="outputs are arrays by name.* not a ndarray"):
        exe.run({"a": x, "b": x}, x)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_timeouts_that_cannot_be(exe, add, timeout):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(lathe.InvalidArgumentError, match="more than 0 seconds") as error:
        exe.run({"a": x, "b": x}, timeout=timeout)
    assert error.value.hint == "None means without a limit"
    with pytest.raises(lathe.InvalidArgumentError, match="more than 0 seconds"):
        lathe.compile(add, cache=False, timeout=timeout)


@pytest.mark.parametrize("timeout", [60, 1e30, float("inf")])
def test_timeouts_that_are_long(exe, timeout):
    x = np.ones((2, 3), np.float32)
    assert exe.run({"a": x, "b": x}, timeout=timeout)["y"].shape == (2, 3)
