#!/usr/bin/env bash
# Shares of the measured peak that generated kernels reach on one thread; see kernels_bench.cc.
set -euo pipefail
bench=$(dirname "$0")/../../build/bin/bench_kernels
for sizes in "128x768 768x768" "512x768 768x3072" "1024x1024 1024x1024" "2048x2048 2048x2048" \
  "128x3072 3072x768" "12x128x64 12x64x128" "12x128x64 12x128x64 ty" "12544x64 64x64" "3136x64 64x256" \
  "1x4096 4096x16384" "4x4096 4096x4096"; do
  # shellcheck disable=SC2086
  "$bench" "$@" matmul $sizes
  # shellcheck disable=SC2086
  "$bench" "$@" matmul $sizes constant
done
"$bench" "$@" conv all
"$bench" "$@" depthwise all
"$bench" "$@" pool all
"$bench" "$@" rows
