"""External data that leaves the model's folder, or lies about its place and size."""

import os

from corpus import case, f32, graph, info, model, node, save
from onnx import TensorProto, helper

SECRET = f32(4).tobytes()
TOO_BIG = 1 << 64


def external(name="w", dims=(4,), elem=TensorProto.FLOAT, **entries):
    """A tensor whose data lie elsewhere; `entries` are location, offset, length, ... as given."""
    tensor = TensorProto(name=name, dims=dims, data_type=elem)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def save_with(folder, tensor):
    save(
        folder, model([node("Add", ["x", "w"], ["y"])], initializers=[tensor]), feeds={"x": f32(4)}
    )


def located(id, location, data=None, **entries):
    """A case whose weight is at `location`; `data` maps names of files to make to bytes."""

    @case(id)
    def write(folder):
        for name, content in (data or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        save_with(folder, external(location=location, **entries))


def linked(id, link):
    """A case whose weight.bin is made by link(path of weight.bin, path of a file outside)."""

    @case(id)
    def write(folder):
        secret = folder.parent / f"{folder.name}.secret"
        secret.unlink(missing_ok=True)
        secret.write_bytes(SECRET)
        link(folder / "weight.bin", secret)
        save_with(folder, external(location="weight.bin"))


IN_PLACE = {"weight.bin": SECRET}

located("external-good", "weight.bin", IN_PLACE)
located("external-good-subfolder", "sub/weight.bin", {"sub/weight.bin": SECRET})
located(
    "external-good-offset", "weight.bin", {"weight.bin": bytes(64) + SECRET}, offset=64, length=16
)

located("external-parent", "../external-good/weight.bin")
located("external-parent-inside", "a/../../external-good/weight.bin", {"a/b": b""})
located("external-parent-returning", "../external-parent-returning/weight.bin", IN_PLACE)
located("external-absolute", "/etc/passwd")
located("external-device", "/dev/zero")
located("external-proc", "/proc/self/mem", offset=0, length=16)
located("external-backslash", "..\\external-good\\weight.bin")
located("external-url", "file:///etc/passwd")
located("external-directory", "sub", {"sub/weight.bin": SECRET})
located("external-self", ".")
located("external-empty-location", "")
located("external-no-such-file", "nowhere.bin")
located("external-nul", "weight.bin\0/../../x", IN_PLACE)
located("external-long-location", "a/" * 5000 + "weight.bin")
located("external-memory-tag", "*/_ORT_MEM_ADDR_/*", offset=4096, length=16)

located("external-beyond-end", "weight.bin", IN_PLACE, offset=8, length=16)
located("external-offset-beyond-end", "weight.bin", IN_PLACE, offset=1 << 40)
located("external-offset-negative", "weight.bin", IN_PLACE, offset=-16)
located("external-offset-max", "weight.bin", IN_PLACE, offset=(1 << 63) - 1, length=16)
located("external-offset-wraps", "weight.bin", IN_PLACE, offset=TOO_BIG - 8, length=16)
located("external-offset-overflow", "weight.bin", IN_PLACE, offset=TOO_BIG, length=16)
located("external-offset-text", "weight.bin", IN_PLACE, offset="0x10 or so")
located("external-length-short", "weight.bin", IN_PLACE, offset=0, length=8)
located("external-length-long", "weight.bin", {"weight.bin": SECRET * 2}, offset=0, length=32)
located("external-length-negative", "weight.bin", IN_PLACE, offset=0, length=-1)
located("external-length-overflow", "weight.bin", IN_PLACE, offset=0, length=TOO_BIG + 16)
located("external-file-short", "weight.bin", {"weight.bin": SECRET[:-1]})
located("external-file-empty", "weight.bin", {"weight.bin": b""})

linked("external-symlink", lambda path, secret: path.symlink_to(secret))
linked("external-symlink-relative", lambda path, secret: path.symlink_to(f"../{secret.name}"))
linked("external-hard-link", lambda path, secret: path.hardlink_to(secret))
linked("external-symlink-device", lambda path, _: path.symlink_to("/dev/zero"))
linked("external-symlink-loop", lambda path, _: path.symlink_to("weight.bin"))
linked("external-pipe", lambda path, _: os.mkfifo(path))


@case("external-symlink-folder")
def symlink_folder(folder):
    (folder / "sub").symlink_to("../external-good")
    save_with(folder, external(location="sub/weight.bin"))


@case("external-no-location")
def no_location(folder):
    save_with(folder, external(offset=0, length=16))


@case("external-no-entries")
def no_entries(folder):
    save_with(folder, external())


@case("external-dims-overflow")
def dims_overflow(folder):
    (folder / "weight.bin").write_bytes(SECRET)
    save_with(folder, external(location="weight.bin", dims=(1 << 32, 1 << 32)))


@case("external-string")
def string(folder):
    (folder / "weight.bin").write_bytes(SECRET)
    save_with(folder, external(location="weight.bin", elem=TensorProto.STRING))


@case("external-in-constant")
def in_constant(folder):
    nodes = [node("Constant", [], ["w"], value=external(location="../external-good/weight.bin"))]
    save(folder, model([*nodes, node("Add", ["x", "w"], ["y"])]))


@case("external-in-subgraph")
def in_subgraph(folder):
    weight = external(location="../external-good/weight.bin")
    branch = graph([node("Identity", ["w"], ["r"])], [], [info("r", dims=[4])], [weight])
    choose = node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    save(folder, model([choose], [info("c", TensorProto.BOOL, [])]))


@case("external-in-function")
def in_function(folder):
    body = [
        node("Constant", [], ["w"], value=external(location="../external-good/weight.bin")),
        node("Add", ["a", "w"], ["b"]),
    ]
    imports = [helper.make_opsetid("", 21)]
    function = helper.make_function("my", "F", ["a"], ["b"], body, imports)
    call = node("F", ["x"], ["y"], domain="my")
    save(folder, model([call], opsets={"": 21, "my": 1}, functions=[function]))
