"""As test_onnxruntime_api.py: values, bindings, runs in the background, profiles, modules."""

import importlib
import json
import pathlib
import threading

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnxruntime_cases import (  # noqa: F401
    ADD,
    X,
    build,
    errors,
    ort,
    sequence,
    session,
    vi,
)


# Values and bindings.


def test_an_ortvalue_shares_the_array(ort):
    x = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(x)
    assert value.shape() == [2, 3]
    assert value.data_type() == "tensor(float)"
    assert value.element_type() == T.FLOAT
    assert value.device_name() == "cpu"
    assert value.tensor_size_in_bytes() == 24
    assert value.data_ptr() == x.ctypes.data
    assert value.is_tensor() and value.has_value()
    assert not value.is_sparse_tensor() and not value.is_tensor_sequence()
    assert np.shares_memory(value.numpy(), x)
    np.testing.assert_array_equal(np.asarray(value), x)
    np.testing.assert_array_equal(np.from_dlpack(value), x)
    assert tuple(value.__dlpack_device__()) == (1, 0)


def test_an_ortvalue_is_updated_in_place(ort):
    x = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(x)
    value.update_inplace(np.full((2, 3), 7, np.float32))
    np.testing.assert_array_equal(x, np.full((2, 3), 7))
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(X))
    np.testing.assert_array_equal(x, X)
    with pytest.raises(RuntimeError, match="does not match the size"):
        value.update_inplace(np.zeros((3, 3), np.float32))
    with pytest.raises(TypeError):
        value.update_inplace([1.0])


@pytest.mark.parametrize("element", [np.float32, "float32", np.dtype("float32"), int(T.FLOAT)])
def test_an_ortvalue_of_shape_and_type(ort, element):
    value = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], element)
    assert (value.shape(), value.data_type()) == ([2, 3], "tensor(float)")
    value.update_inplace(X)
    np.testing.assert_array_equal(value.numpy(), X)


def test_ortvalues_of_types_that_numpy_lacks(ort):
    pytest.importorskip("ml_dtypes")
    value = ort.OrtValue.ortvalue_from_shape_and_type([2], int(T.BFLOAT16))
    assert value.data_type() == "tensor(bfloat16)"
    data = np.ones(3, np.uint16)
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(data, T.BFLOAT16)
    assert (value.data_type(), value.shape()) == ("tensor(bfloat16)", [3])
    with pytest.raises(RuntimeError, match="[Ii]tems size"):
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones(3, np.uint8), T.BFLOAT16)


def test_other_devices(ort):
    with pytest.raises(RuntimeError, match="Can't allocate memory on the device"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    with pytest.raises(Exception, match="Unsupported device type: abacus"):
        ort.OrtValue.ortvalue_from_numpy(X, "abacus", 0)
    device = ort.OrtDevice.make("cpu", 0)
    assert (device.device_type(), device.device_id()) == (0, 0)


def test_an_ortvalue_through_dlpack(ort):
    value = ort.OrtValue.from_dlpack(X.copy())
    assert (value.shape(), value.data_type()) == ([2, 3], "tensor(float)")
    np.testing.assert_array_equal(value.numpy(), X)


def test_ortvalues_in_and_out(ort):
    s = session(ort, ADD)
    value = ort.OrtValue.ortvalue_from_numpy(X)
    (z,) = s.run_with_ort_values(["z"], {"x": value, "y": value})
    assert z.data_type() == "tensor(float)"
    np.testing.assert_array_equal(z.numpy(), X + X)
    np.testing.assert_array_equal(s.run(None, {"x": value, "y": X})[0], X + X)
    with pytest.raises(ValueError, match="Required inputs"):
        s.run_with_ort_values(None, {"x": value})


def test_a_binding(ort):
    s, binding = session(ort, ADD), None
    y = ort.OrtValue.ortvalue_from_numpy(X.copy())
    binding = s.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_input("y", y)
    binding.bind_output("z")
    binding.synchronize_inputs()
    s.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + X)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X + X)
    y.update_inplace(np.zeros((2, 3), np.float32))
    s.run_with_iobinding(binding, ort.RunOptions())
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X)


def test_a_binding_to_memory(ort):
    s, out = session(ort, ADD), np.zeros((2, 3), np.float32)
    binding = s.io_binding()
    for name in ("x", "y"):
        binding.bind_input(name, "cpu", 0, np.float32, [2, 3], X.ctypes.data)
    binding.bind_output("z", "cpu", 0, np.float32, (2, 3), out.ctypes.data)
    s.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, X + X)
    assert binding.get_outputs()[0].data_ptr() == out.ctypes.data
    value = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    binding.bind_ortvalue_output("z", value)
    s.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), X + X)


def test_wrong_bindings(ort):
    s = session(ort, ADD)
    binding = s.io_binding()
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: w"):
        binding.bind_cpu_input("w", X)
    with pytest.raises(RuntimeError):
        binding.bind_cpu_input("x", X.tolist())
    with pytest.raises(ValueError, match="`element_type` and `shape`"):
        binding.bind_output("z", buffer_ptr=X.ctypes.data)
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", X)
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        s.run_with_iobinding(binding)
    binding.bind_output("q")
    with pytest.raises(RuntimeError, match="Invalid output name: ?q"):
        s.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    binding.bind_output("z")
    binding.bind_cpu_input("x", X.astype(np.float64))
    with pytest.raises(RuntimeError, match="Unexpected input data type"):
        s.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X[:, :2].copy())
    with pytest.raises(RuntimeError, match="Got invalid dimensions for input: x"):
        s.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    with pytest.raises(ValueError, match="the session that created it"):
        session(ort, ADD).run_with_iobinding(binding)


def test_memory_that_does_not_fit(ort):
    s, small = session(ort, ADD), np.zeros((1, 3), np.float32)
    binding = s.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", X)
    binding.bind_output("z", "cpu", 0, np.float32, [1, 3], small.ctypes.data)
    with pytest.raises(RuntimeError, match="Error in execution"):
        s.run_with_iobinding(binding)
    assert not small.any()
    wide = np.zeros((2, 3))
    binding.bind_output("z", "cpu", 0, np.float64, [2, 3], wide.ctypes.data)
    with pytest.raises(RuntimeError, match="Error in execution"):
        s.run_with_iobinding(binding)
    assert not wide.any()


def test_sequences_in_bindings(ort):
    model = build(
        [helper.make_node("SequenceConstruct", ["x", "x"], ["z"])],
        [vi("x", T.FLOAT, ["N"])],
        [helper.make_value_info("z", sequence())],
    )
    s = session(ort, model)
    binding = s.io_binding()
    binding.bind_cpu_input("x", X[0])
    binding.bind_output("z")
    s.run_with_iobinding(binding)
    (z,) = binding.copy_outputs_to_cpu()
    assert [a.tolist() for a in z] == [X[0].tolist()] * 2
    (value,) = s.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X[0])})
    assert value.is_tensor_sequence() and value.data_type() == "seq(tensor(float))"


# Runs in the background, profiles.


def call_async(s, feed):
    done, seen = threading.Event(), []

    def callback(results, user_data, error):
        seen.append((results, user_data, error))
        done.set()

    s.run_async(["z"], feed, callback, "mine")
    assert done.wait(60)
    return seen[0]


def test_run_async(ort):
    o = ort.SessionOptions()
    o.intra_op_num_threads = 2
    s = session(ort, ADD, o)
    results, user_data, error = call_async(s, {"x": X, "y": X})
    np.testing.assert_array_equal(results[0], X + X)
    assert (user_data, error) == ("mine", "")
    results, user_data, error = call_async(s, {"x": X.astype(np.float64), "y": X})
    assert results == [] and error.startswith("Unexpected input data type")
    with pytest.raises(ValueError, match="Required inputs"):
        s.run_async(None, {"x": X}, None, None)


def test_a_profile(ort, tmp_path):
    o = ort.SessionOptions()
    o.enable_profiling = True
    o.profile_file_prefix = str(tmp_path / "trace")
    s = session(ort, ADD, o)
    assert s.get_profiling_start_time_ns() > 0
    s.run(None, {"x": X, "y": X})
    path = pathlib.Path(s.end_profiling())
    assert s.get_profiling_start_time_ns() > 0
    assert path.parent == tmp_path and path.name.startswith("trace_") and path.suffix == ".json"
    events = json.loads(path.read_text())
    for event in events:
        assert event["ph"] == "X" and event["dur"] >= 0 and event["ts"] >= 0
        assert {"cat", "pid", "tid", "name", "args"} <= event.keys()
    names = [event["name"] for event in events if event["cat"] == "Session"]
    assert {"session_initialization", "model_run"} <= set(names)
    assert any(event["cat"] == "Node" for event in events)


def test_no_profile(ort):
    s = session(ort, ADD)
    assert s.end_profiling() == "" and s.get_profiling_start_time_ns() == 0


def test_modules_that_clients_import(ort):
    for name in (
        "capi",
        "capi._pybind_state",
        "capi.onnxruntime_pybind11_state",
        "capi.onnxruntime_inference_collection",
    ):
        module = importlib.import_module(f"{ort.__name__}.{name}")
        assert module.__name__.endswith(name)
    state = importlib.import_module(f"{ort.__name__}.capi._pybind_state")
    assert state.get_available_providers() == ort.get_available_providers()
    assert state.SessionOptions is ort.SessionOptions
