#!/usr/bin/env bash
# scripts/lint.sh [all]: clang-tidy over the sources that differ from main, or over all of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1:-} == all ]]; then
  mapfile -t files < <(git ls-files 'src/*.cc' 'tools/*.cc')
else
  mapfile -t files < <({ git diff --name-only --diff-filter=d main -- 'src/*.cc' 'tools/*.cc'
                         git ls-files --others --exclude-standard 'src/*.cc' 'tools/*.cc'; } | sort -u)
fi
((${#files[@]})) || { echo "lint: no C++ source to check"; exit 0; }
# The compile commands are gcc's, which knows warnings that clang does not; std::stable_sort of
# libstdc++ 12 uses a function that it deprecates; clang has no such garbage collector.
run-clang-tidy-19 -quiet -p build-dev -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option \
  -extra-arg=-Wno-deprecated-declarations -extra-arg=-Wno-unused-command-line-argument \
  "${files[@]/#/$PWD/}"
echo "lint: ${#files[@]} sources, no finding"
