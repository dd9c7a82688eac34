"""C++ of op declarations: a header and a source per family, a list of all families per dialect."""

import math

from model import camel

CPP_TYPES = {
    "bool": "bool", "i64": "int64_t", "f32": "double", "str": "std::string",
    "i64[]": "std::vector<int64_t>", "f32[]": "std::vector<double>",
    "str[]": "std::vector<std::string>", "type": "ElementType", "tensor": "Tensor",
    "array": "Attribute", "dict": "Attribute", "any": "Attribute",
}
ATTR_KINDS = {
    "bool": "kBool", "i64": "kInt", "f32": "kFloat", "str": "kStr", "i64[]": "kInts",
    "f32[]": "kFloats", "str[]": "kStrs", "type": "kType", "tensor": "kTensor", "array": "kArray",
    "dict": "kDict", "any": "kAny",
}
# Behavior of an interface: result, parameters, and how the in-place twin passes them on.
METHODS = {
    "InferShape": ("void", "InferShapeContext& c", "c"),
    "Eval": ("void", "EvalContext& c", "c"),
    "Fold": ("void", "FoldContext& c", "c"),
    "Effects": ("void", "EffectsContext& c", "c"),
    "Verify": ("void", "Operation* op", "op"),
    "Decompose": ("std::vector<Value>", "Operation* op, Builder& b", "op, b"),
    "Grad": ("std::vector<Value>", "Operation* op, std::span<const Value> result_grads, Builder& b",
             "op, result_grads, b"),
    "Flops": ("Dim", "Operation* op", "op"),
    "RegionArguments": ("bool", "Operation* op, RegionRound round", "op, round"),
    "Learned": ("void", "LearnedContext& c", "c"),
    "Permute": ("bool", "PermuteContext& c", "c"),
    "ScaleAxis": ("bool", "ScaleAxisContext& c", "c"),
}
# Where traits and interfaces are declared that few families have.
HEADERS = {
    "KeepsBytes": "storage_traits.h",
    "Learned": "learned_interface.h",
    "Permute": "permute_interface.h",
    "ScaleAxis": "scale_axis_interface.h",
}


def element(name):
    special = {"bool": "Bool", "string": "String", "index": "Index", "undefined": "Undefined"}
    return "ElementType::k" + special.get(name, name.upper())


def literal(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def yes(flag):
    return "true" if flag else "false"


def double(value):
    if math.isinf(value):
        return ("-" if value < 0 else "") + "std::numeric_limits<double>::infinity()"
    if math.isnan(value):
        return "std::numeric_limits<double>::quiet_NaN()"
    return repr(float(value))


def cpp_value(value, kind):
    """A default value as a C++ initializer."""
    if isinstance(value, list):
        return "{" + ", ".join(cpp_value(v, kind[:-2]) for v in value) + "}"
    if kind == "type":
        return element(value)
    if kind == "f32":
        return double(value)
    if kind == "bool":
        return yes(value)
    if kind == "i64":
        return "INT64_MIN" if value == -2**63 else str(value)
    return literal(value)


# ---- header --------------------------------------------------------------------------------


def takes_types(op):
    """Result types cannot be inferred when the op is created."""
    return bool(op.outputs) and (bool(op.regions) or "InferShape" not in op.interfaces)


def variadic_output(op):
    return bool(op.outputs) and op.outputs[-1].variadic


def create_parameters(op, with_defaults):
    result = ["Builder& builder"]
    for value in op.inputs:
        result.append(f"{'std::span<const Value>' if value.variadic else 'Value'} {value.accessor}")
    if takes_types(op):
        result.append("std::span<const Type> result_types")
    elif variadic_output(op):
        result.append("size_t num_results")
    if op.attributes:
        result.append("const Attrs& attrs" + (" = {}" if with_defaults else ""))
    return ", ".join(result)


def attrs_struct(op):
    lines = [f"/// Attributes of `{op.full_name}`.", f"struct {camel(op.name)}Attrs {{"]
    for a in op.attributes:
        kind = CPP_TYPES[a.type]
        if a.optional and kind != "Attribute":
            kind = f"std::optional<{kind}>"
        given = a.has_default and kind != "Attribute"
        note = "  ///< required" if not a.optional and not a.has_default else ""
        lines.append(f"  {kind} {a.accessor} = {cpp_value(a.default, a.type) if given else '{}'};{note}")
    return lines + ["};", ""]


def attribute_accessor(a):
    kind = "std::string_view" if a.type == "str" else CPP_TYPES[a.type]
    name = f"k{camel(a.name)}Attr"
    if kind == "Attribute":
        return f"  Attribute {a.accessor}() const {{ return op_->attribute({name}); }}"
    if a.optional:
        return (f"  std::optional<{kind}> {a.accessor}() const "
                f"{{ return detail::OptionalAttrAs<{kind}>(op_, {name}); }}")
    return f"  {kind} {a.accessor}() const {{ return detail::AttrAs<{kind}>(op_, {name}); }}"


def value_accessor(value, i, side):
    if value.variadic:
        return (f"  std::vector<Value> {value.accessor}() const "
                f"{{ return detail::{side}sFrom(op_, {i}); }}")
    return f"  Value {value.accessor}() const {{ return detail::{side}OrNull(op_, {i}); }}"


def constants(op):
    lines = []
    for values in (op.inputs, op.outputs):
        if values:
            entries = ", ".join(f"{v.constant} = {i}" for i, v in enumerate(values))
            lines.append(f"  static constexpr size_t {entries};")
    for a in op.attributes:
        lines.append(f'  static constexpr const char* k{camel(a.name)}Attr = "{a.name}";')
    return lines


def method(op, interface):
    result, parameters, arguments = METHODS[interface]
    declaration = f"  static {result} {interface}({parameters})"
    if not op.twin_of:
        return declaration + ";"
    if interface == "InferShape":
        return f"{declaration} {{ InferInplace(c, &{op.twin_of.class_name}::InferShape); }}"
    return f"{declaration} {{ return {op.twin_of.class_name}::{interface}({arguments}); }}"


def op_class(op):
    bases = ", ".join([op.class_name] + op.traits + [i + "Interface" for i in op.interfaces])
    lines = [f"/// {line}".rstrip() for line in op.summary.splitlines()]
    lines += [f"class {op.class_name} : public Op<{bases}> {{", " public:", "  using Op::Op;",
              f'  static constexpr const char* kName = "{op.full_name}";',
              "  static const OpDef* Def();"]
    lines += constants(op)
    if op.attributes:
        owner = op.twin_of or op
        lines.append(f"  using Attrs = {camel(owner.name)}Attrs;")
    lines.append(f"  static {op.class_name} Create({create_parameters(op, True)});")
    lines += [value_accessor(v, i, "Operand") for i, v in enumerate(op.inputs)]
    lines += [attribute_accessor(a) for a in op.attributes]
    lines += [value_accessor(v, i, "Result") for i, v in enumerate(op.outputs)]
    lines += [f"  Region& {r['name']}_region() const {{ return op_->region({i}); }}"
              for i, r in enumerate(op.regions)]
    lines += [method(op, i) for i in op.interfaces]
    if op.kind == "varies":
        lines.append("  static OpKind Kind(const Operation* op);")
    return lines + ["};", ""]


def banner(family):
    return f"// Generated by tools/opgen from src/dialect/{family.dialect}/{family.name}.yaml."


def header(family):
    used = {name for op in family.ops for name in op.traits + op.interfaces}
    includes = {HEADERS[name] for name in used & set(HEADERS)}
    includes.update(["op_kind.h"] * any(op.kind == "varies" for op in family.ops))
    lines = [banner(family), "#pragma once", "",
             *(f'#include "lathe/dialect/{name}"' for name in [*sorted(includes), "op_support.h"]), "",
             f"namespace lathe::{family.dialect} {{", ""]
    for op in family.ops:
        if op.attributes and not op.twin_of:
            lines += attrs_struct(op)
        lines += op_class(op)
    return "\n".join(lines + [f"}}  // namespace lathe::{family.dialect}", ""])


# ---- source --------------------------------------------------------------------------------


class Tables:
    """The constant tables of one family, whose names begin with its own: sources may be compiled together."""

    def __init__(self, family):
        self.prefix = f"k{camel(family.name)}"
        self.lines = []
        self.sets = {}
        self.rules = 0

    def type_set(self, elements):
        key = tuple(elements)
        if key not in self.sets:
            self.sets[key] = f"{self.prefix}Set{len(self.sets)}"
            names = ", ".join(element(e) for e in elements)
            self.lines.append(f"constexpr ElementType {self.sets[key]}[] = {{{names}}};")
        return self.sets[key]

    def rule(self, rule):
        inner = "nullptr"
        if rule.inner:
            text = self.rule(rule.inner)
            inner = f"&{self.prefix}Rule{self.rules}"
            self.lines.append(f"constexpr TypeRule {self.prefix}Rule{self.rules} = {text};")
            self.rules += 1
        return f"{{TypeRule::Kind::{rule.kind}, {element(rule.element)}, {rule.index}, {inner}}}"

    def array(self, kind, name, rows):
        """Emits a table and returns what initializes the span over it."""
        if not rows:
            return "{}"
        self.lines.append(f"constexpr {kind} {name}[] = {{")
        self.lines += [f"    {row}," for row in rows]
        self.lines.append("};")
        return name

    def values(self, name, values):
        return self.array("ValueDef", name, [
            f'{{"{v.name}", {self.rule(v.rule)}, {yes(v.optional)}, {yes(v.variadic)}, '
            f"{yes(v.heterogeneous)}, {v.min}, {literal(v.doc)}}}" for v in values])

    def attributes(self, name, attributes):
        rows = []
        for i, a in enumerate(attributes):
            one_of = self.array("const char*", f"{name}{i}", [literal(w) for w in a.one_of])
            default = literal(a.default_text) if a.has_default else "nullptr"
            rows.append(f'{{"{a.name}", AttrKind::{ATTR_KINDS[a.type]}, {yes(a.optional)}, {default}, '
                        f"{one_of}, {yes(a.min is not None)}, {a.min or 0}, {literal(a.doc)}}}")
        return self.array("AttrDef", name, rows)

    def op(self, op):
        base = "k" + op.class_name[:-2]
        sets = [f'{{"{name}", {self.type_set(elements)}}}' for name, elements in op.type_sets]
        onnx = (literal(op.onnx[0]), literal(op.onnx[1])) if op.onnx else ("nullptr", '""')
        fields = [
            literal(op.full_name), literal(op.summary), literal(op.description),
            self.array("TypeSetDef", base + "Types", sets),
            self.values(base + "Operands", op.inputs), self.values(base + "Results", op.outputs),
            self.attributes(base + "Attributes", op.attributes),
            self.array("RegionDef", base + "Regions",
                       [f'{{"{r["name"]}", {literal(r.get("doc", ""))}}}' for r in op.regions]),
            *onnx, str(op.since)]
        self.lines += [f"constexpr OpDef {base}Def = {{", *(f"    {f}," for f in fields), "};", ""]


def create(op):
    lines = [f"{op.class_name} {op.class_name}::Create({create_parameters(op, False)}) {{",
             f"  detail::OpMaker make(builder, builder.context().GetOp<{op.class_name}>());"]
    plain = ", ".join(v.accessor for v in op.inputs if not v.variadic)
    if plain:
        lines.append(f"  make.Operands({{{plain}}});")
    lines += [f"  make.Operands({v.accessor});" for v in op.inputs if v.variadic]
    lines += [f"  make.Attribute(k{camel(a.name)}Attr, attrs.{a.accessor});" for a in op.attributes]
    if takes_types(op):
        made = f"make.Typed(result_types, {len(op.regions)})"
    else:
        count = "num_results" if variadic_output(op) else len(op.outputs)
        made = f"make.Inferred({count}, {len(op.regions)})"
    return lines + [f"  return {op.class_name}({made});", "}", ""]


def definitions(op):
    lines = [f"const OpDef* {op.class_name}::Def() {{ return &k{op.class_name[:-2]}Def; }}", ""]
    if op.default_infer:
        rule = "InferSameShape" if "SameOperandsAndResultShape" in op.traits else "InferBroadcastShape"
        lines += [f"void {op.class_name}::InferShape(InferShapeContext& c) {{ {rule}(c); }}", ""]
    return lines + create(op)


def register_op(op):
    whole = sum(1 << i for i, v in enumerate(op.inputs) if v.whole and op.kind != "opaque")
    kind = (f"VaryingOpKind<{op.class_name}, {whole}>" if op.kind == "varies" else
            f"FixedOpKind<OpKind::k{camel(op.kind)}, {whole}>")
    return [f"  context.RegisterOp<{op.class_name}>(dialect);",
            f"  context.GetOp<{op.class_name}>().AttachInterface<OpKindInterface, {kind}>();"]


def register(family):
    return f"void Register{camel(family.name)}Family(Dialect& dialect)"


def source(family):
    tables = Tables(family)
    for op in family.ops:
        tables.op(op)
    lines = [banner(family), f'#include "lathe/dialect/{family.dialect}/{family.name}.h"', "",
             "#include <limits>", "", '#include "lathe/dialect/op_kind.h"',
             '#include "lathe/ir/builder.h"', '#include "lathe/ir/dialect.h"',
             "", f"namespace lathe::{family.dialect} {{", "namespace {", "", *tables.lines,
             "}  // namespace", ""]
    for op in family.ops:
        lines += definitions(op)
    lines += [register(family) + ";", register(family) + " {", "  IrContext& context = dialect.context();"]
    lines += [line for op in family.ops for line in register_op(op)]
    return "\n".join(lines + ["}", "", f"}}  // namespace lathe::{family.dialect}", ""])


def names_header(dialect, families):
    lines = [f"// Generated by tools/opgen: names of the ops of {dialect}, for code that compares or",
             "// creates ops by name and has no use for their classes.", "#pragma once", "",
             f"namespace lathe::{dialect} {{", ""]
    lines += [f'inline constexpr const char* {op.name_constant} = "{op.full_name}";'
              for family in families for op in family.ops]
    return "\n".join(lines + ["", f"}}  // namespace lathe::{dialect}", ""])


def dialect_header(dialect, families):
    lines = [f"// Generated by tools/opgen: all ops of the dialect {dialect}.", "#pragma once", ""]
    lines += [f'#include "lathe/dialect/{dialect}/{family.name}.h"' for family in families]
    return "\n".join(lines + ["", "namespace lathe {", "class Dialect;", "}", "",
                              f"namespace lathe::{dialect} {{", "",
                              "/// Registers every op of the dialect with its context.",
                              f"void Register{camel(dialect)}Ops(Dialect& dialect);", "",
                              f"}}  // namespace lathe::{dialect}", ""])


def dialect_source(dialect, families):
    lines = [f"// Generated by tools/opgen: all ops of the dialect {dialect}.",
             "namespace lathe {", "class Dialect;", "}", "", f"namespace lathe::{dialect} {{", ""]
    lines += [register(family) + ";" for family in families]
    lines += ["", f"void Register{camel(dialect)}Ops(Dialect& dialect);",
              f"void Register{camel(dialect)}Ops(Dialect& dialect) {{"]
    lines += [f"  Register{camel(family.name)}Family(dialect);" for family in families]
    return "\n".join(lines + ["}", "", f"}}  // namespace lathe::{dialect}", ""])
