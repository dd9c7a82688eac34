"""check_explain.py: what `lathe explain --json` says on stdin of explain.lathe."""

import json
import math
import sys

said = json.load(sys.stdin)
assert said["target"] == "x86-64" and said["symbols"] == {"N": 1}
machine = said["machine"]
assert machine["threads"] == 1 and machine["gflop_per_s"] > 0 and machine["gb_per_s"] > 0
functions = {f["operations"]: f for f in said["functions"]}
assert set(functions) == {"matmul relu", "softmax"}
product, softmax = functions["matmul relu"], functions["softmax"]
assert math.isclose(product["gflop"], 1e-9 * (2 * 8 * 16 + 16))
assert math.isclose(product["gigabytes"], 4e-9 * (8 + 8 * 16 + 16))
assert math.isclose(softmax["gflop"], 1e-9 * 5 * 16)
assert math.isclose(said["gflop"], product["gflop"] + softmax["gflop"])
bound = max(product["gflop"] / machine["gflop_per_s"], product["gigabytes"] / machine["gb_per_s"])
assert math.isclose(product["bound_ms"], 1e3 * bound)
assert product["ms"] is None and product["roofline"] is None and not product["interpreted"]
assert [b["into"] for b in product["ends"]] == ["nn.softmax"]
assert [b["op"] for b in softmax["begins"]] == ["nn.relu"]
assert said["interpreted"] == {} and said["obstacles"] == []
assert said["memory"] == {"bytes": 0, "lower_bound": 0, "in_place": 1, "for": {"N": 1}}
