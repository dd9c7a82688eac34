#!/usr/bin/env python3
"""Checks the project against the layer table of docs/architecture.md: every #include, that no
source spells the name of an op instead of the constant that is generated for it, and that headers
have one kind of guard."""

import argparse
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ROW = re.compile(r"^\|\s*([a-z]+)\s*\|([^|]*)\|")
SUFFIXES = {".h", ".cc"}
# The names of ops: `"nn.conv"` in code, and what declares them.
LITERAL = re.compile(r'"([a-z]+\.[a-z0-9_]+)"')
DECLARED = re.compile(r"^- op: *([a-z0-9_]+)", re.MULTILINE)
# The one place below the dialects that names ops; a static_assert compares it with the declarations.
NAMES_OF_THE_IR = pathlib.Path("include/lathe/ir/builtin_names.h")
# Headers of include/lathe itself, and the layer that each belongs to.
TOP_LEVEL = {"lathe.h": "driver", "runtime.h": "runtime", "train.h": "train", "version.h": "support",
             "plugin.h": "ir", "compiler.h": "driver"}
# Libraries that only some folders may see: first folder of the header -> name in the table.
FENCED = {"llvm": "llvm", "llvm-c": "llvm", "mlir": "llvm", "oneapi": "onednn",
          "mpi.h": "mpi"}


def read_table(text):
    """{layer: set of names it may include} from the table in a document."""
    table = {}
    for line in text.splitlines():
        row = ROW.match(line)
        if row and row[1] != "layer":
            table[row[1]] = {name.strip() for name in row[2].split(",") if name.strip()}
    return table


def layer_of(path):
    """The layer that owns a file (path relative to the root), or None."""
    parts = path.parts
    if parts[:2] == ("include", "lathe"):
        return TOP_LEVEL.get(parts[2]) if len(parts) == 3 else parts[2]
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in ("tools", "python") else None


def violation(path, layer, allowed, bracket, header):
    """Why this include is wrong, or None."""
    parts = header.split("/")
    if parts[0] in FENCED:
        return None if FENCED[parts[0]] in allowed else f"{layer} may not include {FENCED[parts[0]]}"
    if bracket == "<":
        return None
    if parts[0] == path.parts[0] and layer in ("tools", "python"):
        return None
    if parts[0] not in ("lathe", "src"):
        return 'write the include from the root ("lathe/..." or "src/...")'
    if parts[0] == "src" and (path.parts[0] == "include" or "public" in allowed):
        return "a private header is included from outside src/"
    if "public" in allowed:
        return None
    target = TOP_LEVEL.get(parts[1]) if len(parts) == 2 else parts[1]
    if target == layer or target in allowed or "/".join(parts[1:3]) in allowed or parts[-1] in allowed:
        return None
    return f"{layer} may not include {target}"


def declared_ops(root):
    """Names of all ops that src/dialect declares, in-place twins left out."""
    return {f"{file.parent.name}.{op}" for file in (root / "src" / "dialect").glob("*/*.yaml")
            for op in DECLARED.findall(file.read_text())}


def spelled_op(line, ops):
    """The op that a line of code spells out, or None."""
    code = line.split("//")[0]
    return next((name for name in LITERAL.findall(code) if name.removesuffix("_") in ops), None)


def check(root):
    """All violations below `root` as lines 'file:line: reason'."""
    table = read_table((root / "docs" / "architecture.md").read_text())
    ops = declared_ops(root)
    found = []
    for folder in ("include", "src", "tools", "python"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root)
            layer = layer_of(path)
            if layer not in table:
                found.append(f"{path}: belongs to no layer of docs/architecture.md")
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                include = INCLUDE.match(line)
                reason = include and violation(path, layer, table[layer], include[1], include[2])
                if reason:
                    found.append(f"{path}:{number}: {include[2]}: {reason}")
                op = folder != "tools" and path != NAMES_OF_THE_IR and spelled_op(line, ops)
                if op:
                    found.append(f'{path}:{number}: "{op}": write its constant of '
                                 f"lathe/dialect/{op.split('.')[0]}/op_names.h")
    return found


def check_guards(root):
    """Headers that are guarded in another way than by `#pragma once`."""
    headers = (file for folder in ("include", "src", "tools", "python", "test")
               for file in sorted((root / folder).rglob("*.h")))
    return [f"{file.relative_to(root)}: a header begins with '#pragma once'" for file in headers
            if not re.search("^#pragma once$", file.read_text(), re.MULTILINE)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    root = parser.parse_args().root
    found = check(root) + check_guards(root)
    print("\n".join([*found, f"layers: {len(found)} violations"]))
    return 3 if found else 0


if __name__ == "__main__":
    sys.exit(main())
