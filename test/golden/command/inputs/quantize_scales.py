"""How much coarser the input is in the first of two quantized models, and a report of one."""

import json
import struct
import sys

import numpy as np


def scale(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        begin, end = json.loads(file.read(size))["image_scale"]["data_offsets"]
        file.seek(8 + size + begin)
        return np.frombuffer(file.read(end - begin), np.float32)[0]


ratio = scale(sys.argv[1]) / scale(sys.argv[2])
assert 20 < ratio < 60, ratio
report = json.load(open(sys.argv[3]))
layers = [layer["name"] for layer in report["layers"] if layer["quantized"]]
assert report["quantized"] == len(layers) and all("error" in layer or "why_not" in layer for layer in report["layers"])
print(f"image_scale 20 to 60 times; {', '.join(layers)} quantized, fc: {report['layers'][2]['why_not']}")
