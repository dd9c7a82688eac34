"""What lathe.onnxruntime does that onnxruntime does not: install(), pickles, its own settings."""

import copy
import logging
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnxruntime_cases import ADD, X, build, session, unary, vi

import lathe
import lathe.onnxruntime as ort
from lathe.onnxruntime.capi import onnxruntime_pybind11_state as errors


def python(code):
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_install():
    assert python(
        """
import importlib.metadata, importlib.util, sys
import lathe.onnxruntime
lathe.onnxruntime.install()
lathe.onnxruntime.install()
assert importlib.util.find_spec("onnxruntime") is not None
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.capi import _pybind_state as C
import onnxruntime.capi.onnxruntime_inference_collection as collection
import lathe.onnxruntime.capi.onnxruntime_pybind11_state as own
assert ort is lathe.onnxruntime and ort.__spec__.name == "lathe.onnxruntime"
assert Fail is own.Fail is C.Fail and collection.OrtValue is ort.OrtValue
print(ort.__name__, importlib.metadata.version("onnxruntime") == ort.__version__)
try:
    import onnxruntime.quantization
except ImportError as error:
    print("quantize" in str(error))
try:
    import onnxruntime.nonsense
except ModuleNotFoundError as error:
    print("nonsense" in str(error))
"""
    ) == ["lathe.onnxruntime", "True", "True", "True"]


def test_install_after_the_fact_and_uninstall():
    pytest.importorskip("onnxruntime")
    assert python(
        """
import lathe.onnxruntime
lathe.onnxruntime.install()
import onnxruntime
lathe.onnxruntime.uninstall()
import onnxruntime
print(onnxruntime is lathe.onnxruntime)
try:
    lathe.onnxruntime.install()
except RuntimeError as error:
    print("already imported" in str(error))
"""
    ) == ["False", "True"]


def test_sessions_and_options_can_be_pickled(tmp_path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("a", "b")
    for make in (pickle.loads, copy.copy, copy.deepcopy):
        again = make(pickle.dumps(options)) if make is pickle.loads else make(options)
        assert again.intra_op_num_threads == 1 and again.get_session_config_entry("a") == "b"
    path = tmp_path / "add.onnx"
    path.write_bytes(ADD)
    for source in (ADD, path):
        s = ort.InferenceSession(source, options)
        for again in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s)):
            assert again.get_session_options().intra_op_num_threads == 1
            np.testing.assert_array_equal(again.run(None, {"x": X, "y": X})[0], X + X)


def test_errors_have_those_of_lathe_behind_them():
    with pytest.raises(errors.InvalidGraph) as caught:
        session(ort, unary("NoSuchOperator", T.FLOAT, [2]))
    assert isinstance(caught.value.__cause__, lathe.UnsupportedError)
    assert caught.value.__cause__.id == "onnx/unsupported-op"


def test_exceptions_can_be_pickled():
    error = pickle.loads(pickle.dumps(errors.Fail("what")))
    assert type(error) is errors.Fail and str(error) == "what"


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([1, 2.5], ml_dtypes.bfloat16)
    (z,) = session(ort, unary("Identity", T.BFLOAT16, ["N"], opset=21)).run(None, {"x": x})
    assert z.dtype == x.dtype and z.tolist() == x.tolist()


def test_strings_in_ortvalues():
    value = ort.OrtValue.ortvalue_from_numpy(np.array(["a", "b"], object))
    assert value.data_type() == "tensor(string)"
    (z,) = session(ort, unary("Identity", T.STRING, ["N"])).run_with_ort_values(None, {"x": value})
    assert z.numpy().tolist() == ["a", "b"]


def test_an_executable_as_a_session(tmp_path, add):
    path = tmp_path / "add.lx"
    lathe.compile(add).save(path)
    s = ort.InferenceSession(path)
    assert [(i.name, i.type, i.shape) for i in s.get_inputs()][0] == ("a", "tensor(float)", ["N", 3])
    np.testing.assert_array_equal(s.run(None, {"a": X, "b": X})[0], X + X)


def test_the_folder_for_machine_code(tmp_path):
    options = ort.SessionOptions()
    options.add_session_config_entry("lathe.cache", str(tmp_path / "cache"))
    session(ort, ADD, options)
    assert list((tmp_path / "cache").iterdir())


def test_a_target():
    options = ort.SessionOptions()
    options.add_session_config_entry("lathe.target", "avx512x")
    with pytest.raises(errors.InvalidArgument, match="targets are x86-64"):
        session(ort, ADD, options)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ort.InferenceSession("model.ort"),
        lambda: ort.SessionOptions().register_custom_ops_library("x.so"),
        lambda: ort.RunOptions().add_active_adapter(None),
        lambda: ort.SparseTensor.sparse_coo_from_numpy([1], X, X, None),
        lambda: ort.ModelCompiler(ort.SessionOptions(), ADD),
        lambda: ort.register_execution_provider_library("Mine", "x.so"),
        lambda: session(ort, ADD).get_provider_graph_assignment_info(),
    ],
)
def test_what_is_refused(call):
    with pytest.raises(errors.NotImplemented):
        call()


def test_a_load_that_is_cancelled():
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(errors.ModelLoadCanceled):
        session(ort, ADD, options)


def test_the_log(caplog):
    model = onnx.load_from_string(ADD)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
    try:
        for severity, lines in ((2, True), (3, False)):
            ort.set_default_logger_severity(severity)
            caplog.clear()
            session(ort, model)
            assert bool(caplog.records) == lines
    finally:
        logging.getLogger("lathe").setLevel(logging.NOTSET)


def test_wrong_initializers():
    options = ort.SessionOptions()
    options.add_initializer("nothing", ort.OrtValue.ortvalue_from_numpy(X))
    with pytest.raises(errors.NotFound, match="nothing"):
        session(ort, ADD, options)


def test_overrides_and_names_at_once():
    """Sizes that differ where the model has one name, with a value for an initializer."""
    model = build(
        [helper.make_node("Add", ["x", "y"], ["t"]), helper.make_node("Mul", ["t", "w"], ["z"])],
        [vi("x", T.FLOAT, ["N", 3]), vi("y", T.FLOAT, ["N", 3]), vi("w", T.FLOAT, [3])],
        [vi("z", T.FLOAT, ["N", 3])],
        [onnx.numpy_helper.from_array(np.full(3, 2, np.float32), "w")],
    )
    s = session(ort, model)
    np.testing.assert_array_equal(s.run(None, {"x": X[:1], "y": X})[0], 2 * (X[:1] + X))
    w = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(s.run(None, {"x": X, "y": X[:1], "w": w})[0], w * (X[:1] + X))


def test_types_of_bindings():
    from lathe.onnxruntime.transformers.io_binding_helper import TypeHelper

    s = session(ort, ADD)
    assert TypeHelper.get_input_type(s, "x") == TypeHelper.get_output_type(s, "z") == "tensor(float)"
    assert TypeHelper.ort_type_to_numpy_type("tensor(float)") is np.float32
    assert TypeHelper.ort_type_to_numpy_type("tensor(bool)") is bool
    assert TypeHelper.get_io_onnx_type_map(s) == {"x": 1, "y": 1, "z": 1}
    with pytest.raises(ValueError):
        TypeHelper.ort_type_to_numpy_type("seq(tensor(float))")
    with pytest.raises(ImportError, match="from the package onnxruntime"):
        import lathe.onnxruntime.transformers.optimizer  # noqa: F401
