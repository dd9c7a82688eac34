#!/usr/bin/env bash
# scripts/install.sh [demo|test|lint|bench|wheel]: installs what building (demo), testing, linting,
# benchmarking and packing Lathe need on Debian 12. Running it again is quick and changes nothing.
# Debian packages go to the system (root or sudo), Python packages to .venv in this folder.
# LATHE_INSTALL=skip: install nothing; the caller has provided everything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-demo}
build=(make cmake ninja-build ccache mold g++ ca-certificates python3 python3-venv
       libfmt-dev nlohmann-json3-dev libcli11-dev libstb-dev
       libdlpack-dev zlib1g-dev libre2-dev llvm-19-dev)
testing=(git python3-dev libgtest-dev pkg-config dpkg-dev llvm-19-tools clang-19 libclang-rt-19-dev
         clang-format-19 wamerican chromium  # looks at the reports of passes
         libopenmpi-dev openmpi-bin)  # training on several ranks
lint=(clang-tidy-19 clang-tools-19)
bench=(libbenchmark-dev mlir-19-tools)
wheel=(python3-dev libzstd-dev)

case $what in
  demo) packages=("${build[@]}") files=(build) ;;
  test) packages=("${build[@]}" "${testing[@]}" "${wheel[@]}") files=(build test wheel) ;;
  lint) packages=("${build[@]}" "${testing[@]}" "${lint[@]}") files=(build test) ;;
  bench) packages=("${build[@]}" "${testing[@]}" "${bench[@]}") files=(build test bench) ;;
  wheel) packages=("${build[@]}" "${wheel[@]}") files=(build wheel) ;;
  *) echo "usage: scripts/install.sh [demo|test|lint|bench|wheel]" >&2; exit 2 ;;
esac
[[ ${LATHE_INSTALL:-} != skip ]] || exit 0

fail() { printf 'install: %s\n' "$@" >&2; exit 1; }

# The packages of the list that are not installed, one per line.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
              sed -n 's/^installed //p' || true)
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<<"$installed")
}

install_packages() {
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
    fail "this script knows Debian 12 and its apt-get, which is not here." \
         "Install the counterparts of these packages, and the Python packages of requirements/" \
         "in a virtual environment .venv; then repeat with LATHE_INSTALL=skip:" "  ${packages[*]}"
  local missing sudo=()
  mapfile -t missing < <(missing_packages "${packages[@]}")
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      fail "not root and no sudo; ask an administrator to run:" \
           "  apt-get install --no-install-recommends ${missing[*]}"
    sudo=(sudo)
  fi
  echo "install: Debian packages: ${missing[*]}" >&2
  "${sudo[@]}" apt-get -qq update
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 install "${missing[@]}" >/dev/null ||
    fail "apt-get could not install: ${missing[*]}" "Lathe is tested on Debian 12 (bookworm)."
}

# Makes .venv hold the pinned packages of one requirements file; a stamp remembers its content.
install_python() {
  local file=requirements/$1.txt stamp=.venv/.installed-$1
  [[ -x .venv/bin/python ]] && cmp -s "$file" "$stamp" && return 0
  local python=/usr/bin/python3
  [[ -x $python ]] || python=python3
  [[ -x .venv/bin/python ]] || "$python" -m venv .venv || fail "could not make .venv with $python"
  echo "install: Python packages of $file into .venv" >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$file" ||
    fail "pip could not install $file"
  cp "$file" "$stamp"
}

install_packages
for file in "${files[@]}"; do install_python "$file"; done
