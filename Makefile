# The front door. `make help` lists what there is.

SHELL := /bin/bash
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
MODELS ?=
WHEEL_PYTHON ?=
STEPS ?=
BUILD := cmake --build
# Chosen when the line runs: make expands a recipe before its first line has made .venv.
PYTHON = $$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)
CONFIGURE = cmake --log-level=WARNING --preset
# A new folder is built several sources at once; one that there is stays as it is.
UNITY = $(if $(wildcard build/CMakeCache.txt),,-DLATHE_UNITY=ON)

.DEFAULT_GOAL := help
.PHONY: help build demo wheel test test-all bench corpus format lint asan tsan fuzz clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 16

build:  ## install what is missing; compile; the command is build/bin/lathe
	@scripts/install.sh demo
	@$(CONFIGURE) release -DLATHE_TESTS=OFF $(UNITY) > /dev/null
	@$(BUILD) build -j $(JOBS)

demo:  ## build the command alone; classify the handwritten digits of examples/digits
	@scripts/install.sh demo
	@$(CONFIGURE) release -DLATHE_TESTS=OFF $(UNITY) > /dev/null
	@$(BUILD) build -j $(JOBS) --target lathe_command lathe_functions_library
	@PATH="$(CURDIR)/build/bin:$$PATH" examples/digits/demo.sh

wheel:  ## the Python packages with all they need, in dist/. WHEEL_PYTHON=FILE: for another Python than .venv's
	@scripts/install.sh wheel
	@scripts/wheel.sh dist $(WHEEL_PYTHON)

test:  ## what says within minutes whether a change holds
	@scripts/install.sh test
	@$(PYTHON) scripts/run_tests.py --jobs $(JOBS) --quick

test-all:  ## everything; what has passed on this very tree is not run again. STEPS="fuzz passes": these alone
	@scripts/install.sh test
	@$(PYTHON) scripts/run_tests.py --jobs $(JOBS) $(if $(STEPS),--only $(STEPS),--resume)

asan:  ## every test but fuzzers under the address and undefined behavior sanitizers (two hours)
	@scripts/install.sh test
	@$(PYTHON) scripts/run_tests.py --jobs $(JOBS) --preset asan

tsan:  ## unit tests, official cases, models and random graphs under the thread sanitizer (two hours)
	@scripts/install.sh test
	@$(PYTHON) scripts/run_tests.py --jobs $(JOBS) --preset tsan

fuzz:  ## every fuzzer for FUZZ_SECONDS each (default 600)
	@scripts/install.sh test
	@$(PYTHON) scripts/run_tests.py --jobs $(JOBS) --only fuzz --fuzz-seconds $(FUZZ_SECONDS)

bench:  ## benchmarks against their peers; docs/benchmarks.md is written at the end
	@scripts/install.sh bench
	@$(CONFIGURE) release -DLATHE_BENCH=ON > /dev/null
	@$(BUILD) build -j $(JOBS)
	@for script in bench/*/run.sh bench/*/run.py; do \
	  if [ -x "$$script" ]; then echo "== $$script"; "$$script" || exit 1; fi; done
	@[ -x .venv-bench/bin/python ] || python3 -m venv .venv-bench
	@.venv-bench/bin/pip install --quiet --requirement bench/models/requirements.txt
	@.venv-bench/bin/python bench/models/benchmarks.py --markdown docs/benchmarks.md

corpus:  ## models that strangers bring, against onnxruntime; MODELS="vit swin" for some
	@scripts/install.sh demo
	@$(CONFIGURE) release > /dev/null
	@$(BUILD) build -j $(JOBS) --target lathe_command lathe_runtime_library
	@[ -x .venv-corpus/bin/python ] || python3 -m venv .venv-corpus
	@.venv-corpus/bin/pip install --quiet --requirement bench/corpus/requirements.txt
	@.venv-corpus/bin/python bench/corpus/run.py $(MODELS)

format:  ## clang-format everything in place
	@scripts/install.sh test
	@scripts/format.sh

lint:  ## clang-tidy over what differs from main (LINT=all: over everything)
	@scripts/install.sh lint
	@$(CONFIGURE) dev > /dev/null && $(BUILD) build-dev --target lathe_opgen
	@scripts/lint.sh $(LINT)

clean:  ## delete all build folders
	@rm -rf build build-demo build-dev build-asan build-tsan build-fuzz build-wheel build-wheel-runtime dist
