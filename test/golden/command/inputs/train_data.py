"""Writes data for train.test into a folder: some that is fine, and some that is not."""

import sys

import numpy as np

folder = sys.argv[1]
rng = np.random.default_rng(1)
x = rng.standard_normal((40, 1, 8, 8)).astype(np.float32)
labels = np.arange(40) % 10


def save(name, **arrays):
    np.savez(f"{folder}/{name}.npz", **arrays)


save("good", image=x, labels=labels)
save("no_labels", image=x, label=labels)
save("no_image", pictures=x, other=x, labels=labels)
save("extents", image=x, labels=labels[:39])
save("out_of_range", image=x, labels=labels + 1)
save("floats", image=x, labels=labels.astype(np.float32))
save("wide", image=np.repeat(x, 2, axis=3), labels=labels)
save("two", image=x, labels=np.stack([labels, labels], axis=1))
save("shape", image=x[:, :, :7], labels=labels)
bad = x.copy()
bad[17, 0, 2, 3] = np.nan
save("nan", image=bad, labels=labels)
