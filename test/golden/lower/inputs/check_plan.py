"""check_plan.py MODEL...: what the plan of each takes, beside the least possible."""

import json
import subprocess
import sys

for path in sys.argv[1:]:
    subprocess.run(["lathe", "compile", path, "-o", path + ".lx"], check=True)
    found = subprocess.run(
        ["lathe", "inspect", "--json", path + ".lx"], check=True, capture_output=True, text=True)
    plan = json.loads(found.stdout)
    bytes, bound = plan["memory"]["bytes"], plan["memory"]["lower_bound"]
    print(path, bytes, bound, plan["num_steps"])
    assert 0 < bound and bytes <= 1.1 * bound
    # Nearly all concatenations of these networks are along channels, and written in place.
    assert not any(step["label"] == "copy" and step["count"] > 3 for step in plan["steps"])
