#!/usr/bin/env python3
"""Writes one module in two languages: Lathe's (`nn` on tensors) and MLIR's (`arith`, `math` on
tensors). Same number of operations, same graph, same constants; deterministic.

    gen.py --ops 100000 --kind graph --lathe a.lathe --mlir a.mlir
"""

import argparse
import random

LATHE_TYPE = "v_tensor<[64], f32>"
MLIR_TYPE = "tensor<64xf32>"
BINARY = [("nn.add", "arith.addf"), ("nn.mul", "arith.mulf"), ("nn.sub", "arith.subf")]
UNARY = [("nn.exp", "math.exp"), ("nn.tanh", "math.tanh"), ("nn.neg", "arith.negf")]


class Lathe:
    """Text of Lathe's module."""

    def __init__(self, out):
        self.out = out
        out.write('program {\n  %0 = nn.feed() {name = "x"} : () -> ' + LATHE_TYPE + "\n"
                  '  %1 = nn.feed() {name = "y"} : () -> ' + LATHE_TYPE + "\n")

    def constant(self, result, value):
        data = ", ".join([f"{value!r}"] * 4)
        self.out.write(f"  %{result} = builtin.constant() {{value = tensor<[4], f32> [{data}]}} : () -> "
                       f"v_tensor<[4], f32>\n")

    def op(self, result, names, operands):
        values = ", ".join(f"%{v}" for v in operands)
        types = ", ".join([LATHE_TYPE] * len(operands))
        self.out.write(f"  %{result} = {names[0]}({values}) : ({types}) -> {LATHE_TYPE}\n")

    def end(self, result):
        self.out.write(f'  nn.fetch(%{result}) {{name = "z"}} : ({LATHE_TYPE}) -> ()\n}}\n')


class Mlir:
    """Text of the twin."""

    def __init__(self, out):
        self.out = out
        out.write(f"func.func @main(%0: {MLIR_TYPE}, %1: {MLIR_TYPE}) -> {MLIR_TYPE} {{\n")

    def constant(self, result, value):
        self.out.write(f"  %{result} = arith.constant dense<{value!r}> : tensor<4xf32>\n")

    def op(self, result, names, operands):
        values = ", ".join(f"%{v}" for v in operands)
        self.out.write(f"  %{result} = {names[1]} {values} : {MLIR_TYPE}\n")

    def end(self, result):
        self.out.write(f"  return %{result} : {MLIR_TYPE}\n}}\n")


def graph(sinks, ops, seed=1):
    """A chain with side operands, 15 % repeated steps, 20 % dead ops, 2 % constants."""
    rng = random.Random(seed)
    live, last, result = [0, 1], (BINARY[0], [0, 1]), 1
    for _ in range(ops):
        result += 1
        kind = rng.random()
        if kind < 0.02:
            value = rng.randrange(64) / 8
            for sink in sinks:
                sink.constant(result, value)
            continue
        if kind < 0.17:
            names, operands = last
        elif kind < 0.6:
            names, operands = rng.choice(BINARY), [live[-1], live[-1 - rng.randrange(min(len(live), 40))]]
        else:
            names, operands = rng.choice(UNARY), [live[-1]]
        last = (names, operands)
        for sink in sinks:
            sink.op(result, names, operands)
        if rng.random() >= 0.2:
            live.append(result)
            del live[:-40]
    for sink in sinks:
        sink.end(live[-1])


def chain(sinks, ops):
    """Every operation reads the one before it."""
    for i in range(ops):
        for sink in sinks:
            sink.op(i + 2, UNARY[0], [i + 1])
    for sink in sinks:
        sink.end(ops + 1)


def nested_lathe(out, depth):
    """`depth` regions, each inside the one before."""
    tensor = "v_tensor<[], bool>"
    out.write('program {\n  %0 = nn.feed() {name = "c"} : () -> ' + tensor + "\n")
    for _ in range(depth):
        out.write("cf.if(%0) ({\n")
    out.write("cf.yield() : () -> ()\n")
    for i in range(depth):
        out.write("}, {\ncf.yield() : () -> ()\n}) : (" + tensor + ") -> ()\n")
        if i + 1 < depth:
            out.write("cf.yield() : () -> ()\n")
    out.write("}\n")


def nested_mlir(out, depth):
    out.write("func.func @main(%0: i1) {\n" + "scf.if %0 {\n" * depth)
    for _ in range(depth):
        out.write("} else {\n}\n")
    out.write("return\n}\n")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--ops", type=int, default=10000, help="operations, or levels of nesting")
    args.add_argument("--kind", choices=["graph", "chain", "nested", "empty"], default="graph")
    args.add_argument("--lathe", required=True)
    args.add_argument("--mlir", required=True)
    args = args.parse_args()
    with open(args.lathe, "w") as ours, open(args.mlir, "w") as theirs:
        if args.kind == "empty":
            ours.write("program {\n}\n")
            theirs.write("module {\n}\n")
        elif args.kind == "nested":
            nested_lathe(ours, args.ops)
            nested_mlir(theirs, args.ops)
        else:
            sinks = [Lathe(ours), Mlir(theirs)]
            (graph if args.kind == "graph" else chain)(sinks, args.ops)


if __name__ == "__main__":
    main()
