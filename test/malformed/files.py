"""Files that are not a model: truncated, empty, not protobuf, hostile protobuf."""

import gzip
import os

from corpus import case, f32, field, good_model, info, model, model_bytes, node, save, varint

DEEP = 10_000


@case("file-truncated")
def truncated(folder):
    whole = good_model().SerializeToString()
    for size in range(1, len(whole)):
        save(folder, whole[:size], f"model-{size:04}.onnx")


@case("file-empty")
def empty(folder):
    save(folder, b"")


@case("file-missing")
def missing(folder):
    (folder / "model.txt").write_text("cases/file-missing/model.onnx is not there\n")


@case("file-directory")
def directory(folder):
    (folder / "model.onnx").mkdir()


@case("file-pipe")
def pipe(folder):
    os.mkfifo(folder / "model.onnx")


@case("file-text")
def text(folder):
    save(folder, b"This is not a model.\n" * 20)


@case("file-html")
def html(folder):
    save(folder, b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n")


@case("file-gzip")
def gzipped(folder):
    save(folder, gzip.compress(good_model().SerializeToString(), mtime=0))


@case("file-zeros")
def zeros(folder):
    save(folder, bytes(4096))


@case("file-ones")
def ones(folder):
    save(folder, b"\xff" * 4096)


@case("file-lfs-pointer")
def lfs_pointer(folder):
    save(folder, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 102\n")


@case("proto-wire-type")
def wire_type(folder):
    save(folder, field(1, 10) + field(7, 5))  # graph as a number


@case("proto-name-as-number")
def name_as_number(folder):
    save(folder, model_bytes(field(2, 7) + field(1, field(4, 3))))


@case("proto-length-beyond-end")
def length_beyond_end(folder):
    save(folder, field(1, 10) + varint(7 << 3 | 2) + varint(1 << 40) + b"abc")


@case("proto-length-negative")
def length_negative(folder):
    save(folder, field(1, 10) + varint(7 << 3 | 2) + varint((1 << 64) - 1) + b"abc")


@case("proto-varint-endless")
def varint_endless(folder):
    save(folder, b"\x08" + b"\x80" * 64 + b"\x01")


@case("proto-field-zero")
def field_zero(folder):
    save(folder, b"\x02\x01\x00" + good_model().SerializeToString())


@case("proto-unclosed-groups")
def groups(folder):
    save(folder, field(1, 10) + varint(200 << 3 | 3) * DEEP)


@case("proto-unknown-fields")
def unknown_fields(folder):
    whole = good_model().SerializeToString() + field(1000, b"from the future") * 100
    save(folder, whole, feeds={"x": f32(4)})


@case("proto-no-graph")
def no_graph(folder):
    save(folder, field(1, 10) + field(8, field(1, b"") + field(2, 21)))


@case("proto-empty-graph")
def empty_graph(folder):
    save(folder, model_bytes(b""))


@case("proto-invalid-utf8")
def invalid_utf8(folder):
    whole = model([node("Relu", ["x"], ["QQQQ"]), node("Relu", ["QQQQ"], ["y"])])
    save(folder, whole.SerializeToString().replace(b"QQQQ", b"\xff\xfe\xc0\x80"))


@case("proto-invalid-utf8-op")
def invalid_utf8_op(folder):
    whole = model([node("Relu", ["x"], ["y"])]).SerializeToString()
    save(folder, whole.replace(b"\x22\x04Relu", b"\x22\x04\xc3\x28\xff\xfe"))


@case("proto-name-with-nul")
def name_with_nul(folder):
    save(folder, model([node("Relu", ["x"], ["a\0b"]), node("Relu", ["a\0c"], ["y"])]))


@case("proto-name-with-escape")
def name_with_escape(folder):
    """A name that would repaint the terminal if it were printed as it is."""
    save(folder, model([node("Relu", ["\x1b[2J\x1b[31mowned\n\rerror[x/y]: fake"], ["y"])]))


@case("proto-long-name")
def long_name(folder):
    save(folder, model([node("Relu", ["n" * 5_000_000], ["y"])]))


@case("nested-subgraphs")
def nested_subgraphs(folder):
    """graph { node { op_type: "If" attribute { name: "then_branch" g { ... } } } }, and so on."""
    inner = field(1, field(4, b"Relu"))
    for _ in range(DEEP):
        branch = field(1, b"then_branch") + field(20, 5) + field(6, inner)
        inner = field(1, field(4, b"If") + field(5, branch))
    save(folder, model_bytes(inner))


@case("nested-types")
def nested_types(folder):
    """An input of type sequence of sequence of ... of tensor."""
    elem = field(1, field(1, 1))
    for _ in range(DEEP):
        elem = field(4, field(1, elem))
    save(folder, model_bytes(field(11, field(1, b"x") + field(2, elem))))


@case("many-nodes")
def many_nodes(folder):
    count = 100_000
    nodes = [node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(count)]
    save(folder, model(nodes, outputs=[info(f"v{count}")]), feeds={"x": f32(4)})
