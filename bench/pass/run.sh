#!/usr/bin/env bash
# Growth of pattern matching with the graph; see pass_bench.cc.
set -euo pipefail
exec "$(dirname "$0")/../../build/bin/bench_pass" "$@"
