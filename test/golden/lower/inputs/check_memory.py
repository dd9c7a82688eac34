"""check_memory.py OPTIONS MODEL...: what memory_optimize plans, beside the least possible."""

import re
import subprocess
import sys


def plan(model, pipeline):
    out = subprocess.run(
        ["lathe", "opt", model, "--no-print", "--stats", "--passes", pipeline],
        check=True, capture_output=True, text=True)
    found = re.findall(r"^ *(\d+)  memory_optimize: (.*)$", out.stdout + out.stderr, re.M)
    return {name: int(count) for count, name in found}


for path in sys.argv[2:]:
    for before in ("", "inference,"):
        numbers = plan(path, f"{before}memory_optimize{{{sys.argv[1]}}}")
        bound = numbers["bytes alive at the worst step"]
        print(path, before, numbers)
        assert bound > 0 and "values without a storage" not in numbers
        assert bound <= numbers["bytes"] <= 1.1 * bound
        assert numbers["bytes"] < numbers["bytes without sharing"] / 2
