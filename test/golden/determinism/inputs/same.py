"""same.py PIPELINE FILE... or --all FOLDER PIPELINE: runs `lathe opt FILE --passes PIPELINE --explain -o OUT` several
times: again, with addresses that are not random, with other places of allocations, and with one and
four threads. Program, weights and remarks of a file must be equal byte for byte."""

import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FIXED = ["setarch", "-R"]


def variants():
    """(what, prefix of the command, threads, environment)"""
    found = [("first", [], "1", {}), ("again", [], "1", {}), ("four threads", [], "4", {}),
             ("filled memory", [], "4", {"MALLOC_PERTURB_": "165"}),
             ("no caches of free memory", [], "1", {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}),
             ("allocations mapped one by one", [], "1", {"MALLOC_MMAP_THRESHOLD_": "4096"})]
    if shutil.which("setarch") and subprocess.run([*FIXED, "true"], capture_output=True).returncode == 0:
        found += [("fixed addresses", FIXED, "1", {}), ("fixed addresses, four threads", FIXED, "4", {})]
    return found


def run(pipeline, path, prefix, threads, environment):
    with tempfile.TemporaryDirectory() as folder:
        command = [*prefix, "lathe", "opt", path, "--passes", pipeline, "--explain", "--threads",
                   threads, "-o", f"{folder}/out.lathe"]
        done = subprocess.run(command, capture_output=True, env={**os.environ, **environment})
        files = [part for p in sorted(pathlib.Path(folder).iterdir()) for part in (p.name.encode(), p.read_bytes())]
    return [str(done.returncode).encode(), done.stdout, done.stderr.replace(folder.encode(), b""), *files]


def check(pipeline, path):
    """Nothing, or what differed."""
    first = None
    for what, prefix, threads, environment in variants():
        result = run(pipeline, path, prefix, threads, environment)
        first = first or result
        if result != first:
            digests = [hashlib.sha256(b"".join(r)).hexdigest()[:12] for r in (first, result)]
            return f"{path}: '{what}' differs: {digests[0]} and {digests[1]}"
    return None


def main():
    if sys.argv[1] == "--all":
        folder, pipeline = sys.argv[2:]
        paths = sorted(str(path) for path in pathlib.Path(folder).rglob("*.lathe"))
    else:
        pipeline, *paths = sys.argv[1:]
    if not paths:
        sys.exit("same.py: no files")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        differences = [d for d in pool.map(lambda path: check(pipeline, path), paths) if d]
    print(*differences, sep="\n")
    print(f"{len(paths)} files, {len(variants())} runs each, {len(differences)} differ")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
