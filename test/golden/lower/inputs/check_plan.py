"""check_plan.py MODEL [NAME=N...] ...: what the plan of each takes, beside the least possible."""

import json
import subprocess
import sys


def check(path, dims):
    sizes = [word for dim in dims for word in ("--dim", dim)]
    written, again = (subprocess.run(
        ["lathe", *words], check=True, capture_output=True, text=True).stdout
        for words in (["compile", path, "-o", path + ".lx", "--json"],
                      ["inspect", "--json", path + ".lx"]))
    assert again == written
    inspected = subprocess.run(
        ["lathe", "inspect", "--json", path + ".lx", *sizes],
        check=True, capture_output=True, text=True)
    plan = json.loads(inspected.stdout)
    bytes, bound = plan["memory"]["bytes"], plan["memory"]["lower_bound"]
    print(path, *dims, bytes, bound, plan["num_steps"])
    assert [f"{name}={n}" for name, n in plan["memory"]["for"].items()] == dims
    assert 0 < bound <= bytes <= 1.1 * bound
    # Nearly all concatenations of these networks are along channels, and written in place.
    assert not any(step["label"] == "copy" and step["count"] > 3 for step in plan["steps"])


models = []
for word in sys.argv[1:]:
    if "=" in word:
        models[-1][1].append(word)
    else:
        models.append((word, []))
for path, dims in models:
    check(path, dims)
