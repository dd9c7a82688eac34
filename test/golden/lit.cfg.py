"""Golden tests: `lit test/golden --param build=build-dev` (default: build)."""

import ctypes
import importlib.util
import os
import re
import shutil
import sys

import lit.formats

root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
build = os.path.join(root, lit_config.params.get("build", "build"))
llvm = lit_config.params.get("llvm", "/usr/lib/llvm-19/bin")

if not os.path.exists(os.path.join(llvm, "FileCheck")):
    lit_config.fatal("FileCheck is not in " + llvm + "; run scripts/install.sh test")
if not os.path.exists(os.path.join(build, "bin", "lathe")):
    lit_config.fatal("no command at " + build + "/bin/lathe; build it first")

def has_landlock():
    """Whether the system can say which files a process may open."""
    create_ruleset, ask_version = 444, 1
    return ctypes.CDLL(None).syscall(create_ruleset, None, 0, ask_version) >= 1


def is_sanitized():
    with open(os.path.join(build, "CMakeCache.txt")) as cache:
        return re.search(r"^LATHE_SANITIZE:\w+=.", cache.read(), re.MULTILINE) is not None


config.name = "golden"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".lathe", ".test"]
config.excludes = ["inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(build, "golden")

# Tools are found by PATH: a textual substitution of `lathe` would also rewrite file names.
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(build, "bin"), llvm, os.environ.get("PATH", "")])
config.environment["NO_COLOR"] = "1"
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# A test that names one of these in REQUIRES is shown as unsupported where it is not installed.
if shutil.which("chromium"):
    config.available_features.add("chromium")
if os.path.exists(os.path.join(build, "lib", "liblathe_onednn.so")):
    config.available_features.add("onednn")
if has_landlock() and not is_sanitized():  # sanitizers do what sandboxes forbid
    config.available_features.add("sandbox")
for package in ("onnx", "onnxruntime"):
    if importlib.util.find_spec(package):
        config.available_features.add(package)

config.substitutions += [
    ("%{examples}", os.path.join(root, "examples")),
    ("%{root}", root),
    ("%{build}", build),
    ("%{plugins}", os.path.join(build, "lib")),
    ("%python", sys.executable),
]
