"""Compares what Lathe has computed of a quantized model with what onnxruntime computes: how far
they are apart, in steps of the quantization; or, if weights alone are quantized, as a part of the
largest result, of which the last argument says the most."""

import sys

import numpy as np
import onnxruntime

model, inputs, results, *most = sys.argv[1:]
options = onnxruntime.SessionOptions()
with open("/proc/cpuinfo") as processors:
    if "vnni" not in processors.read():  # without, its products of u8 and i8 saturate
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
if most:  # without, it rounds what is multiplied to 8 bits
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
theirs = dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(np.load(inputs)))))
for name, array in theirs.items():
    ours = np.load(f"{results}/{name}.npy")
    assert ours.shape == array.shape and np.abs(array).max() > 0
    if most:
        apart = np.abs(ours - array).max() / np.abs(array).max()
        print(f"{name}: {apart:.2e}")
        assert apart <= float(most[0]), name
        continue
    step = (array.max() - min(array.min(), 0)) / 255
    apart = np.abs(ours - array) / step
    print(f"{name}: {apart.max():.2f} steps at most, {np.mean(apart > 0.5):.4f} of the elements")
    assert apart.max() < 1.3 and np.mean(apart > 0.5) < 0.02, name
