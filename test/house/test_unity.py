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
REGISTER_PASS(cse, Cse);

}  // namespace

static int Count() { return LIMIT; }
constexpr double kScale = 2;
int Table::Size() const { return 0; }
void Public() {}

}  // namespace lathe
"""


class Names(unittest.TestCase):
    def test_of_one_source(self):
        self.assertEqual(unity.local_names(SOURCE), {"LIMIT", "fs", "Row", "Table", "kRows", "Sum", "Find",
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
        lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
        self.assertEqual([path for _, path in lines], [str(path) for path in paths.values()])
        return [int(group) for group, _ in lines]

    def local(self, code):
        return f"namespace {{\n{code}\n}}  // namespace\n"

    def test_names_of_one_source_are_not_those_of_another(self):
        find = self.local("int Find();")
        self.assertEqual(self.grouped(10000, a=find, b=find, c="int F();"), [0, 1, 0])
        self.assertEqual(self.grouped(10000, a=find, b="struct Find {"), [0, 1])
        self.assertEqual(self.grouped(10000, a="struct Find {", b=find), [0, 1])
        self.assertEqual(self.grouped(10000, a=find, b="int Table::Find() {", c="  x.Find();"), [0, 0, 0])
        self.assertEqual(self.grouped(10000, a=self.local("struct Tensor {"), b='#include "lathe/ir/program.h"'),
                         [0, 1])
        value = "using llvm::Value;\n"
        self.assertEqual(self.grouped(10000, a=value, b=value, c='#include "lathe/ir/value.h"'), [0, 0, 1])

    def test_a_group_is_bounded(self):
        self.assertEqual(self.grouped(30, a="int a;" * 3, b="int b;" * 3, c="int c;"), [0, 1, 0])


if __name__ == "__main__":
    unittest.main()
