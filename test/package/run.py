#!/usr/bin/env python3
"""Installs a build and uses it as others do: projects in C and C++ outside of the tree, pkg-config,
headers one by one, symbols of the libraries. Prints `N passed, N failed`."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "test" / "package"
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
OWN_SYMBOL = re.compile(r"lathe_|_Z(T[ISVTHW]|Tc?h?[nv0-9_]*_|GV)?Z?N[KRO]*5lathe")
COMPILER = [shutil.which("ccache"), "g++"] if shutil.which("ccache") else ["g++"]


class Failure(Exception):
    pass


def execute(*command, good=True, **options):
    """stdout and stderr of a command, which must succeed, or fail."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if (done.returncode == 0) != good:
        raise Failure(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def expect(condition, message):
    if not condition:
        raise Failure(message)


class Package:
    """An installation of a build, and what is tried with it; each try_* is a test."""

    def __init__(self, build, folder, jobs):
        self.build, self.folder, self.jobs = build, folder, jobs
        self.prefix = folder / "moved"
        self.lib = self.prefix / self.cached("CMAKE_INSTALL_LIBDIR")
        self.compiled = folder / "digits.lx"

    def cached(self, name):
        text = (self.build / "CMakeCache.txt").read_text()
        return re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE)[1]

    def install(self):
        """To one place, then moved to another: nothing may remember the first."""
        execute("cmake", "--install", self.build, "--prefix", self.folder / "first")
        (self.folder / "first").rename(self.prefix)
        execute(self.prefix / "bin" / "lathe", "compile", MODEL, "--no-cache", "-o", self.compiled)

    def configure(self, project, *options, good=True):
        to = self.folder / f"{project}-build"
        text = execute("cmake", "-G", "Ninja", "-S", HERE / project, "-B", to,
                       f"-DCMAKE_PREFIX_PATH={self.prefix}", *options, good=good)
        return to, text

    def make(self, project):
        to, _ = self.configure(project)
        execute("cmake", "--build", to)
        return to

    def answer_of_zeros(self):
        """What the command says of an input of zeros, as the clients print it."""
        import_zeros = "import numpy, sys; numpy.save(sys.argv[1], numpy.zeros((1, 1, 8, 8), 'float32'))"
        zeros, out = self.folder / "zeros.npy", self.folder / "out"
        if not out.exists():
            execute(sys.executable, "-c", import_zeros, zeros)
            execute(self.prefix / "bin" / "lathe", "run", MODEL, "--interpret", "--input",
                    f"image={zeros}", "-o", out)
        first = "import numpy, sys; print('%.4f' % numpy.load(sys.argv[1]).flat[0])"
        return "probabilities " + execute(sys.executable, "-c", first, out / "probabilities.npy")

    def agree(self, *command, env=None):
        """A client gives for an input of zeros what the interpreter does."""
        text = execute(*command, env=env)
        expect(text == self.answer_of_zeros(), f"{text} instead of {self.answer_of_zeros()}")

    def try_c(self):
        to = self.make("c")
        self.agree(to / "client", self.compiled)
        self.agree(to / "client_static", self.compiled)
        needed = execute("readelf", "--dynamic", to / "client_static")
        expect("lathe" not in needed and "fmt" not in needed, needed)
        expect("error[io/" in execute(to / "client", "missing.lx", good=False), "no error")

    def try_c_compiler(self):
        """C that compiles: the same four times, and an error for each thing that is wrong."""
        to = self.make("c_compiler")
        lines = execute(to / "compiles", MODEL, self.folder / "compiled.lx").splitlines(keepends=True)
        expect(len(lines) == 4 and set(lines) == {self.answer_of_zeros()}, "".join(lines))

    def try_cpp(self):
        to = self.make("cpp")
        self.agree(to / "client", MODEL)
        self.agree(to / "client_model", self.compiled)
        linked = execute("ldd", to / "client_model")
        expect("fmt" not in linked and "liblathe.so" not in linked, linked)

    def try_pkg_config(self):
        source = HERE / "c" / "client.c"
        for name, extra, static in (("dynamic", [], []), ("static", ["-static-libgcc"], ["--static"])):
            words = execute("pkg-config", "--cflags", "--libs", *static, "lathe-runtime",
                            env=self.pkg_config()).split()
            program = self.folder / f"client_{name}"
            archive = ["-Wl,-Bstatic", "-llathe_runtime", "-Wl,-Bdynamic"]
            flags = [w for word in words for w in (archive if static and word == "-llathe_runtime" else [word])]
            execute("gcc", "-std=c99", source, *extra, *flags, "-o", program)
            self.agree(program, self.compiled, env=dict(os.environ, LD_LIBRARY_PATH=str(self.lib)))
        words = execute("pkg-config", "--cflags", "--libs", "lathe", env=self.pkg_config()).split()
        program = self.folder / "client_compiler"
        execute(*COMPILER, "-std=c++20", HERE / "cpp" / "client.cc", *words, "-o", program)
        self.agree(program, MODEL, env=dict(os.environ, LD_LIBRARY_PATH=str(self.lib)))

    def pkg_config(self):
        return dict(os.environ, PKG_CONFIG_PATH=str(self.lib / "pkgconfig"))

    def try_wrong_requests(self):
        for words, answer in (("find_package(lathe 0.2 REQUIRED)", "version: 0.1"),
                              ("find_package(lathe REQUIRED COMPONENTS trainer)",
                               "there is no component 'trainer'")):
            project = self.folder / "wrong"
            project.mkdir(exist_ok=True)
            (project / "CMakeLists.txt").write_text(
                f"cmake_minimum_required(VERSION 3.25)\nproject(wrong LANGUAGES C)\n{words}\n")
            text = execute("cmake", "-S", project, "-B", project / "build",
                           f"-DCMAKE_PREFIX_PATH={self.prefix}", good=False)
            expect(answer in " ".join(text.split()), text)

    def try_runtime_alone(self):
        """Of the component runtime alone, C programs are made, and nothing asks for fmt."""
        alone = self.folder / "alone"
        execute("cmake", "--install", self.build, "--component", "runtime", "--prefix", alone)
        text = execute("cmake", "-G", "Ninja", "-S", HERE / "c", "-B", self.folder / "alone-build",
                       f"-DCMAKE_PREFIX_PATH={alone}", "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON")
        execute("cmake", "--build", self.folder / "alone-build")
        self.agree(self.folder / "alone-build" / "client", self.compiled)
        names = {file.name for file in alone.rglob("*.h")}
        expect(names == {"runtime.h", "version.h", "model.h"}, f"{sorted(names)}{text}")

    def try_subproject(self):
        """Configures, and builds what shows that each folder is found: generated and plain sources."""
        for fetch in ("OFF", "ON"):
            shutil.rmtree(self.folder / "subproject-build", ignore_errors=True)
            to, _ = self.configure("subproject", f"-DLATHE_DIR={ROOT}", f"-DFETCH={fetch}")
            lathe = "_deps/lathe-build" if fetch == "ON" else "lathe"
            execute("cmake", "--build", to, "--target", "lathe_opgen",
                    f"{lathe}/src/CMakeFiles/lathe_support.dir/support/version.cc.o")
            expect((to / lathe / "gen" / "lathe" / "dialect" / "nn" / "conv.h").exists(), "no conv.h")

    def try_headers(self):
        """Each public header stands alone."""
        include = self.prefix / "include"
        headers = sorted(p.relative_to(include) for p in include.rglob("*.h"))
        written = {p.relative_to(ROOT / "include") for p in (ROOT / "include").rglob("*.h")}
        expect(written < set(headers), f"missing: {sorted(map(str, written - set(headers)))}")
        # Generated ones are alike: of one family, and of all families of each dialect.
        headers = [h for h in headers if h in written or h.name.endswith("_ops.h") or h.name == "conv.h"]

        def compile_one(header):
            source = self.folder / "headers" / (str(header).replace("/", "_") + ".cc")
            source.write_text(f"#include <{header}>\n#include <{header}>\n")
            execute(*COMPILER, "-std=c++20", "-O0", "-I", "../moved/include", "-c", source.name, "-o",
                    source.with_suffix(".o").name, cwd=source.parent)

        (self.folder / "headers").mkdir()
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(compile_one, headers))
        for header in ("runtime.h", "version.h", "compiler.h"):
            source = self.folder / "headers" / "c.c"
            source.write_text(f"#include <lathe/{header}>\nint main(void) {{ return 0; }}\n")
            execute("gcc", "-std=c99", "-pedantic", "-Werror", "-fsyntax-only", "-I", include, source)

    def symbols(self, *options):
        rows = [line.split() for line in execute("nm", *options).splitlines()]
        # u: constants of templates and inline variables that gcc has one of in a process.
        return {row[-1].split("@")[0] for row in rows if len(row) > 2 and row[-2] != "u"}

    def try_symbols(self):
        """The run time exports what its header declares, the compiler namespace lathe."""
        header = (self.prefix / "include" / "lathe" / "runtime.h").read_text()
        declared = set(re.findall(r"\b(lathe_[a-z0-9_]+)\(", header))
        shared = self.symbols("--dynamic", "--defined-only", self.lib / "liblathe_runtime.so")
        static = self.symbols("--extern-only", "--defined-only", self.lib / "liblathe_runtime.a")
        expect(shared == declared, f"liblathe_runtime.so: {sorted(shared ^ declared)}")
        expect(static == declared, f"liblathe_runtime.a: {sorted(static ^ declared)}")
        compiler = self.symbols("--dynamic", "--defined-only", self.lib / "liblathe.so")
        foreign = sorted(name for name in compiler if not OWN_SYMBOL.match(name))
        expect(not foreign and declared <= compiler, f"liblathe.so: {foreign[:20]}")
        for library in ("lathe", "lathe_runtime"):
            text = execute("readelf", "--dynamic", self.lib / f"lib{library}.so")
            expect(f"Library soname: [lib{library}.so.0.1]" in text, text)

    def try_deb(self):
        if shutil.which("dpkg-shlibdeps") is None:
            return
        execute("cpack", "-G", "DEB", "-B", self.folder / "deb", "-D", "CPACK_COMPONENTS_ALL=runtime",
                cwd=self.build)
        package = next((self.folder / "deb").glob("lathe-runtime_0.1.0_*.deb"))
        files = execute("dpkg-deb", "--contents", package)
        for name in ("liblathe_runtime.so.0.1", "include/lathe/runtime.h", "lathe-config.cmake"):
            expect(name in files, f"{name} is not in\n{files}")
        expect("libstdc++6" in execute("dpkg-deb", "--field", package, "Depends"), "no dependencies")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="+", metavar="NAME", help="such as c, cpp, headers")
    options = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        package = Package(options.build.resolve(), pathlib.Path(folder), options.jobs)
        package.install()
        names = [name for name in dir(package) if name.startswith("try_")]
        for name in names:
            if options.only and name.removeprefix("try_") not in options.only:
                continue
            try:
                getattr(package, name)()
                passed += 1
            except Failure as failure:
                failed += 1
                print(f"{name.removeprefix('try_')}: {failure}")
    print(f"{passed} passed, {failed} failed")
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
