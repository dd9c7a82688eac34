#!/usr/bin/env python3
"""Builds and runs every test, and prints `N passed, N failed` last.

Each step prints one line; its full output is in <build>/logs/<step>.log and is shown when it fails.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHOWN_LINES = 60
CASES = "build/onnx-cases"
MODELS = "build/small-models"
GRAPHS = 500  # random ones that are compiled and compared
# The official cases that are refused: pictures that are not PNG, JPEG or BMP.
REFUSED_CASES = {f"test_image_decoder_decode_{kind}_rgb" for kind in ("jpeg2k", "pnm", "tiff", "webp")}
# What runs on Lathe alone: onnxruntime, beside which other tests of the package run, reads beyond blocks.
SANITIZED_TESTS = [f"python/tests/test_{name}.py" for name in (
    "build", "compilers", "extend", "model", "onnxruntime_own", "reduce", "run", "symbol", "threads",
    "tools", "train")]
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed", re.MULTILINE)


@dataclasses.dataclass
class Result:
    passed: int
    failed: int
    log: str = ""


def show_progress(line=""):
    """Shows a line right of the name of the running step, on a terminal; nothing clears it."""
    if sys.stdout.isatty():
        print(f"\033[20G\033[K{line.strip()[:80]}" if line else "\033[20G\033[K", end="", flush=True)


class Suite:
    """Where things are, and the steps; a step is a method that returns a Result."""

    def __init__(self, options):
        self.preset = options.preset
        self.sanitized = self.preset in ("asan", "tsan")
        self.jobs = str(options.jobs)
        self.fuzz_seconds = options.fuzz_seconds
        self.build = ROOT / ("build" if self.preset == "release" else f"build-{self.preset}")
        self.fuzz_build = ROOT / "build-fuzz"
        (self.build / "logs").mkdir(parents=True, exist_ok=True)  # steps write reports there
        self.env = dict(os.environ, NO_COLOR="1", LC_ALL="C.UTF-8")
        # Objects of one build folder are those of another: the wheel is made of what the tests use.
        self.env.setdefault("CCACHE_BASEDIR", str(ROOT))
        self.env.setdefault("CCACHE_NOHASHDIR", "1")
        for tool in ("asan", "ubsan", "tsan", "lsan"):
            self.set_sanitizer_options(tool)

    def set_sanitizer_options(self, tool):
        suppressions = ROOT / "test" / "sanitizers" / f"{tool}.supp"
        values = ["halt_on_error=1"] + (["print_stacktrace=1"] if tool == "ubsan" else [])
        values += ["die_after_fork=0"] if tool == "tsan" else []  # children start threads, too
        if suppressions.exists():
            values.append(f"suppressions={suppressions}")
        self.env[f"{tool.upper()}_OPTIONS"] = ":".join(values)

    def execute(self, *command):
        """(exit code, stdout and stderr) of a command run in the root."""
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env=self.env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
        lines = []
        for line in process.stdout:
            lines.append(line)
            show_progress(line)
        return process.wait(), "".join(lines)

    def check(self, *command):
        """A command that holds or not: one test."""
        code, text = self.execute(*command)
        return Result(int(code == 0), int(code != 0), text)

    def counted(self, *command):
        """A command that prints `N passed, N failed`."""
        code, text = self.execute(*command)
        found = COUNTS.findall(text)
        passed, failed = (int(n) for n in found[-1]) if found else (0, 0)
        return Result(passed, max(failed, int(code != 0)), text)

    @staticmethod
    def junit(report, code, text):
        """The counts in a report of ctest or pytest on a command that ended with `code`."""
        root = next(ElementTree.parse(report).iter("testsuite"))
        total, *others = (int(root.get(key, 0)) for key in ("tests", "failures", "errors", "skipped",
                                                            "disabled"))
        failed = others[0] + others[1]
        return Result(total - sum(others), max(failed, int(code != 0)), text)

    def compile(self, preset, folder, tests="ON"):
        """A new folder is built several sources at once, but for that of `dev`; one that there is stays
        as it is."""
        unity = preset != "dev" and not (folder / "CMakeCache.txt").exists()
        code, text = self.execute("cmake", "--log-level=WARNING", "--preset", preset,
                                  f"-DLATHE_TESTS={tests}", *(["-DLATHE_UNITY=ON"] if unity else []))
        if code == 0:
            code, more = self.execute("cmake", "--build", folder, "-j", self.jobs)
            text += more
        return Result(int(code == 0), int(code != 0), text)

    # Steps, in the order in which they run.

    def layers(self):
        return self.check(sys.executable, "scripts/check_layers.py")

    def size(self):
        return self.check(sys.executable, "scripts/check_size.py")

    def words(self):
        return self.check(sys.executable, "scripts/check_words.py")

    def format(self):
        return self.check("scripts/format.sh", "--check")

    def scripts(self):
        code, text = self.execute(sys.executable, "-m", "unittest", "discover", "-s", "test/house")
        ran = int(re.search(r"Ran (\d+) test", text)[1])
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", text))
        return Result(ran - bad, max(bad, int(code != 0)), text)

    def compiled(self):
        return self.compile(self.preset, self.build)

    def unit(self):
        """On the plainest target and the one with most instructions."""
        return self.unit_tests("unit", "outer", "--exclude-regex", LONG_UNIT_TESTS)

    def unit_inner(self):
        """On the targets between those."""
        return self.unit_tests("unit_inner", "inner", "--exclude-regex", LONG_UNIT_TESTS,
                               "--label-regex", "^on_targets$")

    def unit_long(self):
        return self.unit_tests("unit_long", "all", "--tests-regex", LONG_UNIT_TESTS)

    def unit_tests(self, name, targets, *select):
        report = self.build / "logs" / f"{name}.xml"
        report.unlink(missing_ok=True)
        # gcc 12's thread sanitizer cannot map its shadow where addresses are randomized by 32 bits.
        prefix = ["setarch", "-R"] if self.preset == "tsan" else []
        code, text = self.execute("env", f"LATHE_TEST_TARGETS={targets}", *prefix, "ctest",
                                  "--test-dir", self.build, "-j", self.jobs, *select,
                                  "--output-on-failure", "--no-tests=error", "--output-junit", report)
        if not report.exists():
            return Result(0, 1, text)
        return self.junit(report, code, text)

    def golden(self):
        report = self.build / "logs" / "golden.json"
        report.unlink(missing_ok=True)
        code, text = self.execute(
            sys.executable, "-c", "from lit.main import main; main()", "-v", "-j", self.jobs,
            "--param", f"build={self.build.relative_to(ROOT)}", "--output", report, "test/golden")
        if not report.exists():
            return Result(0, 1, text)
        codes = [test["code"] for test in json.loads(report.read_text())["tests"]]
        bad = sum(code in ("FAIL", "XPASS", "UNRESOLVED", "TIMEOUT") for code in codes)
        good = sum(code in ("PASS", "XFAIL") for code in codes)
        return Result(good, max(bad, int(code != 0)), text)

    def transcripts(self):
        return self.counted(sys.executable, "test/transcripts/run.py", "--build",
                            self.build.relative_to(ROOT))

    def ranks(self):
        """Training on several processes."""
        return self.counted(sys.executable, "test/ranks/run.py", "--build",
                            self.build.relative_to(ROOT))

    def python(self):
        """The Python package, as it lies in the build folder."""
        return self.pytest("python", ["python/tests"])

    def pytest(self, folder, tests, *environment):
        """Tests with the package in a folder of the build."""
        report = self.build / "logs" / f"{folder}.xml"
        report.unlink(missing_ok=True)
        code, text = self.execute("env", f"PYTHONPATH={self.build / folder}", *environment,
                                  sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                                  f"--junit-xml={report}", *tests)
        if not report.exists():
            return Result(0, 1, text)
        return self.junit(report, code, text)

    def python_sanitized(self):
        """The module of the Python package under the address sanitizer, and what has to do with threads
        under that of threads."""
        results = [
            self.sanitized_module("address", "asan", "detect_leaks=0:quarantine_size_mb=16"),
            self.sanitized_module("thread", "tsan", "ignore_noninstrumented_modules=1", "-k",
                                  "thread or async or interrupt or cancel")]
        return Result(sum(r.passed for r in results), sum(r.failed for r in results),
                      "\n".join(r.log for r in results))

    def sanitized_module(self, sanitizer, library, options, *selected):
        """An interpreter without sanitizers loads theirs first, and leaves small objects to the
        system's allocator, so that each is watched."""
        built = self.check("cmake", "--build", self.build, "-j", self.jobs, "--target",
                           f"lathe_python_{sanitizer}")
        if built.failed:
            return built
        libraries = [self.execute("c++", f"-print-file-name=lib{name}.so")[1].strip()
                     for name in (library, "stdc++")]
        variable = f"{library.upper()}_OPTIONS"
        # Where addresses are randomized by 32 bits, gcc 12's thread sanitizer has no place.
        result = self.pytest(f"python_{sanitizer}", ["--capture=sys", *selected, *SANITIZED_TESTS],
                             f"LD_PRELOAD={' '.join(libraries)}", "PYTHONMALLOC=malloc",
                             f"{variable}={self.env[variable]}:{options}", "setarch", "-R")
        result.log = built.log + result.log
        return result

    def package(self):
        """What others see of an installation."""
        return self.counted(sys.executable, "test/package/run.py", "--build",
                            self.build.relative_to(ROOT), "--jobs", self.jobs)

    def wheel(self):
        """The Python packages as wheels, tried in environments of their own."""
        return self.check("scripts/wheel.sh", self.build / "wheels")

    def demo(self):
        """`make demo` from nothing, in a folder of its own: sources are compiled several at once, and
        what `scripts/install.sh demo` does not install is not there."""
        folder = ROOT / "build-demo"
        code, text = self.execute("cmake", "--log-level=WARNING", "--preset", "release", "-B", folder,
                                  "-DLATHE_TESTS=OFF", "-DLATHE_PYTHON_PACKAGE=OFF",
                                  "-DLATHE_UNITY=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON",
                                  "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON")
        for command in (["cmake", "--build", folder, "-j", self.jobs, "--target", "lathe_command",
                         "lathe_functions_library"],
                        ["env", f"LATHE={folder}/bin/lathe", "examples/digits/demo.sh"]):
            if code == 0:
                code, more = self.execute(*command)
                text += more
        return Result(int(code == 0), int(code != 0), text)

    def conformance(self):
        """The official ONNX cases; a refusal with a reason is neither a pass nor a failure."""
        code, text = self.execute(sys.executable, "scripts/onnx_cases.py", CASES)
        if code != 0:
            return Result(0, 1, text)
        limit = ["--time-limit=600"] if self.sanitized else []
        report = self.build / "logs" / "conformance.json"
        report.unlink(missing_ok=True)
        result = self.counted(self.build / "bin" / "lathe", "conformance", "--every-way", "--strict",
                              "--json", report, *limit, CASES)
        if not report.exists():
            return result
        cases = json.loads(report.read_text())["cases"]
        refused = {case["name"] for case in cases if case["outcome"] == "refused"}
        if refused != REFUSED_CASES:
            result.failed += 1
            result.log += f"\nrefused, or no longer: {sorted(refused ^ REFUSED_CASES)}"
        return result

    def models(self):
        """Small variants of the yardstick models, against the outputs of onnxruntime."""
        code, text = self.execute(sys.executable, "bench/models/make_small.py", MODELS)
        if code != 0:
            return Result(0, 1, text)
        return self.counted(self.build / "bin" / "lathe", "conformance", "--every-way", "--strict",
                            MODELS)

    def runs_here(self, tier):
        return "codegen/host" not in self.execute(
            self.build / "bin" / "lathe", "check", "examples/digits/digits.onnx", "--target", tier)[1]

    def accesses(self):
        """No kernel accesses memory outside of its arguments: code that checks each access. The models
        on each tier, the official cases on the one between the others, random graphs on one each."""
        command = [self.build / "bin" / "lathe", "conformance", "--check-accesses"]
        tiers = [tier for tier in ("x86-64", "avx2", "avx512") if self.runs_here(tier)]
        results = [self.counted(*command, "--target", tier, MODELS) for tier in tiers]
        results.append(self.counted(*command, "--target", tiers[-2:][0], "--time-limit=300", CASES))
        extent = [f"--seeds=1..{4 * GRAPHS}", "--rotate", "--seconds=60"]
        if self.sanitized:
            extent += ["--no-shrink", "--memory-mb=0", "--seconds=300"]
        results.append(self.counted(self.build / "bin" / "differential", f"--jobs={self.jobs}",
                                    "--check-accesses", *extent))
        return Result(sum(r.passed for r in results), sum(r.failed for r in results),
                      "\n".join(r.log for r in results))

    def passes(self):
        """Every pass on every program at hand, compared by the interpreter."""
        return self.counted(self.build / "bin" / "pass_corpus", f"--jobs={self.jobs}", "--every-pass",
                            f"{CASES}/light", MODELS, CASES, "examples/digits", "test/golden")

    def differential(self):
        """Random graphs over all ops against the interpreter: on each tier of this machine, sanitized
        on one for each graph."""
        extent = [f"--seeds=1..{GRAPHS}"]
        if self.sanitized:
            extent = [f"--seeds=1..{4 * GRAPHS}", "--rotate", "--no-shrink", "--memory-mb=0",
                      "--seconds=300"]
        return self.counted(self.build / "bin" / "differential", f"--jobs={self.jobs}", *extent)

    def malformed(self):
        """A sanitizer reserves more address space than the limit of the other builds allows."""
        limit = ["--memory-mb=0", "--seconds=60"] if self.sanitized else []
        return self.counted(sys.executable, "test/malformed/run_cases.py", "--jobs", self.jobs,
                            "--lathe", self.build / "bin" / "lathe", *limit)

    def fuzz(self):
        """Each fuzzer begins with files that are right, which the command makes."""
        built = self.compile("fuzz", self.fuzz_build, tests="OFF")
        if built.passed and not (self.build / "CMakeCache.txt").exists():
            built = self.compile(self.preset, self.build, tests="OFF")
        for command in (["cmake", "--build", self.build, "-j", self.jobs, "--target", "lathe_command"],
                        [sys.executable, "scripts/onnx_cases.py", CASES],
                        [sys.executable, "scripts/fuzz_seeds.py", "--lathe", self.build / "bin" / "lathe",
                         "--cases", CASES, "--output", self.fuzz_build / "seeds"]):
            if built.failed:
                return built
            built = self.check(*command)
        if built.failed:
            return built
        targets = sorted(self.fuzz_build.glob("bin/*_fuzz"))
        with concurrent.futures.ThreadPoolExecutor(int(self.jobs)) as pool:
            results = list(pool.map(self.fuzz_one, targets))
        if not results:
            return Result(0, 1, "no fuzz target was built")
        return Result(sum(r.passed for r in results), sum(r.failed for r in results),
                      "\n".join(r.log for r in results))

    def fuzz_one(self, target):
        """One fuzzer; what it finds is left in build-fuzz/findings for a later run by hand."""
        corpus, findings = (self.fuzz_build / d / target.name for d in ("corpus", "findings"))
        for folder in (corpus, findings):
            folder.mkdir(parents=True, exist_ok=True)
        seeds = [folder / target.name for folder in (ROOT / "test" / "fuzz" / "corpus",
                                                     self.fuzz_build / "seeds")]
        result = self.check(target, f"-max_total_time={self.fuzz_seconds}", "-timeout=20",
                            "-rss_limit_mb=2048", "-verbosity=1", f"-artifact_prefix={findings}/",
                            corpus, *(folder for folder in seeds if folder.exists()))
        result.log = f"== {target.name}\n" + "\n".join(result.log.splitlines()[-SHOWN_LINES:])
        return result


# Some fifty unit tests of many sizes and targets take half the time of all 2,000.
LONG_UNIT_TESTS = "|".join(
    ["PermutationTest", "OpLoweringTest.EveryOp", "ConvWinograd.Symbolic", "InstructionsTest.EveryRow",
     "InstructionsTest.Functions", "CastTest.ToSmallFloats", "ConvLowering.InParallelPieces",
     "MatmulOfComputed.WholeBlocks", "MatmulLowering.Transposed", "MatmulTiles", "ResizeTest.Antialiased",
     "ComputedSizesTest.SumsOfManySizes", "WindowSizes", "AttentionTest.Symbolic", "AMillionOps",
     "ConvLowering.KernelPlacesFarApart", "ConvLowering.DeepPanels", "ComputedAmountsTest",
     "OpGradientTest.EveryGradientIsTheSlope"]
).replace(".", "[.]")

# What says soon whether a change holds; the rest takes longer.
QUICK = ["layers", "size", "words", "format", "scripts", "compiled", "unit", "golden", "transcripts",
         "ranks", "python", "models", "differential"]
STEPS = {
    "release": [*QUICK, "unit_inner", "unit_long", "python_sanitized", "package", "wheel", "demo",
                "conformance", "accesses", "passes", "malformed", "fuzz"],
    "dev": ["compiled", "unit", "unit_inner", "unit_long", "golden", "transcripts"],
    "asan": ["compiled", "unit", "unit_inner", "unit_long", "golden", "transcripts", "conformance",
             "models", "accesses", "differential", "malformed"],
    "tsan": ["compiled", "unit", "unit_inner", "unit_long", "conformance", "models", "differential"],
}


class Passed:
    """The steps that have passed on the tree as it is now, with their counts; kept in the build folder."""

    def __init__(self, suite):
        self.file = suite.build / "logs" / "passed.json"
        self.tree = self.hash_of_tree()
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.steps = known.get("steps", {}) if self.tree and known.get("tree") == self.tree else {}

    @staticmethod
    def hash_of_tree():
        """Of the commit and all that differs from it; empty where there is no repository."""
        digest = hashlib.sha256()
        for command in (["git", "rev-parse", "HEAD"], ["git", "diff", "HEAD"],
                        ["git", "ls-files", "--others", "--exclude-standard"]):
            done = subprocess.run(command, cwd=ROOT, capture_output=True)
            if done.returncode != 0:
                return ""
            digest.update(done.stdout)
        return digest.hexdigest()

    def add(self, name, result):
        if result.failed == 0:
            self.steps[name] = result.passed
            self.file.write_text(json.dumps({"tree": self.tree, "steps": self.steps}))


def run_step(suite, name, position):
    print(f"[{position}] {name:<12}", end="", flush=True)
    start = time.monotonic()
    result = getattr(suite, name)()
    seconds = time.monotonic() - start
    log = suite.build / "logs" / f"{name}.log"
    log.write_text(result.log)
    show_progress()
    print(f"{result.passed:>6} passed {result.failed:>4} failed {seconds:8.1f} s", flush=True)
    if result.failed:
        print("\n".join(result.log.splitlines()[-SHOWN_LINES:]))
        print(f"full output: {log.relative_to(ROOT)}", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=STEPS, default="release")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="run just these steps")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fuzz-seconds", type=int, default=20, help="per fuzzer")
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--resume", action="store_true",
                        help="leave out what has passed on this very tree")
    options = parser.parse_args()

    suite = Suite(options)
    names = options.only or (QUICK if options.quick else STEPS[options.preset])
    known = Passed(suite)
    passed = failed = 0
    for index, name in enumerate(names, 1):
        if options.resume and name in known.steps:
            print(f"[{index}/{len(names)}] {name:<12}{known.steps[name]:>6} passed before", flush=True)
            passed += known.steps[name]
            continue
        result = run_step(suite, name, f"{index}/{len(names)}")
        known.add(name, result)
        passed, failed = passed + result.passed, failed + result.failed
        if name == "compiled" and result.failed:
            break
    print(f"{passed} passed, {failed} failed")
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
