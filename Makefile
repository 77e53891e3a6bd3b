# Every target has its sentence behind `##`; `make help` prints them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: run libvirt install image test test-all conformance bench bench-placement soak check lock help

DATA    ?= ./var
LISTEN  ?= 127.0.0.1:8774
HOSTS   ?= 3
PROVIDERS ?= 100 1000
DRIVER  ?= simulated
SUITES  ?=
ONLY    ?=
MINUTES ?= 10

NETWORK ?= user

# Real guests need libvirt and an image. With QEMU's own network they can be logged in to without further set-up.
GUEST_IMAGE = .cache/guest-image/kilonova-guest.qcow2
OF_libvirt = --set libvirt.default_image=$(GUEST_IMAGE) --set network.driver=$(NETWORK)
OF_simulated = --hosts $(HOSTS)

run: .venv/.installed $(if $(filter libvirt,$(DRIVER)),libvirt image) ## start the whole cloud in one process (DATA= LISTEN= HOSTS= DRIVER=simulated or libvirt, NETWORK=user or bridged)
	@exec .venv/bin/kilonova serve --data $(DATA) --listen $(LISTEN) --driver $(DRIVER) $(OF_$(DRIVER))

libvirt: .venv/.installed ## install libvirt, QEMU and libvirt-python if they are missing, and start libvirtd
	@scripts/need libvirt >/dev/null
	@scripts/need libvirt-python >/dev/null
	@test "$(NETWORK)" = user || scripts/need network >/dev/null
	@scripts/libvirtd

install: .venv/.installed ## make .venv from the lock and install the project into it

# The stamp makes a second run instant: only another lock, pyproject or installer runs it again.
.venv/.installed: requirements/dev.lock pyproject.toml scripts/install
	@scripts/install

image: ## build the small guest image of the libvirt driver: .cache/guest-image/kilonova-guest.qcow2
	@guest-image/build

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

check: .venv/.installed ## form, layers, types and the quick unit tests: before each commit
	@scripts/test form layers types unit

lock: .venv/.installed ## write requirements/*.lock anew from pyproject.toml (UPGRADE=1 takes newer versions)
	@scripts/lock

help: ## print this list
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
