#!/usr/bin/env python3
"""Gives each malformed model of make_cases.py to the command and checks what cases.yaml expects.

Whatever the case, the command ends by itself, in time and within the memory limit, with exit code 0
or 1, and where it is 1 the words on stderr begin with `error[`, behind warnings, and hold nothing
that a terminal would obey. Prints what is not so, and `N passed, N failed` last.
"""

import argparse
import concurrent.futures
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
LONGEST_MESSAGE = 16_000
RUN_LIMITS = ("--max-steps=300000", "--max-memory=512MiB")
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
# Of an error, behind warnings.
FIRST_LINE = re.compile(r"(?:warning\[.*\n(?: .*\n)*)*error\[([^]\n]+)\]: \S")


class Command:
    """The command under its limits."""

    def __init__(self, options):
        self.path = options.lathe
        self.seconds = options.seconds
        self.bytes = options.memory_mb << 20

    def limit(self):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.bytes:
            resource.setrlimit(resource.RLIMIT_AS, (self.bytes, self.bytes))

    def run(self, *words):
        """(exit code or None when out of time, stderr)"""
        try:
            done = subprocess.run(
                [self.path, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=self.seconds,
                preexec_fn=self.limit,
                env={**os.environ, "NO_COLOR": "1"},
            )
        except subprocess.TimeoutExpired:
            return None, b""
        return done.returncode, done.stderr


def complaint(code, stderr):
    """What is wrong with the way the command ended, whatever the case; "" if nothing."""
    if code is None:
        return "did not end in time"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    if code not in (0, 1):
        return f"exit code {code}"
    if code == 1 and not FIRST_LINE.match(stderr.decode("utf-8", "replace")):
        return "no error[...] message"
    if len(stderr) > LONGEST_MESSAGE:
        return f"{len(stderr)} bytes of message"
    if CONTROL.search(stderr):
        return "control characters in the message"
    return ""


def mismatch(expected, code, stderr):
    """Why an ending that is clean is not the expected one; "" if it is."""
    if expected == "any":
        return ""
    if expected == "ok":
        return "" if code == 0 else "expected to be accepted"
    if code == 0:
        return f"accepted, expected error[{expected}]"
    id = FIRST_LINE.match(stderr.decode("utf-8", "replace"))[1]
    return "" if re.search(expected, id) else f"expected error[{expected}], got error[{id}]"


def inputs_of(folder):
    files = sorted((folder / "inputs").glob("*"))
    return [word for file in files for word in ("--input", f"{file.stem}={file}")]


def runs_of(folder, stage, expected):
    """The command lines of a case, each with what it is to lead to."""
    models = sorted(folder.glob("model*.onnx")) or [folder / "model.onnx"]
    at_load = expected if stage == "load" else "any"
    for model in models:
        yield ("inspect", model), at_load
        words = ("run", model, *RUN_LIMITS, *inputs_of(folder))
        yield (*words, "--interpret"), expected
        # Compiled, an index beyond the end is the last one: what values are is not checked.
        yield words, expected if stage == "load" or expected == "ok" else "any"


def check_case(command, folder, row):
    """The first thing that is wrong with a case: its command line, the reason and the message."""
    stage, _, pattern = row.partition(" ")
    for words, expected in runs_of(folder, stage, pattern or stage):
        code, stderr = command.run(*words)
        reason = complaint(code, stderr) or mismatch(expected, code, stderr)
        if reason:
            shown = stderr.decode("utf-8", "backslashreplace")[:600]
            return f"lathe {' '.join(map(str, words))}\n    {reason}\n    " + shown.replace(
                "\n", "\n    "
            )
    return None


def check_table(table, ids):
    """A row without a case or a case without a row is a mistake of ours."""
    if table.keys() != set(ids):
        sys.exit(f"cases.yaml and make_cases.py differ: {sorted(table.keys() ^ set(ids))}")
    bad = [id for id, row in table.items() if not re.fullmatch(r"ok|any|(load|run) \S+", row)]
    if bad:
        sys.exit(f"cases.yaml: not `ok`, `any`, `load REGEX` or `run REGEX`: {bad}")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lathe", required=True, help="the command")
    parser.add_argument("--filter", default="", help="regular expression over case ids")
    parser.add_argument(
        "--dir", type=Path, help="keep the cases here (default: a temporary folder)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=10, help="per command")
    parser.add_argument("--memory-mb", type=int, default=2048, help="address space; 0: no limit")
    return parser.parse_args()


def run_all(options, folder):
    import make_cases

    make_cases.make_cases(folder)
    table = yaml.safe_load((HERE / "cases.yaml").read_text())
    check_table(table, make_cases.corpus.CASES)
    ids = [id for id in table if re.search(options.filter, id)]
    command = Command(options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda id: check_case(command, folder / id, table[id]), ids))
    for id, failure in zip(ids, results):
        if failure:
            print(f"{id}: {table[id]}\n  {failure}")
    failed = sum(result is not None for result in results)
    print(f"{len(ids) - failed} passed, {failed} failed")
    return 3 if failed else 0


def main():
    options = parse_options()
    if options.dir:
        return run_all(options, options.dir)
    with tempfile.TemporaryDirectory() as folder:
        return run_all(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
