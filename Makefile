# `make help` lists the targets. The scripts are in tests/lab/; docs/testing.md lists the requirements of each kind of test.

SHELL := /bin/bash
CARGO := tests/lab/cargo.sh
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/wherry-ci
# cargo runs the compiled test with this script, which starts a container runtime for it in private namespaces.
RUNNER := --config "target.'cfg(all())'.runner=['$(CURDIR)/tests/lab/in-lab.sh']"
# Most of a test's time is the start of containers; more parallel tests would only wait longer.
THREADS ?= 4
# 1.7: run the runtime tests and the bench on containerd 1.7 instead of the system's (tests/lab/newer-runtime.sh).
RUNTIME ?= $(WHERRY_RUNTIME)
export WHERRY_RUNTIME := $(RUNTIME)
# The versions of kubectl in the runtime tests. One is enough for another runtime.
KUBECTL ?= $(if $(RUNTIME),1.36,1.20 1.32 1.36)
# built: `make test-cluster` exits with 77 if the control plane was not built before.
CONTROL_PLANE ?= build
# The unit tests of the pure crates need no speed, and are compiled in a fifth of the time without optimisation.
UNOPTIMISED := $(foreach crate,api engine,--config profile.dev.package.wherry-$(crate).opt-level=0)
# The other tests that need neither root nor a runtime (tests/architecture/suites.rs compares them with Cargo.toml).
SUITES := architecture transport kubeconfig cost mutation-list mutation-hints verdict simulation
# Passed to the test programs: a filter, --nocapture, ...
ARGS ?=
# The architecture of the packages, in the words of Debian or of rpm. Empty: this machine's.
export ARCH ?=
DESTDIR ?=
PREFIX ?= /usr

.DEFAULT_GOAL := all
.PHONY: all help build release deb rpm test test-unit test-runtime test-api-server test-cluster test-shutdown test-grpcio build-grpcio test-packages test-arm test-vm test-vm-shutdown test-vm-package test-vm-power test-vm-cluster test-vm-unit test-mutations simulate fuzz bench soak demo demo-down fmt lint install clean

all: release ## the installable binary (the same as release)

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## development build: target/debug/wherry
	$(CARGO) build

release: ## release build: target/release/wherry
	$(CARGO) build --release

deb: ## package for Debian and similar: target/package/*.deb; ARCH=arm64 or armhf (on Debian 12)
	@tests/lab/install.sh build packages
	@source tests/lab/common.sh && as_caller packaging/deb.sh

rpm: ## package for Fedora and similar: target/package/*.rpm; ARCH=aarch64 or armv7hl (on Debian 12)
	@tests/lab/install.sh build packages
	@source tests/lab/common.sh && as_caller packaging/rpm.sh

test: ## the complete ordinary test run; installs its requirements (root or sudo for the runtime tests)
	@tests/lab/test.sh

test-unit: ## units, simulation, architecture: no root, no runtime
	code=0; $(CARGO) $(UNOPTIMISED) test --no-fail-fast --lib || code=$$?; \
	$(CARGO) test --no-fail-fast --bins --examples $(SUITES:%=--test %) || code=$$?; \
	$(CARGO) test --no-fail-fast --doc || code=$$?; exit $$code

test-runtime: ## pods on a real, private containerd (root or sudo); ARGS=filter RUNTIME=1.7
	@tests/lab/install.sh build runtime
	WHERRY_KUBECTL='$(KUBECTL)' $(CARGO) test --test runtime $(RUNNER) -- --test-threads=$(THREADS) $(ARGS)

test-api-server: ## kubectl against Wherry and against a kube-apiserver, which the first run builds in minutes (root or sudo)
	@tests/lab/install.sh build runtime
	WHERRY_API_SERVER=build WHERRY_KUBECTL=1.32 $(CARGO) test --test runtime $(RUNNER) -- against_api_server

test-cluster: ## a real control plane, which the first run builds in minutes (root or sudo); ARGS=filter CONTROL_PLANE=built: do not build it
	@tests/lab/install.sh build runtime
	WHERRY_CONTROL_PLANE=$(CONTROL_PLANE) WHERRY_KUBECTL=1.32 $(CARGO) test --test cluster $(RUNNER) -- --test-threads=$(THREADS) $(ARGS)

test-shutdown: ## graceful shutdown with a real logind and pods on a real containerd (root or sudo); ARGS=filter
	@tests/lab/install.sh build runtime logind
	$(CARGO) test --test shutdown $(RUNNER) -- --test-threads=$(THREADS) $(ARGS)

test-grpcio: ## the runtime tests with gRPC's C-core as the transport (the C++ build takes minutes)
	@tests/lab/install.sh build grpcio runtime
	$(CARGO) test --features grpcio --target-dir $(CACHE)/grpcio --lib --test transport
	$(CARGO) test --features grpcio --target-dir $(CACHE)/grpcio --test runtime $(RUNNER) -- --test-threads=$(THREADS) $(ARGS)

build-grpcio: ## only the build of those tests
	@tests/lab/install.sh build grpcio
	$(CARGO) test --features grpcio --target-dir $(CACHE)/grpcio --lib --test transport --test runtime --no-run

test-packages: ## the deb and the rpm: built twice and compared, linted, installed, upgraded, removed (root or sudo); ARGS=once: built once
	@tests/lab/install.sh build packages lintian
	@tests/packages/test.sh $(ARGS)

test-arm: ## the packages for arm64 and armhf, and the unit tests and the simulation on emulated processors (Debian 12); ARCH=arm64: one of them
	@tests/lab/install.sh build packages
	@source tests/lab/common.sh && as_caller tests/arm/test.sh

test-vm-shutdown: ## a virtual machine with pods powers off and reboots through its logind
	@tests/vm/shutdown.sh

test-vm-package: ## a virtual machine: the deb is installed, upgraded, damaged, removed and purged, with five power cuts
	@tests/vm/package.sh

test-vm-power: ## a virtual machine survives 200 power cuts; WHERRY_VM_CUTS=n WHERRY_VM_SEED=n ARCH=arm64 or armhf
	@tests/vm/power.sh

test-vm-cluster: ## a virtual machine is a node of a real control plane, and reboots without it
	@tests/vm/cluster.sh

test-vm-unit: ## an emulated ARM machine runs the unit tests of the agent; ARCH=arm64 or armhf
	@tests/vm/unit.sh

ifneq ($(filter arm64 armhf,$(ARCH)),)
test-vm: test-vm-shutdown test-vm-package test-vm-unit
else
test-vm: test-vm-shutdown test-vm-package test-vm-cluster ## these three, and the runtime tests in a virtual machine with systemd and pure cgroup v2 (slow); ARCH=arm64 or armhf: the first two and test-vm-unit, on an emulated ARM machine
	@tests/vm/runtime.sh $(ARGS)
endif

simulate: ## only the simulation; ARGS=filter, SEEDS=n lives of each kind, or m..n
	$(CARGO) $(if $(SEEDS),--config 'env.WHERRY_SEEDS="$(SEEDS)"') test --test simulation -- $(ARGS)

test-mutations: ## many deliberate faults in the engine; the simulation must notice each one; ARGS=name
	$(CARGO) test --test mutations -- $(ARGS)

fuzz: ## fuzz targets for manifests and the files of volumes; ARGS=seconds for each (60)
	@tests/lab/install.sh build fuzz
	@tests/lab/fuzz.sh $(ARGS)

bench: ## the table of measurements: release build, real containerd (root or sudo; not for ARGS=engine)
ifeq ($(strip $(ARGS)),engine)
	$(CARGO) bench --bench bench -- engine
else
	@tests/lab/install.sh build runtime
	$(if $(filter cluster cluster-%,$(ARGS)),WHERRY_CONTROL_PLANE=$(CONTROL_PLANE) WHERRY_KUBECTL=1.32) $(CARGO) bench --bench bench $(RUNNER) -- $(ARGS)
endif

soak: ## 10,000 short pod lives on a real containerd, to detect growth of the process; ARGS=1000 for fewer
	@tests/lab/install.sh build runtime
	$(CARGO) bench --bench bench $(RUNNER) -- soak $(ARGS)

demo: ## run real pods on this machine with one command
	@tests/lab/demo.sh up

demo-down: ## remove the demo
	@tests/lab/demo.sh down

fmt: ## format the code
	$(CARGO) fmt

lint: ## formatting and clippy, warnings are errors
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	$(CARGO) clippy --test runtime --test shutdown --test cluster -- -D warnings

install: ## install the binary, the unit and a commented configuration below DESTDIR and PREFIX
	install -D -m 755 $(or $(CARGO_TARGET_DIR),target)/release/wherry $(DESTDIR)$(PREFIX)/bin/wherry
	install -D -m 644 packaging/wherry.service $(DESTDIR)/usr/lib/systemd/system/wherry.service
	install -D -m 644 packaging/tmpfiles.conf $(DESTDIR)/usr/lib/tmpfiles.d/wherry.conf
	test -e $(DESTDIR)/etc/wherry/config.yaml || install -D -m 644 packaging/config.yaml $(DESTDIR)/etc/wherry/config.yaml
	install -d -m 755 $(DESTDIR)/etc/wherry/config.d $(DESTDIR)/etc/wherry/manifests

clean: ## remove build results (for the demo: make demo-down)
	$(CARGO) clean
