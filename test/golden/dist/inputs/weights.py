"""weights.py FILE NAME=SHAPE...: a safetensors file of f32 tensors 1, 2, 3, ...; a shape is 2, 2x3,
or, of f16, 2x3:f16."""

import json
import math
import struct
import sys

header, data = {}, b""
for argument in sys.argv[2:]:
    name, shape = argument.split("=")
    shape, _, half = shape.partition(":")
    shape = [int(extent) for extent in shape.split("x")]
    count = math.prod(shape)
    begin = len(data)
    data += struct.pack(f"<{count}{'e' if half else 'f'}", *range(1, count + 1))
    header[name] = {"dtype": "F16" if half else "F32", "shape": shape, "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + data)
