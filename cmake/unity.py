#!/usr/bin/env python3
"""cmake/unity.py BYTES SOURCE...: prints `GROUP SOURCE` lines: which sources are compiled as one.

Sources of a group share a translation unit, so none of them may define a name for itself that another
one uses for something else. A name in an unnamed namespace, an alias or a macro counts as used where
the source itself defines that name, in any namespace, or where a header of the project that it includes
defines it and the source, or a header of the same namespace, has it without a qualifier. A source that
fits no group starts one. There are as many groups as BYTES a group ask for, of about the same size.
"""

import collections
import functools
import itertools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = (ROOT / "include", ROOT)  # that includes are relative to
INCLUDED_BY_GENERATED = sorted(f"lathe/dialect/{header.name}" for pattern in
                               ("*_interface.h", "op_kind.h", "op_support.h", "storage_traits.h") for header in
                               (ROOT / "include" / "lathe" / "dialect").glob(pattern))
TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|enum class|enum|union)\s+(?:\[\[.*?\]\]\s*)?(\w+)")
FUNCTION = re.compile(r"(?:template\s*<.*>\s*)?(?:[A-Za-z_][\w:<>,&*\s\[\].]*?[\s&*>])?([A-Z]\w*)\s*\(")
VARIABLE = re.compile(r"(?:[A-Za-z][\w:<>,&*\s]*?[\s&*>](k[A-Z]\w*)|(?:static|thread_local) .*?(\w+))\s*(?:=|\{|\[|;)")
ALIAS = re.compile(r"^(?:using|namespace)\s+(\w+)\s*=\s*([^;]+);", re.MULTILINE)
ATTRIBUTE = re.compile(r"^\[\[[^\]]*\]\]\s*")
TAKEN = re.compile(r"^using ((?:\w+::)+\w+);", re.MULTILINE)
DEFINED_ALIAS = re.compile(r"^using (\w+) = ", re.MULTILINE)
DEFINITION = re.compile(r"^(?:struct|class|enum class) (\w+)[^;\n]*$", re.MULTILINE)
OPENED = re.compile(r"^using namespace ([\w:]+);", re.MULTILINE)
NAMESPACE = re.compile(r"(?:inline )?namespace (?:([\w:]+) )?\{$")
NOT_CODE = re.compile(r"//.*|^#include.*|\"(?:[^\"\\\n]|\\.)*\"", re.MULTILINE)
UNQUALIFIED = re.compile(r"(?<![\w.:>])[A-Za-z_]\w*")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
MACRO = re.compile(r"#define\s+(\w+)")
CONSTANTS = re.compile(r"^(?:inline |static )*constexpr [^;(]*;", re.MULTILINE)
CONSTANT = re.compile(r"\b(k[A-Z]\w*)\s*[={\[]")
ENUMERATION = re.compile(r"^enum (?!class)[^{;]*\{([^}]*)\}", re.MULTILINE)


def defined_name(line, local):
    """What a line at the left margin defines, if anything; unless `local`, for its source alone."""
    line = ATTRIBUTE.sub("", line)
    if macro := MACRO.match(line):
        return macro[1]
    if not local and not re.match(r"(?:static|constexpr)\s|const .*\bk[A-Z]", line):
        return None
    if not re.match(r"[A-Za-z]", line) or line.startswith(("using ", "return ")):
        return None
    found = TYPE.match(line) or FUNCTION.match(line) or VARIABLE.match(line)
    name = found and found[found.lastindex]
    return None if name and name.isupper() and line.startswith(name) else name  # REGISTER_PASS(...)


def constants(text):
    """All that a declaration of several constants defines, and the enumerators of no class."""
    names = {name for found in CONSTANTS.findall(text) for name in CONSTANT.findall(found)}
    for body in ENUMERATION.findall(text):
        body = re.sub(r"//.*", "", body)
        names.update(entry.split("=")[0].strip() for entry in body.split(","))
    return names - {""}


def defined_names(text):
    names = {defined_name(line, True) for line in text.splitlines()}
    return (names | constants(text) | set(DEFINED_ALIAS.findall(text))) - {None}


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


def by_namespace(text):
    """The lines of each namespace, unnamed ones left out of its name: `{"lathe::nn": "..."}`."""
    stack, lines = [], collections.defaultdict(list)
    for line in text.splitlines():
        opened = NAMESPACE.match(line)
        if opened:
            stack.append(opened[1])
        elif line.startswith("}  // namespace"):
            stack.pop()
        else:
            lines["::".join(filter(None, stack))].append(line)
    return {namespace: "\n".join(some) for namespace, some in lines.items()}


def within(namespace, outer):
    return outer == "" or namespace == outer or namespace.startswith(outer + "::")


class File:
    """A source or a header of the project: the names that it defines and those that it uses without a
    qualifier, by namespace, and what it includes."""

    def __init__(self, text):
        parts = by_namespace(text)
        self.defined = {space: defined_names(part) for space, part in parts.items()}
        self.words = {space: set(UNQUALIFIED.findall(NOT_CODE.sub("", part)))
                      for space, part in parts.items()}
        self.included = INCLUDE.findall(text)


@functools.cache
def header(path):
    """None for a generated one."""
    file = next((folder / path for folder in FOLDERS if (folder / path).exists()), None)
    return file and File(file.read_text())


def headers_of(included, found):
    """All headers of the project that are included, directly or through other headers, by path."""
    for path in included:
        if path in found:
            continue
        found[path] = header(path)
        headers_of(found[path].included if found[path] else INCLUDED_BY_GENERATED, found)
    return found


@functools.cache
def names_of_several():
    """What more than one header of the project defines, in different namespaces."""
    count = collections.Counter()
    for folder in ("include", "src"):
        for file in sorted((ROOT / folder).rglob("*.h")):
            count.update(set(DEFINITION.findall(file.read_text())))
    return {name for name, times in count.items() if times > 1}


def may_differ(taken):
    """Whether a name that is taken from another namespace may be something else elsewhere."""
    return taken.startswith(("llvm::", "std::")) or taken.split("::")[-1] in names_of_several()


class Source:
    """A source: its size, its namespaces, its local names, the names that it brings in from other
    namespaces, and the namespaces in which the names that it sees are defined."""

    def __init__(self, path):
        text = pathlib.Path(path).read_text()
        own = File(text)
        self.size, self.names = len(text), local_names(text)
        self.functions = {name for name in self.names
                          if re.search(rf"^\w.*[ *&]{name}\(", text, re.MULTILINE)}
        self.namespaces = (set(own.words) - {""}) or {""}
        self.parts = [own] + [h for h in headers_of(own.included, {}).values() if h]
        self.seen = collections.defaultdict(set)
        for part in self.parts:
            for space, names in part.defined.items():
                for name in names:
                    self.seen[name].add(space)
        taken = {name.split("::")[-1]: name for name in TAKEN.findall(text)}
        self.introduced = {name: origin for name, origin in taken.items() if may_differ(origin)}
        self.introduced.update(ALIAS.findall(text))
        for opened in OPENED.findall(text):
            self.introduced.update((name, f"{opened}::{name}") for name, spaces in self.seen.items()
                                   if any(space.endswith(f"::{opened}") for space in spaces))
        self.taken = taken | self.introduced

    @functools.cache
    def words_within(self, namespace, with_headers):
        """The names that code in a namespace uses without a qualifier."""
        return set().union(*(words for part in self.parts[:None if with_headers else 1]
                             for space, words in part.words.items() if within(space, namespace)))

    def means_another(self, name, source):
        """Whether a name that `source` defines also names something else here: either both are in the
        same namespace, or are functions and this one in an outer namespace, where a call with arguments
        from there finds it, so that `source` itself would be ambiguous; or this file uses the name. What
        headers call is found among their own functions, so local functions do not change it."""
        spaces = self.seen.get(name, ())
        outer = [space for space in spaces if space] if name in source.functions else ()
        return not source.namespaces.isdisjoint(spaces) or any(
            within(new, space) for new in source.namespaces for space in outer) or any(
            name in self.words_within(new, name not in source.functions)
            for new in source.namespaces
            if name in self.taken or any(within(new, space) for space in spaces))

    def conflicts_with(self, other):
        return (not self.names.isdisjoint(other.names) or not self.names.isdisjoint(other.taken)
                or any(other.means_another(name, self) for name in self.names)
                or any(other.taken.get(name, origin) != origin
                       or name not in other.taken and other.means_another(name, self)
                       for name, origin in self.introduced.items()))


def conflicts_of(sources):
    """For each source, the sources that it cannot share a unit with."""
    conflicts = {path: set() for path in sources}
    for (path, source), (other_path, other) in itertools.combinations(sources.items(), 2):
        if source.conflicts_with(other) or other.conflicts_with(source):
            conflicts[path].add(other_path)
            conflicts[other_path].add(path)
    return conflicts


def main():
    limit, *paths = sys.argv[1:]
    sources = {path: Source(path) for path in paths}
    conflicts = conflicts_of(sources)
    total = sum(source.size for source in sources.values())
    groups = [[] for _ in range(-(-total // int(limit)))]
    sizes = [0] * len(groups)
    for path in sorted(paths, key=lambda path: -len(conflicts[path])):  # sources with most conflicts first
        possible = [i for i, group in enumerate(groups) if conflicts[path].isdisjoint(group)]
        if not possible:
            possible = [len(groups)]
            groups.append([])
            sizes.append(0)
        index = min(possible, key=lambda i: sizes[i])
        groups[index].append(path)
        sizes[index] += sources[path].size
        print(index, path)


if __name__ == "__main__":
    main()
