"""Tests of the scripts that guard the house: a violation must be found."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "test" / "transcripts")]

import check_layers  # noqa: E402
import check_size  # noqa: E402
import check_words  # noqa: E402
import run as transcripts  # noqa: E402
import run_tests  # noqa: E402


class Resumed(unittest.TestCase):
    def test_what_has_passed_on_this_tree(self):
        with tempfile.TemporaryDirectory() as folder:
            suite = types.SimpleNamespace(build=pathlib.Path(folder))
            (suite.build / "logs").mkdir()
            passed = run_tests.Passed(suite)
            passed.add("unit", run_tests.Result(3, 0))
            passed.add("golden", run_tests.Result(3, 1))
            self.assertEqual(run_tests.Passed(suite).steps, {"unit": 3})
            known = json.loads(passed.file.read_text())
            passed.file.write_text(json.dumps({**known, "tree": "another"}))
            self.assertEqual(run_tests.Passed(suite).steps, {})

    def test_every_step_exists(self):
        for name in {*run_tests.QUICK, *sum(run_tests.STEPS.values(), [])}:
            self.assertTrue(callable(getattr(run_tests.Suite, name)), name)
        self.assertLess(set(run_tests.QUICK), set(run_tests.STEPS["release"]))


class Words(unittest.TestCase):
    def found(self, text, accepted=""):
        """What is unknown, and what is listed in vain, in a tree that holds one file."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "scripts").mkdir()
            (root / "scripts/words.txt").write_text(accepted)
            (root / "a.cc").write_text(text)
            places = check_words.places_of(root, ["a.cc"])
            unknown, unused = check_words.compare(places, check_words.listed(root))
            return unknown, unused, dict(places)

    def test_names_are_taken_apart(self):
        unknown, unused, _ = self.found("void Walvectors_(int same_shepe); // FP16Kernel, 0xdeadbeef\n")
        self.assertEqual((unknown, unused), (["shepe", "walvectors"], []))

    def test_british_spelling(self):
        spelled = ["col" + "our", "fav" + "our"]  # which would be found here, too
        self.assertEqual(self.found(f"// {' '.join(spelled)}\n")[0], spelled)

    def test_places(self):
        self.assertEqual(self.found("int a;\nint shepe;\n")[2]["shepe"], ["a.cc:2"])

    def test_listed(self):
        self.assertEqual(self.found("int numpy;\n", "numpy # of Python\n")[:2], ([], []))
        self.assertEqual(self.found("int numpy;\n", "numpy scipy\n")[:2], ([], ["scipy"]))

    def test_links_are_not_read(self):
        self.assertEqual(self.found("// https://example.org/qwrtz?zzzz=yyyy\n")[0], [])


class Layers(unittest.TestCase):
    def violations(self, path, include):
        """Violations of a tree that holds one file with one include."""
        return self.violations_of_line(path, f"#include {include}\n")

    def violations_of_line(self, path, line):
        """Violations of a tree that declares nn.conv and holds one file of one line."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/architecture.md").write_text((ROOT / "docs/architecture.md").read_text())
            (root / "src/dialect/nn").mkdir(parents=True)
            (root / "src/dialect/nn/conv.yaml").write_text("dialect: nn\nops:\n- op: conv\n")
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(line)
            return check_layers.check(root)

    def test_allowed(self):
        for path, include in [
                ("src/ir/a.cc", '"lathe/ir/b.h"'), ("src/ir/a.cc", '"src/ir/b.h"'),
                ("src/ir/a.cc", '"lathe/support/b.h"'), ("src/ir/a.cc", "<vector>"),
                ("src/codegen/a.cc", '"llvm/IR/Module.h"'),
                ("src/codegen/a.cc", '"lathe/dialect/loop/loop_ops.h"'),
                ("src/codegen/a.cc", '"lathe/dialect/nn/op_names.h"'),
                ("src/driver/a.cc", '"lathe/lathe.h"'),
                ("tools/lathe/a.cc", '"lathe/driver/b.h"'), ("tools/lathe/a.cc", '"tools/lathe/b.h"')]:
            self.assertEqual(self.violations(path, include), [], (path, include))

    def test_refused(self):
        for path, include, reason in [
                ("src/support/a.cc", '"lathe/ir/b.h"', "support may not include ir"),
                ("include/lathe/ir/a.h", '"lathe/pass/b.h"', "ir may not include pass"),
                ("src/runtime/a.cc", '"lathe/ir/b.h"', "runtime may not include ir"),
                ("src/lower/a.cc", "<llvm/IR/Module.h>", "lower may not include llvm"),
                ("src/codegen/a.cc", '"lathe/dialect/nn/nn_ops.h"', "codegen may not include dialect"),
                ("src/ir/a.cc", '"b.h"', "from the root"),
                ("include/lathe/ir/a.h", '"src/ir/b.h"', "private header"),
                ("tools/lathe/a.cc", '"src/ir/b.h"', "private header"),
                ("src/ir/a.cc", '"lathe/lathe.h"', "ir may not include driver"),
                ("src/stray/a.cc", "<vector>", "belongs to no layer")]:
            found = self.violations(path, include)
            self.assertEqual(len(found), 1, (path, include))
            self.assertIn(reason, found[0])


    def test_names_of_ops(self):
        for line in ('Call("nn.conv", {x});', 'return name == "nn.conv_";'):
            found = self.violations_of_line("src/transform/a.cc", line)
            self.assertEqual(len(found), 1, line)
            self.assertIn("lathe/dialect/nn/op_names.h", found[0])
        for line in ('f();  // such as "nn.conv"', 'Fail("nn.conv_like");', "Call(nn::kConv, {x});"):
            self.assertEqual(self.violations_of_line("src/transform/a.cc", line), [], line)

    def test_guards(self):
        for text, found in [("#pragma once\n", 0), ("// Why.\n#pragma once\n", 0), ("", 1),
                            ("#ifndef A_H_\n#define A_H_\n#endif\n", 1)]:
            with tempfile.TemporaryDirectory() as folder:
                header = pathlib.Path(folder) / "src/ir/a.h"
                header.parent.mkdir(parents=True)
                header.write_text(text)
                self.assertEqual(len(check_layers.check_guards(pathlib.Path(folder))), found, text)


class Size(unittest.TestCase):
    def test_binaries_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run(["git", "init", "-q", folder], check=True)
            for name in ("a.kernel", "examples/a.png", "ignored/a.kernel"):
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_bytes(b"code\0")
            (root / "a.txt").write_text("text")
            (root / ".gitignore").write_text("/ignored/\n")
            self.assertEqual(check_size.binaries(root), ["a.kernel: a binary file"])

    def test_functions_are_measured(self):
        text = "namespace a {\nclass B {\n  int f() const {\n    if (x) { y(); }\n  }\n};\n" \
               "int g(\n    int a) {\n  auto h = [](char c) { return c == '}'; };\n}\n}\n"
        self.assertEqual(check_size.functions(text), [(3, 3), (7, 4)])

    def test_long_function_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "src" / "a.cc"
            source.parent.mkdir()
            source.write_text("void f() {\n" + "  g();\n" * 99 + "}\n")
            self.assertIn("function of 101 lines", check_size.check(pathlib.Path(folder))[0][0])
            source.write_text("int a;\n" * 1001)
            self.assertIn("1001 lines", check_size.check(pathlib.Path(folder))[0][0])


class Transcripts(unittest.TestCase):
    def test_parse(self):
        lines = ["```console", "$ a \\", "  b", "out", "[exit 1]", "$ c", "```", "$ no"]
        steps = transcripts.parse(lines)
        self.assertEqual([step.command for step in steps], ["a \\\n  b", "c"])
        self.assertEqual(transcripts.split_expected(lines[steps[0].first:steps[0].last]), (["out"], 1))

    def test_blocks_for_a_library(self):
        lines = ["```console if liba.so", "$ a", "```", "```console if libb.so", "$ b", "```"]
        steps = transcripts.parse(lines, lambda library: library == "liba.so")
        self.assertEqual([step.command for step in steps], ["a"])

    def test_written_documents(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            command = [sys.executable, ROOT / "test/transcripts/run.py", page]
            page.write_text("<!-- written by: echo new -->\nold\n")
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 3)
            self.assertIn("--bless", done.stdout)
            self.assertEqual(subprocess.run([*command, "--bless"], capture_output=True).returncode, 0)
            self.assertEqual(page.read_text(), "<!-- written by: echo new -->\nnew\n")
            self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
            page.write_text("<!-- written by: false -->\n")
            self.assertEqual(subprocess.run([*command, "--bless"], capture_output=True).returncode, 3)

    def test_pages_that_commands_write_say_so(self):
        for page in ("passes.md", "ops.md"):
            first = (ROOT / "docs" / page).open().readline()
            self.assertTrue(transcripts.WRITTEN.match(first), page)

    def test_matching(self):
        self.assertTrue(transcripts.matches(["a {...} c", "...", "z"], ["a bb c", "x", "y", "z"]))
        self.assertTrue(transcripts.matches(["...", "z"], ["z"]))
        self.assertFalse(transcripts.matches(["a"], ["b"]))
        self.assertFalse(transcripts.matches(["a"], ["a", "b"]))
        self.assertFalse(transcripts.matches(["a{...}c"], ["ab", "c"]))
        self.assertTrue(transcripts.matches(["a {~1.2} c{...}", "{~x}"], ["a 3.4 cd", "y"]))
        self.assertFalse(transcripts.matches(["a {~1.2} c"], ["a 3.4 d"]))


class Installer(unittest.TestCase):
    def install(self, *arguments, path=os.environ["PATH"], **env):
        """(exit code, stderr) of the installer."""
        done = subprocess.run(["/bin/bash", ROOT / "scripts/install.sh", *arguments],
                              env={"PATH": path, **env}, capture_output=True, text=True)
        return done.returncode, done.stderr

    def test_unknown_purpose_is_a_usage_error(self):
        code, text = self.install("everything", LATHE_INSTALL="skip")
        self.assertEqual(code, 2)
        self.assertIn("demo|test|lint|bench", text)

    def test_other_systems_get_the_list_of_packages(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "dirname").symlink_to(shutil.which("dirname"))
            code, text = self.install("demo", path=folder)
        self.assertEqual(code, 1)
        self.assertIn("libfmt-dev", text)
        self.assertIn("LATHE_INSTALL=skip", text)


if __name__ == "__main__":
    unittest.main()
