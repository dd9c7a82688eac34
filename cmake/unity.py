#!/usr/bin/env python3
"""cmake/unity.py BYTES SOURCE...: prints `GROUP SOURCE` lines: which sources are compiled as one.

Sources of a group share a translation unit, so none of them may define a name for itself that another
one uses for something else. A name in an unnamed namespace, an alias or a macro counts as used where
the source itself or a header of the project that it includes defines that name, in any namespace. A
source that fits no group starts one. BYTES bounds the size of a group.
"""

import collections
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = (ROOT / "include", ROOT)  # that includes are relative to
INCLUDED_BY_GENERATED = sorted(f"lathe/dialect/{header.name}" for header in
                               (ROOT / "include" / "lathe" / "dialect").glob("*_interface.h"))
TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|enum class|enum|union)\s+(?:\[\[.*?\]\]\s*)?(\w+)")
FUNCTION = re.compile(r"(?:template\s*<.*>\s*)?(?:[A-Za-z_][\w:<>,&*\s\[\].]*?[\s&*>])?([A-Z]\w*)\s*\(")
VARIABLE = re.compile(r"(?:[A-Za-z][\w:<>,&*\s]*?[\s&*>](k[A-Z]\w*)|(?:static|thread_local) .*?(\w+))\s*(?:=|\{|\[|;)")
ALIAS = re.compile(r"(?:using|namespace)\s+(\w+)\s*=")
ATTRIBUTE = re.compile(r"^\[\[[^\]]*\]\]\s*")
TAKEN = re.compile(r"^using ((?:\w+::)+\w+);", re.MULTILINE)
DEFINITION = re.compile(r"^(?:struct|class|enum class) (\w+)[^;\n]*$", re.MULTILINE)
OPENED = re.compile(r"^using namespace ([\w:]+);", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
MACRO = re.compile(r"#define\s+(\w+)")
CONSTANTS = re.compile(r"^(?:inline |static )*constexpr [^;(]*;", re.MULTILINE)
CONSTANT = re.compile(r"\b(k[A-Z]\w*)\s*[={\[]")
ENUMERATION = re.compile(r"^enum (?!class)[^{;]*\{([^}]*)\}", re.MULTILINE)


def defined_name(line, local):
    """What a line at the left margin defines, if anything; unless `local`, for its source alone."""
    line = ATTRIBUTE.sub("", line)
    always = MACRO.match(line) or ALIAS.match(line)
    if always:
        return always[1]
    if not local and not re.match(r"(?:static|constexpr|const)\s", line):
        return None
    if not re.match(r"[A-Za-z]", line) or line.startswith(("using ", "return ")):
        return None
    found = TYPE.match(line) or FUNCTION.match(line) or VARIABLE.match(line)
    name = found and found[found.lastindex]
    return name if name and not name.isupper() else None  # REGISTER_PASS(...)


def constants(text):
    """All that a declaration of several constants defines, and the enumerators of no class."""
    names = {name for found in CONSTANTS.findall(text) for name in CONSTANT.findall(found)}
    for body in ENUMERATION.findall(text):
        body = re.sub(r"//.*", "", body)
        names.update(entry.split("=")[0].strip() for entry in body.split(","))
    return names - {""}


def defined_names(text):
    return ({defined_name(line, True) for line in text.splitlines()} | constants(text)) - {None}


def local_names(text):
    names, local = set(), False
    for line in text.splitlines():
        if line.startswith("namespace {"):
            local = True
        elif local and line.strip() == "}  // namespace":
            local = False
        else:
            names.add(defined_name(line, local))
    return (names | constants(text)) - {None}


@functools.cache
def names_of_header(path):
    """What a header of the project defines, and those that it includes."""
    file = next((folder / path for folder in FOLDERS if (folder / path).exists()), None)
    if file is None:  # generated
        return frozenset().union(*map(names_of_header, INCLUDED_BY_GENERATED))
    return defined_and_included(file.read_text())


def defined_and_included(text):
    return frozenset(defined_names(text).union(*map(names_of_header, INCLUDE.findall(text))))


@functools.cache
def names_of_several():
    """What more than one header of the project defines, in different namespaces."""
    count = collections.Counter()
    for folder in ("include", "src"):
        for header in sorted((ROOT / folder).rglob("*.h")):
            count.update(set(DEFINITION.findall(header.read_text())))
    return {name for name, times in count.items() if times > 1}


def may_differ(taken):
    """Whether a name that is taken from another namespace may be something else elsewhere."""
    return taken.startswith(("llvm::", "std::")) or taken.split("::")[-1] in names_of_several()


class Source:
    """What is known of a source: its size, what it defines for itself, what it sees, which namespaces it
    opens, and what it takes from those of others."""

    def __init__(self, path):
        text = pathlib.Path(path).read_text()
        self.size, self.names = len(text), local_names(text)
        self.seen = defined_and_included(text)
        self.opened = set(OPENED.findall(text))
        self.taken = {name.split("::")[-1]: name for name in TAKEN.findall(text) if may_differ(name)}

    def disturbs(self, other):
        return (self.names & other.seen
                or any(name in other.seen and other.taken.get(name) != origin
                       for name, origin in self.taken.items()))


def fits(source, group, limit):
    return (source.size + sum(other.size for other in group) <= limit
            and not any(source.opened != other.opened or source.disturbs(other) or other.disturbs(source)
                        for other in group))


def main():
    limit, *sources = sys.argv[1:]
    groups = []
    for path in sources:
        source = Source(path)
        index = next((i for i, group in enumerate(groups) if fits(source, group, int(limit))), None)
        if index is None:
            index = len(groups)
            groups.append([])
        groups[index].append(source)
        print(index, path)


if __name__ == "__main__":
    main()
