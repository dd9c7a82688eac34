"""Op declarations as checked Python objects."""

import dataclasses
import json
import pathlib
import re

import schema
import yaml

SETS = {
    "float": ["f16", "bf16", "f32", "f64"],
    "signed": ["i8", "i16", "i32", "i64"],
    "unsigned": ["u8", "u16", "u32", "u64"],
    "all_f8": ["f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0"],
    "index_like": ["i32", "i64"],
}
SETS["integer"] = SETS["signed"] + SETS["unsigned"]
SETS["numeric"] = SETS["integer"] + SETS["float"]
SETS["all"] = (["bool"] + SETS["numeric"] + SETS["all_f8"] +
               ["i4", "u4", "i2", "u2", "f4e2m1", "c64", "c128", "string"])
ELEMENTS = SETS["all"] + ["index"]
KEYWORDS = set("""alignas alignof and asm auto bool break case catch char class const constexpr
    continue default delete do double else enum explicit export extern false float for friend goto if
    inline int long mutable namespace new not operator or private protected public register return
    short signed sizeof static struct switch template this throw true try typedef typeid typename
    union unsigned using virtual void volatile while xor operation op_""".split())
RESERVED_CONSTANTS = {"kName"}
MUTATING_ONLY = {"Fold", "Effects", "Grad", "Decompose", "Permute",
                 "ScaleAxis"}  # what the in-place twin does not share
VALUE_TRAITS = {"HasValueSemantics", "ReadOnly", "ViewLike", "Inplace", "ConstantLike"}


class Problems(Exception):
    """All that is wrong, one line each."""

    def __init__(self, lines):
        super().__init__("\n".join(lines))
        self.lines = lines


def camel(name):
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def identifier(name):
    return name + "_" if name in KEYWORDS else name


@dataclasses.dataclass
class Rule:
    """A type rule; `kind` names an enumerator of TypeRule::Kind."""
    kind: str
    element: str = "undefined"
    index: int = 0
    inner: "Rule | None" = None


@dataclasses.dataclass
class Value:
    name: str
    rule: Rule
    text: str
    optional: bool
    variadic: bool
    heterogeneous: bool
    whole: bool
    min: int
    doc: str

    @property
    def constant(self):
        return "k" + camel(self.name)

    @property
    def accessor(self):
        return identifier(self.name)


@dataclasses.dataclass
class Attribute:
    name: str
    type: str
    optional: bool
    default: object
    has_default: bool
    one_of: list
    min: "int | None"
    doc: str

    @property
    def accessor(self):
        return identifier(self.name)

    @property
    def default_text(self):
        return to_text(self.default, self.type) if self.has_default else None


@dataclasses.dataclass
class Op:
    dialect: str
    name: str
    class_name: str
    summary: str
    description: str
    onnx: "tuple | None"
    since: int
    type_sets: list
    inputs: list
    outputs: list
    attributes: list
    regions: list
    traits: list
    interfaces: list
    default_infer: bool
    kind: str
    sample: object
    twin_of: "Op | None" = None

    @property
    def full_name(self):
        return f"{self.dialect}.{self.name}"

    @property
    def name_constant(self):
        """The C++ constant that holds the full name: `kConv` for `ConvOp`."""
        return "k" + self.class_name.removesuffix("Op")


@dataclasses.dataclass
class Family:
    path: pathlib.Path
    dialect: str
    name: str
    ops: list


def quote(text):
    """A string as our text form writes it."""
    out = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{out}"'


def float_text(value):
    text = repr(float(value))
    return text if re.search(r"[.en]", text) else text + ".0"


def to_text(value, kind):
    """A default in the text form of attributes."""
    if isinstance(value, list):
        element = kind[:-2] if kind.endswith("[]") else "any"
        return "[" + ", ".join(to_text(v, element) for v in value) + "]"
    if kind == "f32":
        return float_text(value)
    if kind == "type":
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    return quote(value) if isinstance(value, str) else str(value)


class Fault(Exception):
    pass


def need(condition, message):
    if not condition:
        raise Fault(message)


def type_set(text, sets):
    """Element types of a set name, an element type, a list of those, or names joined by '+'."""
    result = []
    parts = text if isinstance(text, list) else text.split("+")
    for part in (p.strip() for p in parts):
        need(part in sets or part in ELEMENTS,
             f"'{part}' is not a type set or element type; sets: {schema.listing(sorted(sets))}"
             f"{schema.nearest(part, list(sets) + ELEMENTS)}")
        result += sets[part] if part in sets else [part]
    return list(dict.fromkeys(result))


class OpReader:
    """Reads one entry of `ops`."""

    def __init__(self, dialect, data, sets):
        self.dialect, self.data, self.sets = dialect, data, sets
        self.variables = {}

    def read(self):
        self.variables = {name: type_set(text, self.sets)
                          for name, text in self.data.get("types", {}).items()}
        attributes = [self.field("attributes", a, self.attribute)
                      for a in self.data.get("attributes", [])]
        self.attribute_names = [a.name for a in attributes]
        inputs = self.values("inputs")
        outputs = self.values("outputs")
        self.check_names(inputs, outputs, attributes)
        self.check_variables(inputs, outputs)
        traits, interfaces = self.data.get("traits", []), list(self.data.get("interfaces", []))
        default_infer = self.default_infer(outputs, traits, interfaces)
        if default_infer:
            interfaces.insert(0, "InferShape")
        onnx = self.data.get("onnx")
        if isinstance(onnx, str):
            onnx = {"name": onnx}
        need(onnx is None or "since" in self.data, "'since' is missing beside 'onnx'")
        name = self.data["op"]
        return Op(self.dialect, name, camel(name) + "Op", self.data["summary"].strip(),
                  self.data.get("description", "").strip(),
                  onnx and (onnx["name"], onnx.get("domain", "")), self.data.get("since", 0),
                  list(self.variables.items()), inputs, outputs, attributes,
                  self.data.get("regions", []), traits, interfaces, default_infer,
                  self.kind(inputs), self.data.get("sample"))

    def kind(self, inputs):
        kind = self.data.get("kind", "opaque")
        whole = [v.name for v in inputs if v.whole]
        need(kind != "opaque" or not whole,
             f"inputs[{whole[0] if whole else ''}]: 'whole' says nothing of an opaque op")
        return kind

    def field(self, where, data, read):
        try:
            return read(data)
        except Fault as fault:
            raise Fault(f"{where}[{data['name']}]: {fault}") from fault

    def values(self, where):
        entries = self.data.get(where, [])
        result = [self.field(where, e, lambda d: self.value(d, where)) for e in entries]
        for value in result[:-1]:
            need(not value.variadic, f"{where}[{value.name}]: only the last one may be variadic")
        return result

    def value(self, data, where):
        need(data.get("variadic") or not (data.get("heterogeneous") or "min" in data),
             "'min' and 'heterogeneous' are for variadic ones only")
        text = data["type"]
        whole = data.get("whole", False)
        need(not whole or where == "inputs", "'whole' is for inputs only")
        need(not (whole and data.get("variadic")), "a variadic input cannot be 'whole'")
        return Value(data["name"], self.rule(text, where == "outputs"), text,
                     data.get("optional", False), data.get("variadic", False),
                     data.get("heterogeneous", False), whole, data.get("min", 0),
                     data.get("doc", ""))

    def rule(self, text, is_output):
        text = text.strip()
        if text in self.variables:
            return Rule("kVariable", index=list(self.variables).index(text))
        if text in ELEMENTS:
            return Rule("kElement", text)
        if text in ("any", "tensor", "token"):
            return Rule("k" + camel(text))
        if text == "custom" and is_output:
            return Rule("kAny")
        nested = re.fullmatch(r"(list|optional)<(.*)>", text)
        if nested:
            return Rule("k" + camel(nested[1]), inner=self.rule(nested[2], is_output))
        attribute = re.fullmatch(r"attr\((\w+)\)", text)
        if attribute and is_output:
            need(attribute[1] in self.attribute_names,
                 f"'{attribute[1]}' is not an attribute of the op; attributes: "
                 f"{schema.listing(self.attribute_names)}")
            return Rule("kFromAttr", index=self.attribute_names.index(attribute[1]))
        more = ", attr(...), custom" if is_output else ""
        raise Fault(f"type '{text}' is unknown; allowed: a type variable of the op "
                    f"({schema.listing(self.variables)}), an element type, any, tensor, token, "
                    f"list<...>, optional<...>{more}"
                    f"{schema.nearest(text, list(self.variables) + ELEMENTS)}")

    def attribute(self, data):
        kind = data["type"]
        given = [k for k in ("required", "optional") if data.get(k)] + ["default"] * ("default" in data)
        need(len(given) == 1, "say exactly one of 'required: true', 'optional: true' and 'default', "
             f"not {schema.listing(given) if given else 'none'}")
        need("one_of" not in data or kind in ("str", "str[]"), "'one_of' is for strings")
        need("min" not in data or kind in ("i64", "i64[]"), "'min' is for integers")
        default = self.default(data.get("default"), kind) if "default" in data else None
        if default is not None and data.get("one_of"):
            for word in default if isinstance(default, list) else [default]:
                need(word in data["one_of"], f"default '{word}' is not one of "
                     f"{schema.listing(data['one_of'])}")
        return Attribute(data["name"], kind, data.get("optional", False), default, "default" in data,
                         data.get("one_of", []), data.get("min"), data.get("doc", ""))

    def default(self, value, kind):
        if kind.endswith("[]") or kind == "array":
            need(isinstance(value, list), f"default {value!r} is not a list")
            return [self.default(v, kind[:-2]) for v in value] if kind.endswith("[]") else value
        classes = {"bool": bool, "i64": int, "f32": (int, float), "str": str, "type": str,
                   "any": object}
        need(kind in classes, f"an attribute of type {kind} cannot have a default")
        if kind == "f32" and isinstance(value, str):  # YAML reads 1e-5 as a string
            try:
                value = float(value)
            except ValueError:
                raise Fault(f"default '{value}' is not a number") from None
        is_bool = isinstance(value, bool)
        need(isinstance(value, classes[kind]) and is_bool <= (kind in ("bool", "any")),
             f"default {value!r} is not of type {kind}")
        need(kind != "type" or value in ELEMENTS, f"default '{value}' is not an element type")
        return value

    def check_names(self, inputs, outputs, attributes):
        seen = {}
        for what, entries in (("input", inputs), ("attribute", attributes), ("output", outputs)):
            for entry in entries:
                need(entry.accessor not in seen,
                     f"'{entry.name}' names an {what} and an {seen.get(entry.accessor)}")
                seen[entry.accessor] = what
        for value in inputs + outputs:
            need(value.constant not in RESERVED_CONSTANTS,
                 f"'{value.name}' is taken by the op class itself; use another name")

    def check_variables(self, inputs, outputs):
        used = {i for value in inputs + outputs for i in self.variables_of(value.rule)}
        for i, name in enumerate(self.variables):
            need(i in used, f"type variable '{name}' is not used")

    def variables_of(self, rule):
        if rule is None:
            return []
        return ([rule.index] if rule.kind == "kVariable" else []) + self.variables_of(rule.inner)

    def default_infer(self, outputs, traits, interfaces):
        if "InferShape" in interfaces:
            return False
        if not {"Elementwise", "SameOperandsAndResultShape"} & set(traits) or not outputs:
            return False
        bad = [o.name for o in outputs if o.text in ("custom", "any", "tensor")]
        need(not bad, f"output '{bad[0] if bad else ''}' has no type that the declaration "
             "determines; list InferShape among 'interfaces' and write it")
        return True


def twin(op, data):
    """The in-place twin `<op>_`: writes the first operand and returns it as the first result."""
    need(op.inputs and op.inputs[0].name == data["input"],
         f"inplace: '{data['input']}' must be the first input")
    need(op.outputs and op.outputs[0].name == data["output"],
         f"inplace: '{data['output']}' must be the first output")
    return dataclasses.replace(
        op, name=op.name + "_", class_name=camel(op.name) + "InplaceOp", onnx=None, since=0,
        traits=["Inplace"] + [t for t in op.traits if t not in VALUE_TRAITS],
        interfaces=[i for i in op.interfaces if i not in MUTATING_ONLY],
        summary=f"In-place twin of `{op.full_name}`: writes `{op.inputs[0].name}`.",
        description="", default_infer=False, kind="opaque", twin_of=op)


def read_ops(path, data, problems):
    sets = dict(SETS)
    ops = []
    try:
        for name, text in data.get("types", {}).items():
            sets[name] = type_set(text, sets)
    except Fault as fault:
        problems.append(f"{path}:{data.line}: types: {fault}")
    for entry in data["ops"]:
        try:
            ops.append(OpReader(data["dialect"], entry, sets).read())
            if "inplace" in entry:
                ops.append(twin(ops[-1], entry["inplace"]))
        except Fault as fault:
            problems.append(f"{path}:{entry.line}: op '{entry['op']}': {fault}")
    return ops


def read_family(path, rules, problems):
    try:
        data = schema.read(path.read_text())
    except schema.Duplicate as fault:
        problems.append(f"{path}:{fault.line}: {fault}")
        return None
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        problems.append(f"{path}:{mark.line + 1 if mark else 1}: {getattr(fault, 'problem', fault)}")
        return None
    checker = schema.Checker(rules)
    if not checker.check(data):
        problems += [f"{path}:{line}: {where + ': ' if where else ''}{message}"
                     for line, where, message in checker.problems]
        return None
    if path.stem == f"{data['dialect']}_ops":
        problems.append(f"{path}:1: the name '{path.stem}' is taken by the list of all families")
    return Family(path, data["dialect"], path.stem, read_ops(path, data, problems))


def check_unique(families, problems):
    ops, names = {}, {}
    for family in families:
        key = (family.dialect, family.name)
        if key in names:
            problems.append(f"{family.path}:1: family '{family.name}' is also in {names[key]}")
        names[key] = family.path
        for op in family.ops:
            for label in (op.full_name, f"{op.dialect}::{op.class_name}"):
                if label in ops:
                    problems.append(f"{family.path}:1: op '{label}' is also in {ops[label]}")
                ops[label] = family.path


def load(schema_path, files):
    """All families; raises Problems with everything that is wrong in them."""
    rules = json.loads(schema_path.read_text())
    problems = []
    families = [read_family(path, rules, problems) for path in sorted(files)]
    families = [family for family in families if family]
    check_unique(families, problems)
    if problems:
        raise Problems(problems)
    return families
