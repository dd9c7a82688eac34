#!/usr/bin/env python3
"""BERT-base as a PyTorch exporter writes it, with seeded weights."""

import numpy as np

import graph

POSITIONS = 512
OPTIONS = {
    "layers": (12, "encoder layers"),
    "hidden": (768, "width of the residual stream"),
    "heads": (12, "attention heads"),
    "vocab": (30522, "words"),
    "batch": (1, "batch of the samples"),
    "seq": (128, "sequence length of the samples"),
}


def embeddings(g, args, ids, types):
    with g.scope("embeddings"):
        (length,) = g.dims(ids, 1)
        positions = g.buffer("position_ids", np.arange(POSITIONS)[None])
        position = g.op("Slice", positions, g.const([0]), length, g.const([1]), g.const([1]))
        word = g.op(
            "Gather", g.normal("word_embeddings.weight", (args.vocab, args.hidden), 0.5), ids
        )
        kind = g.op(
            "Gather", g.normal("token_type_embeddings.weight", (2, args.hidden), 0.5), types
        )
        place = g.op(
            "Gather",
            g.normal("position_embeddings.weight", (POSITIONS, args.hidden), 0.5),
            position,
        )
        return g.layer_norm(
            "LayerNorm", g.op("Add", g.op("Add", word, kind), place), args.hidden, 1e-12
        )


def extended_mask(g, mask):
    """[batch, seq] of 1 and 0 to [batch, 1, 1, seq] of 0 and -10000."""
    wide = g.op("Unsqueeze", g.op("Unsqueeze", mask, g.const([1])), g.const([2]))
    absent = g.op("Sub", g.const(1, "float32"), g.op("Cast", wide, to=1))
    return g.binary("Mul", absent, -10000)


def heads_of(g, args, name, x, perm):
    value = g.linear(name, x, args.hidden, args.hidden)
    batch, length = g.dims(value, 0, 1)
    split = g.reshape(value, batch, length, args.heads, args.hidden // args.heads)
    return g.op("Transpose", split, perm=perm)


def attention(g, args, x, mask):
    with g.scope("attention.self"):
        key = heads_of(g, args, "key", x, [0, 2, 3, 1])
        value = heads_of(g, args, "value", x, [0, 2, 1, 3])
        query = heads_of(g, args, "query", x, [0, 2, 1, 3])
        scores = g.binary("Div", g.op("MatMul", query, key), np.sqrt(args.hidden // args.heads))
        weights = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
        context = g.op("Transpose", g.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        batch, length = g.dims(context, 0, 1)
        merged = g.reshape(context, batch, length, args.hidden)
    with g.scope("attention.output"):
        return residual(g, args, merged, args.hidden, x)


def residual(g, args, x, inner, skip):
    return g.layer_norm(
        "LayerNorm", g.op("Add", g.linear("dense", x, inner, args.hidden), skip), args.hidden, 1e-12
    )


def encoder_layer(g, args, x, mask):
    attended = attention(g, args, x, mask)
    inner = 4 * args.hidden
    with g.scope("intermediate"):
        wide = g.gelu_erf(g.linear("dense", attended, args.hidden, inner))
    with g.scope("output"):
        return residual(g, args, wide, inner, attended)


def pooler(g, args, x):
    with g.scope("pooler"):
        first = g.op("Gather", x, g.const(0), axis=1)
        weight = g.normal("dense.weight", (args.hidden, args.hidden), 0.5 / np.sqrt(args.hidden))
        return g.op(
            "Tanh", g.op("Gemm", first, weight, g.around("dense.bias", (args.hidden,), 0), transB=1)
        )


def build(args):
    g = graph.Graph("bert", args.seed)
    ids, mask, types = (
        g.input(name, "int64", ["batch", "seq"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    x = embeddings(g, args, ids, types)
    mask = extended_mask(g, mask)
    for i in range(args.layers):
        with g.scope(f"encoder.layer.{i}"):
            x = encoder_layer(g, args, x, mask)
    g.output(x, "last_hidden_state", ["batch", "seq", args.hidden])
    g.output(pooler(g, args, x), "pooler_output", ["batch", args.hidden])
    return g


def feeds(args, rng):
    shape = (args.batch, args.seq)
    lengths = rng.integers(args.seq // 2, args.seq + 1, (args.batch, 1))
    return {
        "input_ids": rng.integers(0, args.vocab, shape),
        "attention_mask": (np.arange(args.seq) < lengths).astype(np.int64),
        "token_type_ids": rng.integers(0, 2, shape),
    }


if __name__ == "__main__":
    graph.main(__doc__, build, feeds, OPTIONS)
