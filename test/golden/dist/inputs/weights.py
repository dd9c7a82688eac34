"""weights.py FILE NAME=COUNT...: a safetensors file of f32 vectors 1, 2, 3, ..."""

import json
import struct
import sys

header, data = {}, b""
for argument in sys.argv[2:]:
    name, count = argument.split("=")
    begin = len(data)
    data += struct.pack(f"<{count}f", *range(1, int(count) + 1))
    header[name] = {"dtype": "F32", "shape": [int(count)], "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + data)
