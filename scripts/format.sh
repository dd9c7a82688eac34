#!/usr/bin/env bash
# scripts/format.sh [--check]: clang-format over every C and C++ file that git knows or would add.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mode=(-i)
[[ ${1:-} != --check ]] || mode=(--dry-run -Werror)
git ls-files -z --cached --others --exclude-standard '*.h' '*.cc' '*.c' |
  while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done |
  xargs -0 -r -n 20 -P "$(nproc)" clang-format-19 "${mode[@]}"
