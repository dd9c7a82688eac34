"""Writes calibration data for quantize.test, and a model whose sizes are fixed, into a folder."""

import sys

import numpy as np

folder = sys.argv[1]
rng = np.random.default_rng(2)
x = rng.random((24, 1, 8, 8)).astype(np.float32)


def save(name, **arrays):
    np.savez(f"{folder}/{name}.npz", **arrays)


save("good", image=x)
save("no_samples", image=x[:0])
save("no_image", pictures=x, other=x)
save("shape", image=x[:, :, :7])
save("nan", image=np.full_like(x, np.nan))
outliers = x.copy()
outliers[3, 0, 4, 4] = 40
save("outliers", image=outliers)
