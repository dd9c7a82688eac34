"""Tests of the op generator: what is wrong is named, with its place and what is allowed."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPGEN = ROOT / "tools" / "opgen"
sys.path.insert(0, str(OPGEN))

import emit_docs  # noqa: E402
import model  # noqa: E402
import opgen  # noqa: E402

GOOD = """dialect: nn
types: {small: [u8, i8]}
ops:
- op: conv
  onnx: Conv
  since: 22
  summary: A convolution.
  types: {T: float + small}
  inputs:
  - {name: x, type: T}
  - {name: b, type: T, optional: true}
  attributes:
  - {name: group, type: i64, default: 1, min: 1}
  - {name: mode, type: str, default: A, one_of: [A, B]}
  - {name: eps, type: f32, default: 1e-5}
  - {name: to, type: type, required: true}
  outputs: [{name: y, type: attr(to)}]
  interfaces: [InferShape, Eval]
- op: relu
  summary: Positive part.
  types: {T: numeric}
  inputs: [{name: x, type: T}]
  outputs: [{name: y, type: T}]
  traits: [HasValueSemantics, Elementwise]
  interfaces: [Eval, Fold]
  inplace: {input: x, output: y}
"""


class Opgen(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def load(self, text, name="conv.yaml"):
        path = self.folder / name
        path.write_text(text)
        return model.load(OPGEN / "op.schema.json", [path])

    def refused(self, old, new):
        """The messages after a change of the good file."""
        self.assertIn(old, GOOD)
        with self.assertRaises(model.Problems) as caught:
            self.load(GOOD.replace(old, new, 1))
        return str(caught.exception)

    def test_good(self):
        conv, relu, twin = self.load(GOOD)[0].ops
        self.assertEqual(conv.type_sets, [("T", ["f16", "bf16", "f32", "f64", "u8", "i8"])])
        self.assertEqual(conv.attributes[2].default_text, "1e-05")
        self.assertEqual(conv.attributes[1].default_text, '"A"')
        self.assertTrue(relu.default_infer)
        self.assertEqual((twin.name, twin.class_name), ("relu_", "ReluInplaceOp"))
        self.assertEqual(twin.traits, ["Inplace", "Elementwise"])
        self.assertEqual(twin.interfaces, ["InferShape", "Eval"])

    def test_kind(self):
        text = GOOD.replace("  summary: Positive", "  kind: elementwise\n  summary: Positive")
        conv, relu, twin = self.load(text)[0].ops
        self.assertEqual((conv.kind, relu.kind, twin.kind), ("opaque", "elementwise", "opaque"))

    def test_refused(self):
        for old, new, message in [
                ("summary: A", "sumary: A", "conv.yaml:4: ops[conv]: 'sumary' is not a field"),
                ("summary: A", "sumary: A", "did you mean 'summary'?"),
                ("  summary: A convolution.\n", "", "conv.yaml:4: ops[conv]: 'summary' is missing"),
                ("op: conv", "op: Conv2D", "'Conv2D' does not have the form"),
                ("  summary: A", "  kind: elementwis\n  summary: A",
                 "'elementwis' is not allowed; allowed: 'elementwise', 'broadcast'"),
                ("{name: x, type: T}", "{name: x, type: T, whole: true}",
                 "op 'conv': inputs[x]: 'whole' says nothing of an opaque op"),
                ("type: attr(to)", "type: attr(to), whole: true", "'whole' is for inputs only"),
                ("type: i64", "type: int", "ops[conv].attributes[group].type: 'int' is not allowed; "
                 "allowed: 'bool', 'i64'"),
                ("{name: x, type: T}", "{name: x, type: TT}",
                 "op 'conv': inputs[x]: type 'TT' is unknown; allowed: a type variable of the op ('T')"),
                ("{name: x, type: T}", "{name: x, type: T, variadic: true}",
                 "inputs[x]: only the last one may be variadic"),
                ("{name: x, type: T}", "{name: x, type: T, min: 1}", "for variadic ones only"),
                ("{name: x, type: T}", "{name: name, type: T}", "'name' is taken by the op class"),
                ("name: y", "name: x", "'x' names an output and an input"),
                ("float + small", "float + smal", "'smal' is not a type set or element type"),
                ("T: float + small", "U: i32, T: float + small", "type variable 'U' is not used"),
                ("type: i64, default: 1", "type: i64", "say exactly one of 'required: true'"),
                ("default: 1,", "default: one,", "attributes[group]: default 'one' is not of type i64"),
                ("default: A", "default: C", "default 'C' is not one of 'A', 'B'"),
                ("default: 1e-5", "default: tiny", "attributes[eps]: default 'tiny' is not a number"),
                ("attr(to)", "attr(too)", "outputs[y]: 'too' is not an attribute of the op; attributes: "
                 "'group', 'mode', 'eps', 'to'"),
                ("  since: 22\n", "", "'since' is missing beside 'onnx'"),
                ("[InferShape, Eval]", "[InferShap]", "did you mean 'InferShape'?"),
                ("{input: x,", "{input: z,", "inplace: 'z' must be the first input"),
                ("outputs: [{name: y, type: T}]", "outputs: [{name: y, type: custom}]",
                 "list InferShape among 'interfaces'"),
                ("- op: relu", "- op: conv", "op 'nn.conv' is also in"),
                ("since: 22", "since: 22\n  since: 23", "conv.yaml:7: 'since' is given twice"),
                ("inputs: [{", "inputs: [", "conv.yaml:")]:
            with self.subTest(new=new):
                self.assertIn(message, self.refused(old, new))

    def test_all_faults_at_once(self):
        text = GOOD.replace("type: attr(to)", "type: attr(too)").replace("{input: x,", "{input: z,")
        with self.assertRaises(model.Problems) as caught:
            self.load(text)
        self.assertEqual(len(caught.exception.lines), 2)

    def test_unchanged_files_stay(self):
        path, out = self.folder / "conv.yaml", self.folder / "gen"
        path.write_text(GOOD)
        arguments = ["--out", str(out), str(path)]
        self.assertEqual(opgen.main(arguments), 0)
        before = {f: f.stat().st_mtime_ns for f in out.rglob("*.*")}
        self.assertEqual(len(before), 6)
        self.assertEqual(opgen.main(arguments), 0)
        self.assertEqual(before, {f: f.stat().st_mtime_ns for f in out.rglob("*.*")})

    def test_names_are_constants(self):
        path, out = self.folder / "conv.yaml", self.folder / "gen"
        path.write_text(GOOD)
        self.assertEqual(opgen.main(["--out", str(out), str(path)]), 0)
        self.assertIn('inline constexpr const char* kConv = "nn.conv";',
                      (out / "lathe/dialect/nn/op_names.h").read_text())

    def test_pages_name_every_op(self):
        files = sorted((ROOT / "src" / "dialect").rglob("*.yaml"))
        families = model.load(OPGEN / "op.schema.json", files)
        pages = "".join(emit_docs.pages(families).values())
        for family in families:
            for op in family.ops:
                self.assertIn(f"## `{op.full_name}`", pages)


if __name__ == "__main__":
    unittest.main()
