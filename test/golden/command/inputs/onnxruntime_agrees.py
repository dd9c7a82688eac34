"""Compares what Lathe has computed of a quantized model with what onnxruntime computes: how far
they are apart, in steps of the quantization."""

import sys

import numpy as np
import onnxruntime

model, inputs, results = sys.argv[1:]
options = onnxruntime.SessionOptions()
with open("/proc/cpuinfo") as processors:
    if "vnni" not in processors.read():  # without, its products of u8 and i8 saturate
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
theirs = dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(np.load(inputs)))))
for name, array in theirs.items():
    ours = np.load(f"{results}/{name}.npy")
    assert ours.shape == array.shape and np.abs(array).max() > 0
    step = (array.max() - min(array.min(), 0)) / 255
    apart = np.abs(ours - array) / step
    print(f"{name}: {apart.max():.2f} steps at most, {np.mean(apart > 0.5):.4f} of the elements")
    assert apart.max() < 1.3 and np.mean(apart > 0.5) < 0.02, name
