#!/usr/bin/env python3
"""Turns op declarations (YAML, see README.md beside this file) into C++ and reference pages."""

import argparse
import json
import pathlib
import sys

import emit_cpp
import emit_docs
import model


def write_if_changed(path, text):
    """Leaves a file that already says `text` untouched, so that nothing is rebuilt."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def samples(families):
    """Sampling hints by op, for the tests."""
    hints = {op.full_name: op.sample for family in families for op in family.ops if op.sample}
    return json.dumps(hints, indent=1, sort_keys=True) + "\n"


def emit_all(families, out):
    dialects = {}
    for family in families:
        dialects.setdefault(family.dialect, []).append(family)
        folder = out / "lathe" / "dialect" / family.dialect
        write_if_changed(folder / f"{family.name}.h", emit_cpp.header(family))
        write_if_changed(folder / f"{family.name}.cc", emit_cpp.source(family))
    for dialect, members in dialects.items():
        folder = out / "lathe" / "dialect" / dialect
        write_if_changed(folder / "op_names.h", emit_cpp.names_header(dialect, members))
        write_if_changed(folder / f"{dialect}_ops.h", emit_cpp.dialect_header(dialect, members))
        write_if_changed(folder / f"{dialect}_ops.cc", emit_cpp.dialect_source(dialect, members))
    write_if_changed(out / "op_samples.json", samples(families))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schema", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("op.schema.json"))
    parser.add_argument("--out", type=pathlib.Path, help="folder of the generated C++")
    parser.add_argument("--docs", type=pathlib.Path, help="folder of the reference pages")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args(arguments)
    try:
        families = model.load(options.schema, options.files)
    except model.Problems as problems:
        print(problems, file=sys.stderr)
        return 1
    if options.out:
        emit_all(families, options.out)
    if options.docs:
        for name, text in emit_docs.pages(families).items():
            write_if_changed(options.docs / name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
