# Every target has its sentence behind `##`; `make help` prints them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: run install test test-all conformance bench bench-placement soak lint lock help

DATA    ?= ./var
LISTEN  ?= 127.0.0.1:8774
HOSTS   ?= 3
PROVIDERS ?= 100 1000
DRIVER  ?= simulated
SUITES  ?=
ONLY    ?=
MINUTES ?= 10

run: .venv/.installed ## start the whole cloud in one process (DATA= LISTEN= HOSTS= DRIVER=)
	@exec .venv/bin/kilonova serve --data $(DATA) --listen $(LISTEN) --hosts $(HOSTS) --driver $(DRIVER)

install: .venv/.installed ## make .venv from the lock and install the project into it

# The stamp makes a second run instant: only another lock, pyproject or installer runs it again.
.venv/.installed: requirements/dev.lock pyproject.toml scripts/install
	@scripts/install

test: .venv/.installed ## all tests with samples of the large matrices, time per group (ONLY="unit store" for some)
	@scripts/test $(ONLY)

test-all: .venv/.installed ## all tests with the full matrices
	@KILONOVA_FULL=1 scripts/test $(ONLY)

conformance: .venv/.installed ## run the OpenStack suites that lie in SUITES=DIR (ONLY=tempest or placement)
	@test -n "$(SUITES)" || { echo "say where the suites are: make conformance SUITES=DIR" >&2; exit 2; }
	@scripts/conformance "$(SUITES)" $(ONLY)

bench: .venv/.installed ## measure, print and write bench/results/NAME.json (ONLY=name for one)
	@.venv/bin/python -m bench $(ONLY)

bench-placement: .venv/.installed ## placement beside the original, in one run (PROVIDERS="100 1000 10000")
	@.venv/bin/python -m bench.placement --providers $(PROVIDERS)

soak: .venv/.installed ## random histories and mutations for MINUTES=10
	@.venv/bin/python -m tests.soak --minutes $(MINUTES)

lint: .venv/.installed ## form, layers and types only
	@scripts/test form layers types

lock: .venv/.installed ## write requirements/*.lock anew from pyproject.toml (UPGRADE=1 takes newer versions)
	@scripts/lock

help: ## print this list
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
