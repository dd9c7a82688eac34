"""Tests of cmake/unity.py: sources that define the same names are not compiled as one."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "cmake" / "unity.py"
sys.path.insert(0, str(SCRIPT.parent))

import unity  # noqa: E402

SOURCE = """#include <vector>
#define LIMIT 3
namespace fs = std::filesystem;
namespace lathe {
namespace {

using Row = std::vector<int>;
struct Table {
  int Size() const;
};
constexpr int kRows[] = {1, 2};
constexpr size_t kFirst = 0, kSecond = 1,
                 kThird = 2;
enum Role : int {
  kRow,  // of a matrix
  kColumn = 4
};
enum class Kind { kHidden };
template <typename T>
T Sum(const std::vector<T>& values) {
  return T(values.size());
}
std::optional<int> Find(int x) { return x; }
std::string F32(const std::string& shape) { return shape; }
REGISTER_PASS(cse, Cse);

}  // namespace

static int Count() { return LIMIT; }
constexpr double kScale = 2;
int Table::Size() const { return 0; }
void Public() {}
const char* Name(Kind kind) { return nullptr; }

}  // namespace lathe
"""


class Names(unittest.TestCase):
    def test_of_one_source(self):
        self.assertEqual(unity.local_names(SOURCE), {"LIMIT", "Table", "kRows", "Sum", "Find", "F32",
                                                     "Count", "kScale", "kFirst", "kSecond", "kThird",
                                                     "Role", "kRow", "kColumn", "Kind"})


class Groups(unittest.TestCase):
    def grouped(self, limit, **sources):
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: pathlib.Path(folder) / f"{name}.cc" for name in sources}
            for name, text in sources.items():
                paths[name].write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, str(limit), *map(str, paths.values())],
                                  capture_output=True, encoding="utf-8", check=True)
        groups = {path: group for group, path in (line.split(" ", 1) for line in done.stdout.splitlines())}
        self.assertEqual(set(groups), {str(path) for path in paths.values()})
        numbers = {}  # of the groups, in the order of the sources
        return [numbers.setdefault(groups[str(path)], len(numbers)) for path in paths.values()]

    def local(self, code, after=""):
        return (f"namespace lathe {{\nnamespace {{\n{code}\n}}  // namespace\n{after}"
                "}  // namespace lathe\n")

    def test_names_of_one_source_are_not_those_of_another(self):
        find, open_struct = self.local("int Find();"), "namespace lathe {\nstruct Find {"
        self.assertEqual(self.grouped(10000, a=find, b=find, c="int F();"), [0, 1, 0])
        self.assertEqual(self.grouped(10000, a=find, b=open_struct), [0, 1])
        self.assertEqual(self.grouped(10000, a=open_struct, b=find), [0, 1])
        self.assertEqual(self.grouped(10000, a=find, b="int Table::Find() {", c="  x.Find();"), [0, 0, 0])
        self.assertEqual(self.grouped(10000, a=self.local("struct Tensor {"), b='#include "lathe/ir/program.h"'),
                         [0, 1])
        value = self.local("", after="using llvm::Value;\n")
        self.assertEqual(self.grouped(10000, a=value, b=value, c='#include "lathe/ir/value.h"'), [0, 0, 1])

    def test_names_of_headers_matter_where_they_are_used(self):
        header = '#include "lathe/ir/value.h"\n'  # has lathe::Value
        layer = "namespace lathe::lower {\nnamespace {\nstruct Value {\n}  // namespace\n"
        other = "namespace lathe::lower {\n  int F();\n"
        self.assertEqual(self.grouped(10000, a=layer, b=header + other), [0, 0])
        self.assertEqual(self.grouped(10000, a=layer, b=header + other + "Value v;\n"), [0, 1])
        self.assertEqual(self.grouped(10000, a=layer, b=header + other + "lathe::Value v;\n"), [0, 0])
        self.assertEqual(self.grouped(10000, a=self.local("struct Value {"), b=header), [0, 1])

    def test_aliases_may_be_equal(self):
        json = self.local("", after="using Json = nlohmann::json;\n")
        ordered = self.local("", after="using Json = nlohmann::ordered_json;\n")
        self.assertEqual(self.grouped(10000, a=json, b=json, c=ordered), [0, 0, 1])

    def test_sources_with_most_conflicts_come_first(self):
        sources = {name: self.local(f"int Of{name}();\nint With{name}();") for name in "abc"}
        all_names = self.local("int Ofa();\nint Ofb();\nint Ofc();")
        self.assertEqual(self.grouped(10000, **sources, d=all_names), [0, 0, 0, 1])

    def test_a_group_is_bounded(self):
        self.assertEqual(self.grouped(30, a="int a;" * 3, b="int b;" * 3, c="int c;"), [0, 1, 0])


if __name__ == "__main__":
    unittest.main()
