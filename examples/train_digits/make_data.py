#!/usr/bin/env python3
"""Writes train.npz and test.npz beside this file: the pictures of scikit-learn's digits.

`image` u8[N, 8, 8] in 0..255, dark 0, and `labels` u8[N]. The split is that of examples/digits: a quarter,
drawn with equal shares of each class, is the test. Needs: pip install numpy scikit-learn==1.9.1
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
SEED = 2024


def main():
    digits = load_digits()
    pixels = np.rint(digits.images / 16 * 255).astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    train, test, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=0.25, random_state=SEED, stratify=labels)
    np.savez_compressed(HERE / "train.npz", image=train, labels=train_labels)
    np.savez_compressed(HERE / "test.npz", image=test, labels=test_labels)


if __name__ == "__main__":
    main()
