#!/usr/bin/env python3
"""Runs the console transcripts of the documentation.

In every fenced block tagged `console`, a line `$ command` is run by bash in the repository root with
the built command and this Python in PATH (a trailing backslash continues a command on the next
line). The lines that follow are its expected output, stdout and stderr together:

  ...        alone on a line: any number of lines
  {...}      inside a line: any text
  {~1.2 ms}  inside a line: any text, of which this is an example; for what differs between runs
  [exit N]   as the last line: the exit code; without it 0 is expected

A block tagged `console if FILE` is left out where the build folder has no lib/FILE, `console if
unsanitized` in a build with a sanitizer.

The variable TMP names a folder that is fresh for every document and printed as $TMP; BUILD the build
folder.

A document whose first line is `<!-- written by: COMMAND -->` is what COMMAND prints below that line.
"""

import argparse
import dataclasses
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRITTEN = re.compile(r"<!-- written by: (.*) -->\n")
ANYTHING = re.compile(r"\{\.\.\.\}|\{~[^{}]*\}")
EXIT = re.compile(r"\[exit (\d+)\]$")


@dataclasses.dataclass
class Step:
    line: int  # of the command, counted from 0
    command: str
    first: int  # expected lines are lines[first:last]
    last: int


# What mpirun needs to start more ranks than there are cores, also as root, as in a container.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def has(build, feature):
    """Whether a build has what a block is only for."""
    if feature == "unsanitized":
        cache = (build / "CMakeCache.txt").read_text()
        return re.search(r"^LATHE_SANITIZE:\w+=.", cache, re.MULTILINE) is None
    return (build / "lib" / feature).exists()


def parse(lines, has=lambda feature: True):
    """The commands of all console blocks of a document; has: whether the build has a feature."""
    steps, inside, i = [], False, 0
    while i < len(lines):
        line = lines[i]
        i += 1
        if line.startswith("```"):
            tag, _, feature = line.strip().partition(" if ")
            inside = not inside and tag == "```console" and (not feature or has(feature))
        elif inside and line.startswith("$ "):
            start, command = i - 1, line[2:]
            while command.endswith("\\"):
                command += "\n" + lines[i]
                i += 1
            first = i
            while i < len(lines) and not lines[i].startswith(("$ ", "```")):
                i += 1
            steps.append(Step(start, command, first, i))
    return steps


def split_expected(expected):
    """(output lines, exit code) of the lines below a command."""
    expected = list(expected)
    while expected and not expected[-1].strip():
        expected.pop()
    if expected and (found := EXIT.match(expected[-1])):
        return expected[:-1], int(found[1])
    return expected, 0


def matches(expected, actual):
    """Whether the lines `actual` match the pattern lines `expected`."""
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += ".*?".join(map(re.escape, ANYTHING.split(line.rstrip()))) + r"[ \t]*\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in actual)) is not None


def run(command, env, timeout):
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
    text = done.stdout.decode("utf-8", "replace").replace(env["TMP"], "$TMP")
    return [line.rstrip() for line in text.splitlines()], done.returncode


def check_document(path, env, options):
    """(passed, failed) of one document; rewrites it with --bless."""
    text = path.read_text()
    if found := WRITTEN.match(text):
        return check_written(path, found[1], env, options)
    lines = text.split("\n")
    passed = failed = 0
    edits = []
    for step in parse(lines, lambda feature: has(pathlib.Path(env["BUILD"]), feature)):
        expected, code = split_expected(lines[step.first:step.last])
        actual, actual_code = run(step.command, env, options.timeout)
        if actual_code == code and matches(expected, actual):
            passed += 1
            continue
        failed += 1
        fresh = actual + ([f"[exit {actual_code}]"] if actual_code else [])
        edits.append((step, fresh))
        if not options.bless:
            report(path, step, lines[step.first:step.last], fresh)
    if options.bless and edits:
        for step, fresh in reversed(edits):
            lines[step.first:step.last] = fresh
        path.write_text("\n".join(lines))
        print(f"{path.name}: {len(edits)} rewritten")
        return passed + failed, 0
    return passed, failed


def check_written(path, command, env, options):
    """(passed, failed) of a document that `command` writes; rewrites it with --bless."""
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=options.timeout, encoding="utf-8")
    if done.returncode:
        print(f"FAIL {path}: `{command}` exits with {done.returncode}\n{done.stderr}")
        return 0, 1
    text = path.read_text()
    fresh = text[:text.index("\n") + 1] + done.stdout
    if fresh == text:
        return 1, 0
    if options.bless:
        path.write_text(fresh)
        print(f"{path.name}: rewritten")
        return 1, 0
    print(f"FAIL {path} is not what `{command}` prints now; to write it again:\n"
          f"  test/transcripts/run.py --build {options.build} --bless {path}")
    print("\n".join(difflib.unified_diff(text.split("\n"), fresh.split("\n"), "page", "command",
                                         lineterm="", n=1)))
    return 0, 1


def report(path, step, expected, actual):
    print(f"FAIL {path}:{step.line + 1}: $ {step.command}")
    print("\n".join("  expected | " + line for line in expected))
    print("\n".join("  actual   | " + line for line in actual))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("documents", nargs="*", type=pathlib.Path,
                        help="default: README.md, docs/**/*.md and examples/*/README.md")
    parser.add_argument("--build", default="build", help="build folder (default: build)")
    parser.add_argument("--bless", action="store_true", help="write what the commands print")
    parser.add_argument("--timeout", type=float, default=120, help="seconds per command")
    options = parser.parse_args()

    build = ROOT / options.build
    env = dict(os.environ, NO_COLOR="1", LC_ALL="C.UTF-8", COLUMNS="100", BUILD=str(build))
    env.update(MPI_ENVIRONMENT)
    folders = [build / "bin", pathlib.Path(sys.executable).parent]  # python3 with numpy
    env["PATH"] = os.pathsep.join([*map(str, folders), env["PATH"]])
    documents = options.documents or [
        ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").glob("*/README.md"))]
    passed = failed = 0
    for path in documents:
        with tempfile.TemporaryDirectory() as env["TMP"]:
            good, bad = check_document(path, env, options)
        passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
