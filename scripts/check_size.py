#!/usr/bin/env python3
"""Fails on C++ functions over 100 lines, on source files over 1000 lines, and on binary files that are
neither a demo nor the seed of a fuzzer."""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

MAX_FUNCTION = 100
MAX_FILE = 1000
FOLDERS = ("include", "src", "tools", "python", "test", "bench", "scripts", "examples")
BINARIES = ("examples/", "test/fuzz/corpus/")
SUFFIXES = {".h", ".cc", ".py"}
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)
NOT_FUNCTION = re.compile(r"^\s*(?:template\s*<.*>\s*)?(?:namespace|class|struct|enum|union|extern)\b",
                          re.DOTALL)


def strip(text):
    """The text with comments and literals blanked and every line kept."""
    def blank(found):
        # A digit separator (1'000'000) looks like a character literal; it holds no braces either way.
        return '""' + "\n" * found[0].count("\n")
    return NOISE.sub(blank, text)


def functions(text):
    """[(first line, number of lines)] of the function definitions of a C++ source."""
    found, stack, line, head, head_line = [], [], 1, "", 1
    for char in strip(text):
        if char == "\n":
            line += 1
        if char == "{":
            inside = any(kind for kind, _ in stack)
            is_function = not inside and ")" in head and not NOT_FUNCTION.match(head)
            stack.append((is_function, head_line))
            head = ""
        elif char == "}":
            is_function, first = stack.pop() if stack else (False, line)
            if is_function:
                found.append((first, line - first + 1))
            head = ""
        elif char == ";":
            head = ""
        else:
            if not head.strip():
                head_line = line
            head += char
    return found


def check(root):
    """(violations, lengths of all functions, lengths of all files)."""
    bad, lengths, files = [], [], []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            text, path = file.read_text(), file.relative_to(root)
            files.append(text.count("\n"))
            if files[-1] > MAX_FILE:
                bad.append(f"{path}: {files[-1]} lines")
            if file.suffix == ".py":
                continue
            for first, length in functions(text):
                lengths.append(length)
                if length > MAX_FUNCTION:
                    bad.append(f"{path}:{first}: function of {length} lines")
    return bad, lengths, files


def binaries(root):
    """Files that git tracks, or would, which are no text and in no folder for such."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True)
    files = [f for f in listed.stdout.split("\0") if f and not f.startswith(BINARIES) and (root / f).is_file()]
    return [f"{f}: a binary file" for f in files if b"\0" in (root / f).read_bytes()[:8192]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    root = parser.parse_args().root
    bad, lengths, files = check(root)
    bad += binaries(root)
    lengths.sort()
    if lengths:
        print(f"{len(lengths)} functions: median {statistics.median(lengths):g} lines, "
              f"nine in ten at most {lengths[len(lengths) * 9 // 10]}, longest {lengths[-1]}")
    print(f"{len(files)} files, longest {max(files, default=0)} lines")
    print("\n".join([*bad, f"size: {len(bad)} violations"]))
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
