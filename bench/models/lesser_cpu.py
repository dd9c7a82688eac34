"""Programs as on a processor with fewer instructions, so that peers can be compared there, too."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROCESSORS = "avx2", "avx2_vnni", "avx512", "avx512_vnni"


def become(processor):
    """Starts this program again, with all that it starts, as on `processor`; returns there."""
    if os.environ.get("LESSER_CPU") == processor:
        return
    source = Path(__file__).with_suffix(".c")
    library = Path(tempfile.mkdtemp(prefix="lesser_cpu")) / "lesser_cpu.so"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-z,initfirst",
                    source, "-o", library], check=True)
    there = os.environ | {"LESSER_CPU": processor, "LD_PRELOAD": str(library)}
    os.execve(sys.executable, [sys.executable, *sys.argv], there)
