#!/usr/bin/env bash
# Shares of the measured peak that generated kernels reach on one thread; see kernels_bench.cc.
set -euo pipefail
bench=$(dirname "$0")/../../build/bin/bench_kernels
for sizes in "128 768 768" "512 768 3072" "1024 1024 1024" "12544 64 64" "3136 64 256" "1 768 3072"; do
  # shellcheck disable=SC2086
  "$bench" "$@" matmul $sizes
done
"$bench" "$@" conv all
"$bench" "$@" depthwise all
"$bench" "$@" pool all
