"""Initializers whose data do not fit their type and shape, and types that make no sense."""

import numpy as np
from corpus import case, f32, info, model, node, save
from onnx import TensorProto, helper


def weight_case(id, data_type, dims, **fields):
    """y = Identity(w) with `w` put together from raw TensorProto fields."""

    @case(id)
    def write(folder):
        tensor = TensorProto(name="w", data_type=data_type, dims=dims, **fields)
        outputs = [helper.make_empty_tensor_value_info("y")]
        save(folder, model([node("Identity", ["w"], ["y"])], [], outputs, [tensor]))


FLOAT, INT64, INT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8
RAW = f32(4).tobytes()

weight_case("tensor-good", FLOAT, [4], raw_data=RAW)
weight_case("tensor-raw-short", FLOAT, [4], raw_data=RAW[:-4])
weight_case("tensor-raw-ragged", FLOAT, [4], raw_data=RAW[:-1])
weight_case("tensor-raw-long", FLOAT, [4], raw_data=RAW + b"\0\0\0\0")
weight_case("tensor-raw-empty", FLOAT, [4], raw_data=b"")
weight_case("tensor-no-data", FLOAT, [4])
weight_case("tensor-typed-short", FLOAT, [4], float_data=[1, 2, 3])
weight_case("tensor-typed-long", FLOAT, [4], float_data=[1, 2, 3, 4, 5])
weight_case("tensor-typed-wrong-field", FLOAT, [4], int64_data=[1, 2, 3, 4])
weight_case("tensor-two-sources", FLOAT, [4], raw_data=RAW, float_data=[1, 2, 3, 4])
weight_case("tensor-dims-negative", FLOAT, [-4], raw_data=RAW)
weight_case("tensor-dims-two-negatives", FLOAT, [-2, -2], raw_data=RAW)
weight_case("tensor-dims-overflow", FLOAT, [1 << 32, 1 << 32], raw_data=RAW)
weight_case("tensor-dims-wrap-to-four", FLOAT, [(1 << 62) + 1, 4], raw_data=RAW)
weight_case("tensor-dims-bytes-overflow", FLOAT, [1 << 62], raw_data=b"")
weight_case("tensor-dims-huge", FLOAT, [10**15], raw_data=RAW)
weight_case("tensor-dims-huge-but-empty", FLOAT, [1 << 62, 1 << 62, 0], raw_data=b"")
weight_case("tensor-rank-huge", FLOAT, [1] * 100_000, raw_data=RAW[:4])
weight_case("tensor-type-undefined", TensorProto.UNDEFINED, [4], raw_data=RAW)
weight_case("tensor-type-unknown", 999, [4], raw_data=RAW)
weight_case("tensor-type-negative", -1, [4], raw_data=RAW)
weight_case("tensor-string-raw", TensorProto.STRING, [4], raw_data=RAW)
weight_case("tensor-string-short", TensorProto.STRING, [4], string_data=[b"a"])
weight_case("tensor-string-invalid-utf8", TensorProto.STRING, [1], string_data=[b"\xff\xc0\x80"])
weight_case("tensor-int4-raw-short", TensorProto.INT4, [5], raw_data=b"\x21\x43")
weight_case("tensor-int8-out-of-range", INT8, [1], int32_data=[1000])
weight_case("tensor-bool-two", TensorProto.BOOL, [1], raw_data=b"\x02")
weight_case("tensor-complex-odd", TensorProto.COMPLEX64, [2], float_data=[1, 2, 3])
weight_case("tensor-segment", FLOAT, [4], raw_data=RAW, segment=TensorProto.Segment(begin=0, end=4))
weight_case("tensor-raw-and-external", FLOAT, [4], raw_data=RAW, data_location=1)


def sparse_case(id, indices, values=(1.0, 2.0), dims=(3, 3)):
    """A sparse initializer of shape `dims`."""

    @case(id)
    def write(folder):
        proto = model([node("Identity", ["w"], ["y"])], [])
        sparse = proto.graph.sparse_initializer.add(dims=dims)
        sparse.values.CopyFrom(helper.make_tensor("w", FLOAT, [len(values)], values))
        sparse.indices.CopyFrom(helper.make_tensor("i", INT64, indices.shape, indices.ravel()))
        save(folder, proto)


sparse_case("sparse-index-large", np.array([0, 9]))
sparse_case("sparse-index-negative", np.array([-1, 2]))
sparse_case("sparse-index-pair-large", np.array([[0, 0], [2, 3]]))
sparse_case("sparse-index-count", np.array([0, 1, 2]))
sparse_case("sparse-index-rank", np.array([[[0]]]))
sparse_case("sparse-dims-huge", np.array([0, 1]), dims=(1 << 40, 1 << 40))
sparse_case("sparse-dims-negative", np.array([0, 1]), dims=(-3, 3))


def input_case(id, elem, dims, feed=None):
    """y = Relu(x), `x` declared with the given type, fed with `feed`."""

    @case(id)
    def write(folder):
        feeds = {} if feed is None else {"x": feed}
        save(folder, model([node("Relu", ["x"], ["y"])], [info("x", elem, dims)]), feeds=feeds)


input_case("input-dim-negative", FLOAT, [-5])
input_case("input-dim-huge", FLOAT, [1 << 62])
input_case("input-dims-overflow", FLOAT, [1 << 40, 1 << 40])
input_case("input-rank-huge", FLOAT, [1] * 100_000)
input_case("input-dim-name-odd", FLOAT, ["a+b*(\n"], f32(3))
input_case("input-dim-name-expression", FLOAT, ["2 * N / 0", "N"], f32(1, 2))
input_case("input-dim-name-long", FLOAT, ["N" * 1_000_000])
input_case("input-type-undefined", TensorProto.UNDEFINED, [4])
input_case("input-type-unknown", 999, [4])
input_case("input-fed-rank", FLOAT, [2, 2], f32(4))
input_case("input-fed-shape", FLOAT, [2, 2], f32(2, 3))
input_case("input-fed-type", FLOAT, [4], np.arange(4))
input_case("input-fed-symbol", FLOAT, ["N", "N"], f32(2, 3))


@case("input-without-type")
def without_type(folder):
    inputs = [helper.make_empty_tensor_value_info("x")]
    save(folder, model([node("Relu", ["x"], ["y"])], inputs))


def file_case(id, name, content):
    """A good model whose input file is broken."""

    @case(id)
    def write(folder):
        save(folder, model([node("Relu", ["x"], ["y"])]))
        (folder / "inputs").mkdir()
        (folder / "inputs" / name).write_bytes(content)


def npy(header, data=RAW):
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


file_case("npy-empty", "x.npy", b"")
file_case(
    "npy-truncated", "x.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", b"1")
)
file_case("npy-header-length", "x.npy", b"\x93NUMPY\x01\x00\xff\xff{}")
file_case("npy-object", "x.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (4,), }"))
file_case(
    "npy-shape-overflow",
    "x.npy",
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"),
)
file_case(
    "npy-shape-negative", "x.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }")
)
file_case("npy-header-nested", "x.npy", npy("(" * 100))
file_case("npz-garbage", "x.npz", b"PK\x03\x04" + b"\xff" * 64)
file_case("png-garbage", "x.png", b"\x89PNG\r\n\x1a\n" + b"\xff" * 64)
file_case("pb-garbage", "x.pb", b"\xff" * 64)
file_case(
    "pb-dims-overflow",
    "x.pb",
    TensorProto(data_type=FLOAT, dims=[1 << 32, 1 << 32], raw_data=RAW).SerializeToString(),
)
file_case(
    "pb-raw-short",
    "x.pb",
    TensorProto(data_type=FLOAT, dims=[4], raw_data=RAW[1:]).SerializeToString(),
)
