"""What the case modules share: the registry of cases, small models, and protobuf by hand."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CASES = {}  # id -> function(folder) that writes the case
OPSET = 21
IR_VERSION = 10


def case(id):
    """Registers a function that writes the files of case `id` into its folder."""

    def register(write):
        assert id not in CASES, id
        CASES[id] = write
        return write

    return register


def f32(*dims):
    """A ramp of the given shape."""
    return np.arange(int(np.prod(dims)), dtype=np.float32).reshape(dims)


def i64(*values):
    return np.array(values, np.int64)


class Const:
    """An input of a node that is an initializer of the graph instead of an input of the model."""

    def __init__(self, value):
        self.value = value


# --- models -------------------------------------------------------------------------------------


def info(name, elem=TensorProto.FLOAT, dims=None):
    return helper.make_tensor_value_info(name, elem, dims)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def graph(nodes, inputs, outputs, initializers=()):
    for i, n in enumerate(nodes):
        n.name = f"{n.op_type}_{i}"
    return helper.make_graph(nodes, "g", inputs, outputs, list(initializers))


def model(nodes, inputs=None, outputs=None, initializers=(), opsets=None, functions=()):
    """A model of f32[4] in `x` and f32 out of `y` unless told otherwise."""
    inputs = [info("x", dims=[4])] if inputs is None else inputs
    outputs = [info("y")] if outputs is None else outputs
    opsets = {"": OPSET} if opsets is None else opsets
    return helper.make_model(
        graph(nodes, inputs, outputs, initializers),
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        functions=list(functions),
    )


def good_model():
    """y = x + w, with an initializer of 16 bytes."""
    weight = numpy_helper.from_array(f32(4), "w")
    return model([node("Add", ["x", "w"], ["y"])], initializers=[weight])


def save(folder, proto, name="model.onnx", feeds=None):
    """Writes a model (a message or bytes) and the values of its inputs."""
    bytes_ = proto if isinstance(proto, bytes) else proto.SerializeToString()
    (folder / name).write_bytes(bytes_)
    for key, value in (feeds or {}).items():
        (folder / "inputs").mkdir(exist_ok=True)
        np.save(folder / "inputs" / f"{key}.npy", value)


def one_op(op, *inputs, outputs=1, opset=OPSET, domain="", **attributes):
    """A function that writes a model of one node.

    An input is an array (fed when the model runs), a Const (an initializer) or None (absent).
    """

    def write(folder):
        names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
        given = [(name, value) for name, value in zip(names, inputs) if value is not None]
        feeds = {name: value for name, value in given if not isinstance(value, Const)}
        weights = [
            numpy_helper.from_array(value.value, name)
            for name, value in given
            if isinstance(value, Const)
        ]
        elem = helper.np_dtype_to_tensor_dtype
        sources = [info(name, elem(v.dtype), list(v.shape)) for name, v in feeds.items()]
        results = [f"y{i}" for i in range(outputs)]
        nodes = [node(op, names, results, domain=domain, **attributes)]
        # Result types are left open: a wrong guess here would be a second mistake.
        targets = [helper.make_empty_tensor_value_info(name) for name in results]
        opsets = {"": opset, domain: opset} if domain else {"": opset}
        save(folder, model(nodes, sources, targets, weights, opsets), feeds=feeds)

    return write


def op_case(id, op, *inputs, **options):
    case(id)(one_op(op, *inputs, **options))


# --- protobuf by hand ---------------------------------------------------------------------------


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, payload):
    """A length-delimited field of bytes, or a varint field of an int."""
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def model_bytes(graph_bytes, opset=OPSET):
    imported = field(8, field(1, b"") + field(2, opset))
    return field(1, IR_VERSION) + field(7, graph_bytes) + imported
