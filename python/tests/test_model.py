"""Models, programs, errors."""

import copy
import io
import pathlib
import pickle

import numpy as np
import onnx
import pytest

import lathe


def test_load_takes_paths_bytes_files_and_protos(digits):
    path = pathlib.Path(digits)
    sources = [digits, path, path.read_bytes(), bytearray(path.read_bytes()),
               memoryview(path.read_bytes()), io.BytesIO(path.read_bytes()), onnx.load(digits)]
    for source in sources:
        model = lathe.load(source)
        assert [p.name for p in model.inputs] == ["image"]
        assert [p.dtype for p in model.outputs] == ["f32"]
    with pytest.raises(TypeError, match="not a int"):
        lathe.load(3)


def test_bytes_may_go(digits):
    data = pathlib.Path(digits).read_bytes()
    model = lathe.load(data)
    del data  # where weights lie
    exe = lathe.compile(model, cache=False, threads=1)
    del model
    assert exe(np.zeros((1, 1, 8, 8), np.float32)).shape[-1] == 10


def test_metadata(add):
    add.producer_name = "maker"
    onnx.helper.set_model_props(add, {"names": "a,b"})
    metadata = lathe.load(add).metadata
    assert metadata["producer_name"] == "maker" and metadata["metadata_props.names"] == "a,b"


def test_models_and_programs_are_pickled_and_copied(digits, add, tmp_path):
    add.producer_name = "maker"
    for model in (lathe.load(digits), lathe.load(add)):
        inputs = model.random_inputs(3, dims={"N": 2})
        expected = lathe.interpret(model, inputs)
        for again in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
            assert (again.name, again.metadata) == (model.name, model.metadata)
            assert again.program.to_text(locations=True) == model.program.to_text(locations=True)
            for name, value in lathe.interpret(again, inputs).items():
                np.testing.assert_array_equal(value, expected[name])
    again = pickle.loads(pickle.dumps(model.program))
    assert type(again) is lathe.Program and str(again) == str(model.program)
    assert pickle.dumps(again) == pickle.dumps(pickle.loads(pickle.dumps(again)))
    again.run_passes("canonicalize")
    empty = pickle.loads(pickle.dumps(lathe.Program()))
    assert len(empty) == 0 and len(empty.parameters) == 0


def test_warnings_survive_a_pickle(add):
    add.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7
    model = lathe.load(add)
    assert model.warnings and pickle.loads(pickle.dumps(model)).warnings == model.warnings


def test_programs_are_saved(digits, tmp_path):
    program = lathe.load(digits).program
    for name in ("digits.onnx", "digits.lathe"):
        program.save(tmp_path / name)
        again = lathe.load(tmp_path / name).program
        assert [op.name for op in again] == [op.name for op in program]
        assert again.parameters.keys() == program.parameters.keys()
    with pytest.raises(lathe.InvalidArgumentError, match='".txt" names no format'):
        program.save(tmp_path / "digits.txt")
    with pytest.raises(FileNotFoundError):
        program.save(tmp_path / "missing" / "digits.onnx")


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        lathe.load(tmp_path / "nothing.onnx")
    assert error.value.code == "not-found" and str(tmp_path) in error.value.location
    with pytest.raises(lathe.ParseError):
        lathe.load(b"not a model")
    with pytest.raises(ValueError):
        lathe.load(b"\x08")


def test_external_data(add, tmp_path):
    weight = onnx.numpy_helper.from_array(np.full((3,), 5, np.float32), "b")
    del add.graph.input[1]
    add.graph.initializer.append(weight)
    onnx.external_data_helper.convert_model_to_external_data(add, location="w.bin", size_threshold=0)
    onnx.save(add, tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    data = (tmp_path / "w.bin").read_bytes()
    x = np.zeros((1, 3), np.float32)
    for external in ({"w.bin": data}, {"w.bin": data}.get):
        exe = lathe.compile(lathe.load(proto, external_data=external), cache=False)
        assert exe(x).tolist() == [[5, 5, 5]]
    with pytest.raises(lathe.Error):
        lathe.load(proto, external_data={})


def test_errors_pickle_and_explain_themselves(add):
    with pytest.raises(lathe.NotFoundError) as raised:
        lathe.load(add).program.run_passes("canonicalze")
    error = raised.value
    assert (error.code, error.id) == ("not-found", "pass/unknown")
    assert "canonicalize" in error.hint and error.hint in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.id, again.hint, str(again)) == (error.id, error.hint, str(error))


def test_programs_print_parse_and_iterate(add):
    program = lathe.load(add).program
    again = lathe.Program.parse(str(program))
    assert str(again) == str(program)
    names = [op.name for op in program]
    assert names.count("nn.add") == 1 and len(program) == len(names)
    op = next(op for op in program if op.name == "nn.add")
    assert [v.shape for v in op.operands] == [("N", 3), ("N", 3)]
    assert op.operands[0].producer.attributes["name"] == "a"
    assert op.results[0].users[0].name == "nn.fetch"
    assert op.results[0].dtype == "f32" and op == op.results[0].producer


def test_passes_change_the_program(add):
    add.graph.node.append(onnx.helper.make_node("Add", ["a", "b"], ["twice"]))
    add.graph.output[0].name = "z"
    add.graph.node.append(onnx.helper.make_node("Mul", ["y", "twice"], ["z"]))
    model = lathe.load(add)
    program, before = model.program, str(model.program)
    op = next(iter(program))
    program.run_passes("inference,canonicalize,cse")
    assert str(program) != before and str(model.program) == str(program)
    with pytest.raises(lathe.InvalidArgumentError, match="changed"):
        _ = op.name
    clone = program.clone()
    with pytest.raises(lathe.Error):
        clone.run_passes("inference{level=9}")
    assert str(clone) == str(program)


def test_list_passes():
    passes = {p.name: p.doc for p in lathe.list_passes()}
    assert passes["cse"] and passes["inference"]


def test_to_onnx(add, tmp_path):
    program = lathe.load(add).program
    data = program.to_onnx(tmp_path / "add.onnx")
    assert (tmp_path / "add.onnx").read_bytes() == data == program.to_onnx()
    proto = onnx.load_from_string(data)
    assert proto.graph.node[0].op_type == "Add"
    onnx.checker.check_model(proto)


def test_notebooks_show_the_graph(add):
    page = lathe.load(add).program._repr_html_()
    assert page.startswith("<iframe") and "nn.add" in page and "<script>" in page


def test_a_file_that_was_opened_as_text(digits):
    with open(digits, encoding="latin1") as file, pytest.raises(TypeError, match="binary mode"):
        lathe.load(file)
