# `make help` lists what there is. The scripts are in tests/lab/; docs/testing.md tells what each kind of test needs.

SHELL := /bin/bash
CARGO := tests/lab/cargo.sh
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/wherry-ci
# cargo hands the compiled test to this script, which gives it a container runtime in namespaces of its own.
RUNNER := --config "target.'cfg(all())'.runner=['$(CURDIR)/tests/lab/in-lab.sh']"
# Starting containers is most of a test's work; more at a time than this only waits longer.
THREADS ?= 4
# 1.7: the runtime tests and the bench run on that containerd instead of the system's (tests/lab/newer-runtime.sh).
RUNTIME ?= $(WHERRY_RUNTIME)
export WHERRY_RUNTIME := $(RUNTIME)
# Passed on to the test programs: a filter, --nocapture, ...
ARGS ?=
DESTDIR ?=
PREFIX ?= /usr

.DEFAULT_GOAL := all
.PHONY: all help build release deb rpm test test-unit test-runtime test-shutdown test-grpcio test-packages test-vm test-vm-shutdown test-vm-package test-mutations simulate bench soak demo demo-down fmt lint install clean

all: release ## what one would install (the same as release)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the development build: target/debug/wherry
	$(CARGO) build

release: ## the binary for use: target/release/wherry
	$(CARGO) build --release

deb: ## a package for Debian and its kin: target/package/*.deb
	@tests/lab/install.sh build packages
	@source tests/lab/common.sh && as_caller packaging/deb.sh

rpm: ## a package for Fedora and its kin: target/package/*.rpm
	@tests/lab/install.sh build packages
	@source tests/lab/common.sh && as_caller packaging/rpm.sh

test: ## all tests of an ordinary run, with all they need (root or sudo for the runtime tests)
	@tests/lab/test.sh

test-unit: ## units, simulation, architecture: no root, no runtime
	$(CARGO) test --no-fail-fast

test-runtime: ## pods on a real containerd of the tests' own (root or sudo); ARGS=filter RUNTIME=1.7
	@tests/lab/install.sh build runtime
	$(CARGO) test --test runtime $(RUNNER) -- --test-threads=$(THREADS) $(ARGS)

test-shutdown: ## graceful shutdown with a real logind and pods on a real containerd (root or sudo); ARGS=filter
	@tests/lab/install.sh build runtime logind
	$(CARGO) test --test shutdown $(RUNNER) -- --test-threads=$(THREADS) $(ARGS)

test-grpcio: ## the runtime tests with gRPC's C-core as the transport (a C++ build of minutes)
	@tests/lab/install.sh build grpcio runtime
	$(CARGO) test --features grpcio --target-dir $(CACHE)/grpcio --lib --test transport
	$(CARGO) test --features grpcio --target-dir $(CACHE)/grpcio --test runtime $(RUNNER) -- --test-threads=$(THREADS) $(ARGS)

test-packages: ## the deb and the rpm: built twice and compared, looked over, installed, upgraded, removed (root or sudo); ARGS=once: built once
	@tests/lab/install.sh build packages lintian
	@tests/packages/test.sh $(ARGS)

test-vm-shutdown: ## a virtual machine powers off and reboots under pods, through its logind
	@tests/vm/shutdown.sh

test-vm-package: ## a virtual machine: the deb installed, upgraded, harmed, the plug pulled five times, removed and purged
	@tests/vm/package.sh

test-vm: test-vm-shutdown test-vm-package ## both, and the runtime tests in a virtual machine with systemd and pure cgroup v2 (slow)
	@tests/vm/runtime.sh $(ARGS)

simulate: ## the simulation alone; ARGS=filter, SEEDS=n lives, or m..n
	$(CARGO) $(if $(SEEDS),--config 'env.WHERRY_SEEDS="$(SEEDS)"') test --test simulation -- $(ARGS)

test-mutations: ## the engine broken on purpose, in many ways: the simulation has to notice each; ARGS=name
	$(CARGO) test --test mutations -- $(ARGS)

bench: ## the table of figures: release build, real containerd (root or sudo; not for ARGS=engine)
ifeq ($(strip $(ARGS)),engine)
	$(CARGO) bench --bench bench -- engine
else
	@tests/lab/install.sh build runtime
	$(CARGO) bench --bench bench $(RUNNER) -- $(ARGS)
endif

soak: ## 10,000 short pod lives on a real containerd: does the process grow? ARGS=1000 for fewer
	@tests/lab/install.sh build runtime
	$(CARGO) bench --bench bench $(RUNNER) -- soak $(ARGS)

demo: ## real pods on this machine from one command
	@tests/lab/demo.sh up

demo-down: ## the demo gone again
	@tests/lab/demo.sh down

fmt: ## format the code
	$(CARGO) fmt

lint: ## formatting and clippy, warnings are errors
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	$(CARGO) clippy --test runtime --test shutdown -- -D warnings

install: ## binary, unit and a commented configuration below DESTDIR and PREFIX
	install -D -m 755 target/release/wherry $(DESTDIR)$(PREFIX)/bin/wherry
	install -D -m 644 packaging/wherry.service $(DESTDIR)/usr/lib/systemd/system/wherry.service
	install -D -m 644 packaging/tmpfiles.conf $(DESTDIR)/usr/lib/tmpfiles.d/wherry.conf
	test -e $(DESTDIR)/etc/wherry/config.yaml || install -D -m 644 packaging/config.yaml $(DESTDIR)/etc/wherry/config.yaml
	install -d -m 755 $(DESTDIR)/etc/wherry/config.d $(DESTDIR)/etc/wherry/manifests

clean: ## what was built (the demo: make demo-down)
	$(CARGO) clean
