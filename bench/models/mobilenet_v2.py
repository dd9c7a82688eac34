#!/usr/bin/env python3
"""MobileNetV2 with seeded weights; batch norms are left in, for the compiler to fold."""

import numpy as np

import graph

# expansion, channels, repeats, first stride
STAGES = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]
OPTIONS = {
    "size": (224, "height and width"),
    "classes": (1000, "classes"),
    "batch": (1, "batch of the samples"),
}


def conv_bn(g, name, x, inner, outer, kernel=1, stride=1, groups=1, act=True):
    with g.scope(name):
        fan_in = inner // groups * kernel * kernel
        weight = g.normal("weight", (outer, inner // groups, kernel, kernel), np.sqrt(2 / fan_in))
        pad = kernel // 2
        y = g.op(
            "Conv",
            x,
            weight,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
            group=groups,
        )
        centers = {"bn.weight": 1, "bn.bias": 0, "bn.running_mean": 0, "bn.running_var": 1}
        y = g.op(
            "BatchNormalization",
            y,
            *(g.around(k, (outer,), v) for k, v in centers.items()),
            epsilon=1e-5,
        )
        return g.op("Clip", y, g.const(0, "float32"), g.const(6, "float32")) if act else y


def block(g, name, x, inner, outer, expansion, stride):
    with g.scope(name):
        wide = inner * expansion
        y = conv_bn(g, "expand", x, inner, wide) if expansion > 1 else x
        y = conv_bn(g, "depthwise", y, wide, wide, 3, stride, groups=wide)
        y = conv_bn(g, "project", y, wide, outer, act=False)
        return g.op("Add", x, y) if stride == 1 and inner == outer else y


def build(args):
    g = graph.Graph("mobilenet_v2", args.seed)
    x = g.input("image", "float32", ["batch", 3, args.size, args.size])
    x, width = conv_bn(g, "features.0", x, 3, 32, 3, 2), 32
    index = 1
    for expansion, channels, repeats, first in STAGES:
        for i in range(repeats):
            x, width = (
                block(
                    g, f"features.{index}", x, width, channels, expansion, first if i == 0 else 1
                ),
                channels,
            )
            index += 1
    x = conv_bn(g, f"features.{index}", x, width, 1280)
    flat = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    with g.scope("classifier"):
        weight = g.normal("weight", (args.classes, 1280), 0.5 / np.sqrt(1280))
        logits = g.op("Gemm", flat, weight, g.around("bias", (args.classes,), 0), transB=1)
    g.output(logits, "logits", ["batch", args.classes])
    return g


def feeds(args, rng):
    return {"image": rng.random((args.batch, 3, args.size, args.size), np.float32)}


if __name__ == "__main__":
    graph.main(__doc__, build, feeds, OPTIONS)
