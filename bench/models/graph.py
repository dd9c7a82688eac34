"""What the model scripts share: building a graph, seeded weights, writing model and samples.

A weight is a recipe until it is written, and depends on its name and the seed alone; so the same
options give the same bytes, and a large model needs no more memory than its largest weight.
"""

import argparse
import contextlib
import json
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
DATA_FILE = "model.onnx.data"
DATA_ALIGNMENT = 4096  # a weight can be mapped as it lies
SAMPLE_TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}  # outputs are of size one
INLINE_LIMIT = 1024  # bytes; smaller weights stay in model.onnx


class Graph:
    """An ONNX graph under construction. Values are their names; nodes are named by scope and op."""

    def __init__(self, name, seed=0):
        self.name, self.seed, self.opset = name, seed, OPSET
        self.nodes, self.inputs, self.outputs = [], [], []
        self.weights = {}  # name -> (shape, recipe)
        self._scope, self._counts = [], {}

    @contextlib.contextmanager
    def scope(self, name):
        self._scope.append(name)
        yield
        self._scope.pop()

    def _node_name(self, op):
        stem = "/" + "/".join([*self._scope, op])
        count = self._counts[stem] = self._counts.get(stem, -1) + 1
        return f"{stem}_{count}" if count else stem

    def _weight_name(self, name):
        return ".".join([*self._scope, name])

    def input(self, name, dtype, dims):
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, elem, dims))
        return name

    def output(self, value, name, dims, dtype="float32"):
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"/output/{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, elem, dims))

    def op(self, op, *inputs, outputs=1, **attributes):
        """Adds a node; returns its output, or a list of several. "" is an absent input."""
        name = self._node_name(op)
        results = [f"{name}_output_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, results, name=name, **attributes))
        return results[0] if outputs == 1 else results

    def const(self, value, dtype="int64"):
        return self.op("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def weight(self, name, shape, recipe):
        """A parameter; `recipe(rng, shape)` makes its value when the model is written."""
        full = self._weight_name(name)
        assert full not in self.weights, full
        self.weights[full] = (tuple(shape), recipe)
        return full

    def normal(self, name, shape, scale):
        return self.weight(
            name, shape, lambda rng, s: rng.standard_normal(s, np.float32) * np.float32(scale)
        )

    def around(self, name, shape, center):
        """Uniform within 0.1 of `center`: norm scales, variances, biases."""
        return self.weight(
            name,
            shape,
            lambda rng, s: rng.random(s, np.float32) * np.float32(0.2) + np.float32(center - 0.1),
        )

    def buffer(self, name, value):
        return self.weight(name, value.shape, lambda _, __: value)

    def value_of(self, name):
        shape, recipe = self.weights[name]
        return np.ascontiguousarray(
            recipe(np.random.default_rng([self.seed, zlib.crc32(name.encode())]), shape)
        )

    # Pieces that a PyTorch exporter writes out in full.

    def dims(self, value, *axes):
        """The sizes of `value` along `axes`, each as i64[1]."""
        picked = [
            self.op("Gather", self.op("Shape", value), self.const(axis), axis=0) for axis in axes
        ]
        return [self.op("Unsqueeze", dim, self.const([0])) for dim in picked]

    def reshape(self, value, *dims):
        """To `dims`: numbers, or i64[1] values from `dims()`."""
        parts = [dim if isinstance(dim, str) else self.const([dim]) for dim in dims]
        return self.op("Reshape", value, self.op("Concat", *parts, axis=0))

    def binary(self, op, value, number):
        return self.op(op, value, self.const(number, "float32"))

    def linear(self, name, value, inner, outer):
        """value * weight + bias over the last dim, as MatMul and Add."""
        with self.scope(name):
            product = self.op(
                "MatMul", value, self.normal("weight", (inner, outer), 0.5 / np.sqrt(inner))
            )
            return self.op("Add", self.around("bias", (outer,), 0), product)

    def layer_norm(self, name, value, width, eps=1e-5):
        with self.scope(name):
            centered = self.op("Sub", value, self.op("ReduceMean", value, axes=[-1]))
            variance = self.op("ReduceMean", self.binary("Pow", centered, 2), axes=[-1])
            deviation = self.op("Sqrt", self.binary("Add", variance, eps))
            scaled = self.op(
                "Mul", self.op("Div", centered, deviation), self.around("weight", (width,), 1)
            )
            return self.op("Add", scaled, self.around("bias", (width,), 0))

    def gelu_erf(self, value):
        erf = self.op("Erf", self.binary("Div", value, np.sqrt(2)))
        return self.binary("Mul", self.op("Mul", value, self.binary("Add", erf, 1)), 0.5)

    def gelu_tanh(self, value):
        cube = self.binary("Mul", self.binary("Pow", value, 3), 0.044715)
        inner = self.binary("Mul", self.op("Add", value, cube), np.sqrt(2 / np.pi))
        half = self.binary("Mul", value, 0.5)
        return self.op("Mul", half, self.binary("Add", self.op("Tanh", inner), 1))


# --- writing ------------------------------------------------------------------------------------


def external_tensor(name, value, data):
    """Appends `value` to the open file `data`, aligned, and returns a tensor that refers to it."""
    data.seek(-(-data.tell() // DATA_ALIGNMENT) * DATA_ALIGNMENT)
    place = {"location": DATA_FILE, "offset": data.tell(), "length": value.nbytes}
    data.write(value.data)
    tensor = TensorProto(name=name, dims=value.shape, data_location=TensorProto.EXTERNAL)
    tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    for key, entry in place.items():
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def write_model(graph, folder):
    """folder/model.onnx, its larger weights in folder/model.onnx.data. Returns the model's path."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = []
    with open(folder / DATA_FILE, "wb") as data:
        for name in graph.weights:
            value = graph.value_of(name)
            inline = value.nbytes < INLINE_LIMIT
            tensors.append(
                numpy_helper.from_array(value, name)
                if inline
                else external_tensor(name, value, data)
            )
    proto = helper.make_graph(graph.nodes, graph.name, graph.inputs, graph.outputs, tensors)
    opsets = [helper.make_opsetid("", graph.opset)]
    model = helper.make_model(
        proto, ir_version=IR_VERSION, opset_imports=opsets, producer_name="lathe bench"
    )
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path), full_check=True)
    return path


def run_onnxruntime(path, feeds):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def write_samples(folder, feeds):
    """folder/test_data_set_0 with `feeds` and what onnxruntime makes of them."""
    outputs = run_onnxruntime(folder / "model.onnx", feeds)
    (folder / "data.json").write_text(json.dumps(SAMPLE_TOLERANCE) + "\n")
    samples = folder / "test_data_set_0"
    samples.mkdir(exist_ok=True)
    for kind, values in (("input", feeds), ("output", outputs)):
        for i, (name, value) in enumerate(values.items()):
            if value.dtype == np.float32 and not np.isfinite(value).all():
                raise SystemExit(f"{name} is not finite")
            tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
            (samples / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


def main(description, build, feeds, options):
    """The command line of a script.

    build(args) -> Graph; feeds(args, rng) -> {input name: array} in the order of the graph's
    inputs; options: {name: (default, help)}, where a default of False makes a flag.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for model.onnx and model.onnx.data"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--samples", action="store_true", help="also write test_data_set_0, outputs by onnxruntime"
    )
    for name, (default, text) in options.items():
        kind = (
            {"action": "store_true"}
            if default is False
            else {"type": type(default), "default": default}
        )
        parser.add_argument(f"--{name}", help=text, **kind)
    args = parser.parse_args()
    path = write_model(build(args), args.out)
    if args.samples:
        write_samples(args.out, feeds(args, np.random.default_rng(args.seed)))
    print(path)
