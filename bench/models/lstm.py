#!/usr/bin/env python3
"""A word-level LSTM language model as a PyTorch exporter writes it, with seeded weights."""

import numpy as np

import graph

OPTIONS = {
    "layers": (2, "LSTM layers"),
    "hidden": (512, "width of the embedding and of the state"),
    "vocab": (10000, "words"),
    "batch": (1, "batch of the samples"),
    "seq": (64, "sequence length of the samples"),
}


def zero_state(g, args, batch):
    return g.op(
        "ConstantOfShape", g.op("Concat", g.const([1]), batch, g.const([args.hidden]), axis=0)
    )


def lstm_layer(g, args, name, x, state):
    """x: [seq, batch, hidden]. Returns the outputs of all steps in the same shape."""
    with g.scope(name):
        shape = (1, 4 * args.hidden, args.hidden)
        scale = 0.5 / np.sqrt(args.hidden)
        weights = [
            g.normal("W", shape, scale),
            g.normal("R", shape, scale),
            g.around("B", (1, 8 * args.hidden), 0),
        ]
        steps, _, _ = g.op(
            "LSTM", x, *weights, "", state, state, outputs=3, hidden_size=args.hidden
        )
        return g.op("Squeeze", steps, g.const([1]))


def build(args):
    g = graph.Graph("lstm", args.seed)
    ids = g.input("input_ids", "int64", ["batch", "seq"])
    embedded = g.op("Gather", g.normal("embedding.weight", (args.vocab, args.hidden), 0.5), ids)
    x = g.op("Transpose", embedded, perm=[1, 0, 2])
    state = zero_state(g, args, g.dims(x, 1)[0])
    for i in range(args.layers):
        x = lstm_layer(g, args, f"lstm.{i}", x, state)
    logits = g.linear("decoder", g.op("Transpose", x, perm=[1, 0, 2]), args.hidden, args.vocab)
    g.output(logits, "logits", ["batch", "seq", args.vocab])
    return g


def feeds(args, rng):
    return {"input_ids": rng.integers(0, args.vocab, (args.batch, args.seq))}


if __name__ == "__main__":
    graph.main(__doc__, build, feeds, OPTIONS)
