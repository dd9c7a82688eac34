#!/usr/bin/env bash
# Shows each picture of this folder with the classes that the network sees in it. `lathe` is
# build/bin/lathe, or the one in $LATHE. Ends with exit code 1 if fewer than nine of ten are right.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lathe=${LATHE:-build/bin/lathe}
folder=examples/digits
least=9 right=0 total=0

classify() { "$lathe" run $folder/digits.onnx --input "image=$1" --top 3 "${@:2}"; }

for digit in {0..9}; do
  picture=$folder/digit_$digit.png
  printf '\n%s\n' "$picture"
  classify "$picture" --show --labels $folder/labels.txt
  best=$(classify "$picture" | awk 'NR == 2 { print $1 }')  # below the name of the output
  total=$((total + 1))
  [[ $best != "$digit" ]] || right=$((right + 1))
done

printf '\n%d of %d right\n' "$right" "$total"
((right >= least))
