"""Names the digits in pictures: python examples/python/classify.py PICTURE..."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
from numpy.typing import NDArray

import lathe

MODEL = pathlib.Path(__file__).parents[1] / "digits" / "digits.onnx"


def classify(exe: lathe.Executable, images: NDArray[np.float32]) -> list[int]:
    """The most probable class of each image, f32[N, 1, 8, 8]."""
    probabilities = exe.run({"image": images})["probabilities"]
    return [int(row.argmax()) for row in probabilities]


def main(pictures: list[str]) -> None:
    model = lathe.load(MODEL)
    exe = lathe.compile(model, threads=1)
    try:
        images = np.concatenate([model.read_input("image", picture) for picture in pictures])
    except lathe.Error as error:
        sys.exit(f"classify: {error}")
    for picture, digit in zip(pictures, classify(exe, images)):
        print(f"{picture}: {digit}")


if __name__ == "__main__":
    main(sys.argv[1:])
