"""Checks data against the part of JSON Schema that op.schema.json uses, with messages for people.

The data comes from `read`, whose mappings and lists know the line on which they start.
"""

import difflib
import re

import yaml

NAMES = {"object": "a mapping", "array": "a list", "string": "a string", "integer": "an integer",
         "boolean": "true or false"}


class Mapping(dict):
    line = 0


class Sequence(list):
    line = 0


class Duplicate(Exception):
    def __init__(self, line, key):
        super().__init__(f"'{key}' is given twice")
        self.line = line


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Safe YAML that keeps lines and refuses repeated keys."""


def _mapping(loader, node):
    loader.flatten_mapping(node)
    result = Mapping()
    result.line = node.start_mark.line + 1
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in result:
            raise Duplicate(key_node.start_mark.line + 1, key)
        result[key] = loader.construct_object(value_node, deep=True)
    return result


def _sequence(loader, node):
    result = Sequence(loader.construct_object(child, deep=True) for child in node.value)
    result.line = node.start_mark.line + 1
    return result


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_SEQUENCE_TAG, _sequence)


def read(text):
    return yaml.load(text, Loader=Loader)


def nearest(name, candidates):
    found = difflib.get_close_matches(str(name), [str(c) for c in candidates], n=1)
    return f"; did you mean '{found[0]}'?" if found else ""


def listing(values):
    return ", ".join(f"'{v}'" for v in values)


class Checker:
    """`check` appends (line, path, message) to `problems` for everything that breaks the schema."""

    def __init__(self, schema):
        self.schema = schema
        self.problems = []

    def check(self, value, schema=None, path="", line=1):
        schema = self.resolve(self.schema if schema is None else schema)
        line = getattr(value, "line", line)
        before = len(self.problems)
        if "anyOf" in schema:
            return self.any_of(value, schema, path, line)
        if "type" in schema and not self.is_type(value, schema["type"]):
            return self.report(line, path, f"must be {NAMES[schema['type']]}, not {value!r}")
        if "enum" in schema and value not in schema["enum"]:
            return self.report(line, path, f"'{value}' is not allowed; allowed: "
                               f"{listing(schema['enum'])}{nearest(value, schema['enum'])}")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return self.report(line, path, f"'{value}' does not have the form {schema['pattern']}")
        if isinstance(value, dict):
            self.mapping(value, schema, path, line)
        if isinstance(value, list) and "items" in schema:
            for i, item in enumerate(value):
                self.check(item, schema["items"], f"{path}[{self.label(item, i)}]", line)
        return len(self.problems) == before

    @staticmethod
    def label(item, i):
        named = isinstance(item, dict) and (item.get("op") or item.get("name"))
        return named if isinstance(named, str) else i

    def resolve(self, schema):
        while "$ref" in schema:
            schema = self.schema["$defs"][schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def report(self, line, path, message):
        self.problems.append((line, path, message))
        return False

    @staticmethod
    def is_type(value, name):
        classes = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
        return isinstance(value, classes[name]) and not (name == "integer" and value is True or
                                                         name == "integer" and value is False)

    def any_of(self, value, schema, path, line):
        trials = []
        for option in schema["anyOf"]:
            trial = Checker(self.schema)
            if trial.check(value, option, path, line):
                return True
            trials.append(trial.problems)
        self.problems.extend(min(trials, key=len))
        return False

    def mapping(self, value, schema, path, line):
        known = schema.get("properties", {})
        for key in schema.get("required", []):
            if key not in value:
                self.report(line, path, f"'{key}' is missing")
        for key, item in value.items():
            rule = known.get(key, schema.get("additionalProperties", {}))
            if rule is False:
                self.report(line, path, f"'{key}' is not a field; allowed: {listing(known)}"
                            f"{nearest(key, known)}")
            else:
                self.check(item, rule, f"{path}.{key}" if path else str(key), line)
