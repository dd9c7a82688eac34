"""Decoders that continue sequences of tokens."""

import importlib.util
import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "generate"
PROMPTS = [[3, 1, 4, 3, 1], [5, 5], [1, 2, 3, 4, 5, 6, 7, 1], [9]]


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make", EXAMPLE / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(make):
    """The example with random weights, so that every part of it counts."""
    model = make.build()
    rng = np.random.default_rng(5)
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.float32 and value.ndim == 2:
            noise = rng.standard_normal(value.shape).astype(np.float32) * np.float32(0.4)
            tensor.CopyFrom(numpy_helper.from_array(noise, tensor.name))
    return model


def generator(model, **names):
    return lathe.Generator(model, cache=False, threads=1, **names)


def tokens(model, prompts=PROMPTS, count=8, **options):
    return generator(model).generate(prompts, max_new_tokens=count, **options).tokens


def plain_loop(exe, prompt, count):
    """One sequence, everything fed by name."""
    past = {p.name: np.zeros((1, 1, 0, 16), p.dtype.replace("f", "float"))
            for p in exe.inputs if p.name.startswith("past")}
    ids, made, length = list(prompt), [], 0
    for _ in range(count):
        length += len(ids)
        feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, length), np.int64),
                 "position_ids": np.arange(length - len(ids), length)[None]}
        out = exe.run({**feeds, **past})
        past = {name: out[name.replace("past_key_values", "present")] for name in past}
        ids = [int(out["logits"][0, -1].argmax())]
        made += ids
    return made


def remove_input(model, name):
    kept = [port for port in model.graph.input if port.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def rename(model, old, new):
    for port in [*model.graph.input, *model.graph.output]:
        port.name = new if port.name == old else port.name
    for node in model.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = new if name == old else name


def set_types(model, prefixes, element):
    for port in [*model.graph.input, *model.graph.output]:
        if port.name.startswith(prefixes):
            port.type.tensor_type.elem_type = element


def without_names_of_dims(model):
    for port in model.graph.input:
        for dim in port.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")


def with_narrow_ids(model):
    set_types(model, ("input_ids", "attention_mask", "position_ids"), TensorProto.INT32)


def with_half_caches(model):
    set_types(model, ("past", "present"), TensorProto.FLOAT16)
    casts = []
    for node in model.graph.node:
        if node.op_type != "Concat":
            continue
        past, present = node.input[0], node.output[0]
        for other in model.graph.node:
            for names in (other.input, other.output):
                for i, name in enumerate(names):
                    names[i] = name + "_wide" if name in (past, present) else name
        casts += [helper.make_node("Cast", [past], [past + "_wide"], to=TensorProto.FLOAT),
                  helper.make_node("Cast", [present + "_wide"], [present], to=TensorProto.FLOAT16)]
    nodes = [*casts[::2], *model.graph.node, *casts[1::2]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def without_positions(model):
    """Counted from the start of the cache, as older exporters do."""
    remove_input(model, "position_ids")
    counted = [helper.make_node("Shape", ["input_ids"], ["new"], start=1),
               helper.make_node("Shape", ["attention_mask"], ["all"], start=1),
               helper.make_node("Squeeze", ["all"], ["end"]),
               helper.make_node("Sub", ["all", "new"], ["begins"]),
               helper.make_node("Squeeze", ["begins"], ["begin"]),
               helper.make_node("Constant", [], ["step"], value_int=1),
               helper.make_node("Range", ["begin", "end", "step"], ["counted"]),
               helper.make_node("Constant", [], ["front"], value_ints=[0]),
               helper.make_node("Unsqueeze", ["counted", "front"], ["position_ids"])]
    nodes = [*counted, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def without_cache(model):
    for node in model.graph.node:
        if node.op_type == "Concat":
            node.op_type = "Identity"
            del node.input[0], node.attribute[:]
    for name in [port.name for port in model.graph.input if port.name.startswith("past")]:
        remove_input(model, name)
    del model.graph.output[1:]


def with_one_id_at_a_time(model):
    for port in model.graph.input:
        if port.name in ("input_ids", "position_ids"):
            port.type.tensor_type.shape.dim[1].dim_value = 1


def test_the_example_goes_on():
    generation = lathe.generate(EXAMPLE / "decoder.onnx", [3, 1, 4, 3, 1], max_new_tokens=7)
    assert generation.tokens == [[4, 3, 1, 4, 3, 1, 4]]
    assert generation.sequences[0].end == "max-new-tokens"
    assert generation.steps == 7
    assert 0 < generation.first_seconds <= generation.seconds
    assert generation.tokens_per_second > 0


def test_a_plain_loop_gives_the_same(model):
    exe = lathe.compile(model, cache=False, threads=1)
    assert tokens(model) == [plain_loop(exe, prompt, 8) for prompt in PROMPTS]


def test_batches(model):
    gen = generator(model)
    alone = [gen.generate(prompt, max_new_tokens=8).tokens[0] for prompt in PROMPTS]
    for padding in ("auto", "right", "left", "none"):
        assert gen.generate(PROMPTS, max_new_tokens=8, padding=padding).tokens == alone


@pytest.mark.parametrize("change", [
    without_names_of_dims, with_narrow_ids, without_positions, without_cache,
    with_one_id_at_a_time])
def test_other_ways_to_export(model, change):
    wanted = tokens(model)
    change(model)
    assert tokens(model) == wanted


@pytest.mark.parametrize("change", [lambda model: None, without_names_of_dims, without_positions])
def test_nothing_is_interpreted(model, change):
    change(model)
    assert generator(model).executable.explain().interpreted == {}


def test_half_caches(model):
    with_half_caches(model)
    exe = lathe.compile(model, cache=False, threads=1)
    assert exe.inputs[-1].dtype == "f16"
    assert tokens(model) == [plain_loop(exe, prompt, 8) for prompt in PROMPTS]


def test_names_can_be_given(model):
    wanted = tokens(model)
    for old, new in {"input_ids": "words", "attention_mask": "there", "position_ids": "where",
                     "logits": "scores"}.items():
        rename(model, old, new)
    for i in range(2):
        for kind in ("key", "value"):
            rename(model, f"past_key_values.{i}.{kind}", f"old_{kind}_{i}")
            rename(model, f"present.{i}.{kind}", f"new_{kind}_{i}")
    with pytest.raises(lathe.InvalidArgumentError, match="not clear") as caught:
        generator(model)
    assert caught.value.id == "generate/input"
    assert any("'words' i64" in note for note in caught.value.notes)
    named = generator(model, ids="words", mask="there", positions="where", logits="scores",
                      past="old_*", present="new_*")
    assert named.generate(PROMPTS, max_new_tokens=8).tokens == wanted


def test_sampling_is_seeded(model):
    drawn = dict(count=12, temperature=1.5, top_k=8, top_p=0.9)
    first = tokens(model, seed=1, **drawn)
    assert first == tokens(model, seed=1, padding="none", **drawn)
    assert first != tokens(model, seed=2, **drawn)


def test_stop_and_length():
    gen = generator(str(EXAMPLE / "decoder.onnx"))
    assert gen.has_cache and gen.vocabulary == 16
    stopped = gen.generate([[3, 1, 4, 3, 1], [5, 5]], max_new_tokens=4, stop=[3])
    assert stopped.tokens == [[4, 3], [5, 5, 5, 5]]
    assert [s.end for s in stopped.sequences] == ["stop", "max-new-tokens"]
    assert gen.generate(np.array([[5, 5]]), max_length=3).sequences[0].end == "max-length"


def test_callbacks():
    gen = generator(str(EXAMPLE / "decoder.onnx"))
    seen = []
    gen.generate([[5, 5], [1]], max_new_tokens=2, on_token=lambda i, token: seen.append((i, token)))
    assert seen == [(0, 5), (1, 1), (0, 5), (1, 1)]

    def fail(sequence, token):
        raise KeyError(token)

    with pytest.raises(KeyError):
        gen.generate([5, 5], on_token=fail)
    cancel = lathe.CancelToken()
    with pytest.raises(lathe.CancelledError):
        gen.generate([5, 5], on_token=lambda *_: cancel.cancel(), cancel=cancel)


def test_errors():
    gen = generator(str(EXAMPLE / "decoder.onnx"))
    for prompts, name in (([], "generate/prompt"), ([[1], []], "generate/prompt"),
                          ([[16]], "generate/token")):
        with pytest.raises(lathe.InvalidArgumentError) as caught:
            gen.generate(prompts)
        assert caught.value.id == name
    with pytest.raises(lathe.InvalidArgumentError, match="65 tokens|index"):
        gen.generate([1] * 65)
    with pytest.raises(lathe.InvalidArgumentError, match="temperature"):
        gen.generate([1], top_k=3)
    with pytest.raises(lathe.Error):
        generator(str(EXAMPLE.parent / "digits" / "digits.onnx"))


def test_saved(tmp_path):
    gen = generator(str(EXAMPLE / "decoder.onnx"))
    gen.executable.save(tmp_path / "decoder.lx")
    wanted = gen.generate([3, 1, 3], max_new_tokens=5).tokens
    assert lathe.Generator(gen.executable).generate([3, 1, 3], max_new_tokens=5).tokens == wanted
    assert lathe.Generator(tmp_path / "decoder.lx").generate([3, 1, 3], max_new_tokens=5).tokens == wanted


def group_query_model(share):
    """Two layers as onnxruntime-genai exports them; share: the cache is as long in every step."""
    rng = np.random.default_rng(3)
    vocabulary, hidden, heads, kv_heads, size = 20, 64, 4, 2, 16
    weights, nodes = {}, []

    def weight(name, *shape):
        weights[name] = (rng.standard_normal(shape) * 0.25).astype(np.float32)
        return name

    def node(op, inputs, outputs, **attributes):
        nodes.append(helper.make_node(op, inputs, outputs, **attributes))

    angles = np.outer(np.arange(32), 10000.0 ** (-np.arange(size // 2) / (size // 2)))
    weights["cos"], weights["sin"] = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    node("Gather", [weight("wte", vocabulary, hidden), "input_ids"], ["x0"])
    weights["one"], weights["axis"] = np.array([1], np.int64), np.array([1], np.int64)
    node("ReduceSum", ["attention_mask", "axis"], ["sums"], keepdims=0)
    node("Sub", ["sums", "one"], ["lasts"])
    node("Cast", ["lasts"], ["seqlens_k"], to=TensorProto.INT32)
    node("Shape", ["attention_mask"], ["all"], start=1)
    node("Squeeze", ["all"], ["total64"])
    node("Cast", ["total64"], ["total"], to=TensorProto.INT32)
    ports = [("input_ids", TensorProto.INT64, ["batch", "new"]),
             ("attention_mask", TensorProto.INT64, ["batch", "total"])]
    results = [("logits", TensorProto.FLOAT, ["batch", "new", vocabulary])]
    for i in range(2):
        rows = hidden // heads * (heads + 2 * kv_heads)
        node("MatMul", [f"x{i}", weight(f"qkv{i}", hidden, rows)], [f"rows{i}"])
        past = [f"past_key_values.{i}.{kind}" for kind in ("key", "value")]
        present = [f"present.{i}.{kind}" for kind in ("key", "value")]
        node("GroupQueryAttention",
             [f"rows{i}", "", "", *past, "seqlens_k", "total", "cos", "sin"], [f"y{i}", *present],
             domain="com.microsoft", num_heads=heads, kv_num_heads=kv_heads, do_rotary=1)
        node("MatMul", [f"y{i}", weight(f"o{i}", hidden, hidden)], [f"z{i}"])
        node("Add", [f"x{i}", f"z{i}"], [f"x{i + 1}"])
        length = 32 if share else "past"
        ports += [(name, TensorProto.FLOAT, ["batch", kv_heads, length, size]) for name in past]
        length = 32 if share else "longest"
        results += [(name, TensorProto.FLOAT, ["batch", kv_heads, length, size])
                    for name in present]
    node("MatMul", ["x2", weight("head", hidden, vocabulary)], ["logits"])
    graph = helper.make_graph(nodes, "group", *([helper.make_tensor_value_info(*p) for p in side]
                                                for side in (ports, results)),
                              [numpy_helper.from_array(v, n) for n, v in weights.items()])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def onnxruntime_loop(model, prompt, count, share):
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    past = {f"past_key_values.{i}.{kind}": np.zeros((1, 2, 32 if share else 0, 16), np.float32)
            for i in range(2) for kind in ("key", "value")}
    ids, made, length = list(prompt), [], 0
    for _ in range(count):
        length += len(ids)
        logits, *present = session.run(None, {
            "input_ids": np.array([ids]), "attention_mask": np.ones((1, length), np.int64), **past})
        past = dict(zip(past, present))
        ids = [int(logits[0, -1].argmax())]
        made += ids
    return made


@pytest.mark.parametrize("share", [False, True])
def test_group_query_attention(share):
    model = group_query_model(share)
    wanted = [onnxruntime_loop(model, prompt, 10, share) for prompt in PROMPTS]
    gen = generator(model)
    assert gen.executable.explain().interpreted == {}
    for padding in ("right", "none"):
        assert gen.generate(PROMPTS, max_new_tokens=10, padding=padding).tokens == wanted


def test_group_query_attention_is_as_long_as_its_tables():
    shared = generator(group_query_model(share=True)).generate([1] * 30, max_new_tokens=10)
    assert shared.sequences[0].end == "max-length"
    assert len(shared.tokens[0]) == 3  # the last one is not read any more
    with pytest.raises(lathe.InvalidArgumentError) as caught:
        tokens(group_query_model(share=False), [[1] * 33])
    assert caught.value.notes
