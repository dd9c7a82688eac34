"""What onnxruntime's Python interface does, by its documentation and by trying it out.

Each test runs twice: on the package onnxruntime, which shows that the expectation is right, and on
lathe.onnxruntime.
"""

import copy
import importlib
import pickle
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnxruntime_cases import (  # noqa: F401
    ADD,
    X,
    add_model,
    arguments,
    build,
    errors,
    ort,
    sequence,
    session,
    unary,
    vi,
)


# Sessions.


def test_a_session_of_bytes_a_path_and_a_pathlike(ort, tmp_path):
    path = tmp_path / "add.onnx"
    path.write_bytes(ADD)
    for source in (ADD, str(path), path):
        (z,) = ort.InferenceSession(source).run(None, {"x": X, "y": X})
        np.testing.assert_array_equal(z, X + X)
        assert z.dtype == np.float32


@pytest.mark.parametrize("source", [3, bytearray(ADD), None])
def test_a_session_of_something_else(ort, source):
    with pytest.raises(TypeError, match="Unable to load from type"):
        ort.InferenceSession(source)


def test_a_file_that_is_not_there(ort, errors):
    with pytest.raises(errors.NoSuchFile, match=r"^\[ONNXRuntimeError\] : 3 : NO_SUCHFILE : .*exist"):
        ort.InferenceSession("no/such/model.onnx")


def test_a_file_that_is_damaged(ort, errors, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(ADD[: len(ADD) // 2])
    with pytest.raises(errors.InvalidProtobuf, match=r": 7 : INVALID_PROTOBUF : "):
        ort.InferenceSession(str(path))


@pytest.mark.parametrize("data", [b"", b"xx"])
def test_a_file_without_a_graph(ort, errors, data):
    with pytest.raises(errors.InvalidArgument, match=r": 2 : INVALID_ARGUMENT : "):
        ort.InferenceSession(data)


def test_models_that_make_no_sense(ort, errors):
    floats = [vi("x", T.FLOAT, [2, 3])]
    out = [vi("z", T.FLOAT, [2, 3])]
    unknown = build([helper.make_node("NoSuchOperator", ["x"], ["z"])], floats, out)
    with pytest.raises(errors.InvalidGraph, match="NoSuchOperator"):
        session(ort, unknown)
    undefined = build([helper.make_node("Relu", ["nowhere"], ["z"])], floats, out)
    with pytest.raises(errors.InvalidArgument, match="nowhere"):
        session(ort, undefined)
    shapes = build([helper.make_node("MatMul", ["x", "x"], ["z"])], floats, out)
    with pytest.raises(errors.Fail, match="MatMul"):
        session(ort, shapes)
    types = build(
        [helper.make_node("Add", ["x", "y"], ["z"])], [*floats, vi("y", T.INT64, [2, 3])], out
    )
    with pytest.raises(errors.Fail, match="Add"):
        session(ort, types)
    loop = build(
        [helper.make_node("Relu", ["z"], ["w"]), helper.make_node("Relu", ["w"], ["z"])],
        floats,
        out,
    )
    with pytest.raises(errors.Fail):
        session(ort, loop)


@pytest.mark.parametrize(
    "name",
    "Fail InvalidArgument NoSuchFile NoModel EngineError RuntimeException InvalidProtobuf "
    "ModelLoaded NotImplemented InvalidGraph EPFail".split(),
)
def test_exceptions(errors, name):
    kind = getattr(errors, name)
    assert kind.__name__ == name and kind.__mro__[1] is Exception


def test_a_subclass_that_can_be_pickled(ort):
    session = Pickled(ort.__name__, ADD)
    again = pickle.loads(pickle.dumps(session))
    np.testing.assert_array_equal(again.session.run(None, {"x": X, "y": X})[0], X + X)


class Pickled:
    """As insightface and others make sessions that can be pickled."""

    def __init__(self, module, model):
        class Session(importlib.import_module(module).InferenceSession):
            def __init__(self, data, **kwargs):
                super().__init__(data, **kwargs)
                self.data = data

            def __getstate__(self):
                return {"data": self.data}

            def __setstate__(self, values):
                self.__init__(values["data"])

        self.module, self.session = module, Session(model)

    def __getstate__(self):
        return {"module": self.module, "state": self.session.__getstate__()}

    def __setstate__(self, values):
        Pickled.__init__(self, values["module"], values["state"]["data"])


def test_a_copy_runs(ort):
    again = copy.copy(session(ort, ADD))
    np.testing.assert_array_equal(again.run(None, {"x": X, "y": X})[0], X + X)


def test_many_threads_run_one_session(ort):
    shared = session(ort, ADD)
    failures = []

    def work(seed):
        x = np.full((seed + 1, 3), seed, np.float32)
        for _ in range(20):
            if not np.array_equal(shared.run(None, {"x": x, "y": x})[0], x + x):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# What a session says.


def test_inputs_and_outputs(ort):
    s = session(ort, ADD)
    assert arguments(s.get_inputs()) == [
        ("x", "tensor(float)", ["N", 3]),
        ("y", "tensor(float)", [None, 3]),
    ]
    assert arguments(s.get_outputs()) == [("z", "tensor(float)", ["N", 3])]
    assert s.get_overridable_initializers() == []
    assert str(s.get_inputs()[0]) == "NodeArg(name='x', type='tensor(float)', shape=['N', 3])"


@pytest.mark.parametrize(
    "element, name",
    [
        (T.FLOAT, "float"),
        (T.DOUBLE, "double"),
        (T.FLOAT16, "float16"),
        (T.BFLOAT16, "bfloat16"),
        (T.INT8, "int8"),
        (T.UINT8, "uint8"),
        (T.INT16, "int16"),
        (T.UINT16, "uint16"),
        (T.INT32, "int32"),
        (T.UINT32, "uint32"),
        (T.INT64, "int64"),
        (T.UINT64, "uint64"),
        (T.BOOL, "bool"),
        (T.STRING, "string"),
        (T.FLOAT8E4M3FN, "float8e4m3fn"),
        (T.FLOAT8E5M2, "float8e5m2"),
    ],
)
def test_names_of_types(ort, element, name):
    model = build(
        [helper.make_node("Identity", ["x"], ["z"])],
        [vi("x", element, [2])],
        [vi("z", element, [2])],
        opset=21,
    )
    assert session(ort, model).get_inputs()[0].type == f"tensor({name})"


@pytest.mark.parametrize(
    "declared, shown",
    [(None, [None, 3]), (["B", "Q"], ["B", 3]), ([None, None], [None, 3]), (["B", 3], ["B", 3])],
)
def test_shapes_of_outputs(ort, declared, shown):
    model = build(
        [helper.make_node("Concat", ["x", "y"], ["z"], axis=0)],
        [vi("x", T.FLOAT, ["N", 3]), vi("y", T.FLOAT, ["M", 3])],
        [vi("z", T.FLOAT, declared)],
    )
    assert list(session(ort, model).get_outputs()[0].shape) == shown


def test_an_output_without_type_and_shape(ort):
    model = build(
        [helper.make_node("Relu", ["x"], ["z"])],
        [vi("x", T.FLOAT, ["N", 3])],
        [onnx.ValueInfoProto(name="z")],
    )
    assert arguments(session(ort, model).get_outputs()) == [("z", "tensor(float)", ["N", 3])]


def test_dims_that_are_left_open(ort):
    model = unary("Relu", T.FLOAT, [None, -1, "", "a + b", 3], out_shape=None)
    assert list(session(ort, model).get_inputs()[0].shape) == [None, None, None, "a + b", 3]


def test_an_unknown_rank_and_a_scalar_have_no_dims(ort):
    for shape in (None, []):
        assert list(session(ort, unary("Relu", T.FLOAT, shape)).get_inputs()[0].shape) == []


def test_model_metadata(ort):
    meta = session(ort, ADD).get_modelmeta()
    assert meta.producer_name == "maker"
    assert meta.graph_name == "net"
    assert meta.domain == "dom"
    assert meta.version == 7
    assert meta.description == "what it is"
    assert meta.graph_description == "what the graph is"
    assert meta.custom_metadata_map == {"names": "{0: 'cat'}", "character": "a\nb\n"}


def test_a_model_without_metadata(ort):
    meta = session(ort, unary("Relu", T.FLOAT, [2])).get_modelmeta()
    assert meta.custom_metadata_map == {}
    assert (meta.domain, meta.description) == ("", "")
    assert meta.version == 2**63 - 1  # where the file gives none


def test_what_the_module_says(ort):
    assert ort.get_device() == "CPU"
    assert "CPUExecutionProvider" in ort.get_available_providers()
    assert {"CPUExecutionProvider", "CUDAExecutionProvider"} <= set(ort.get_all_providers())
    assert ort.__version__ == ort.get_version_string()
    assert tuple(int(part) for part in ort.__version__.split(".")[:2]) >= (1, 20)
    assert isinstance(ort.get_build_info(), str)
    assert ort.set_seed(3) is None


def test_severities(ort):
    with pytest.raises(RuntimeError, match="Invalid logging severity"):
        ort.set_default_logger_severity(9)


# Providers.


def test_providers(ort):
    for providers in (None, ["CPUExecutionProvider"], [("CPUExecutionProvider", {"a": 1})]):
        s = session(ort, ADD, providers=providers)
        assert s.get_providers() == ["CPUExecutionProvider"]
        assert s.get_provider_options() == {"CPUExecutionProvider": {}}
    s = session(ort, ADD, None, ["CPUExecutionProvider"], [{"use_arena": 1}])
    assert s.get_providers() == ["CPUExecutionProvider"]


def test_a_provider_that_is_not_available(ort):
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider"):
        s = session(ort, ADD, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert s.get_providers() == ["CPUExecutionProvider"]


def test_a_provider_twice(ort):
    with pytest.warns(UserWarning, match="Duplicate provider"):
        session(ort, ADD, providers=["CPUExecutionProvider"] * 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("providers", [["Foo", "CPUExecutionProvider"], [3]])
def test_wrong_providers_fall_back(ort, providers):
    assert session(ort, ADD, providers=providers).get_providers() == ["CPUExecutionProvider"]


@pytest.mark.filterwarnings("ignore")
def test_wrong_providers_without_fallback(ort):
    with pytest.raises(ValueError, match="either strings or"):
        session(ort, ADD, providers=[3], enable_fallback=0)
    with pytest.raises(ValueError, match="the same length"):
        session(ort, ADD, None, ["CPUExecutionProvider"], [], enable_fallback=0)
    with pytest.raises(RuntimeError, match="Unknown Provider Type: Foo"):
        session(ort, ADD, providers=["Foo"], enable_fallback=0)


def test_set_providers(ort):
    s = session(ort, ADD)
    s.disable_fallback()
    s.enable_fallback()
    s.set_providers(["CPUExecutionProvider"])
    assert s.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(s.run(None, {"x": X, "y": X})[0], X + X)


# Feeds.


def test_output_names(ort, errors):
    s, feed = session(ort, ADD), {"x": X, "y": X}
    for names in (None, [], ["z"]):
        assert len(s.run(names, feed)) == 1
    assert len(s.run(["z", "z"], feed)) == 2
    with pytest.raises(errors.InvalidArgument, match="Invalid output name:q"):
        s.run(["q"], feed)
    with pytest.raises(TypeError):
        s.run("z", feed)


def test_outputs_in_the_order_asked_for(ort):
    model = build(
        [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])],
        [vi("x", T.FLOAT, ["N"])],
        [vi("a", T.FLOAT, ["N"]), vi("b", T.FLOAT, ["N"])],
    )
    s, x = session(ort, model), np.array([1, -2], np.float32)
    a, b = s.run(None, {"x": x})
    np.testing.assert_array_equal(a, [1, 0])
    np.testing.assert_array_equal(b, [-1, 2])
    np.testing.assert_array_equal(s.run(["b", "a"], {"x": x}), [b, a])


@pytest.mark.parametrize(
    "feed, kind, message",
    [
        ({"x": X}, ValueError, r"Required inputs \(\['y'\]\) are missing from input feed"),
        ({}, ValueError, r"Required inputs \(\['x', 'y'\]\) are missing"),
        ({"x": X, "y": X, "w": X}, "InvalidArgument", "Invalid input name: w"),
        (
            {"x": X.astype(np.float64), "y": X},
            "InvalidArgument",
            r"Unexpected input data type. Actual: \(tensor\(double\)\) , expected: "
            r"\(tensor\(float\)\)",
        ),
        ({"x": X[0], "y": X}, "InvalidArgument", "Invalid rank for input: x Got: 1 Expected: 2"),
        (
            {"x": X[:, :2], "y": X},
            "InvalidArgument",
            r"Got invalid dimensions for input: x for the following indices\s+"
            r"index: 1 Got: 2 Expected: 3",
        ),
        ({"x": 1.0, "y": X}, RuntimeError, "Unable to handle object of type"),
        ({"x": np.float32(1), "y": X}, RuntimeError, "Unable to handle object of type"),
    ],
)
def test_wrong_feeds(ort, errors, feed, kind, message):
    with pytest.raises(kind if isinstance(kind, type) else getattr(errors, kind), match=message):
        session(ort, ADD).run(None, feed)


def test_a_feed_that_is_no_dict(ort):
    with pytest.raises(AttributeError):
        session(ort, ADD).run(None, [X])


def test_arrays_of_any_layout(ort):
    s = session(ort, ADD)
    y = np.zeros((2, 3), np.float32)
    for x in (
        np.asfortranarray(X),
        np.repeat(X, 2, axis=0)[::2],
        np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
        np.frombuffer(b"0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
    ):
        np.testing.assert_array_equal(s.run(None, {"x": x, "y": y})[0], X)


def test_nested_lists_become_arrays(ort):
    (z,) = session(ort, ADD).run(None, {"x": [[1, 2, 3]], "y": [[0.5, 0.5, 0.5]]})
    np.testing.assert_array_equal(z, np.array([[1.5, 2.5, 3.5]], np.float32))
    assert z.dtype == np.float32


def test_no_rows(ort):
    assert session(ort, ADD).run(None, {"x": X[:0], "y": X[:0]})[0].shape == (0, 3)


def test_the_same_name_for_sizes_that_differ(ort):
    model = build(
        [helper.make_node("Add", ["x", "y"], ["z"])],
        [vi("x", T.FLOAT, ["N", 3]), vi("y", T.FLOAT, ["N", 3])],
        [vi("z", T.FLOAT, ["N", 3])],
    )
    s = session(ort, model)
    for rows in (1, 2, 1):
        (z,) = s.run(None, {"x": X[:rows], "y": X})
        np.testing.assert_array_equal(z, X[:rows] + X)
    assert session(ort, unary("Relu", T.FLOAT, ["N", "N"])).run(None, {"x": X})[0].shape == (2, 3)


def test_sizes_that_do_not_fit(ort, errors):
    with pytest.raises((errors.Fail, errors.InvalidArgument)):
        session(ort, ADD).run(None, {"x": X, "y": np.ones((5, 3), np.float32)})


def test_an_unknown_rank_takes_any(ort):
    s = session(ort, unary("Relu", T.FLOAT, None))
    for shape in ((), (2,), (1, 2, 3)):
        assert s.run(None, {"x": np.ones(shape, np.float32)})[0].shape == shape


def test_a_scalar(ort):
    s = session(ort, unary("Neg", T.FLOAT, []))
    (z,) = s.run(None, {"x": np.array(2, np.float32)})
    assert z == -2 and z.shape == ()
    assert s.run(None, {"x": np.array([2], np.float32)})[0].item() == -2


def test_an_input_that_nothing_reads_is_required(ort):
    model = build(
        [helper.make_node("Relu", ["x"], ["z"])],
        [vi("x", T.FLOAT, [2]), vi("unused", T.FLOAT, [2])],
        [vi("z", T.FLOAT, [2])],
    )
    with pytest.raises(ValueError, match="unused"):
        session(ort, model).run(None, {"x": np.ones(2, np.float32)})


@pytest.mark.parametrize(
    "element, dtype",
    [
        (T.FLOAT16, "float16"),
        (T.DOUBLE, "float64"),
        (T.INT8, "int8"),
        (T.UINT8, "uint8"),
        (T.INT32, "int32"),
        (T.INT64, "int64"),
        (T.UINT64, "uint64"),
        (T.BOOL, "bool"),
    ],
)
def test_types_of_arrays(ort, element, dtype):
    x = np.array([1, 0, 1]).astype(dtype)
    (z,) = session(ort, unary("Identity", element, ["N"])).run(None, {"x": x})
    assert z.dtype == x.dtype
    np.testing.assert_array_equal(z, x)


@pytest.mark.parametrize(
    "x",
    [
        np.array(["a", "bé"]),
        np.array([b"a", "bé".encode()]),
        np.array(["a", "bé"], object),
        ["a", "bé"],
    ],
)
def test_strings(ort, x):
    (z,) = session(ort, unary("Identity", T.STRING, ["N"])).run(None, {"x": x})
    assert z.dtype == object and z.tolist() == ["a", "bé"]


def test_numbers_are_no_strings(ort, errors):
    with pytest.raises(errors.InvalidArgument, match=r"expected: \(tensor\(string\)\)"):
        session(ort, unary("Identity", T.STRING, ["N"])).run(None, {"x": np.ones(1)})


def scaled_model():
    """z = x * w, with a default for w."""
    return build(
        [helper.make_node("Mul", ["x", "w"], ["z"])],
        [vi("x", T.FLOAT, ["N", 3]), vi("w", T.FLOAT, [3])],
        [vi("z", T.FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")],
    )


def test_an_initializer_can_be_overridden(ort):
    s = session(ort, scaled_model())
    assert arguments(s.get_overridable_initializers()) == [("w", "tensor(float)", [3])]
    assert [i.name for i in s.get_inputs()] == ["x"]
    ones = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(s.run(None, {"x": ones})[0], [[1, 2, 3]])
    np.testing.assert_array_equal(s.run(None, {"x": ones, "w": 5 * ones[0]})[0], [[5, 5, 5]])
    np.testing.assert_array_equal(s.run(None, {"x": ones})[0], [[1, 2, 3]])


def test_initializers_of_old_files_are_fixed(ort, errors):
    model = scaled_model()
    model.ir_version = 3
    s = session(ort, model)
    assert s.get_overridable_initializers() == []
    with pytest.raises(errors.InvalidArgument, match="Invalid input name: w"):
        s.run(None, {"x": X, "w": X[0]})


# Values that are no tensors.


def test_a_sequence(ort):
    model = build(
        [helper.make_node("SequenceInsert", ["s", "x"], ["z"])],
        [helper.make_value_info("s", sequence()), vi("x", T.FLOAT, ["N"])],
        [helper.make_value_info("z", sequence())],
    )
    s = session(ort, model)
    assert arguments(s.get_inputs())[0] == ("s", "seq(tensor(float))", [])
    assert arguments(s.get_outputs()) == [("z", "seq(tensor(float))", [])]
    one, two = np.ones(1, np.float32), np.ones(2, np.float32)
    for given in ([], [one], [one, two]):
        (z,) = s.run(None, {"s": given, "x": two})
        assert isinstance(z, list)
        assert [a.tolist() for a in z] == [a.tolist() for a in [*given, two]]
    with pytest.raises(Exception):
        s.run(None, {"s": two, "x": two})


@pytest.mark.parametrize(
    "labels, key", [({"classlabels_int64s": [3, 1]}, "int64"), ({"classlabels_strings": ["b", "a"]}, "string")]
)
def test_classes_are_maps(ort, labels, key):
    kind = onnx.TypeProto()
    map_type = kind.sequence_type.elem_type.map_type
    map_type.key_type = T.INT64 if key == "int64" else T.STRING
    map_type.value_type.tensor_type.elem_type = T.FLOAT
    model = build(
        [helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", **labels)],
        [vi("x", T.FLOAT, ["N", 2])],
        [helper.make_value_info("z", kind)],
    )
    s = session(ort, model)
    assert arguments(s.get_outputs()) == [("z", f"seq(map({key},tensor(float)))", [])]
    (z,) = s.run(None, {"x": np.arange(4, dtype=np.float32).reshape(2, 2)})
    first, second = next(iter(labels.values()))
    assert z == [{first: 0.0, second: 1.0}, {first: 2.0, second: 3.0}]
    assert all(type(p) is float for row in z for p in row.values())
    (value,) = s.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X[:, :2])})
    assert value.data_type() == f"seq(map({key},tensor(float)))"
    assert not value.is_tensor()


def test_an_optional_input(ort):
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(T.FLOAT, [2]))
    model = build(
        [helper.make_node("OptionalHasElement", ["x"], ["z"])],
        [helper.make_value_info("x", kind)],
        [vi("z", T.BOOL, [])],
        opset=18,
    )
    s = session(ort, model)
    assert arguments(s.get_inputs()) == [("x", "optional(tensor(float))", [2])]
    assert not s.run(None, {"x": None})[0]
    assert s.run(None, {"x": np.ones(2, np.float32)})[0]


# Options.


def test_defaults_of_session_options(ort):
    o = ort.SessionOptions()
    assert o.intra_op_num_threads == o.inter_op_num_threads == 0
    assert o.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert o.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    assert o.execution_order == ort.ExecutionOrder.DEFAULT
    assert o.enable_cpu_mem_arena and o.enable_mem_pattern and o.enable_mem_reuse
    assert not o.enable_profiling and not o.use_deterministic_compute
    assert o.use_per_session_threads
    assert (o.logid, o.log_severity_level, o.log_verbosity_level) == ("", -1, 0)
    assert o.optimized_model_filepath == ""
    assert o.profile_file_prefix == "onnxruntime_profile_"
    assert not o.has_providers()


def test_session_options_have_types(ort):
    o = ort.SessionOptions()
    o.intra_op_num_threads = np.int64(2)
    o.enable_profiling = 0
    o.log_severity_level = 3
    o.logid = "me"
    for name, value in [
        ("intra_op_num_threads", "two"),
        ("intra_op_num_threads", 2.5),
        ("graph_optimization_level", 99),
        ("execution_mode", 1),
        ("logid", 3),
    ]:
        with pytest.raises(TypeError):
            setattr(o, name, value)
    with pytest.raises(AttributeError):
        o.no_such_option = 1
    assert (o.intra_op_num_threads, o.logid, o.enable_profiling) == (2, "me", False)


@pytest.mark.parametrize("level", "DISABLE_ALL ENABLE_BASIC ENABLE_EXTENDED ENABLE_ALL".split())
def test_options_change_no_result(ort, level):
    o = ort.SessionOptions()
    o.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
    o.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    o.intra_op_num_threads, o.inter_op_num_threads = 2, 1
    o.enable_cpu_mem_arena = o.enable_mem_pattern = o.enable_mem_reuse = False
    np.testing.assert_array_equal(session(ort, ADD, o).run(None, {"x": X, "y": X})[0], X + X)


def test_configuration_entries(ort):
    for options, add, get in [
        (ort.SessionOptions(), "add_session_config_entry", "get_session_config_entry"),
        (ort.RunOptions(), "add_run_config_entry", "get_run_config_entry"),
    ]:
        getattr(options, add)("session.disable_prepacking", "1")
        assert getattr(options, get)("session.disable_prepacking") == "1"
        with pytest.raises(RuntimeError, match="does not have configuration with key: other"):
            getattr(options, get)("other")
        with pytest.raises(TypeError):
            getattr(options, add)("key", 1)


def test_free_dimensions_by_name(ort, errors):
    o = ort.SessionOptions()
    o.add_free_dimension_override_by_name("N", 2)
    s = session(ort, ADD, o)
    assert list(s.get_inputs()[0].shape) == [2, 3]
    assert list(s.get_outputs()[0].shape) == [2, 3]
    np.testing.assert_array_equal(s.run(None, {"x": X, "y": X})[0], X + X)
    with pytest.raises(errors.InvalidArgument, match="index: 0 Got: 1 Expected: 2"):
        s.run(None, {"x": X[:1], "y": X})


def test_free_dimensions_by_denotation(ort):
    model = add_model()
    model.graph.input[1].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    o = ort.SessionOptions()
    o.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    s = session(ort, model, o)
    assert [list(i.shape) for i in s.get_inputs()] == [["N", 3], [2, 3]]
    np.testing.assert_array_equal(s.run(None, {"x": X, "y": X})[0], X + X)


def test_the_optimized_model(ort, tmp_path):
    o = ort.SessionOptions()
    o.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session(ort, ADD, o)
    again = ort.InferenceSession(o.optimized_model_filepath)
    np.testing.assert_array_equal(again.run(None, {"x": X, "y": X})[0], X + X)


def test_providers_of_session_options(ort):
    o = ort.SessionOptions()
    o.add_provider("CPUExecutionProvider", {})
    assert o.has_providers()
    with pytest.raises(RuntimeError, match="Unknown Provider Type"):
        o.add_provider("FooExecutionProvider", {})


def test_a_custom_library_that_is_not_there(ort):
    with pytest.raises(Exception, match="Failed to load library"):
        ort.SessionOptions().register_custom_ops_library("no/such/library.so")


def external_model():
    w = numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")
    model = build(
        [helper.make_node("Mul", ["x", "w"], ["z"])],
        [vi("x", T.FLOAT, ["N", 3])],
        [vi("z", T.FLOAT, ["N", 3])],
        [w],
    )
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "weights.bin", 0, 12)
    data = model.graph.initializer[0].raw_data
    model.graph.initializer[0].ClearField("raw_data")
    return model, data


def test_external_data_beside_the_file(ort, tmp_path):
    model, data = external_model()
    (tmp_path / "weights.bin").write_bytes(data)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    s = ort.InferenceSession(tmp_path / "model.onnx")
    np.testing.assert_array_equal(s.run(None, {"x": X})[0], X * [1, 2, 3])


def test_external_data_from_memory(ort):
    model, data = external_model()
    o = ort.SessionOptions()
    o.add_external_initializers_from_files_in_memory(["weights.bin"], [data], [len(data)])
    np.testing.assert_array_equal(session(ort, model, o).run(None, {"x": X})[0], X * [1, 2, 3])


def test_initializers_from_memory(ort):
    value = ort.OrtValue.ortvalue_from_numpy(np.array([4, 5, 6], np.float32))
    o = ort.SessionOptions()
    o.add_initializer("w", value)
    model = scaled_model()
    del model.graph.input[1]
    np.testing.assert_array_equal(session(ort, model, o).run(None, {"x": X})[0], X * [4, 5, 6])
    model, _ = external_model()
    o = ort.SessionOptions()
    o.add_external_initializers(["w"], [value])
    np.testing.assert_array_equal(session(ort, model, o).run(None, {"x": X})[0], X * [4, 5, 6])


def test_run_options(ort, errors):
    o = ort.RunOptions()
    assert (o.log_severity_level, o.log_verbosity_level, o.logid) == (-1, 0, "")
    assert not o.terminate and not o.only_execute_path_to_fetches
    o.logid, o.log_severity_level, o.only_execute_path_to_fetches = "run", 3, True
    s, feed = session(ort, ADD), {"x": X, "y": X}
    np.testing.assert_array_equal(s.run(None, feed, o)[0], X + X)
    o.terminate = True
    with pytest.raises(errors.Fail, match="terminate flag being set to true"):
        s.run(None, feed, o)
    o.terminate = False
    np.testing.assert_array_equal(s.run(None, feed, o)[0], X + X)
    with pytest.raises(TypeError):
        s.run(None, feed, 3)


def test_terminate_ends_a_run_under_way(ort, errors):
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "s"], ["p"]),
            helper.make_node("Relu", ["p"], ["t"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [vi("i", T.INT64, []), vi("c", T.BOOL, []), vi("s", T.FLOAT, [64, 64])],
        [vi("d", T.BOOL, []), vi("t", T.FLOAT, [64, 64])],
    )
    model = build(
        [helper.make_node("Loop", ["n", "c", "x"], ["z"], body=body)],
        [vi("n", T.INT64, []), vi("c", T.BOOL, []), vi("x", T.FLOAT, [64, 64])],
        [vi("z", T.FLOAT, [64, 64])],
    )
    s, options = session(ort, model), ort.RunOptions()
    feed = {
        "n": np.array(2**40),
        "c": np.array(True),
        "x": np.zeros((64, 64), np.float32),
    }
    timer = threading.Timer(0.2, setattr, (options, "terminate", True))
    timer.start()
    with pytest.raises(errors.Fail, match="terminate flag"):
        s.run(None, feed, options)
    timer.join()


def test_enumerations(ort):
    level = ort.GraphOptimizationLevel
    assert {name: int(value) for name, value in level.__members__.items()} == {
        "ORT_DISABLE_ALL": 0,
        "ORT_ENABLE_BASIC": 1,
        "ORT_ENABLE_EXTENDED": 2,
        "ORT_ENABLE_LAYOUT": 3,
        "ORT_ENABLE_ALL": 99,
    }
    assert level.ORT_ENABLE_ALL.name == "ORT_ENABLE_ALL" and level.ORT_ENABLE_ALL.value == 99
    assert level(99) == level.ORT_ENABLE_ALL
    assert str(level.ORT_ENABLE_ALL) == "GraphOptimizationLevel.ORT_ENABLE_ALL"
    assert repr(level.ORT_ENABLE_ALL) == "<GraphOptimizationLevel.ORT_ENABLE_ALL: 99>"
    assert pickle.loads(pickle.dumps(level.ORT_ENABLE_ALL)) == level.ORT_ENABLE_ALL
    assert int(ort.ExecutionMode.ORT_PARALLEL) == 1
    assert int(ort.ExecutionOrder.PRIORITY_BASED) == 1
    assert int(ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR) == 1
    assert int(ort.OrtMemType.CPU_INPUT) == -2
