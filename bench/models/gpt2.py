#!/usr/bin/env python3
"""GPT-2 (small) as a PyTorch exporter writes it, with seeded weights; --past adds the cache."""

import numpy as np

import graph

OPTIONS = {
    "layers": (12, "decoder layers"),
    "hidden": (768, "width of the residual stream"),
    "heads": (12, "attention heads"),
    "vocab": (50257, "words"),
    "positions": (1024, "longest sequence, cache included"),
    "past": (False, "take past_key_values.I.key and .value, return present.I.key and .value"),
    "batch": (1, "batch of the samples"),
    "seq": (128, "sequence length of the samples (with --past usually 1)"),
    "cached": (128, "cache length of the samples, with --past"),
}


def conv1d(g, name, x, inner, outer):
    """GPT-2's linear layer: rows flattened, one Gemm, rows restored."""
    with g.scope(name):
        batch, length = g.dims(x, 0, 1)
        weight = g.normal("weight", (inner, outer), 0.5 / np.sqrt(inner))
        product = g.op("Gemm", g.reshape(x, -1, inner), weight, g.around("bias", (outer,), 0))
        return g.reshape(product, batch, length, outer)


def split_heads(g, args, x, perm=(0, 2, 1, 3)):
    batch, length = g.dims(x, 0, 1)
    return g.op(
        "Transpose",
        g.reshape(x, batch, length, args.heads, args.hidden // args.heads),
        perm=list(perm),
    )


def causal(g, args, scores, key):
    """Scores where the key is not after the query, else the lowest float."""
    (keys,), (queries,) = g.dims(key, 2), g.dims(scores, 2)
    lower = np.tril(np.ones((args.positions, args.positions), bool))[None, None]
    rows = g.op(
        "Slice",
        g.buffer("bias", lower),
        g.op("Sub", keys, queries),
        keys,
        g.const([2]),
        g.const([1]),
    )
    mask = g.op("Slice", rows, g.const([0]), keys, g.const([3]), g.const([1]))
    return g.op("Where", mask, scores, g.const(np.finfo(np.float32).min, "float32"))


def attention(g, args, x, past):
    """The attended values, and the key and the value for the cache."""
    parts = g.op("Split", conv1d(g, "c_attn", x, args.hidden, 3 * args.hidden), outputs=3, axis=2)
    query, key, value = (split_heads(g, args, part) for part in parts)
    if past:
        key, value = (g.op("Concat", old, new, axis=2) for old, new in zip(past, (key, value)))
    product = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = causal(g, args, g.binary("Div", product, np.sqrt(args.hidden // args.heads)), key)
    context = g.op(
        "Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3]
    )
    batch, length = g.dims(context, 0, 1)
    merged = g.reshape(context, batch, length, args.hidden)
    return conv1d(g, "c_proj", merged, args.hidden, args.hidden), (key, value)


def decoder_layer(g, args, x, past):
    normed = g.layer_norm("ln_1", x, args.hidden)
    with g.scope("attn"):
        attended, present = attention(g, args, normed, past)
    x = g.op("Add", attended, x)
    normed = g.layer_norm("ln_2", x, args.hidden)
    with g.scope("mlp"):
        wide = g.gelu_tanh(conv1d(g, "c_fc", normed, args.hidden, 4 * args.hidden))
        return g.op("Add", x, conv1d(g, "c_proj", wide, 4 * args.hidden, args.hidden)), present


def past_inputs(g, args):
    """Per layer the cached key and value, or None."""
    if not args.past:
        return [None] * args.layers
    dims = ["batch", args.heads, "past", args.hidden // args.heads]
    names = [
        [f"past_key_values.{i}.{kind}" for kind in ("key", "value")] for i in range(args.layers)
    ]
    return [[g.input(name, "float32", dims) for name in pair] for pair in names]


def scalar(g, dim):
    return g.op("Squeeze", dim, g.const([0]))


def embeddings(g, args, ids, past):
    (length,) = g.dims(ids, 1)
    start = g.dims(past, 2)[0] if past else g.const([0])
    end = g.op("Add", start, length)
    positions = g.op(
        "Unsqueeze", g.op("Range", scalar(g, start), scalar(g, end), g.const(1)), g.const([0])
    )
    word = g.op("Gather", g.normal("wte.weight", (args.vocab, args.hidden), 0.1), ids)
    place = g.op("Gather", g.normal("wpe.weight", (args.positions, args.hidden), 0.1), positions)
    return g.op("Add", word, place)


def build(args):
    g = graph.Graph("gpt2", args.seed)
    ids = g.input("input_ids", "int64", ["batch", "seq"])
    past = past_inputs(g, args)
    presents = []
    with g.scope("transformer"):
        x = embeddings(g, args, ids, past[0] and past[0][0])
        for i in range(args.layers):
            with g.scope(f"h.{i}"):
                x, present = decoder_layer(g, args, x, past[i])
            presents.append(present)
        x = g.layer_norm("ln_f", x, args.hidden)
    head = g.op("Transpose", "transformer.wte.weight", perm=[1, 0])  # tied to the embedding
    g.output(g.op("MatMul", x, head), "logits", ["batch", "seq", args.vocab])
    if args.past:
        dims = ["batch", args.heads, "total", args.hidden // args.heads]
        for i, pair in enumerate(presents):
            for kind, value in zip(("key", "value"), pair):
                g.output(value, f"present.{i}.{kind}", dims)
    return g


def feeds(args, rng):
    values = {"input_ids": rng.integers(0, args.vocab, (args.batch, args.seq))}
    if args.past:
        shape = (args.batch, args.heads, args.cached, args.hidden // args.heads)
        for i in range(args.layers):
            for kind in ("key", "value"):
                values[f"past_key_values.{i}.{kind}"] = rng.standard_normal(
                    shape, np.float32
                ) * np.float32(0.5)
    return values


if __name__ == "__main__":
    graph.main(__doc__, build, feeds, OPTIONS)
