"""Reference pages of op declarations: one Markdown file per dialect."""


def escape(text):
    return text.replace("|", "\\|").replace("\n", " ")


def value_row(value):
    notes = [word for word, on in (("optional", value.optional), ("variadic", value.variadic),
                               ("whole", value.whole)) if on]
    if value.variadic:
        notes.append(f"at least {value.min}")
    return f"| `{value.name}` | `{value.text}` | {', '.join(notes)} | {escape(value.doc)} |"


def attribute_row(a):
    given = f"default `{a.default_text}`" if a.has_default else "optional" if a.optional else "required"
    limits = ", ".join(f"`{w}`" for w in a.one_of)
    if a.min is not None:
        limits = f"at least {a.min}"
    return f"| `{a.name}` | `{a.type}` | {given} | {escape(' '.join(filter(None, [limits, a.doc])))} |"


def table(title, rows):
    return [f"| {title} | type | | |", "|---|---|---|---|", *rows, ""] if rows else []


def section(op):
    lines = [f"## `{op.full_name}`", "", op.summary, ""]
    if op.description:
        lines += [op.description, ""]
    lines += table("input", [value_row(v) for v in op.inputs])
    lines += table("attribute", [attribute_row(a) for a in op.attributes])
    lines += table("output", [value_row(v) for v in op.outputs])
    for name, elements in op.type_sets:
        lines += [f"`{name}`: {', '.join(elements)}", ""]
    if op.regions:
        lines += ["Regions: " + ", ".join(f"`{r['name']}`" for r in op.regions), ""]
    if op.traits:
        lines += ["Traits: " + ", ".join(op.traits), ""]
    if not op.twin_of:
        lines += [f"Kind: {op.kind}", ""]
    if op.onnx:
        domain = f" of domain {op.onnx[1]}" if op.onnx[1] else ""
        lines += [f"ONNX: {op.onnx[0]}{domain}, as of opset {op.since}", ""]
    return lines


def pages(families):
    """{file name: text}."""
    dialects = {}
    for family in families:
        dialects.setdefault(family.dialect, []).extend(family.ops)
    return {f"{dialect}.md": "\n".join([f"# Dialect `{dialect}`", ""] +
                                       [line for op in sorted(ops, key=lambda o: o.name)
                                        for line in section(op)])
            for dialect, ops in sorted(dialects.items())}
