"""stacks.py FILE B C: operands of product_broadcast.lathe for stacks of B and of C matrices."""

import sys

import numpy as np

b, c = int(sys.argv[2]), int(sys.argv[3])
shapes = {"x": (b, 4, 5), "y": (c, 5, 18), "p": (b, 3, 6, 8), "q": (c, 3, 8, 20), "s": (4, b), "t": (c, 6)}
random = np.random.default_rng(0)
np.savez(sys.argv[1], **{n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()})
